"""Whether to spin before sleeping, decided per process from what spinning has brought lately.

Spinning hands a message over in about two microseconds and sleeping in twenty to fifty, but a spinning process holds a core
that somebody else may need: with more awake processes than cores, spinning makes everybody slower. Two rules:

* *Count*: nobody keeps a core while the session's table shows more awake processes than usable cores.
* *Learn*: a wait that did not end within the window was a failure. After a few in a row the process waits without spinning for
  a number of waits that doubles with each further failed trial, so that an actor in the middle of a long chain stops spinning
  and one that answers at once goes on. Waits that slept and were over within the longest window, several in a row, make the window as
  long as they were, until one takes longer: between two calls of a small array, say, either side computes for longer than the first
  window on a slow core, and sleeping doubled what such a call took (two cores of a virtual machine: 380 µs against 215). A wait that spins
  for longer than the first window counts the awake again and again, and longer than `LONG_WINDOW` only while all have a core.

There is one loop, `AdaptiveSpinner.spin`: every wait of a thread says how it looks. An event loop of the user's looks once per iteration
before it sleeps in its own selector, so that an immediate answer finds its caller awake and other coroutines run in between (`LoopSpin`).
A process that spins for more than `YIELD_AFTER` yields
its core between looks. Mostly no other one wants it; but the kernel may have put
both processes on one core (a process that is woken often lands beside its waker), and then the spinner would wait for a message that it
keeps its peer from sending, learn that spinning brings nothing, and the two would stay where they are: 25 to 50 µs a round trip instead of
3. Yielding after 3 µs and not after 10, the two on one core take 25 instead of 32 to 57, and the kernel parts them within some milliseconds
if the other core is idle.

A graph with more processes than cores has one spinner all the same: its caller, for somewhat longer, by the second rule alone. Measured on
two cores with four actors: the caller takes its results without being woken, its core does not fall asleep (in a virtual machine that is
what makes the next wake-up slow), and the actors hand the other core to each other. Chain of four 46 to 66 µs, against 101 to 130 with the
rules above and 68 to 151 with nobody spinning; fan-out to four 67 to 76 against 65 to 118; two actors with eight in flight 120,000 a
second against 58,000 to 132,000.

The actors of such a graph spin too, if they yield their core at every look and wait for a message that is for them alone: in a chain one
actor computes at a time, and the others leave it the cores that they do not need (chain of four 36 to 58 µs against 59 to 108; two actors
with eight in flight 73,000 to 201,000 a second against 76,000 to 128,000). They do not spin for what several wait for, because then all of
them compute at once (fan-out 79 µs against 59, 10 KB to four actors 299 against 239), nor where there are more than
`MAX_PROCESSES_PER_CORE` (chain of sixteen 609 µs against 489). A caller that waits for several outputs stops spinning when it sees more
processes awake than cores, for then its actors compute side by side and one of them lacks the caller's core (10 KB to four actors: 333 µs
against 365).

Waits for answers of calls go on in the same way where more processes are awake than there are cores, up to `MAX_PROCESSES_PER_CORE`: they
yield the core after every look. Nobody is kept from computing; where all wait for each other no core falls asleep, and nobody has to be
woken; beside others who compute a yield takes as long as these have the core, and that is a failure of spinning. Measured with a driver
that keeps actors busy by turns on two cores (`ActorPool.map`), an item: with two actors 25 µs against 38 where the waits slept, and at FIFO
priority 12 against 40; with four 15 against 32. A call while two or four others compute took what it had taken.

The same object serves all waits of a process; it is not locked, for a lost update costs one wait at most.
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

#: Seconds a wait spins at most, at first; and where the waits before took so long, without more awake processes than cores for the last.
WINDOW = 100e-6
LONG_WINDOW = 400e-6
LONGEST_WINDOW = 1.25e-3
#: Such waits in a row before the window is a longer one, which is so many times as long as the longest of them.
NEAR_MISSES = 6
_MARGIN = 1.2
#: Seconds after which it yields between looks.
YIELD_AFTER = 3e-6
#: Seconds a wait spins when it is the caller of a graph with more processes than cores. (A chain of 16 takes 0.3 to 0.4 ms. With a window
#: that it does not fit into, its caller gives up spinning, and an actor of it costs half as much again as one of a chain of 8.)
CALLER_WINDOW = 1e-3
#: Processes for each core above which none takes turns in spinning: those of a graph, or all of the session that are awake.
MAX_PROCESSES_PER_CORE = 3
#: Failures in a row before spinning pauses.
FAILURES_BEFORE_PAUSE = 3
#: Waits without spinning after the first such series, and at most.
PAUSE = 16
LONGEST_PAUSE = 64
#: Waits between two counts of the awake processes.
RECOUNT = 32


class AdaptiveSpinner:
    """A spinner that goes by the second rule alone."""

    __slots__ = ("_failures", "_pause", "_waits", "oversubscribed", "window")

    def __init__(self, window: float = WINDOW, *, oversubscribed: bool = False) -> None:
        self._failures = 0
        self._pause = PAUSE
        self._waits = 0
        #: Seconds that a wait may spin.
        self.window = window if settings.SPIN.get() else 0.0
        #: Whether more processes are awake than there are cores: then it yields its core after every look.
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
        """Look until there is something or the window is over: the answer of `look` then, which is `missed` where there is nothing.

        Does not look where the wait may not spin (see `may_spin`). When `stop()` is true between two looks, the wait ends as if it had not
        spun. A yield may be a long one on cores that are oversubscribed: an answer later than the window counts as a failure there.
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

    def goes_on(self, takes_turns: bool) -> bool:
        """Asked by a wait that has spun for longer than the first window."""
        return True

    def may_spin(self, takes_turns: bool = False) -> bool:
        """Whether the wait that begins now should spin. `takes_turns`: also on cores that are oversubscribed, by turns with others."""
        if self._waits:
            self._waits -= 1
            return False
        return True

    def succeeded(self) -> None:
        """The wait ended within the window."""
        self._failures = 0
        self._pause = PAUSE

    def failed(self) -> None:
        """The wait did not end within the window."""
        self._failures += 1
        if self._failures >= FAILURES_BEFORE_PAUSE:
            self._failures = FAILURES_BEFORE_PAUSE - 1
            self._waits = self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)


class Spinner(AdaptiveSpinner):
    """A spinner that goes by both rules: that of a process."""

    __slots__ = ("_allowed", "_cores", "_near", "_rows", "_slowest", "_table", "_until_count")

    def __init__(self, table: SessionTable, row: int, rows: Callable[[], int]) -> None:
        super().__init__()
        self._table = table
        self._rows = rows
        self._cores = usable_cores()
        self._allowed = self._cores > 1
        self._until_count = 0
        #: Waits in a row that slept, and were over within the longest window; and the longest of them.
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
        """Whether more processes are awake now than there are cores."""
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
        """A wait that has slept, and perhaps spun before, was over after so many seconds."""
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
    """The looks of one event loop before it sleeps. For the loop's thread."""

    __slots__ = ("_look", "_sleep", "_spinner", "_until", "_waiting", "_window", "active")

    def __init__(self, waiting: Callable[[], int], look: Callable[[], object], sleep: Callable[[], object]) -> None:
        """`waiting` counts the waits, `look` ends those that are over; `sleep` is called where the loop may sleep before they are."""
        self._waiting = waiting
        self._look = look
        self._sleep = sleep
        #: Whether the loop looks now.
        self.active = False

    def start(self, loop: asyncio.AbstractEventLoop, spinner: AdaptiveSpinner | None) -> None:
        """A wait begins: look once per iteration from now on, as long as `spinner` allows."""
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
        except BaseException:  # those that wait go on waiting, and so does the loop: in its selector
            self.active = False
            self._sleep()
            raise

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        spinner = self._spinner
        before = self._waiting()
        if before:
            self._look()
        if self._waiting():
            sched_yield()  # the process that answers may be on this very core
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
