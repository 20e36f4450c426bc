"""Signals at a safe moment: Ctrl-C, and whatever handlers of the user's do.

In the main thread of a driver, and of a worker, where Ctrl-C is how a task is cancelled. A handler may raise between any two byte codes (a
time limit does, and ``sys.exit`` at a SIGTERM) and call anything. In the middle of mray's own code either would cut in half what belongs
together: a message and its count, a lock, a reply that is taken and not yet kept; every later value may be wrong, or never come. SIGTERM
raises, too: `SystemExit`, as on Ray, where the system would end the process at once, and no ``finally`` and no `atexit` hook of the user's
would run.

    signal ──▶ Python ──▶ Handler ──▶ InterruptGuard.came
                                        ├─ the user's code runs, or the thread sleeps for it ──▶ the user's handler, here and now
                                        └─ mray's code runs ──▶ it waits for the first of:
                                               mray's outermost function returns: the error is raised there, in the place of its value
                                               the thread is about to sleep
                                               the thread is found in code of the user's (it looks again and again)

So mray's code is never cut, pays nothing for that, and a handler that has come runs before the user's next line. Which code runs is told by
the stack (`mray._common.places`). The return of a function is noticed by a trace function of that frame alone; where there is another one
(a debugger, coverage), looking again must do.

A signal ends a sleep, but not one that is about to begin: it may come when the interpreter has looked for signals and the kernel has not
put the thread to sleep yet, and ``_thread.interrupt_main`` sends none at all. The handler would then run when something else ends the
sleep, which may be never. So the main thread of a driver looks again each second. Those of workers sleep on, of which there may be a
thousand that have nothing to do: whoever cancels a task there sends the signal until it has landed (`mray._runtime.client.cancelling`).

Rejected: to mark each stretch that must not be cut (two calls in every wait, and what is forgotten is cut); to block signals (two
system calls for each stretch, and Python hears of a signal through any other thread); `signal.set_wakeup_fd` (there is one for a process,
and it is the user's); to raise in the user's frame once the function has returned (what it gave is lost: an item of a stream, say).
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
from _thread import get_ident
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

from mray._common.clock import now
from mray._common.kept import os
from mray._common.places import (
    AFTER,
    Place,
    frame_of,
    is_returning,
    looks_for_signals,
    place_of,
    sleeps,
    undone_by,
    users_frame,
)
from mray._common.uncollected import uncollected
from mray._ipc.async_exceptions import Guarded, guard_threads, release_threads
from mray._ipc.handlers import current_handler, guard_handlers, release_handlers, run_handler
from mray._ipc.quiet_lock import QuietLock

#: How long the main thread of a driver sleeps at most before it looks for signals, in seconds.
LOOK_SECONDS = 1.0
#: After so many seconds an interrupt that has not landed is sent again.
AGAIN_SECONDS = 0.02
#: So many seconds a handler waits for mray's code to come to an end, which takes micro- or milliseconds: then it runs wherever that is.
PATIENCE = 3.0
#: Frames that are looked at while the thread does not dispatch: of mray's code that the user has called, or of a finalizer of mray's.
MOST_FRAMES = 64

T = TypeVar("T")
Soon = Callable[[Callable[[], None]], None]
Later = Callable[[float, Callable[[], None]], None]


def _no_call(_frame: FrameType, _event: str, _arg: Any) -> None:
    """Trace no further function."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Have handlers of signals wait while a session begins or ends, and has no guard of its own, or will have it no more. Any thread."""
    guard = InterruptGuard()
    guard.install()
    try:
        yield
    finally:
        guard.uninstall()


class InterruptGuard:
    """Has handlers of signals run where they may raise. Main thread only, except `sleep`, `longest` and `is_open`."""

    __slots__ = (
        "_ends",
        "_guarded",
        "_main",
        "_pending",
        "_pid",
        "_queued",
        "_since",
        "_trapped",
        "_was_look",
        "_works",
        "again",
        "is_wanted",
        "landed",
        "late",
        "later",
        "lock",
        "looks",
        "reads",
        "serves",
        "terminated",
        "wake",
    )

    def __init__(self, again: Soon = lambda _callback: None, later: Later = lambda _seconds, _callback: None) -> None:
        """`again` calls back soon, in another thread or at a safe moment; `later` in the thread that reads, after so many seconds."""
        self._main = threading.main_thread().ident
        #: The process that it was installed in.
        self._pid = os.getpid()
        #: Signals whose handlers are due, in the order in which they came, with the process that they came to; and since when.
        self._pending: dict[int, int] = {}
        self._since = 0.0
        #: The handler of SIGTERM is ours.
        self._ends = False
        #: Raised by a handler between two calls of a worker: for the next one.
        self.late: BaseException | None = None
        #: The frame that is traced.
        self._trapped: FrameType | None = None
        #: Whether Python has looked for signals since the byte code before, in a traced frame of the user's.
        self._was_look = False
        #: `came` looks where the thread is: a signal that comes meanwhile is noted, and that call delivers it.
        self._works = False
        #: Somebody looks again now and then, until no handler is due.
        self._queued = False
        #: Nobody sleeps while owning it.
        self.lock: QuietLock | None = None
        #: Whether the thread that asks has the right to dispatch.
        self.reads: Callable[[], bool] = lambda: False
        self.again, self.later = again, later
        #: Whether the main thread looks for signals now and then while it sleeps.
        self.looks = False
        #: Whether the main thread runs calls, and mray's code in between, which nobody may cut: a worker's.
        self.serves = False
        #: The handler of SIGTERM, if there is to be one.
        self.terminated: Callable[[int, FrameType | None], Any] | None = None
        #: Asked before Ctrl-C is raised: False drops it, it was meant for what is over.
        self.is_wanted: Callable[[], bool] = lambda: True
        #: Called when Ctrl-C is raised, or is going to be.
        self.landed: Callable[[], None] = lambda: None
        #: Has threads that sleep look again, in which another thread has raised an error.
        self.wake: Callable[[], None] = lambda: None
        #: This guard's part in what threads raise in others.
        self._guarded = Guarded(self._is_locked_by, lambda: self.wake(), PATIENCE)

    # ------------------------------------------------------------------------------------ sleeping
    @sleeps
    def sleep(self, block: Callable[..., T], *args: Any) -> T:
        """``block(*args)``, which may sleep. A handler that waits runs first, one that comes meanwhile at once; its error comes out."""
        if self._pending and get_ident() == self._main:
            place = place_of(sys._getframe())
            if place.is_open or place.sleeps:
                self._run_at(place, sys._getframe())
            del place
        return block(*args)

    def longest(self, timeout: float | None) -> float:
        """How long the sleep that begins may last that is to end after so many seconds, or when something happens; -1 for ever."""
        if self.looks and get_ident() == self._main and (timeout is None or timeout > LOOK_SECONDS):
            return LOOK_SECONDS
        return -1 if timeout is None else timeout

    @property
    def is_open(self) -> bool:
        """Whether the main thread sleeps, is about to, or runs a handler in a sleep. Any thread; for tests."""
        with uncollected:
            return frame_of(InterruptGuard.sleep.__code__, sys._current_frames().get(self._main or 0)) is not None

    def owns_lock(self) -> bool:
        """Whether the thread that asks owns `lock`."""
        return self.lock is not None and self.lock.is_owned()

    def _is_locked_by(self, ident: int) -> bool:
        return self.lock is not None and self.lock.is_owned_by(ident)

    # ------------------------------------------------------------------------------------ calls of a worker
    def raise_late(self) -> None:
        """A call of the user's begins: raise what is `late`."""
        error, self.late = self.late, None
        try:
            assert error is not None
            raise error
        finally:
            del error  # whose traceback has this frame

    # ------------------------------------------------------------------------------------ handlers
    def came(self, number: int, frame: FrameType | None) -> None:
        """A signal has come, and this frame ran. In the handler."""
        if os.getpid() != self._pid:  # a fork that has not left the session yet: an error would be lost in a hook of the library's
            self._pending[number] = os.getpid()
            return
        if number not in self._pending:
            if not self._pending:
                self._since = now()
            self._pending[number] = os.getpid()
        # Signals may come faster than this function ends: each would interrupt the one before, until there is no stack left.
        if self._works:
            return
        self._works = True
        try:
            self._deliver(number, frame)
        finally:
            self._works = False
            if self._pending and not self._queued:
                self._queued = True
                self.again(self._look_later)

    def _deliver(self, number: int, frame: FrameType | None) -> None:
        """Run the handlers that are due, or see to it that they run when mray's code has come to its end."""
        is_locked = self.owns_lock()
        place = place_of(frame, is_locked, -1 if is_locked or self.reads() else MOST_FRAMES)
        is_interrupt = current_handler(number) is signal.default_int_handler
        if is_interrupt and ((self.serves and place.is_idle) or not self.is_wanted()):
            self._pending.pop(number, None)
        elif place.is_open or place.sleeps or now() - self._since > PATIENCE:
            self._run_at(place, frame)
        else:
            if is_interrupt:
                self.landed()
            self._trap(place)

    def _run_at(self, place: Place, frame: FrameType | None) -> None:
        """Run the handlers that are due. Between two calls of a worker an error is the next call's, but SystemExit ends the worker."""
        try:
            self._run_due(frame)
        except BaseException as error:
            if not self.serves or not place.is_idle or isinstance(error, SystemExit):
                raise
            error.__context__ = error.__context__ or self.late
            self.late = error

    def _run_due(self, frame: FrameType | None) -> None:
        """Run the handlers that are due, until one raises; raises that."""
        self._release()
        # Each once: there may be one that comes again as fast as it is run.
        for number in tuple(self._pending):
            if self._pending.pop(number, None) is None:
                continue  # it came again while the one before ran, and has had its turn
            handler = current_handler(number)
            if handler is signal.default_int_handler:
                if not self.is_wanted():
                    continue
                self.landed()
            if callable(handler):  # else the user has taken it back meanwhile
                works, self._works = self._works, False  # a signal that meets the user's handler interrupts it, as ever
                try:
                    run_handler(handler, number, frame)
                finally:
                    self._works = works

    def _look_later(self) -> None:
        self.later(AGAIN_SECONDS, self._look_again)

    def _look_again(self) -> None:
        """Have the first handler that is due called again in the main thread, until there is none. Any thread."""
        self._queued = False
        number = next(iter(tuple(self._pending)), None)
        if number is None:
            return
        self._queued = True
        if get_ident() != self._main:
            _thread.interrupt_main(number)  # type: ignore[arg-type]
            if now() - self._since > PATIENCE and self._main is not None and callable(current_handler(number)):
                # It may sleep where mray does not know of. (A flag alone ends no sleep.)
                signal.pthread_kill(self._main, number)
        self._look_later()

    # ------------------------------------------------------------------------------------ the end of mray's code
    def _trap(self, place: Place) -> None:
        frame = place.frame
        if frame is None or self._trapped is not None or sys.gettrace() is not None:
            return
        self._trapped = frame
        frame.f_trace_lines = False
        if place.how == AFTER:
            self._was_look = looks_for_signals(frame, frame.f_lasti)
            frame.f_trace_opcodes = True
            frame.f_trace = self._step
        else:
            frame.f_trace = self._returned
        sys.settrace(_no_call)

    def _release(self) -> None:
        """Trace nothing any more."""
        frame, self._trapped = self._trapped, None
        if frame is not None:
            if sys.gettrace() is _no_call:
                sys.settrace(None)
            frame.f_trace_lines, frame.f_trace_opcodes, frame.f_trace = True, False, None

    def _returned(self, frame: FrameType, event: str, value: Any) -> Any:
        """The trace function of mray's outermost frame."""
        if event != "return":
            return self._returned
        gives = is_returning(frame, frame.f_lasti)
        try:
            self._run_due(frame.f_back or frame)
        except BaseException:
            undo = undone_by.get(frame.f_code)
            if undo is not None and gives:
                undo(frame.f_locals, value)
            raise
        return None

    def _step(self, frame: FrameType, event: str, _value: Any) -> Any:
        """The trace function of a frame of the user's."""
        if event == "opcode":
            if self._was_look:
                self._run_due(frame)
                return None
            self._was_look = looks_for_signals(frame, frame.f_lasti)
        elif event == "return":
            self._release()
            self._trap(Place(False, False, users_frame(frame.f_back), AFTER))
        return self._step

    # ------------------------------------------------------------------------------------ installing
    def install(self) -> None:
        """Guard what threads raise in others, the handlers that are there, and those that come; SIGTERM gets one.

        In another thread than the main one nothing is done about handlers.
        """
        guard_threads(self._guarded)
        if get_ident() != self._main:
            return
        self._pid = os.getpid()
        if self.terminated is not None and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self.terminated)
            self._ends = True
        guard_handlers(self.came)

    def uninstall(self) -> None:
        """Handlers are as their users have installed them. In another thread than the main one they stay guarded, which is harmless."""
        release_threads(self._guarded)
        if get_ident() != self._main:
            return
        if self._ends:
            if signal.getsignal(signal.SIGTERM) == self.terminated:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._ends = False
        with contextlib.suppress(ValueError):
            release_handlers(self.came)

    def abandon(self) -> None:
        """In a forked child: its signals are those of a process without a session, also those that have come to it by now."""
        self._main = get_ident()
        self.late = None
        self._release()
        self.uninstall()
        # Not before: until here they are noted.
        self._pid = os.getpid()
        pending, self._pending = self._pending, {}
        for number, pid in pending.items():
            if pid == os.getpid():
                signal.raise_signal(number)


#: Of threads that fork: their signal masks.
_masks: dict[int, Any] = {}


def before_fork() -> None:
    """A child in which SIGTERM comes before it has left the session would lose it: Python forgets there what has come. So it waits."""
    _masks[get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


def after_fork() -> None:
    """In the parent, and in the child once it has left the session."""
    mask = _masks.pop(get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_program(number: int, _frame: FrameType | None) -> Any:
    """The handler of SIGTERM in a driver: the program ends in order, with this exit status."""
    raise SystemExit(number)
