"""Where Python drops an exception, and with it a Ctrl-C: in finalizers, and in callbacks of weak references.

An interrupt that comes just there is printed as ignored, and the program goes on, and waits for what the user does not want any more; a
finalizer of mray's would be cut in half besides. Each import lets go of its lock through such a callback. So where a session lives, its
handler of SIGINT asks whether the interrupt would be lost, and imports of mray's own that take long before there is one put it off.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

#: Functions whose errors Python drops, by their names, and a part of the paths of their files.
_DROPPING = {
    "__del__": str(Path(__file__).parents[1]) + "/",
    "finalize": str(Path(__file__).parents[1]) + "/_ipc/slots.py",
    "_raise_in_thread": str(Path(__file__).parents[1]) + "/_ipc/async_exceptions.py",
    "cb": "<frozen importlib._bootstrap>",
    "_cb": "/weakref.py",
    "__call__": "/weakref.py",
    "remove": "/weakref.py",
    "_remove": "/_weakrefset.py",
}


def dropping_frame(frame: FrameType | None, most: int = -1) -> FrameType | None:
    """The outermost of `most` frames (-1: all), from this one on outwards, out of which Python would drop an error, by all that can be
    seen: of a finalizer of mray's, or of a callback of the import system's or of the module weakref's.
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
    """Whether Python would drop an error that is raised into this frame."""
    return dropping_frame(frame) is not None


def import_whole(name: str) -> ModuleType:
    """The module of this name; an interrupt that comes while it is imported is raised when it is there, and a second one at once."""
    loaded = sys.modules.get(name)
    if loaded is not None and not getattr(loaded.__spec__, "_initializing", False):
        return loaded
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return importlib.import_module(name)
    came: list[FrameType | None] = []
    is_over = False

    def put_off(number: int, frame: FrameType | None) -> Any:
        if is_over or (came and not are_dropped(frame)):  # over, and kept by somebody who has replaced it meanwhile; or the second
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
