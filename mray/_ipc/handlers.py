"""Handlers of signals that the user has installed, and Python's own of SIGINT: mray says when they run (`mray._ipc.interrupts`).

In the main thread of a driver, and of a worker, while a session lives. Handlers are wrapped where they are installed, those that are there
when a session begins and those that come later: the two functions of the module `_signal`, which those of `signal` call, are replaced for
so long. A caller of `signal.getsignal` gets the handler that was installed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

#: Of the C library; the type checker does not know it. Its `valid_signals` makes no enumeration members, which take 50 us each time.
_module: Any = sys.modules["_signal"]
_install, _installed = _module.signal, _module.getsignal

#: `InterruptGuard.came`, of the session that this process is in.
_came: Callable[[int, FrameType | None], None] | None = None


def run_handler(handler: Callable[[int, Any], Any], number: int, frame: FrameType | None) -> Any:
    """Call a handler of the user's. See `is_of_handler`."""
    return handler(number, frame)


class Handler:
    """In the place of one that the user has installed."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[int, Any], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        return run_handler(self.handler, number, frame) if _came is None else _came(number, frame)


def is_of_handler(error: BaseException) -> bool:
    """Whether an error that was caught came out of a handler, and is none of the code that it came into."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is run_handler.__code__:
            return True
        trace = trace.tb_next
    return False


def _unwrapped(handler: Any) -> Any:
    return handler.handler if type(handler) is Handler else handler


def _signal(number: Any, handler: Any) -> Any:
    if callable(handler) and type(handler) is not Handler:
        handler = Handler(handler)
    return _unwrapped(_install(number, handler))


def current_handler(number: Any) -> Any:
    """The handler of a signal, as its user has installed it; `signal.SIG_DFL` and the like."""
    return _unwrapped(_installed(number))


def guard_handlers(came: Callable[[int, FrameType | None], None]) -> None:
    """From now on this is called in the place of handlers, and says when they run. Main thread only."""
    global _came
    _came = came
    _module.signal, _module.getsignal = _signal, current_handler
    for number in _module.valid_signals():
        handler = current_handler(number)
        if callable(handler):
            _signal(number, handler)


def release_handlers(came: Callable[[int, FrameType | None], None]) -> None:
    """Its session has ended: handlers are as their users have installed them. Main thread only."""
    global _came
    if _came != came:
        return
    for number in _module.valid_signals():
        handler = _installed(number)
        if type(handler) is Handler:
            with contextlib.suppress(OSError, ValueError):
                _install(number, handler.handler)
    _module.signal, _module.getsignal = _install, _installed
    _came = None
