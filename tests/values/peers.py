"""The code that runs where values arrive: it describes them, and makes others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.values.description import Words, describe
from tests.values.kinds import make

#: Beside it a value has to travel in shared memory.
LARGE = 200_000


class Carrier(Exception):
    """An error that has a value with it."""


def ballast() -> Any:
    return np.ones(LARGE, np.uint8)


def look(value: Any) -> Words:
    return describe(value)


def look_at_item(value: Any) -> Words:
    return describe(value["items"][0])


def make_beside(family: str, name: str) -> tuple[Any, Any]:
    return make(family, name), ballast()


def fail_with(family: str, name: str) -> None:
    raise Carrier(make(family, name))


def make_all(family: str, names: list[str]) -> Iterator[Any]:
    for name in names:
        yield make(family, name)


class Peer:
    """An actor."""

    def __init__(self, *values: Any) -> None:
        self.words = [*map(describe, values)]

    def got(self) -> list[Words]:
        return self.words

    def look(self, value: Any) -> Words:
        return describe(value)

    def look_at_item(self, value: Any) -> Words:
        return look_at_item(value)

    def make(self, kind: tuple[str, str]) -> Any:
        return make(*kind)

    def make_beside(self, kind: tuple[str, str]) -> Any:
        return make_beside(*kind)

    async def make_later(self, kind: tuple[str, str]) -> Any:
        return make(*kind)

    def same(self, value: Any) -> Any:
        return value
