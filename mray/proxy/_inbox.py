"""Where the steps of a lane arrive, at the interpreter.

Calls to an actor with many threads overtake each other, so each says with which number its steps begin. Whichever thread finds the next
ones runs them; threads that come meanwhile leave theirs and go, or wait for the step whose result they want. Nobody else's lane is held up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mray.proxy._step import Place, Step

#: The end of a holder, and the steps that are to be done before: (steps, target, holder).
Parked = tuple[tuple[Place, ...], Place, Place]


class Inbox:
    """The steps of one lane. `done` is the number of the last step that was done; it is written by the thread that runs the lane."""

    __slots__ = ("_batches", "_changed", "_running", "_waiting", "closed", "done", "parked")

    def __init__(self) -> None:
        self.done = -1
        #: Its client is gone: what has not come will not come.
        self.closed = False
        #: What waits for steps of this lane; read and written under the interpreter's lock.
        self.parked: list[Parked] = []
        self._batches: dict[int, list[Step]] = {}
        self._running = False
        self._waiting = 0
        self._changed = threading.Condition(threading.Lock())

    def deposit(self, first: int, steps: list[Step]) -> None:
        """Steps have come; the first has this number."""
        with self._changed:
            self._batches[first] = steps

    def begin(self) -> list[Step] | None:
        """Become the thread that runs this lane. The next steps, or ``None`` if there are none or another thread does so already."""
        with self._changed:
            if self._running or not self._batches:
                return None
            batch = self._batches.pop(self.done + 1, None)
            self._running = batch is not None
            return batch

    def proceed(self) -> list[Step] | None:
        """The steps after those that were done; ``None`` ends being the thread that runs this lane."""
        with self._changed:
            batch = self._batches.pop(self.done + 1, None)
            self._running = batch is not None
            if self._waiting:
                self._changed.notify_all()
            return batch

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
        """Wait until the step of this number is done; False if it never will be. Runs the lane if nobody else does."""
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
                    if self.closed and not self._running and self.done + 1 not in self._batches:
                        return False
                    if self._running or self.done + 1 not in self._batches:
                        self._changed.wait()
                finally:
                    self._waiting -= 1
        return True
