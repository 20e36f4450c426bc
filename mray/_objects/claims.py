"""Claims of the memory of a received array: its reader may have it, to write into, where nobody else would see that.

    array -> memoryview -> mapping of a segment        claimed by `mray._ipc.mapped`
                        -> bytes of a small value      claimed here

A small value's arrays are views of the very bytes that came. The holders of the bytes are looked for when a collective is about to write
into them.

* Other readings: each has a managed buffer of its own, and there must be one.
* Entries and calls that are not answered, which would have the bytes read again: they get a copy (`part_with`).
* The message of the call that this thread runs, which has been read and is not read again.

Any other holder of a reference may be about to read, and the claim fails.

An argument's holder is the call, and what `get` gives is noted (`note`) as soon as this process is in a group that may claim. For other
values all objects of the process are looked through: 18 milliseconds for a million of them, of which torch alone brings some.

Rejected: a copy of every small value with arrays at its reading (6.6 rather than 4.5 microseconds at 96 KB), a note of each reading for as
long as its arrays live.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from types import CodeType
from typing import Any

from mray._ipc import mapped
from mray._objects.ownership import Holder
from mray._objects.serializer import spans

#: The functions that run a call whose message is in their variable `running`, read before user code runs.
#: They are methods of what says whether messages are the callers' own objects (`shares_messages`).
runners: set[CodeType] = set()

_ManagedBuffer = type(gc.get_referents(memoryview(b""))[0])
_claiming = threading.Lock()
#: Whether what is read is to be noted.
are_likely = False
#: The entries whose bytes `get` gave of late, by the address of the bytes.
_noted: dict[int, weakref.ref[Holder]] = {}
MOST_NOTED = 1024


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


def expect() -> None:
    """This process is going to claim what it reads."""
    global are_likely
    are_likely = True


def note(holder: Holder) -> None:
    """Its bytes are about to be read: a claim of them will find it, unless too many others were read since. Where claims `are_likely`."""
    if len(_noted) >= MOST_NOTED:
        _noted.clear()
    _noted[id(holder.payload)] = weakref.ref(holder)


def _is_had(view: memoryview) -> bool:
    noted = _noted.pop(id(view.obj), None)
    holder = None if noted is None else noted()
    if holder is not None and holder.payload is view.obj:
        holder.part_with(view.obj, _copy_of(view.obj))
    if not _others(view):
        return True
    is_shared, message = _message_of_call()
    if message is not None and not is_shared:
        # It came through a socket: nobody else reads it.
        readings = [message.payload, *[value.payload for value in message.arguments or ()]]
        count = [each is view.obj for each in readings].count(True)
        if count:
            return count == 1
    if not _part(view.obj):
        return False
    others = _others(view)
    if not others or message is None:
        return not others
    return message.payload is view.obj or (others == 1 and any(value.payload is view.obj for value in message.arguments or ()))


def _message_of_call() -> tuple[bool, Any]:
    """Whether messages are the callers' own objects, and that of this thread's call."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code in runners:
            return frame.f_locals["self"].shares_messages, frame.f_locals["running"].call
        frame = frame.f_back
    return False, None


def _others(view: memoryview) -> int:
    """References of the bytes besides that of the view's own reading."""
    return _references(view) - _references(memoryview(bytearray(1)))


def _references(view: memoryview) -> int:
    return sys.getrefcount(view.obj)


def _copy_of(payload: bytes) -> bytes:
    return bytes(memoryview(payload))


def _part(payload: Any) -> bool:
    """Have everybody who would hand the bytes out hand out a copy; False if there is a second reading."""
    # A dictionary of an object's variables need not be known to the collector. The object is, and refers to its class.
    found = gc.get_referrers(payload, *_kinds(Holder))
    if [type(each) for each in found].count(_ManagedBuffer) != 1:
        return False
    copy = _copy_of(payload)
    for each in found:
        if issubclass(type(each), Holder) and getattr(each, "payload", None) is payload:
            each.part_with(payload, copy)
    return True


def _kinds(kind: type) -> list[type]:
    """A class and all that are derived from it."""
    derived: list[type] = kind.__subclasses__()
    return [kind, *(each for one in derived for each in _kinds(one))]
