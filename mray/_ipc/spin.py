"""Whether a wait spins before it sleeps, decided per process from the recent success of spinning.

* *Count*: a process does not spin while the session's table shows more awake processes than usable cores.
* *Learn*: a wait that does not end within the window is a failure. After `FAILURES_BEFORE_PAUSE` in a row the process waits without
  spinning, for a number of waits that doubles with each further failed trial. Several waits in a row that slept, and ended within the
  longest window, lengthen the window to theirs, until one takes longer. Beyond the first window the awake processes are counted again.

A user's event loop polls once per iteration before it sleeps in its own selector, so that other coroutines run in between (`LoopSpin`).

A process that spins for more than `YIELD_AFTER` yields its core between polls, since the kernel may have put both processes on one core.

A graph with more processes than cores spins as well, up to `MAX_PROCESSES_PER_CORE`. Its caller spins for `CALLER_WINDOW` by the second
rule alone, and stops when it waits for several outputs and more processes are awake than cores, since one of its actors lacks its core.
Its actors yield at every poll and spin for a message that is theirs alone, since in a chain one actor computes at a time.

Waits for answers of calls spin on oversubscribed cores too, up to `MAX_PROCESSES_PER_CORE`, with a yield after every poll: beside busy
processes the long yield counts as a failure.

No lock: a lost update costs one wait at most.
"""

from __future__ import annotations

from collections.abc import Callable
from os import sched_yield
from typing import TYPE_CHECKING, Any

from mray._common import settings
from mray._common.clock import monotonic
from mray._ipc.table import SessionTable, usable_cores

if TYPE_CHECKING:
    import asyncio

#: Seconds that a wait spins at most: at first; after slower waits; the same while every awake process has a core.
WINDOW = 100e-6
LONG_WINDOW = 400e-6
LONGEST_WINDOW = 1.25e-3
#: Waits in a row that lengthen the window, and its ratio to the longest of them.
NEAR_MISSES = 6
_MARGIN = 1.2
#: Seconds of spinning before the process yields between polls.
YIELD_AFTER = 3e-6
#: Seconds that the caller of a graph with more processes than cores spins.
CALLER_WINDOW = 1e-3
#: Above it waits on oversubscribed cores do not spin.
MAX_PROCESSES_PER_CORE = 3
#: Failures in a row before spinning pauses.
FAILURES_BEFORE_PAUSE = 3
#: Waits without spinning: at first, at most.
PAUSE = 16
LONGEST_PAUSE = 64
#: Waits between two counts of the awake processes.
RECOUNT = 32


class AdaptiveSpinner:
    """The second rule alone."""

    __slots__ = ("_failures", "_pause", "_waits", "oversubscribed", "window")

    def __init__(self, window: float = WINDOW, *, oversubscribed: bool = False) -> None:
        self._failures = 0
        self._pause = PAUSE
        self._waits = 0
        self.window = window if settings.SPIN.get() else 0.0
        #: Whether to yield after every poll.
        self.oversubscribed = oversubscribed

    def spin(
        self,
        look: Callable[[], Any],
        missed: Any = False,
        *,
        takes_turns: bool = False,
        stop: Callable[[], object] | None = None,
        deadline: float | None = None,
    ) -> Any:
        """Poll `look` until it answers or the window is over. Returns its answer, or `missed`, immediately where the wait may not spin.

        When `stop()` is true between two polls, the wait ends as if it had not spun. On oversubscribed cores an answer later than the
        window counts as a failure.
        """
        if not self.may_spin(takes_turns):
            return missed
        now = monotonic()
        end = now + self.window
        if deadline is not None and deadline < end:
            end = deadline
        until = min(end, now + WINDOW)
        polite = now if self.oversubscribed else now + YIELD_AFTER
        while True:
            found = look()
            if found is not missed:
                if self.oversubscribed and monotonic() >= end:
                    self.failed()
                elif self._failures:
                    self.succeeded()
                return found
            if stop is not None and stop():
                return missed
            now = monotonic()
            if now >= until:
                if until == end or not self.goes_on(takes_turns):
                    self.failed()
                    return missed
                until = min(end, now + WINDOW)
            if now >= polite:
                sched_yield()

    def in_turns(self, window: float = WINDOW) -> AdaptiveSpinner:
        """A spinner for a graph with more processes than cores."""
        return AdaptiveSpinner(window, oversubscribed=True)

    def goes_on(self, takes_turns: bool) -> bool:
        """Whether to spin beyond the first window."""
        return True

    def may_spin(self, takes_turns: bool = False) -> bool:
        """`takes_turns`: also on oversubscribed cores."""
        if self._waits:
            self._waits -= 1
            return False
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._pause = PAUSE

    def failed(self) -> None:
        self._failures += 1
        if self._failures >= FAILURES_BEFORE_PAUSE:
            self._failures = FAILURES_BEFORE_PAUSE - 1
            self._waits = self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)


class Spinner(AdaptiveSpinner):
    """Both rules."""

    __slots__ = ("_allowed", "_cores", "_near", "_rows", "_slowest", "_table", "_until_count")

    def __init__(self, table: SessionTable, row: int, rows: Callable[[], int]) -> None:
        super().__init__()
        self._table = table
        self._rows = rows
        self._cores = usable_cores()
        self._allowed = self._cores > 1
        self._until_count = 0
        #: Waits in a row that slept and ended within the longest window; the longest of them.
        self._near = 0
        self._slowest = 0.0

    def may_spin(self, takes_turns: bool = False) -> bool:
        if self._waits:
            self._waits -= 1
            return False
        self._until_count -= 1
        if self._until_count < 0:
            self._until_count = RECOUNT
            cores, awake = self._cores, self._table.awake(self._rows())
            self._allowed = cores > 1 and awake <= cores * MAX_PROCESSES_PER_CORE and self.window > 0
            self.oversubscribed = awake > cores
            if self.oversubscribed:
                self.window = min(self.window, LONG_WINDOW)
        return self._allowed and (takes_turns or not self.oversubscribed)

    def is_oversubscribed(self) -> bool:
        return self._table.awake(self._rows()) > self._cores

    def goes_on(self, takes_turns: bool) -> bool:
        if not self.is_oversubscribed():
            return True
        self.window = min(self.window, LONG_WINDOW)
        return takes_turns

    def failed(self) -> None:
        super().failed()
        self._until_count = 0

    def slept(self, seconds: float) -> None:
        """A wait that has slept ended after `seconds`."""
        if not self.window:
            return
        if seconds > LONGEST_WINDOW:
            self._near, self._slowest = 0, 0.0
            self.window = WINDOW
            return
        self._near += 1
        self._slowest = max(seconds, self._slowest)
        if self._near == NEAR_MISSES:
            longest = LONG_WINDOW if self.oversubscribed else LONGEST_WINDOW
            self.window = min(max(self._slowest * _MARGIN, LONG_WINDOW), longest)
            self._near, self._slowest, self._waits = 0, 0.0, 0


class LoopSpin:
    """An event loop's polls before it sleeps. In the loop's thread."""

    __slots__ = ("_look", "_sleep", "_spinner", "_until", "_waiting", "_window", "active")

    def __init__(self, waiting: Callable[[], int], look: Callable[[], object], sleep: Callable[[], object]) -> None:
        """`waiting` counts the waits, `look` ends those that are over; `sleep` is called where the loop may sleep before they are."""
        self._waiting = waiting
        self._look = look
        self._sleep = sleep
        self.active = False

    def start(self, loop: asyncio.AbstractEventLoop, spinner: AdaptiveSpinner | None) -> None:
        """Poll once per iteration while `spinner` allows."""
        if self.active:
            return
        if spinner is None or not spinner.may_spin():
            self._sleep()
            return
        self.active = True
        self._spinner = spinner
        self._window = min(spinner.window, LONG_WINDOW)
        self._until = monotonic() + self._window
        loop.call_soon(self._turn, loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._look_again(loop)
        except BaseException:  # the waits continue in the loop's selector
            self.active = False
            self._sleep()
            raise

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        spinner = self._spinner
        before = self._waiting()
        if before:
            self._look()
        if self._waiting():
            sched_yield()  # the answering process may be on this core
            self._look()
        left = self._waiting()
        if not left:
            self.active = False
            spinner.succeeded()
            return
        now = monotonic()
        if left < before:
            self._until = now + self._window
        if now < self._until:
            loop.call_soon(self._turn, loop)
        else:
            self.active = False
            spinner.failed()
            self._sleep()
