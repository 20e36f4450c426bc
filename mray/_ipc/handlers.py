"""Handlers of signals that the user has installed: they run when Python runs them, and what they raise comes at a safe moment.

In the main thread of a driver, and of a worker, while a session lives. A handler may raise anything (a time limit does, and ``sys.exit``
at a SIGTERM) between any two byte codes. Raised while a message is half dispatched it would lose that message, as an interrupt would (see
`mray._ipc.interrupts`): so it waits for the end of that stretch.

    signal ──▶ Python ──▶ what `signal.signal` was given, wrapped ──raises──▶ the guard: now, or when the stretch ends

So handlers are wrapped where they are installed, those that are there when a session begins and those that come later: the two functions of
the module `_signal`, which those of `signal` call, are replaced for so long. A caller of `signal.getsignal` gets the handler that was
installed.

Rejected: to block signals during a dispatch. That is two system calls for each, and Python hears of a signal through any other thread.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol


class Guard(Protocol):
    """The part of an `InterruptGuard` that handlers need."""

    again: Callable[[Callable[[], None]], None]

    def puts_off(self, error: type[KeyboardInterrupt] | BaseException) -> bool: ...
    def comes_again(self, frame: FrameType | None) -> bool: ...
    def cuts(self) -> None: ...
    def interrupted(self, number: int, frame: FrameType | None) -> Any: ...


#: Of the C library; the type checker does not know it. Its `valid_signals` makes no enumeration members, which take 50 us each time.
_module: Any = sys.modules["_signal"]
_install, _installed = _module.signal, _module.getsignal

#: Of the session that this process is in.
_guard: Guard | None = None
#: By signal, what was raised where it could not be: the signal is sent once more for it.
_late: dict[int, BaseException] = {}


class Handler:
    """In the place of one that the user has installed."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[int, Any], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: Any) -> Any:
        guard = _guard
        error = _late.pop(number, None)
        if error is None:
            try:
                return self.handler(number, frame)
            except BaseException as raised:
                if guard is None:
                    raise
                error = raised
        try:
            if guard is not None:
                if guard.puts_off(error):
                    return None
                if guard.comes_again(frame):
                    _late[number] = error
                    guard.again(lambda: _send(number))
                    return None
                guard.cuts()
            raise error
        finally:
            del error  # whose traceback has this frame


def is_of_handler(error: BaseException) -> bool:
    """Whether an error that was caught came out of a handler, and is none of the code that it came into."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is Handler.__call__.__code__:
            return True
        trace = trace.tb_next
    return False


def _send(number: int) -> None:
    main = threading.main_thread().ident
    if number in _late and main is not None:
        signal.pthread_kill(main, number)


def _unwrapped(handler: Any) -> Any:
    return handler.handler if type(handler) is Handler else handler


def _signal(number: Any, handler: Any) -> Any:
    if callable(handler) and not (type(handler) is Handler or (_guard is not None and handler == _guard.interrupted)):
        handler = Handler(handler)
    return _unwrapped(_install(number, handler))


def _getsignal(number: Any) -> Any:
    return _unwrapped(_installed(number))


def guard_handlers(guard: Guard) -> None:
    """From now on nothing that a handler raises cuts a stretch of this guard. Main thread only."""
    global _guard
    _guard = guard
    _module.signal, _module.getsignal = _signal, _getsignal
    for number in _module.valid_signals():
        handler = _getsignal(number)
        if callable(handler):
            _signal(number, handler)


def release_handlers(guard: Guard) -> None:
    """The guard's session has ended: handlers are as their users have installed them. Main thread only."""
    global _guard
    if _guard is not guard:
        return
    for number in _module.valid_signals():
        handler = _installed(number)
        if type(handler) is Handler:
            with contextlib.suppress(OSError, ValueError):
                _install(number, handler.handler)
    _module.signal, _module.getsignal = _install, _installed
    _guard = None
    _late.clear()
