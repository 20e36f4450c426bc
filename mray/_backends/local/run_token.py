"""The run token: of all threads of a session in one process, only its holder runs, and a seed decides which thread that is.

A *simulated thread* (the driver's, or a task's or actor's) holds the run token from the decision that chooses it until its next
*scheduling point* (`pause`, `wait_until`, `sleep`, its end). There it chooses the next thread among the runnable ones, with the
session's random generator.

    simulated thread A: user code -- mray call -- choose --+                    +-- goes on
    simulated thread B:                                    +-- user code -- ... +

Only the holder runs this module's code, so nothing is locked. User threads and finalizers leave a callback (`call_soon`) for the next
decision.

A decision advances the session's `clock` by `STEP`, computing does not, and when no thread can run it advances to the next deadline,
so that the order of events and time-outs depends on the program alone.

Rejected: simulated threads as generators or greenlets on one OS thread: user code may block anywhere, and debuggers understand
threads.
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
from typing import Any

from mray._common.clock import monotonic
from mray._common.log import logger
from mray._inside.platform import ProcessEnded
from mray.exceptions import RaySystemError

#: Seconds of the clock per decision; above zero, so that time passes for a program that polls.
STEP = 20e-6
TRACED = 100_000
#: Real seconds after which a signal takes the run token from a thread that does not give it up.
SEIZE_SECONDS = 1.0
#: Real seconds between checks for events from outside: at first, and at most.
_FIRST_LOOK, _LAST_LOOK = 0.0002, 0.01
#: Real seconds between a guest's checks whether the driver lives.
_GUEST_LOOKS = 0.05

_start_thread = threading.Thread.start


class _Here(threading.local):
    sim_thread: SimulatedThread | None = None
    process: Any = None


here = _Here()


class SimulatedThread:
    """Invariant: it has the run token, or is in `RunToken._ready`, or is parked."""

    def __init__(self, run_token: RunToken, name: str, process: Any = None) -> None:
        self.run_token = run_token
        self.name = name
        self.process = process
        self.thread = threading.current_thread()
        #: Released to pass the run token on.
        self.wakeup = allocate_lock()
        self.wakeup.acquire()
        self.parked = False
        #: Its condition, checked at each decision.
        self.predicate: Callable[[], object] | None = None
        self.waits_for: Callable[[], str] | None = None
        #: Whether its wait has timed out; the number of the wait: a timer of an earlier wait is void.
        self.expired = False
        self.wait_number = 0
        #: Raised at its next scheduling point; at all later ones too if `final`.
        self.urgent: BaseException | None = None
        self.final = False
        #: Checked before raising that error; False drops it. None: raise it.
        self.is_wanted: Callable[[], bool] | None = None
        self.loops: dict[Any, None] = {}
        #: It waits in code that must not give the run token up (starting a thread).
        self.closed_in = False
        self.ended = False
        #: It waits for work, which counts as no deadlock.
        self.serves = False
        #: A user thread, for the duration of a call.
        self.is_guest = False

    def __repr__(self) -> str:
        return f"<SimulatedThread {self.name}>"


class RunToken:
    """Schedules simulated threads. Methods are for the thread that has the token, unless they say otherwise."""

    def __init__(self, seed: int, real_time: bool = True) -> None:
        self.seed = seed
        self._random = random.Random(seed).random
        self._real_time = real_time
        self.clock = 0.0
        #: Decisions: (number, name of the chosen thread, number of runnable threads).
        self.trace: deque[tuple[int, str, int]] = deque(maxlen=TRACED)
        self._decisions = 0
        self._ready: list[SimulatedThread] = []
        #: Parked threads with a predicate, in the order of waiting.
        self._polled: dict[SimulatedThread, None] = {}
        #: Deadlines: (when, number, simulated thread or None, number of its wait, callback).
        self._timers: list[tuple[float, int, SimulatedThread | None, int, Callable[[], None] | None]] = []
        self._numbers = itertools.count()
        #: Called at the next decision, with these arguments.
        self.callbacks: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        #: Called at each decision.
        self.pollers: list[Callable[[], None]] = []
        #: Whether the chooser sleeps; and the lock whose release wakes it.
        self._asleep = False
        self._alarm = allocate_lock()
        self._alarm.acquire()
        self._look = _FIRST_LOOK
        #: The chooser runs callbacks, which must not give the run token up, or wait.
        self.is_in_callbacks = False
        self.closed = False
        self.driver = SimulatedThread(self, "driver")
        self._current = self.driver
        #: The running thread's environment variables.
        self._applied: Any = None
        self.sim_threads: dict[SimulatedThread, None] = {self.driver: None}
        #: Other threads that may wake a simulated one, among them older ones that the program joins at exit.
        self.guests = {thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.current_thread()}
        self._succession = allocate_lock()
        #: Trace function of the debugger that steps through the driver.
        self._driver_trace: Any = None
        #: Describes every wait, when all threads wait.
        self.explain: Callable[[], str] = lambda: ""

    # ------------------------------------------------------------------------------------ taking part
    def is_held_by(self, sim_thread: SimulatedThread) -> bool:
        return self._current is sim_thread and sim_thread.run_token is self

    def holder(self) -> SimulatedThread | None:
        """The calling thread's, if it has the run token. Any thread."""
        sim_thread = here.sim_thread
        if sim_thread is None or not self.is_held_by(sim_thread) or self.closed:
            return None
        return sim_thread

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the token during a call. Any thread: a user thread waits until it is chosen, as a guest."""
        if self.closed:
            raise RaySystemError("Ray has not been started yet. The session was shut down.")
        sim_thread = here.sim_thread
        if sim_thread is not None and sim_thread.run_token is self:
            if self._current is not sim_thread:  # a signal took it
                self.call_soon(self._enqueue, sim_thread)
                self._await(sim_thread)
                self._resume(sim_thread)
            yield
            return
        guest = SimulatedThread(self, f"thread {threading.current_thread().name}", here.process)
        guest.is_guest = True
        self.guests.add(guest.thread)
        here.sim_thread = guest
        try:
            self.sim_threads[guest] = None
            self.call_soon(self._enqueue, guest)
            self._await(guest)
            self._resume(guest)
            try:
                yield
            finally:
                self._leave(guest)
        finally:
            here.sim_thread = None

    def spawn(self, name: str, body: Callable[[], None], process: Any) -> SimulatedThread:
        return self.enlist(threading.Thread(target=body, name=f"mray-{name}", daemon=True), process, name)

    def enlist(self, thread: threading.Thread, process: Any, name: str = "") -> SimulatedThread:
        """As `spawn`, for a thread that exists and has not started."""
        sim_thread = SimulatedThread(self, name or thread.name, process)
        sim_thread.thread = thread
        self.sim_threads[sim_thread] = None
        run = thread.run
        thread.run = lambda: self._run_body(sim_thread, run)  # type: ignore[method-assign]
        me = self._current
        me.closed_in, was = True, me.closed_in
        try:
            _start_thread(thread)
        finally:
            me.closed_in = was
        self._ready.append(sim_thread)
        return sim_thread

    def _run_body(self, sim_thread: SimulatedThread, body: Callable[[], None]) -> None:
        here.sim_thread = sim_thread
        here.process = sim_thread.process
        self._await(sim_thread)
        try:
            self._resume(sim_thread)
            body()
        except BaseException:
            if not sim_thread.final:
                logger.exception("%s failed", sim_thread.name)
        finally:
            sim_thread.ended = True
            self._leave(sim_thread)
            here.sim_thread = None

    def _leave(self, me: SimulatedThread) -> None:
        self.sim_threads.pop(me, None)
        if self._current is me:
            self._pass_to(self._choose_random() if self._ready else self.driver)

    # ------------------------------------------------------------------------------------ scheduling points
    def pause(self) -> None:
        if self.is_in_callbacks:
            return
        me = self._current
        clock = self.clock = self.clock + STEP
        if not (self._ready or self.callbacks or self._polled or (self._timers and self._timers[0][0] <= clock)):
            if me.urgent is not None:
                self._raise(me)
            return
        self._ready.append(me)
        self._switch(me)

    def sleep(self, seconds: float, waits_for: Callable[[], str] | None = None) -> None:
        self.wait_until(None, seconds, waits_for)

    def wait_until(self, predicate: Callable[[], object] | None, timeout: float | None, waits_for: Callable[[], str] | None = None) -> bool:
        """Wait until the predicate is true or `timeout` seconds of the clock have passed; returns its last value.

        Raises the error of `throw` to this simulated thread, and in the driver RaySystemError when all threads wait forever.
        """
        me = self._current
        if predicate is not None and predicate():
            return True
        if timeout is not None and timeout <= 0:
            self.pause()
            return bool(predicate is not None and predicate())
        if self.is_in_callbacks:
            raise RuntimeError("a callback that runs between two threads' steps cannot wait")
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
                self._switch(me)
                if predicate is not None and predicate():
                    return True
                if me.expired:
                    return False
        finally:
            me.waits_for = None

    def _switch(self, me: SimulatedThread) -> None:
        """Pass the token to a thread; return when this thread is chosen again."""
        if me is self.driver:
            self._driver_trace = _trace_of_driver()
        while True:
            try:
                chosen = self._choose()
            except BaseException as error:  # of a signal handler, which runs in the main thread
                self._signalled(me, error)
                continue
            if chosen is me:
                break
            self._pass_to(chosen)
            if self._await(me):
                break
            # No thread was runnable when one ended: this parked thread must choose.
        self._resume(me)

    def _pass_to(self, chosen: SimulatedThread) -> None:
        self._current = chosen
        with contextlib.suppress(RuntimeError):  # already released
            chosen.wakeup.release()

    def _await(self, me: SimulatedThread) -> bool:
        """Sleep until this thread has the run token; returns whether it was chosen, or only asked to choose."""
        since = 0.0
        while self._current is not me:
            try:
                me.wakeup.acquire(True, SEIZE_SECONDS if since else _GUEST_LOOKS if me.is_guest else -1)
                if me.is_guest and self._current is self.driver and not self.driver.thread.is_alive():
                    self._replace_driver(me)
                if since and self._current is not me and monotonic() - since >= SEIZE_SECONDS:
                    self._seize(me)
            except BaseException as error:
                since = since or monotonic()
                me.urgent = error
                self.call_soon(self.wake, me)
        return not me.parked

    def _replace_driver(self, me: SimulatedThread) -> None:
        """Take the run token over from the starting thread, which has ended."""
        with self._succession:
            if self._current is self.driver:
                self._current = me
                if not me.parked:
                    self.run_callbacks()
                    if me in self._ready:
                        self._ready.remove(me)

    def _seize(self, me: SimulatedThread) -> None:
        """Take the run token for a signal, which must not wait for a task that computes forever."""
        robbed, self._current = self._current, me
        if me in self._ready:
            self._ready.remove(me)
        self._unpark(me)
        if not robbed.parked:
            logger.warning("%s was interrupted while %s did not reach a call of mray", me.name, robbed.name)

    def _signalled(self, me: SimulatedThread, error: BaseException) -> None:
        me.urgent = error
        if me.parked:
            self.wake(me)
        elif me not in self._ready:
            self._ready.append(me)

    def _resume(self, me: SimulatedThread) -> None:
        if self._driver_trace is not None and me is not self.driver:
            _trace_as(self._driver_trace)
        env_vars = getattr(me.process, "env_vars", None)
        if env_vars is not self._applied:
            if self._applied is not None:
                self._applied.revert()
            self._applied = env_vars
            if env_vars is not None:
                env_vars.apply()
        if me.urgent is not None:
            self._raise(me)

    def _raise(self, me: SimulatedThread) -> None:
        error, is_wanted = me.urgent, me.is_wanted
        assert error is not None
        if not me.final:
            me.urgent = me.is_wanted = None
            if is_wanted is not None and not is_wanted():
                return
        raise error

    # ------------------------------------------------------------------------------------ choosing
    def _choose(self) -> SimulatedThread:
        self.is_in_callbacks = True
        try:
            return self._find()
        finally:
            self.is_in_callbacks = False

    def _find(self) -> SimulatedThread:
        while True:
            self.run_callbacks()
            for poller in tuple(self.pollers):
                _call_safely(poller)
            for sim_thread in tuple(self._polled):
                predicate = sim_thread.predicate
                if predicate is not None and sim_thread.parked and self._is_true(predicate):
                    self.wake(sim_thread)
            timers = self._timers
            has_called = False
            while timers and timers[0][0] <= self.clock:
                _when, _number, sim_thread_or_none, wait_number, callback = heapq.heappop(timers)
                if callback is not None:
                    has_called = True
                    _call_safely(callback)
                elif sim_thread_or_none is not None and sim_thread_or_none.parked and sim_thread_or_none.wait_number == wait_number:
                    sim_thread_or_none.expired = True
                    self.wake(sim_thread_or_none)
            if self._ready:
                if not self.callbacks:
                    self.clock += STEP
                    return self._choose_random()
            elif not self.callbacks and not has_called:  # a timer's callback may have made a predicate true
                self._idle()

    @staticmethod
    def _is_true(predicate: Callable[[], object]) -> bool:
        try:
            return bool(predicate())
        except Exception:  # raised in the waiting thread
            return True

    def _choose_random(self) -> SimulatedThread:
        self._look = _FIRST_LOOK
        ready = self._ready
        count = len(ready)
        chosen = ready.pop(int(self._random() * count) if count > 1 else 0)
        self._decisions += 1
        self.trace.append((self._decisions, chosen.name, count))
        return chosen

    def _idle(self) -> None:
        self._drop_void_timers()
        deadline = self._timers[0][0] if self._timers else None
        outside = self._outsiders_live()
        if deadline is None and not outside:
            self._fail_deadlocked()
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
            woken = bool(self.callbacks) or self._alarm.acquire(True, -1 if most is None else max(most, 0.0))
        finally:
            self._asleep = False
        if left is not None:
            assert deadline is not None
            slept = monotonic() - began
            self.clock = deadline if most == left and not woken else min(deadline, self.clock + slept)

    def _drop_void_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][4] is None:
            sim_thread = timers[0][2]
            if sim_thread is not None and sim_thread.parked and sim_thread.wait_number == timers[0][3]:
                return
            heapq.heappop(timers)

    def _outsiders_live(self) -> bool:
        known = self.guests
        self.guests = {thread for thread in known if thread.is_alive()}
        return bool(known)  # also if the last has just ended, since a thread may wait for that

    def _fail_deadlocked(self) -> None:
        text = f"deadlock: every thread waits, and nothing can wake one.\n{self.explain()}(MRAY_LOCAL_SEED={self.seed})"
        self.driver.urgent = RaySystemError(text)
        if self.driver.parked:
            self.wake(self.driver)
        else:
            raise RuntimeError(text)

    # ------------------------------------------------------------------------------------ waking others
    def wake(self, sim_thread: SimulatedThread) -> None:
        if sim_thread.parked:
            self._unpark(sim_thread)
            self._ready.append(sim_thread)

    def _unpark(self, sim_thread: SimulatedThread) -> None:
        sim_thread.parked = False
        sim_thread.predicate = None
        self._polled.pop(sim_thread, None)

    def _enqueue(self, sim_thread: SimulatedThread) -> None:
        self._ready.append(sim_thread)

    def throw(
        self, sim_thread: SimulatedThread, error: BaseException, is_wanted: Callable[[], bool] | None = None, *, final: bool = False
    ) -> None:
        """Raise this at a thread's next scheduling point, immediately if it waits; if `final`, at all later ones too. Dropped if
        `is_wanted` is false then.
        """
        if sim_thread.final or sim_thread.ended:
            return
        sim_thread.urgent, sim_thread.final, sim_thread.is_wanted = error, final, is_wanted
        self.wake(sim_thread)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call at a decision, after this many seconds of the clock."""
        heapq.heappush(self._timers, (self.clock + seconds, next(self._numbers), None, 0, callback))

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call at the next decision. Any thread; takes no lock, for finalizers."""
        self.callbacks.append((function, arguments))
        if self._asleep:
            with contextlib.suppress(RuntimeError):
                self._alarm.release()

    def run_callbacks(self) -> None:
        callbacks = self.callbacks
        while callbacks:
            function, arguments = callbacks.popleft()
            _call_safely(function, *arguments)

    # ------------------------------------------------------------------------------------ ending
    def close(self) -> None:
        """Each other simulated thread raises `ProcessEnded` where it waits. Called by the driver, or a guest.

        Waits for the other guests, whose calls fail now.
        """
        me = self._current
        for sim_thread in tuple(self.sim_threads):
            if sim_thread is not me and sim_thread is not self.driver and not sim_thread.is_guest:
                self.throw(sim_thread, ProcessEnded(), final=True)
        for _ in range(1000):  # one that swallows `ProcessEnded` is left behind
            if not any(sim_thread is not me and sim_thread is not self.driver for sim_thread in self.sim_threads):
                break
            self.pause()
        self.run_callbacks()
        self.closed = True
        if self._applied is not None:
            self._applied.revert()
            self._applied = None
        here.sim_thread = None
        here.process = None

    def abandon(self) -> None:
        """Forget the other threads, in a forked child."""
        self.closed = True


def _call_safely(function: Callable[..., object], *arguments: Any) -> None:
    try:
        function(*arguments)
    except Exception:
        logger.exception("a callback failed")


def _trace_of_driver() -> Any:
    """This thread's; that of ``python -m pdb`` where it monitors events instead (from Python 3.14 on)."""
    trace: Any = sys.gettrace()
    if trace is None and sys.version_info >= (3, 14) and sys.monitoring.get_tool(sys.monitoring.DEBUGGER_ID) == "bdbtracer":
        frame = sys._getframe()
        while frame.f_back is not None and trace is None:
            frame = frame.f_back
            debugger = frame.f_locals.get("self")
            if isinstance(debugger, sys.modules["bdb"].Bdb):
                trace = debugger.trace_dispatch
    return trace


def _trace_as(driver_trace: Any) -> None:
    """Show this thread to a debugger that steps through the driver."""
    if sys.gettrace() is None:
        bdb = sys.modules.get("bdb")
        if bdb is not None and isinstance(getattr(driver_trace, "__self__", None), bdb.Bdb):
            sys.settrace(driver_trace)
