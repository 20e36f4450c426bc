"""The baton: of all threads of a session in one process, one runs, and a seed says which.

A *strand* is a thread that takes part: the driver's own, and one for each task or actor. It has the baton from when it is chosen until it
comes to a *scheduling point* (`pause`, `wait_until`, `sleep`, its end). There it chooses who is next, among those that can run, with the
session's generator of random numbers, and hands the baton over: one lock released, one acquired.

    strand A: user code -- mray call -- choose --+                    +-- goes on
    strand B:                                    +-- user code -- ... +

Nothing else in here happens beside something else, so that nothing is locked. What comes from outside, a thread of the user's that calls
mray or a finalizer, leaves a *word* (`tell`) that is heard at the next decision.

Time is the session's own `clock`. A decision takes `STEP` of it, whatever the machine needs for it, and computing takes none; when nobody
can run it moves on to the next deadline, for which the chooser really sleeps. So what a time-out overtakes depends on the program alone.

Rejected: to run strands as generators or greenlets on one OS thread, which would save the hand-over (about 10 us) and cost what this
engine is for: user code blocks where it likes, and every debugger knows threads.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import sys
import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

from mray._common.log import logger
from mray.exceptions import RaySystemError

#: Seconds of the session's clock that a decision takes. More than nothing, so that who asks again and again lets time pass.
STEP = 20e-6
#: Decisions that are remembered.
TRACED = 100_000
#: Real seconds after which a signal that has come for a strand takes the baton from one that does not give it up.
PATIENCE = 1.0
#: Real seconds between two looks at what only a thread from outside can bring about: at first, and at most.
_FIRST_LOOK, _LAST_LOOK = 0.0002, 0.01
#: Real seconds between two looks of a guest whether the driver's thread lives.
_GUEST_LOOKS = 0.05

_start_thread = threading.Thread.start


class _Here(threading.local):
    """What a thread is here."""

    strand: Strand | None = None
    #: The simulated process that its code belongs to.
    process: Any = None


here = _Here()


class Strand:
    """One thread that takes part.

    Invariant: it has the baton, or is in `Baton._ready`, or is parked.
    """

    def __init__(self, baton: Baton, name: str, process: Any = None) -> None:
        self.baton = baton
        self.name = name
        self.process = process
        self.thread = threading.current_thread()
        #: A doorbell: rung when the baton is handed to this strand.
        self.bell = allocate_lock()
        self.bell.acquire()
        self.parked = False
        #: What it waits for, asked at each decision.
        self.predicate: Callable[[], object] | None = None
        #: What it waits for, in words.
        self.waits_for: Callable[[], str] | None = None
        #: Its time has passed. And which of its waits this is: a timer of an earlier one is void.
        self.expired = False
        self.wait_number = 0
        #: Raised at its next scheduling point; again and again if it is `final`.
        self.urgent: BaseException | None = None
        self.final = False
        #: It waits in code that must not give the baton up (the start of a thread).
        self.closed_in = False
        self.ended = False
        #: It waits for something to do, which nobody misses.
        self.serves = False
        #: A thread of the user's own, for the time of a call.
        self.is_guest = False

    def __repr__(self) -> str:
        return f"<Strand {self.name}>"


class Baton:
    """The turns, the clock and the choice. Methods are for the strand that has the baton, except where they say otherwise."""

    def __init__(self, seed: int, real_time: bool = True) -> None:
        self.seed = seed
        self._random = random.Random(seed).random
        self._real_time = real_time
        self.clock = 0.0
        #: Decisions so far: (number, who, among how many).
        self.trace: deque[tuple[int, str, int]] = deque(maxlen=TRACED)
        self._decisions = 0
        self._ready: list[Strand] = []
        #: Parked strands with a predicate, in the order in which they began to wait.
        self._polled: dict[Strand, None] = {}
        #: Of strands whose wait ends, and of callbacks: (when, number, strand or None, number of its wait, callback).
        self._timers: list[tuple[float, int, Strand | None, int, Callable[[], None] | None]] = []
        self._numbers = itertools.count()
        #: What is to be called at the next decision.
        self.words: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        #: Called at each decision, to look whether something has come that others wait for.
        self.attendants: list[Callable[[], None]] = []
        #: The chooser sleeps; and what wakes it.
        self._asleep = False
        self._alarm = allocate_lock()
        self._alarm.acquire()
        self._look = _FIRST_LOOK
        #: The chooser runs what was told, in the middle of its choice: nothing in there gives the baton up.
        self._hearing = False
        self.closed = False
        self.driver = Strand(self, "driver")
        self._current = self.driver
        #: What the process wears for the strand that runs (see `Dress`).
        self._worn: Any = None
        self.strands: dict[Strand, None] = {self.driver: None}
        #: Threads that are no strands and may bring something about: those that are older than the session and whose end the program
        #: awaits, too.
        self.guests = {thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.current_thread()}
        self._succession = allocate_lock()
        #: The debugger that steps through the driver.
        self._driver_trace: Any = None
        #: Says who waits for what, when all do.
        self.explain: Callable[[], str] = lambda: ""

    # ------------------------------------------------------------------------------------ taking part
    def holder(self) -> Strand | None:
        """The strand of the calling thread if it has the baton. Any thread."""
        strand = here.strand
        return strand if strand is not None and self._current is strand and strand.baton is self and not self.closed else None

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Have the baton for a call. Any thread: one of the user's own waits until it is chosen, as a guest."""
        if self.closed:
            raise RaySystemError("Ray has not been started yet. The session was shut down.")
        strand = here.strand
        if strand is not None and strand.baton is self:
            if self._current is not strand:  # a signal took it away
                self.tell(self._enqueue, strand)
                self._await(strand)
                self._begin(strand)
            yield
            return
        guest = Strand(self, f"thread {threading.current_thread().name}", here.process)
        guest.is_guest = True
        self.guests.add(guest.thread)
        here.strand = guest
        try:
            self.strands[guest] = None
            self.tell(self._enqueue, guest)
            self._await(guest)
            self._begin(guest)
            try:
                yield
            finally:
                self._leave(guest)
        finally:
            here.strand = None

    def spawn(self, name: str, body: Callable[[], None], process: Any) -> Strand:
        """A new strand, on a thread of its own; it may be chosen from now on."""
        strand = Strand(self, name, process)
        self.strands[strand] = None
        strand.thread = threading.Thread(target=self._carry, args=(strand, body), name=f"mray-{name}", daemon=True)
        me = self._current
        me.closed_in, was = True, me.closed_in
        try:
            _start_thread(strand.thread)
        finally:
            me.closed_in = was
        self._ready.append(strand)
        return strand

    def enlist(self, thread: threading.Thread, process: Any) -> Strand:
        """As `spawn`, of a thread that was made by somebody else and is not started yet."""
        strand = Strand(self, thread.name, process)
        strand.thread = thread
        self.strands[strand] = None
        run = thread.run
        thread.run = lambda: self._carry(strand, run)  # type: ignore[method-assign]
        me = self._current
        me.closed_in, was = True, me.closed_in
        try:
            _start_thread(thread)
        finally:
            me.closed_in = was
        self._ready.append(strand)
        return strand

    def _carry(self, strand: Strand, body: Callable[[], None]) -> None:
        here.strand = strand
        here.process = strand.process
        self._await(strand)
        try:
            self._begin(strand)
            body()
        except BaseException:
            if not strand.final:
                logger.exception("%s failed", strand.name)
        finally:
            strand.ended = True
            self._leave(strand)
            here.strand = None

    def _leave(self, me: Strand) -> None:
        """This strand is over: somebody else goes on, or the driver chooses."""
        self.strands.pop(me, None)
        if self._current is me:
            self._hand(self._pick() if self._ready else self.driver)

    @property
    def hears(self) -> bool:
        """Whether the strand runs what was told, in the middle of a choice: it must not wait."""
        return self._hearing

    # ------------------------------------------------------------------------------------ scheduling points
    def pause(self) -> None:
        """Others may go first."""
        if self._hearing:
            return
        me = self._current
        clock = self.clock = self.clock + STEP
        if not (self._ready or self.words or self._polled or (self._timers and self._timers[0][0] <= clock)):
            if me.urgent is not None:
                self._raise(me)
            return
        self._ready.append(me)
        self._turn(me)

    def sleep(self, seconds: float, waits_for: Callable[[], str] | None = None) -> None:
        """As `time.sleep`, by the session's clock."""
        self.wait_until(None, seconds, waits_for)

    def wait_until(self, predicate: Callable[[], object] | None, timeout: float | None, waits_for: Callable[[], str] | None = None) -> bool:
        """Wait until the predicate is true or `timeout` seconds of the clock have passed; its last value.

        The predicate is asked by whoever chooses, and must be quick. Raises what was thrown at this strand, and in the driver
        RaySystemError when everybody waits for ever.
        """
        me = self._current
        if predicate is not None and predicate():
            return True
        if timeout is not None and timeout <= 0:
            self.pause()
            return bool(predicate is not None and predicate())
        if self._hearing:
            raise RuntimeError("a callback that runs between two turns cannot wait")
        deadline = None if timeout is None else self.clock + timeout
        me.waits_for = waits_for
        try:
            while True:
                me.wait_number += 1
                me.expired = False
                me.parked = True
                if predicate is not None:
                    me.predicate = predicate
                    self._polled[me] = None
                if deadline is not None:
                    heapq.heappush(self._timers, (deadline, next(self._numbers), me, me.wait_number, None))
                self._turn(me)
                if predicate is not None and predicate():
                    return True
                if me.expired:
                    return False
        finally:
            me.waits_for = None

    def _turn(self, me: Strand) -> None:
        """Choose, hand over, return when this strand is chosen again."""
        if me is self.driver:
            self._driver_trace = sys.gettrace()
        while True:
            try:
                chosen = self._choose()
            except BaseException as error:  # of a signal's handler, which runs in the main thread
                self._signalled(me, error)
                continue
            if chosen is me:
                break
            self._hand(chosen)
            if self._await(me):
                break
            # Nobody could run when a strand ended: this one, though it waits itself, is to choose.
        self._begin(me)

    def _hand(self, chosen: Strand) -> None:
        self._current = chosen
        with contextlib.suppress(RuntimeError):  # rung already
            chosen.bell.release()

    def _await(self, me: Strand) -> bool:
        """Sleep until this strand has the baton; whether it was chosen, and not only asked to choose."""
        since = 0.0
        while self._current is not me:
            try:
                me.bell.acquire(True, PATIENCE if since else _GUEST_LOOKS if me.is_guest else -1)
                if me.is_guest and self._current is self.driver and not self.driver.thread.is_alive():
                    self._replace_driver(me)
                if since and self._current is not me and monotonic() - since >= PATIENCE:
                    self._seize(me)
            except BaseException as error:
                since = since or monotonic()
                me.urgent = error
                self.tell(self.wake, me)
        return not me.parked

    def _replace_driver(self, me: Strand) -> None:
        """The thread that has started the session has ended, and left the baton lying."""
        with self._succession:
            if self._current is self.driver:
                self._current = me
                if not me.parked:
                    self.hear()  # by which it is among those that can run
                    if me in self._ready:
                        self._ready.remove(me)

    def _seize(self, me: Strand) -> None:
        """An interrupt must not wait for a task that computes for ever: that one stops at its next call."""
        robbed, self._current = self._current, me
        if me in self._ready:
            self._ready.remove(me)
        self._unpark(me)
        if not robbed.parked:
            logger.warning("%s was interrupted while %s did not come to a call of mray", me.name, robbed.name)

    def _signalled(self, me: Strand, error: BaseException) -> None:
        me.urgent = error
        if me.parked:
            self.wake(me)
        elif me not in self._ready:
            self._ready.append(me)

    def _begin(self, me: Strand) -> None:
        """This strand runs from here on."""
        if self._driver_trace is not None and me is not self.driver:
            _trace_as(self._driver_trace)
        dress = getattr(me.process, "dress", None)
        if dress is not self._worn:
            if self._worn is not None:
                self._worn.take_off()
            self._worn = dress
            if dress is not None:
                dress.put_on()
        if me.urgent is not None:
            self._raise(me)

    def _raise(self, me: Strand) -> None:
        error = me.urgent
        assert error is not None
        if not me.final:
            me.urgent = None
        raise error

    # ------------------------------------------------------------------------------------ choosing
    def _choose(self) -> Strand:
        self._hearing = True
        try:
            return self._find()
        finally:
            self._hearing = False

    def _find(self) -> Strand:
        while True:
            self.hear()
            for attendant in tuple(self.attendants):
                _survive(attendant)
            for strand in tuple(self._polled):
                predicate = strand.predicate
                if predicate is not None and strand.parked and self._is_true(predicate):
                    self.wake(strand)
            timers = self._timers
            while timers and timers[0][0] <= self.clock:
                _when, _number, strand_or_none, wait_number, callback = heapq.heappop(timers)
                if callback is not None:
                    _survive(callback)
                elif strand_or_none is not None and strand_or_none.parked and strand_or_none.wait_number == wait_number:
                    strand_or_none.expired = True
                    self.wake(strand_or_none)
            if self._ready:
                if not self.words:
                    self.clock += STEP
                    return self._pick()
            elif not self.words:
                self._idle()

    @staticmethod
    def _is_true(predicate: Callable[[], object]) -> bool:
        try:
            return bool(predicate())
        except Exception:  # raised again where it is waited for
            return True

    def _pick(self) -> Strand:
        self._look = _FIRST_LOOK
        ready = self._ready
        count = len(ready)
        chosen = ready.pop(int(self._random() * count) if count > 1 else 0)
        self._decisions += 1
        self.trace.append((self._decisions, chosen.name, count))
        return chosen

    def _idle(self) -> None:
        """Nobody can run: sleep until the next deadline, or until something comes from outside."""
        self._drop_void_timers()
        deadline = self._timers[0][0] if self._timers else None
        outside = self._hopes()
        if deadline is None and not outside:
            self._despair()
            return
        left = None if deadline is None else deadline - self.clock
        if left is not None and not self._real_time and not outside:
            self.clock = max(self.clock, self.clock + left)
            return
        most = left
        if outside:
            most = self._look if left is None else min(left, self._look)
            self._look = min(self._look * 2, _LAST_LOOK)
        began = monotonic()
        self._asleep = True
        try:
            woken = bool(self.words) or self._alarm.acquire(True, -1 if most is None else max(most, 0.0))
        finally:
            self._asleep = False
        if left is not None:
            assert deadline is not None
            slept = monotonic() - began
            self.clock = deadline if most == left and not woken else min(deadline, self.clock + slept)

    def _drop_void_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][4] is None:
            strand = timers[0][2]
            if strand is not None and strand.parked and strand.wait_number == timers[0][3]:
                return
            heapq.heappop(timers)

    def _hopes(self) -> bool:
        """Whether a thread that is no strand may yet bring something about."""
        if self.guests:
            self.guests = {thread for thread in self.guests if thread.is_alive()}
        return bool(self.guests)

    def _despair(self) -> None:
        """Everybody waits for somebody."""
        text = f"deadlock: everybody waits, and nothing can end it.\n{self.explain()}(MRAY_LOCAL_SEED={self.seed})"
        self.driver.urgent = RaySystemError(text)
        if self.driver.parked:
            self.wake(self.driver)
        else:
            raise RuntimeError(text)

    # ------------------------------------------------------------------------------------ what makes others run
    def wake(self, strand: Strand) -> None:
        """A parked strand can run."""
        if strand.parked:
            self._unpark(strand)
            self._ready.append(strand)

    def _unpark(self, strand: Strand) -> None:
        strand.parked = False
        strand.predicate = None
        self._polled.pop(strand, None)

    def _enqueue(self, strand: Strand) -> None:
        self._ready.append(strand)

    def throw(self, strand: Strand, error: BaseException, *, final: bool = False) -> None:
        """Raise this in the strand at its next scheduling point, which is now if it waits; if `final`, at every one from now on."""
        if strand.final or strand.ended:
            return
        strand.urgent, strand.final = error, final
        self.wake(strand)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Have the callback called at a decision, so many seconds of the clock from now."""
        heapq.heappush(self._timers, (self.clock + seconds, next(self._numbers), None, 0, callback))

    def tell(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have this called at the next decision. Any thread; takes no lock, for finalizers."""
        self.words.append((function, arguments))
        if self._asleep:
            with contextlib.suppress(RuntimeError):
                self._alarm.release()

    def hear(self) -> None:
        """Call what was told."""
        words = self.words
        while words:
            function, arguments = words.popleft()
            try:
                function(*arguments)
            except Exception:
                logger.exception("a callback failed")

    # ------------------------------------------------------------------------------------ ending
    def close(self) -> None:
        """End every other strand: each raises `Ended` where it stands. Called by the driver, or a guest.

        Other guests, whose calls fail by now, are waited for.
        """
        me = self._current
        for strand in tuple(self.strands):
            if strand is not me and strand is not self.driver and not strand.is_guest:
                self.throw(strand, Ended(), final=True)
        for _ in range(1000):  # one that swallows what is thrown at it is left behind
            if not any(strand is not me and strand is not self.driver for strand in self.strands):
                break
            self.pause()
        self.hear()
        self.closed = True
        if self._worn is not None:
            self._worn.take_off()
            self._worn = None
        here.strand = None
        here.process = None

    def abandon(self) -> None:
        """In a forked child: there are no other threads."""
        self.closed = True


class Ended(BaseException):
    """Raised in a strand whose process is over. Not for user code to catch: it comes again."""


def _survive(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        logger.exception("a callback failed")


def _trace_as(driver_trace: Any) -> None:
    """Have a debugger that steps through the driver see this thread too; one that sees all threads does already."""
    if sys.gettrace() is None:
        bdb = sys.modules.get("bdb")
        if bdb is not None and isinstance(getattr(driver_trace, "__self__", None), bdb.Bdb):
            sys.settrace(driver_trace)
