"""Parts of tests that take too long for every run: MRAY_TEST_FULL=1."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import pytest

FULL = os.environ.get("MRAY_TEST_FULL", "0") not in ("", "0")

Row = TypeVar("Row")

#: A mark.
full = pytest.mark.skipif(not FULL, reason="takes long: with MRAY_TEST_FULL=1")


def examples(count: int) -> int:
    """So many of `count` examples of a property that takes long are enough for every run, each with others; all with MRAY_TEST_FULL=1."""
    return count if FULL else count // 4


def some(rows: Sequence[Row], *keys: Callable[[Row], Hashable]) -> list[Row]:
    """A small part of the rows of a table, in their order, in which every value of every key occurs; all of them with MRAY_TEST_FULL=1."""
    return covering(rows, lambda row: [(number, key(row)) for number, key in enumerate(keys)])


def covering(rows: Sequence[Row], values: Callable[[Row], Iterable[Hashable]]) -> list[Row]:
    """As `some`, of rows that have several values each."""
    if FULL:
        return list(rows)
    had = [set(values(row)) for row in rows]
    missing = set().union(*had)
    chosen: set[int] = set()
    while missing:
        best = max(range(len(rows)), key=lambda number: len(had[number] & missing))
        chosen.add(best)
        missing -= had[best]
    return [rows[number] for number in sorted(chosen)]
