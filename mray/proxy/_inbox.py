"""Receives the steps of a stream, at the interpreter.

Calls to an actor with many threads overtake each other, so each carries the number of its first step. The thread that finds the next
steps runs them; threads that arrive meanwhile leave theirs and return, or wait for the step whose result they want.

A client that was interrupted while it sent steps sends them again, along with later ones: each is run once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mray.proxy._step import Place, Step

#: (steps to be done before, target, holder)
Parked = tuple[tuple[Place, ...], Place, Place]


class Inbox:
    """`done`: the number of the last step that was run; written by the thread that runs the stream."""

    __slots__ = ("_batches", "_changed", "_running", "_waiting", "closed", "done", "parked")

    def __init__(self) -> None:
        self.done = -1
        #: its client has exited
        self.closed = False
        #: under the interpreter's lock
        self.parked: list[Parked] = []
        self._batches: dict[int, list[Step]] = {}
        self._running = False
        self._waiting = 0
        self._changed = threading.Condition(threading.Lock())

    def deposit(self, first: int, steps: list[Step]) -> None:
        with self._changed:
            known = self._batches.get(first)
            if known is None or len(known) < len(steps):
                self._batches[first] = steps

    def begin(self) -> list[Step] | None:
        """Become the thread that runs this stream; None if there are no steps or another thread runs it."""
        with self._changed:
            if self._running or not self._batches:
                return None
            batch = self._take()
            self._running = batch is not None
            return batch

    def proceed(self) -> list[Step] | None:
        """The next steps; None: this thread no longer runs the stream."""
        with self._changed:
            batch = self._take()
            self._running = batch is not None
            if self._waiting:
                self._changed.notify_all()
            return batch

    def _take(self) -> list[Step] | None:
        """Take steps. Lock held."""
        following = self.done + 1
        batch = self._batches.pop(following, None)
        if batch is None and self._batches:
            for first in sorted(self._batches):
                if first > following:
                    break
                # Sent a second time.
                again = self._batches.pop(first)[following - first :]
                if again:
                    return again
        return batch

    def _has_next(self) -> bool:
        following = self.done + 1
        return any(first <= following < first + len(steps) for first, steps in self._batches.items())

    def advanced(self, number: int) -> None:
        self.done = number
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    @property
    def idle(self) -> bool:
        return not (self._running or self._batches or self._waiting)

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def wait_done(self, number: int, run: Callable[[list[Step]], None]) -> bool:
        """Wait until the step of this number is done; False if it never will be. Runs the stream if no other thread does."""
        while self.done < number:
            batch = self.begin()
            if batch is not None:
                run(batch)
                continue
            with self._changed:
                # `advanced` writes `done` before it reads `_waiting`, and this does the opposite: one of the two sees the other.
                self._waiting += 1
                try:
                    if self.done >= number:
                        break
                    has_next = self._has_next()
                    if self.closed and not self._running and not has_next:
                        return False
                    if self._running or not has_next:
                        self._changed.wait()
                finally:
                    self._waiting -= 1
        return True
