"""Where Python drops an exception, and with it a Ctrl-C: in finalizers, and in callbacks of weak references.

Such an interrupt is printed as ignored, the program continues to wait, and a finalizer of mray would be cut short. Each import releases
its lock through such a callback. So where a session lives, its SIGINT handler checks whether the interrupt would be lost, and long
imports of mray before that defer it.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from types import FrameType, ModuleType
from typing import Any

from mray._common.kept import os

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
#: Functions whose errors Python drops, by name -> part of their files' paths.
_DROPPING = {
    "__del__": _PACKAGE + "/",
    "finalize": _PACKAGE + "/_ipc/slots.py",
    "_raise_in_thread": _PACKAGE + "/_ipc/async_exceptions.py",
    "cb": "<frozen importlib._bootstrap>",
    "_cb": "/weakref.py",
    "__call__": "/weakref.py",
    "remove": "/weakref.py",
    "_remove": "/_weakrefset.py",
}


def dropping_frame(frame: FrameType | None, most: int = -1) -> FrameType | None:
    """The outermost frame out of which Python would drop an error, as far as visible, among `most` frames (-1: all) from this one
    outwards.
    """
    found = None
    while frame is not None and most:
        code = frame.f_code
        path = _DROPPING.get(code.co_name)
        if path is not None and path in code.co_filename:
            found = frame
        frame = frame.f_back
        most -= 1
    return found


def are_dropped(frame: FrameType | None) -> bool:
    return dropping_frame(frame) is not None


def import_whole(name: str) -> ModuleType:
    """Import a module; an interrupt during the import is raised after it, a second one immediately."""
    loaded = sys.modules.get(name)
    if loaded is not None and not getattr(loaded.__spec__, "_initializing", False):
        return loaded
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return importlib.import_module(name)
    came: list[FrameType | None] = []
    is_over = False

    def put_off(number: int, frame: FrameType | None) -> Any:
        if is_over or (came and not are_dropped(frame)):  # over, and retained by another handler; or the second
            signal.default_int_handler(number, frame)
        came.append(frame)

    signal.signal(signal.SIGINT, put_off)
    try:
        return importlib.import_module(name)
    finally:
        is_over = True
        if signal.getsignal(signal.SIGINT) is put_off:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            signal.default_int_handler(signal.SIGINT, came[0])
