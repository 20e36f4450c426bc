"""Calls and connections for the tests of a caller's state machines."""

from __future__ import annotations

from typing import Any


class Pending:
    """A call, and how it ended."""

    def __init__(self, number: int, waiting: int, retries: int) -> None:
        self.number = number
        self.task_id = number.to_bytes(4, "big")
        self.waiting = waiting
        self.retries = retries
        self.most = retries
        #: Retries that were used, and demanded after the last one.
        self.charged = 0
        self.end: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.number})"

    def use_retry(self) -> None:
        self.charged += 1
        if self.retries > 0:
            self.retries -= 1

    @property
    def tries(self) -> int:
        return self.charged

    def finish(self, how: str) -> None:
        assert self.end is None, f"{self} ended twice: {self.end}, {how}"
        self.end = how


class Link:
    """A connection to a worker."""

    def __init__(self) -> None:
        self.calls: dict[bytes, Any] = {}
        self.closed = False
