"""Arrays and tensors that are allocated in shared memory, so that they are sent without a copy.

They are ordinary writable arrays (`numpy.ndarray`, `torch.Tensor`). `put`, arguments and results of calls, items of generators, edges of
graphs, channels and `send` of collective groups share their memory with the readers: the whole, or contiguous parts.

    frames = shared.empty((64, 480, 640, 3), dtype="uint8")
    numpy.multiply(raw, scale, out=frames, casting="unsafe")     numpy's ``out=`` writes results there
    ref = mray.put(frames)                                       independent of the size
    frames[0] = 0                                                changes nothing for readers of `ref`

=============================  ===========================================================================================
case                           what happens
=============================  ===========================================================================================
written to after it was sent   pages of 4 KiB become this process's own, at some microseconds each; use a new array
sent again, not written to     no copy
sent again, written to         a copy of the arrays (or parts) that were written to, one page away or less
several in one value           through edges and channels without a copy; in an object, or the arguments of a call, those
                               that lie in the memory of the largest are not copied: pass the others as refs (`put`)
below 100 KiB                  travels inside messages, like any small value
not contiguous                 a copy, as of any array
dropped unsent                 its memory serves the next array, which then has no page faults
dropped after it was sent      the same, once objects that show it are released
no room in the object store    ordinary memory, copied (to disk, if need be) when it is sent
fork                           each has a copy; what the parent writes afterwards is copied when sent
this process ends              objects that other processes own keep it (results); its own objects are lost (`put`)
after `shutdown`               an array like any other
other engines                  ordinary memory; ``local_mode``, real Ray and connections through a proxy copy
=============================  ===========================================================================================

An array counts towards ``object_store_memory`` of its creator, sent or not. Any thread.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Literal, NamedTuple

from mray._api.current import current_backend

__all__ = ["Statistics", "array", "empty", "empty_like", "full", "statistics", "zeros"]


class Statistics(NamedTuple):
    """Counts of this process since its start."""

    made: int
    #: Shared memory had no room.
    elsewhere: int
    #: Arrays and parts sent without a copy; copied.
    sent: int
    copied: int


def statistics() -> Statistics:
    """How many arrays this process has allocated and sent, and how many it copied."""
    return Statistics(*current_backend().memory_counts())


def empty(shape: int | tuple[int, ...], dtype: Any = float, order: Literal["C", "F"] = "C") -> Any:
    """An uninitialized array; a tensor if `dtype` is one of torch's.

    `order` as in numpy ("C" or "F"); arrays only.
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        return _tensor(torch, sizes, dtype)
    import numpy  # noqa: PLC0415

    kind = numpy.dtype(dtype)
    size = math.prod(sizes) * kind.itemsize
    memory = None if kind.hasobject else current_backend().new_memory(size)
    if memory is None:
        return numpy.empty(sizes, kind, order)
    return numpy.ndarray(sizes, kind, memory, order=order)


def _tensor(torch: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    memory = current_backend().new_memory(math.prod(shape) * dtype.itemsize)
    if memory is None:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def full(shape: int | tuple[int, ...], fill_value: Any, dtype: Any = None, order: Literal["C", "F"] = "C") -> Any:
    """A new array of one value, by default with its dtype."""
    if dtype is None:
        import numpy  # noqa: PLC0415

        dtype = numpy.asarray(fill_value).dtype
    new = empty(shape, dtype, order)
    new[...] = fill_value
    return new


def zeros(shape: int | tuple[int, ...], dtype: Any = float, order: Literal["C", "F"] = "C") -> Any:
    """A new array of zeros."""
    new = empty(shape, dtype, order)
    new[...] = 0
    return new


def empty_like(prototype: Any, dtype: Any = None, shape: int | tuple[int, ...] | None = None) -> Any:
    """A new array, or tensor, by default with the shape and dtype of another one."""
    order: Literal["C", "F"] = "F" if getattr(getattr(prototype, "flags", None), "fnc", False) else "C"
    return empty(tuple(prototype.shape) if shape is None else shape, prototype.dtype if dtype is None else dtype, order)


def array(source: Any, dtype: Any = None) -> Any:
    """A copy of an array, a tensor, or a value that numpy can convert."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(source, torch.Tensor):
        import numpy  # noqa: PLC0415

        source = numpy.asarray(source, dtype)
    new = empty_like(source, dtype)
    new[...] = source
    return new
