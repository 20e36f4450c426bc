"""Plain numpy arrays as bytes, without the pickler.

For the shared-memory transport. numpy's own way through pickle costs some ten microseconds per message each way (measured), mostly in
Python code of numpy; here an array is its dtype, shape and order in a few marshalled bytes, and its memory, 64 bytes aligned:

    ARRAY = u32 where the memory starts, u32 length of the facts, facts, padding, memory

Exact `numpy.ndarray` only, contiguous, of numbers, bytes or text; everything else goes through the serializer. numpy is never imported for
its own sake: who sends an array has it, and who gets one needs it.
"""

from __future__ import annotations

import marshal
import sys
from struct import Struct
from typing import Any

_PREFIX = Struct("<II")
_ALIGN = 64
_KINDS = frozenset("biufcSU")
_PADDING = bytes(_ALIGN)


def encode_array(value: Any) -> tuple[bytes, Any] | None:
    """What precedes an array's memory, and its memory as bytes; None when it is not for this file."""
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return None
    dtype = value.dtype
    if dtype.kind not in _KINDS or dtype.metadata is not None or not value.size or not dtype.itemsize:
        return None
    flags = value.flags
    if flags.c_contiguous:
        memory = value.reshape(-1)
    elif flags.f_contiguous:
        memory = value.T.reshape(-1)
    else:
        return None
    facts = marshal.dumps((dtype.str, value.shape, not flags.c_contiguous))
    start = _PREFIX.size + len(facts)
    padding = -start % _ALIGN
    return _PREFIX.pack(start + padding, len(facts)) + facts + _PADDING[:padding], memory.view(numpy.uint8).data


def decode_array(source: Any, length: int, memory: Any = None, offset: int = 0) -> Any:
    """The read-only array that lies in the first `length` bytes of `source`, which it keeps alive.

    With `memory`, `source` has only what precedes the array's memory, which are the `length` bytes of `memory` from `offset` on.
    """
    import numpy  # noqa: PLC0415

    view = memoryview(source).toreadonly()
    start, size = _PREFIX.unpack_from(view)
    name, shape, fortran = marshal.loads(view[_PREFIX.size : _PREFIX.size + size])
    dtype = numpy.dtype(name)
    if memory is None:
        array = numpy.frombuffer(view, dtype, (length - start) // dtype.itemsize, start)
    else:
        array = numpy.frombuffer(memoryview(memory).toreadonly(), dtype, length // dtype.itemsize, offset)
    if fortran:
        return array.reshape(shape[::-1]).T
    return array if len(shape) == 1 else array.reshape(shape)
