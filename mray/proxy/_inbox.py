"""Where the steps of a stream arrive, at the interpreter.

Calls to an actor with many threads overtake each other, so each says with which number its steps begin. Whichever thread finds the next
ones runs them; threads that come meanwhile leave theirs and go, or wait for the step whose result they want. Nobody else's stream is held
up.

A client that was interrupted while it sent steps sends them again, with those that have come to them meanwhile: each is done once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mray.proxy._step import Place, Step

#: The end of a holder, and the steps that are to be done before: (steps, target, holder).
Parked = tuple[tuple[Place, ...], Place, Place]


class Inbox:
    """The steps of one stream. `done` is the number of the last step that was done; it is written by the thread that runs the stream."""

    __slots__ = ("_batches", "_changed", "_running", "_waiting", "closed", "done", "parked")

    def __init__(self) -> None:
        self.done = -1
        #: Its client is gone: what has not come will not come.
        self.closed = False
        #: Waiters for steps of this stream; read and written under the interpreter's lock.
        self.parked: list[Parked] = []
        self._batches: dict[int, list[Step]] = {}
        self._running = False
        self._waiting = 0
        self._changed = threading.Condition(threading.Lock())

    def deposit(self, first: int, steps: list[Step]) -> None:
        """Steps have come; the first has this number."""
        with self._changed:
            known = self._batches.get(first)
            if known is None or len(known) < len(steps):
                self._batches[first] = steps

    def begin(self) -> list[Step] | None:
        """Become the thread that runs this stream. The next steps, or ``None`` if there are none or another thread does so already."""
        with self._changed:
            if self._running or not self._batches:
                return None
            batch = self._take()
            self._running = batch is not None
            return batch

    def proceed(self) -> list[Step] | None:
        """The steps after those that were done; ``None`` ends being the thread that runs this stream."""
        with self._changed:
            batch = self._take()
            self._running = batch is not None
            if self._waiting:
                self._changed.notify_all()
            return batch

    def _take(self) -> list[Step] | None:
        """Under the lock: the steps that are next."""
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
        """The step of this number is done, and its result is where it belongs."""
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
        """Wait until the step of this number is done; False if it never will be. Runs the stream if nobody else does."""
        while self.done < number:
            batch = self.begin()
            if batch is not None:
                run(batch)
                continue
            with self._changed:
                # `advanced` writes `done` before it looks at `_waiting`, and this does the opposite: one of the two sees the other.
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
