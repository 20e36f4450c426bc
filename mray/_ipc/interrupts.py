"""Ctrl-C at a safe moment.

In the main thread of a driver, and of a worker, where it is how a task is cancelled. A KeyboardInterrupt may be raised between any two
byte codes; raised while a message is half dispatched or half sent it would lose a reply, and while a lock is half taken it would keep it:
whoever waits for either would wait for ever. So while a session lives, Python's own handler of SIGINT is replaced by one that puts the
interrupt off to the end of such a stretch, or to where the stretch sleeps. A handler that the user has installed stays, and what it raises
is put off likewise (`mray._ipc.handlers`).

A signal ends a sleep, but not one that is about to begin: it may come when the interpreter has looked for signals and the kernel has not
put the thread to sleep yet, and ``_thread.interrupt_main`` sends none at all. The handler would then run when something else ends the
sleep, which may be never. So the main thread of a driver looks again each second. Those of workers sleep on, of which there may be a
thousand that have nothing to do: whoever cancels a task there sends the signal until it has landed (`mray._runtime.client.cancelling`).

Rejected: `signal.set_wakeup_fd`. There is one for a process, and it is the user's: event loops take it, or warn when it is taken.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from mray._common.dropped_errors import are_dropped
from mray._ipc.handlers import guard_handlers, release_handlers

#: How long the main thread of a driver sleeps at most before it looks for signals, in seconds.
LOOK_SECONDS = 1.0
#: After so many seconds an interrupt that has not landed is sent again.
AGAIN_SECONDS = 0.02


class InterruptGuard:
    """Marks stretches of the main thread that an interrupt must not cut.

    ``was = guard.enter() ... guard.leave(was)`` around the stretch, ``with guard:`` inside it around a sleep: an interrupt that comes there
    is raised, and the stretch goes on for whoever cleans up, and so is what a handler of the user's raises. Other threads
    are never interrupted and pay a comparison. An interrupt that meets the main thread while it owns `lock`, or where Python would drop it
    (`mray._common.dropped_errors`), comes again a little later, at no price for who takes the lock.
    """

    __slots__ = (
        "_due",
        "_held",
        "_installed",
        "_main",
        "_open",
        "_put_off",
        "_queued",
        "again",
        "is_wanted",
        "landed",
        "later",
        "lock",
        "looks",
    )

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._held = False
        self._open = False
        #: Raised when the stretch ends: KeyboardInterrupt, or the error of a handler of the user's.
        self._put_off: type[KeyboardInterrupt] | BaseException | None = None
        self._installed = False
        #: An interrupt has come that is to come again.
        self._due = False
        #: `again` has been asked to send it: set after `_due`, and taken back before that is looked at.
        self._queued = False
        #: Nobody sleeps while owning it.
        self.lock: Any = None
        #: Has something called soon, in another thread or at a safe moment.
        self.again: Callable[[Callable[[], None]], None] = lambda _callback: None
        #: Has something called in the thread that reads, after so many seconds.
        self.later: Callable[[float, Callable[[], None]], None] = lambda _seconds, _callback: None
        #: Whether the main thread looks for signals now and then while it sleeps.
        self.looks = False
        #: Asked in the handler, in the main thread: False drops the interrupt, which was meant for what is over.
        self.is_wanted: Callable[[], bool] = lambda: True
        #: Called in the handler when the interrupt is raised, or is going to be.
        self.landed: Callable[[], None] = lambda: None

    def enter(self) -> bool:
        """Begin a stretch; returns what `leave` wants."""
        if threading.get_ident() != self._main or self._held:
            return True
        self._held = True
        return False

    def leave(self, was_held: bool) -> None:
        """End it; raises the KeyboardInterrupt that came meanwhile, or what a handler of the user's has raised."""
        if was_held:
            return
        self._held = self._open = False
        if self._put_off is not None:
            self._raise()

    @property
    def is_open(self) -> bool:
        """Whether the main thread sleeps, or is about to, and an interrupt is raised at once."""
        return self._open

    def __enter__(self) -> None:
        """Inside a stretch, the thread is about to sleep; raises what was put off."""
        if threading.get_ident() == self._main and self._held:
            self._open = True
            self._held = False
            if self._put_off is not None:
                self._held = True
                self._open = False
                self._raise()

    def __exit__(self, *_: object) -> None:
        """It is awake again."""
        if self._open and threading.get_ident() == self._main:
            self._held = True
            self._open = False

    def longest(self, timeout: float | None) -> float:
        """How long the sleep that begins may last that is to end after so many seconds, or when something happens; -1 for ever."""
        if self.looks and threading.get_ident() == self._main and (timeout is None or timeout > LOOK_SECONDS):
            return LOOK_SECONDS
        return -1 if timeout is None else timeout

    def admit(self) -> None:
        """User code begins, in the middle of a stretch; raises what was put off."""
        self.leave(False)

    def dismiss(self) -> None:
        """User code is over: an interrupt that comes, or has come, too late for it is nobody's. More than once is safe."""
        self._held = True
        if self._put_off is KeyboardInterrupt:
            self._put_off = None

    def _raise(self) -> None:
        error, self._put_off = self._put_off, None
        try:
            assert error is not None
            raise error
        finally:
            del error  # whose traceback has this frame

    # ------------------------------------------------------------------------------------ handlers of the user's
    def puts_off(self, error: type[KeyboardInterrupt] | BaseException) -> bool:
        """Whether this, raised by a handler, has to wait for the end of a stretch; it is raised then. In a handler."""
        if not self._held or threading.get_ident() != self._main:  # (a child that another thread has forked has a copy of the word)
            return False
        before = self._put_off
        if before is not None and before is not error:  # as if the second were raised while the first is
            error = error if isinstance(error, BaseException) else error()
            if error.__context__ is None:
                error.__context__ = before if isinstance(before, BaseException) else before()
        self._put_off = error
        return True

    def comes_again(self, frame: FrameType | None) -> bool:
        """Whether what a handler raises into this frame has to come again a little later. In a handler."""
        return self.owns_lock() or (not self._open and are_dropped(frame))

    def owns_lock(self) -> bool:
        """Whether the thread that asks owns `lock`."""
        return self.lock is not None and bool(self.lock._is_owned())  # noqa: SLF001  (Python's)

    def cuts(self) -> None:
        """Something is raised now. In a handler."""
        if self._open:
            self._held = True
            self._open = False

    # ------------------------------------------------------------------------------------ installing
    def install(self) -> None:
        """Take over from Python's own handler, if that is what there is; guard the user's. Main thread only; elsewhere nothing happens."""
        if threading.get_ident() != self._main:
            return
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self.interrupted)
            self._installed = True
        guard_handlers(self)

    def uninstall(self) -> None:
        """Give Python its handler back, unless somebody has replaced ours, and the user theirs. In another thread than the main one they
        stay, and are harmless.
        """
        if threading.get_ident() != self._main:
            return
        release_handlers(self)
        if self._installed:
            if signal.getsignal(signal.SIGINT) == self.interrupted:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False

    def _interrupt(self) -> None:
        # A signal and no flag: by now the main thread may sleep. And not one signal: one that comes when that thread has looked for signals
        # and does not sleep yet ends no sleep.
        self._queued = False
        if self._due and self._main is not None:
            signal.pthread_kill(self._main, signal.SIGINT)
            self.later(AGAIN_SECONDS, self._interrupt)

    def interrupted(self, number: int, frame: FrameType | None) -> Any:
        """The handler of SIGINT."""
        self._due = False
        if not self.is_wanted():
            return None
        if self.puts_off(KeyboardInterrupt):
            self.landed()
            return None
        if self.comes_again(frame):
            self._due = True
            if not self._queued:  # another signal may come in the middle of that, and many would nest
                self._queued = True
                self.again(self._interrupt)
            return None
        self.landed()
        self.cuts()
        return signal.default_int_handler(number, frame)
