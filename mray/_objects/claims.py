"""Claims of the memory of a received array: its reader may have it, to write into, where nobody else would see that.

    array -> memoryview -> mapping of a segment        claimed by `mray._ipc.mapped`
                        -> bytes of a small value      claimed here

A small value's arrays are views of the very bytes that came. Reading it costs nothing for that, and nothing is noted: the holders of the
bytes are looked for when a collective is about to write into them.

* Other readings: each has a managed buffer of its own, and there must be one.
* Entries and calls that are not answered, which would have the bytes read again: they get a copy (`part_with`).
* The message of the call that this thread runs, which has been read and is not read again.

Any other holder of a reference may be about to read, and the claim fails.

Rejected: a copy of every small value with arrays at its reading (6.6 rather than 4.5 microseconds at 96 KB), a note of each reading.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from types import CodeType
from typing import Any

from mray._ipc import mapped
from mray._objects.ownership import Holder
from mray._objects.serializer import spans

#: The functions that run a call whose message is in their variables `payload` and `arguments`, read before user code runs.
runners: set[CodeType] = set()

_ManagedBuffer = type(gc.get_referents(memoryview(b""))[0])
_claiming = threading.Lock()


def claim(view: memoryview) -> Any:
    """Writable memory that a received array's view shows, from the start of it, for its one reading; None if it is nobody's to give."""
    if type(view.obj) is not bytes:
        return mapped.claim(view)
    start = mapped.address_of(view) - mapped.address_of(view.obj)
    if (start, view.nbytes) not in spans(view.obj):
        return None
    with _claiming:
        if not _is_had(view):
            return None
    memory: Any = (ctypes.c_char * len(view.obj)).from_address(mapped.address_of(view.obj))
    memory.source = view
    return memory


def _is_had(view: memoryview) -> bool:
    if not _part(view.obj):
        return False
    others = _references(view) - _references(memoryview(bytearray(1)))
    if not others:
        return True
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code in runners:
            payload, arguments = frame.f_locals["payload"], frame.f_locals["arguments"]
            return payload is view.obj or (others == 1 and any(value[1] is view.obj for value in arguments or ()))
        frame = frame.f_back
    return False


def _references(view: memoryview) -> int:
    return sys.getrefcount(view.obj)


def _part(payload: Any) -> bool:
    """Have everybody who would hand the bytes out hand out a copy; False if there is a second reading."""
    holders = gc.get_referrers(payload)
    if [type(holder) for holder in holders].count(_ManagedBuffer) != 1:
        return False
    copy = None
    for holder in holders:
        # An object without slots may have its variables in a dict.
        for each in gc.get_referrers(holder) if type(holder) is dict and "payload" in holder else (holder,):
            if isinstance(each, Holder):
                copy = copy or bytes(memoryview(payload))
                each.part_with(payload, copy)
    return True
