"""Signal handlers of user code, and Python's own of SIGINT: mray decides when they run (`mray._ipc.interrupts`).

While a session lives, present and later handlers are wrapped: `signal` and `getsignal` of the module `_signal`, which the functions of
`signal` call, are replaced meanwhile. `signal.getsignal` still returns the user's handler.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

#: Its `valid_signals` creates no enumeration members, which are slow.
_module: Any = sys.modules["_signal"]
_install, _installed = _module.signal, _module.getsignal

#: `InterruptGuard.came`.
_came: Callable[[int, FrameType | None], None] | None = None


def run_handler(handler: Callable[[int, Any], Any], number: int, frame: FrameType | None) -> Any:
    """See `is_of_handler`."""
    return handler(number, frame)


class Handler:
    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[int, Any], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        return run_handler(self.handler, number, frame) if _came is None else _came(number, frame)


def is_of_handler(error: BaseException) -> bool:
    """Whether a signal handler raised a caught error."""
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
    """As the user installed it; also `signal.SIG_DFL` and the like."""
    return _unwrapped(_installed(number))


def guard_handlers(came: Callable[[int, FrameType | None], None]) -> None:
    """Call `came` instead of user handlers. Main thread only."""
    global _came
    _came = came
    _module.signal, _module.getsignal = _signal, current_handler
    for number in _module.valid_signals():
        handler = current_handler(number)
        if callable(handler):
            _signal(number, handler)


def release_handlers(came: Callable[[int, FrameType | None], None]) -> None:
    """Undo `guard_handlers(came)`. Main thread only."""
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
