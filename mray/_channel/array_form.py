"""Plain numpy arrays as bytes, without the pickler, whose Python code is slow for small arrays.

    ARRAY = u32 offset of the memory, u32 length of the header, header (dtype, shape, order), padding to 64 bytes, memory

Exact `numpy.ndarray` only, contiguous, of numbers, bytes or text; everything else goes through the serializer.
"""

from __future__ import annotations

import marshal
import math
import sys
from struct import Struct
from typing import Any

from mray._ipc.frames import decode

PREFIX = Struct("<II")
_ALIGN = 64
_KINDS = frozenset("biufcSU")
MOST_REMEMBERED = 256

#: Headers by dtype, shape and order.
heads: dict[tuple[Any, ...], bytes] = {}
#: Header -> dtype, shape, whether in Fortran order, number of elements.
_info: dict[bytes, tuple[Any, tuple[int, ...], bool, int]] = {}


def encode_array(value: Any) -> tuple[bytes, Any] | None:
    """The header of an array's memory, and the memory as bytes; None if the serializer must carry it."""
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
    key = (dtype, value.shape, flags.c_contiguous)
    head = heads.get(key)
    if head is None:
        if not _is_named(dtype):
            return None
        head = remember_head(key, (dtype.str, value.shape, not flags.c_contiguous))
    return head, memory.view(numpy.uint8).data


def _is_named(dtype: Any) -> bool:
    """Whether a dtype is numpy's own, not another package's of the same name."""
    try:
        return bool(sys.modules["numpy"].dtype(dtype.str) == dtype)
    except TypeError:
        return False


def remember_head(key: tuple[Any, ...], info: tuple[Any, ...]) -> bytes:
    """Cache the header in `heads`."""
    marshalled = marshal.dumps(info)
    start = PREFIX.size + len(marshalled)
    padding = -start % _ALIGN
    if len(heads) >= MOST_REMEMBERED:
        heads.clear()
    head = heads[key] = PREFIX.pack(start + padding, len(marshalled)) + marshalled + bytes(padding)
    return head


def decode_array(source: Any, length: int, memory: Any = None, offset: int = 0) -> Any:
    """The read-only array in the first `length` bytes of `source`, which it keeps alive.

    With `memory`, `source` has only the header, and the array's memory is the `length` bytes of `memory` from `offset`.
    """
    import numpy  # noqa: PLC0415

    view = memoryview(source).toreadonly()
    start, size = PREFIX.unpack_from(view)
    info = bytes(view[PREFIX.size : PREFIX.size + size])
    dtype, shape, fortran, count = _info.get(info) or _remember(info)
    if memory is None:
        if start + count * dtype.itemsize != length:
            raise ValueError(f"an array of {count} {dtype} is damaged: {length - start} bytes of it have arrived")
        array = numpy.frombuffer(view, dtype, count, start)
    else:
        array = numpy.frombuffer(memoryview(memory).toreadonly(), dtype, count, offset)
    if fortran:
        return array.reshape(shape[::-1]).T
    return array if len(shape) == 1 else array.reshape(shape)


def _remember(info: bytes) -> tuple[Any, tuple[int, ...], bool, int]:
    import numpy  # noqa: PLC0415

    name, shape, fortran = of_array = decode(info)
    count = number_of_elements(shape)
    dtype = numpy.dtype(name) if isinstance(name, str) else None
    if dtype is None or dtype.kind not in _KINDS or not dtype.itemsize or not isinstance(fortran, bool) or not count:
        raise ValueError(f"no array is {of_array!r:.200}")
    if len(_info) >= MOST_REMEMBERED:
        _info.clear()
    known = _info[info] = dtype, shape, fortran, count
    return known


def number_of_elements(shape: Any) -> int:
    """The number of elements of a received shape. Raises ValueError if it is invalid."""
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"no shape: {shape!r:.200}")
    count: int = math.prod(shape)
    return count
