"""The reactor's waiters, and timers."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
from collections.abc import Callable

from mray._common.clock import monotonic

Predicate = Callable[[], object]


class Waiter:
    """A thread that waits while another one reads."""

    __slots__ = ("lock", "predicate")

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.lock = threading.Lock()
        self.lock.acquire()

    def wake(self, *_came: object) -> None:
        with contextlib.suppress(RuntimeError):  # woken twice
            self.lock.release()


class Timers(list[tuple[float, int, Callable[[], None]]]):
    """A heap by time. (A list, so that testing it enters no function.)"""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def add(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self, (monotonic() + seconds, next(self._numbers), callback))

    def shorten(self, timeout: float | None) -> float | None:
        due = self[0][0] - monotonic()
        return max(due, 0.0) if timeout is None or due < timeout else timeout

    def take_due(self) -> list[Callable[[], None]]:
        now = monotonic()
        due = []
        while self and self[0][0] <= now:
            due.append(heapq.heappop(self)[2])
        return due
