"""Signal handlers at a safe moment: Ctrl-C, and the handlers of user code.

A handler may raise between any two byte codes; in mray's own code that would separate a message from its count, or lose a received
reply. SIGTERM raises `SystemExit`, as on Ray.

    signal ──▶ Python ──▶ Handler ──▶ InterruptGuard.came
                                        ├─ user code runs, or the thread sleeps on its behalf ──▶ call the user's handler now
                                        └─ mray's code runs ──▶ wait for the first of:
                                               mray's outermost function returns: the error is raised there, instead of its value
                                               the thread is about to sleep
                                               the thread is found in user code (polled repeatedly)

A delayed handler runs before the user's next line. A trace function of that frame alone notices the return of mray's outermost function;
if another trace function is installed (a debugger, coverage), only polling is left.

A signal does not end a sleep that is about to begin, and ``_thread.interrupt_main`` sends none. So the main thread of a driver wakes up
each second. Idle workers do not: the process that cancels a task sends the signal until it has landed
(`mray._runtime.client.cancelling`).

Rejected: marking each stretch that must not be cut (two calls in every wait, and a forgotten stretch is cut); blocking signals (Python
receives the signal in any other thread); `signal.set_wakeup_fd` (the user's); raising in the user's frame after the function has
returned (its value is lost).
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

#: The longest sleep of a driver's main thread between checks for signals.
LOOK_SECONDS = 1.0
#: Seconds before an interrupt that has not landed is sent again.
AGAIN_SECONDS = 0.02
#: Seconds a handler waits for mray's code to return; afterwards it runs wherever the thread is.
PATIENCE = 3.0
#: Frames examined while the thread does not dispatch: mray's code called by the user, or a finalizer of mray.
MOST_FRAMES = 64

T = TypeVar("T")
Soon = Callable[[Callable[[], None]], None]
Later = Callable[[float, Callable[[], None]], None]


def _no_call(_frame: FrameType, _event: str, _arg: Any) -> None:
    """Trace no further function."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Delay signal handlers while a session begins or ends, when it has no guard. Any thread."""
    guard = InterruptGuard()
    guard.install()
    try:
        yield
    finally:
        guard.uninstall()


class InterruptGuard:
    """Runs signal handlers at safe moments. Main thread only, except `sleep`, `longest` and `is_open`."""

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
        """`again` calls back soon, in another thread or at a safe moment; `later` in the reading thread."""
        self._main = threading.main_thread().ident
        self._pid = os.getpid()
        #: Due signals in order of arrival, with the process that received them; the time of the first.
        self._pending: dict[int, int] = {}
        self._since = 0.0
        self._ends = False
        #: Raised between two calls of a worker, for the next call.
        self.late: BaseException | None = None
        self._trapped: FrameType | None = None
        #: Whether the traced user frame's previous byte code checks for signals.
        self._was_look = False
        #: Whether `came` is running: a further signal is only recorded, and that call delivers it.
        self._works = False
        self._queued = False
        #: A lock that no thread owns while it sleeps.
        self.lock: QuietLock | None = None
        #: Whether the calling thread has the right to dispatch.
        self.reads: Callable[[], bool] = lambda: False
        self.again, self.later = again, later
        #: Whether the main thread wakes up each second to check for signals.
        self.looks = False
        #: Whether this is a worker: mray's code between its calls must not be cut.
        self.serves = False
        #: The handler to install for SIGTERM.
        self.terminated: Callable[[int, FrameType | None], Any] | None = None
        #: Called before Ctrl-C is raised; False drops it, since its target has ended.
        self.is_wanted: Callable[[], bool] = lambda: True
        #: Called when Ctrl-C is raised, or scheduled to be.
        self.landed: Callable[[], None] = lambda: None
        #: Wakes sleeping threads in which another thread has raised an error.
        self.wake: Callable[[], None] = lambda: None
        self._guarded = Guarded(self._is_locked_by, lambda: self.wake(), PATIENCE)

    # ------------------------------------------------------------------------------------ sleeping
    @sleeps
    def sleep(self, block: Callable[..., T], *args: Any) -> T:
        """Call ``block(*args)``, which may sleep. A pending handler runs before it, one that arrives meanwhile immediately; its error
        propagates.
        """
        if self._pending and get_ident() == self._main:
            place = place_of(sys._getframe())
            if place.is_open or place.sleeps:
                self._run_at(place, sys._getframe())
            del place
        return block(*args)

    def longest(self, timeout: float | None) -> float:
        """Shorten a sleep of `timeout` seconds (None: forever) if the main thread must check for signals; -1 is forever."""
        if self.looks and get_ident() == self._main and (timeout is None or timeout > LOOK_SECONDS):
            return LOOK_SECONDS
        return -1 if timeout is None else timeout

    @property
    def is_open(self) -> bool:
        """Whether the main thread sleeps, is about to, or runs a handler in a sleep. Any thread; for tests."""
        with uncollected:
            return frame_of(InterruptGuard.sleep.__code__, sys._current_frames().get(self._main or 0)) is not None

    def is_due(self, number: int) -> bool:
        """Whether a handler of this signal has yet to run. Any thread."""
        return number in self._pending

    def owns_lock(self) -> bool:
        return self.lock is not None and self.lock.is_owned()

    def _is_locked_by(self, ident: int) -> bool:
        return self.lock is not None and self.lock.is_owned_by(ident)

    # ------------------------------------------------------------------------------------ calls of a worker
    def raise_late(self) -> None:
        error, self.late = self.late, None
        try:
            assert error is not None
            raise error
        finally:
            del error  # its traceback refers to this frame

    # ------------------------------------------------------------------------------------ handlers
    def came(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # a fork that has not left the session yet: its hook would lose an error
            self._pending[number] = os.getpid()
            return
        if number not in self._pending:
            if not self._pending:
                self._since = now()
            self._pending[number] = os.getpid()
        # Faster signals than this function would nest until the stack overflows.
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
        """Between two calls of a worker, an error other than SystemExit is left to the next call."""
        try:
            self._run_due(frame)
        except BaseException as error:
            if not self.serves or not place.is_idle or isinstance(error, SystemExit):
                raise
            error.__context__ = error.__context__ or self.late
            self.late = error

    def _run_due(self, frame: FrameType | None) -> None:
        self._release()
        # A signal may arrive again as fast as its handler runs.
        for number in tuple(self._pending):
            if self._pending.pop(number, None) is None:
                continue  # it arrived again meanwhile, and has had its turn
            handler = current_handler(number)
            if handler is signal.default_int_handler:
                if not self.is_wanted():
                    continue
                self.landed()
            if callable(handler):  # else user code has removed it meanwhile
                works, self._works = self._works, False  # a signal may interrupt the user's handler
                try:
                    run_handler(handler, number, frame)
                finally:
                    self._works = works

    def _look_later(self) -> None:
        self.later(AGAIN_SECONDS, self._look_again)

    def _look_again(self) -> None:
        """Trigger the first due handler again until none is due. Any thread."""
        self._queued = False
        number = next(iter(tuple(self._pending)), None)
        if number is None:
            return
        self._queued = True
        if get_ident() != self._main:
            _thread.interrupt_main(number)  # type: ignore[arg-type]
            if now() - self._since > PATIENCE and self._main is not None and callable(current_handler(number)):
                # It may sleep outside of mray. (A flag alone ends no sleep.)
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
        frame, self._trapped = self._trapped, None
        if frame is not None:
            if sys.gettrace() is _no_call:
                sys.settrace(None)
            frame.f_trace_lines, frame.f_trace_opcodes, frame.f_trace = True, False, None

    def _returned(self, frame: FrameType, event: str, value: Any) -> Any:
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
        """Guard errors raised in other threads and, in the main thread, signal handlers; SIGTERM gets one."""
        guard_threads(self._guarded)
        if get_ident() != self._main:
            return
        self._pid = os.getpid()
        if self.terminated is not None and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self.terminated)
            self._ends = True
        guard_handlers(self.came)

    def uninstall(self) -> None:
        """Undo `install`. Outside the main thread handlers stay guarded, which is harmless."""
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
        """In a forked child: uninstall, and deliver the signals that arrived meanwhile."""
        self._main = get_ident()
        self.late = None
        self._release()
        self.uninstall()
        # Last: until here, `came` only records signals.
        self._pid = os.getpid()
        pending, self._pending = self._pending, {}
        for number, pid in pending.items():
            if pid == os.getpid():
                signal.raise_signal(number)


_masks: dict[int, Any] = {}


def before_fork() -> None:
    """Block SIGTERM: the child forgets a signal that arrives before it has left the session."""
    _masks[get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


def after_fork() -> None:
    """Restore the signal mask; in the child, once it has left the session."""
    mask = _masks.pop(get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_program(number: int, _frame: FrameType | None) -> Any:
    """The SIGTERM handler of a driver: exit with the signal's number as status."""
    raise SystemExit(number)
