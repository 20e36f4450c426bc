"""Arrays on pretended devices: numpy's arithmetic, queued on streams.

    host                                           a thread of the stream
    shapes, dtypes and addresses are computed      the bytes at the addresses are touched
    the result is returned immediately             by numpy, later

The host reads an array in `numpy` and what builds on it, which waits for the device and counts the wait. As with CUDA, queued work
keeps nothing alive: a dead array's memory is reused in the order of its allocation's stream; a user on another stream calls
`record_stream`, or lets the streams wait.

Rejected: a subclass of numpy's array, whose memory numpy's C code reads directly on the host.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partialmethod
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mray._common.device_tensors import reduce_device_tensor
from mray._common.process_local import kernel_pid
from mray._common.tensor_layout import is_dense
from mray._device.device import TensorInfo
from mray._device.platform import platform
from mray._inside.memory import round_up
from mray.testing import null_memory
from mray.testing.null_memory import NullRegion
from mray.testing.null_stream import NullStream, Streams

#: Bytes of the largest pooled block, and of all pooled memory of a device.
_LARGEST_KEPT, _MOST_KEPT = 1 << 20, 4 << 20
#: Overwrites unused memory, so that late work reads it.
_STALE = 0xA5


# ------------------------------------------------------------------------------------------------- memory
class NullHeap:
    """The memory of arrays on one device."""

    def __init__(self, index: int, device: int, scope: str, total: int, streams: Streams) -> None:
        self.index = index
        self.device = device
        self.scope = scope
        self.total = total
        self.streams = streams
        self.process = kernel_pid()
        self._idle: dict[int, deque[NullRegion]] = {}
        self._most_kept = _MOST_KEPT

    def take(self, size: int) -> Storage:
        """Memory for an array. Raises MemoryError when the device is full."""
        room = round_up(1 << (size - 1).bit_length() if size <= _LARGEST_KEPT else size)
        try:
            region = self._idle[room].pop()
            region.is_live = True
        except (KeyError, IndexError):
            region = self.allocate(room)
        return Storage(self, region, None)

    def allocate(self, size: int) -> NullRegion:
        try:
            return null_memory.allocate(self.scope, self.device, self.total, size)
        except MemoryError:
            self.trim()
            return null_memory.allocate(self.scope, self.device, self.total, size)

    def give_back(self, region: NullRegion) -> None:
        """On the thread of a stream."""
        region.is_live = False
        kept = sum(size * len(regions) for size, regions in list(self._idle.items()))
        if region.size <= _LARGEST_KEPT and kept + region.size <= self._most_kept:
            ctypes.memset(region.base, _STALE, region.size)
            self._idle.setdefault(region.size, deque()).append(region)
            if not self._most_kept:  # closed meanwhile
                self.trim()
        else:
            null_memory.drop(region)

    def trim(self) -> None:
        for regions in list(self._idle.values()):
            while regions:
                with contextlib.suppress(IndexError):
                    null_memory.drop(regions.pop())

    def close(self) -> None:
        self._most_kept = 0
        self.trim()


class Storage:
    """The memory that views of an array share: of the heap, or of another owner."""

    __slots__ = ("__weakref__", "heap", "keep", "region", "stream", "used_on")

    def __init__(self, heap: NullHeap, region: NullRegion | None, keep: object) -> None:
        self.heap = heap
        self.region = region
        self.keep = keep
        self.stream = heap.streams.current
        self.used_on: list[NullStream] = []

    def use_on(self, stream: NullStream) -> None:
        """Do not reuse the memory before the work queued on this stream at the array's end is done."""
        if stream is not self.stream and stream not in self.used_on:
            self.used_on.append(stream)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        region = getattr(self, "region", None)
        if region is None or is_finalizing() or kernel_pid() != self.heap.process:
            return
        for stream in self.used_on:
            self.stream.follow(stream)
        heap = self.heap
        self.stream.submit(lambda: heap.give_back(region))


def dtype_named(name: str) -> np.dtype[Any]:
    """numpy's dtype by torch's name. Raises TypeError for those that numpy does not have."""
    dtype = np.dtype(name)
    if dtype.kind not in "biufc":
        raise TypeError(f"arrays on pretended devices cannot be of dtype {name!r}")
    return dtype


def _hold(view: Any) -> NullRegion:
    """The region to hold while a view's elements are touched. Raises RuntimeError if there is none."""
    low = high = view.ctypes.data
    for size, stride in zip(view.shape, view.strides, strict=True):
        low += min(0, (size - 1) * stride)
        high += max(0, (size - 1) * stride)
    return null_memory.resolve(low, high + view.itemsize - low)


def heaps() -> list[NullHeap]:
    """The heaps of this process."""
    here = platform()
    return [] if here is None or here.name != "null" else [device.heap for device in here.devices]  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------- arrays
class NullArray(NDArrayOperatorsMixin):
    """An array on a pretended device; see `mray.testing.null.empty` and others.

    Operators, slices, `reshape`, `T` and reductions mean what they mean in numpy; indices are ints, slices, None and Ellipsis. Operands
    are arrays of the same device and scalars.
    """

    def __init__(self, storage: Storage, view: Any) -> None:
        self.storage = storage
        #: Never read by the host.
        self.view = view

    @classmethod
    def new(cls, heap: NullHeap, dtype: np.dtype[Any], shape: Sequence[int], strides: Sequence[int] | None = None) -> NullArray:
        """Contents undefined. `strides`: in elements; None: C order."""
        storage = heap.take(math.prod(shape) * dtype.itemsize)
        assert storage.region is not None
        return cls.over(storage, storage.region.base, dtype, shape, strides)

    @classmethod
    def over(
        cls, storage: Storage, address: int, dtype: np.dtype[Any], shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> NullArray:
        """A dense array over memory that `storage` keeps alive."""
        steps = None if strides is None else [step * dtype.itemsize for step in strides]
        memory: Any = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
        return cls(storage, np.ndarray(shape, dtype, memory, 0, steps))

    #: Strides in bytes.
    dtype, shape, strides = (property(attrgetter(f"view.{name}")) for name in ("dtype", "shape", "strides"))
    ndim, size, nbytes = (property(attrgetter(f"view.{name}")) for name in ("ndim", "size", "nbytes"))
    #: The index of its device in this process; the address of the first element.
    device, address = property(attrgetter("storage.heap.index")), property(attrgetter("view.ctypes.data"))
    __eq__, __ne__, __hash__ = object.__eq__, object.__ne__, object.__hash__

    def __len__(self) -> int:
        return len(self.view)

    def __repr__(self) -> str:
        return f"NullArray({self.numpy()!r}, device={self.device})"

    # ------------------------------------------------------------------------------------ to the host
    def numpy(self) -> Any:
        """A copy in host memory. Waits for the device."""
        view, result, streams = self.view, np.empty(self.shape, self.dtype), self.storage.heap.streams
        launch(streams.current, [view], lambda: np.copyto(result, view))
        streams.wait_for(streams.current)
        return result

    def item(self) -> Any:
        """Waits for the device."""
        return self.numpy().item()

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __array__(self, *_arguments: object, **_options: object) -> Any:
        raise TypeError("an array on a pretended device becomes one of numpy only by .numpy(), which waits for the device")

    def __reduce_ex__(self, _protocol: object) -> Any:
        return reduce_device_tensor(self) or (bring_back, (self.numpy(), self.device))

    def __deepcopy__(self, _memo: object) -> NullArray:
        return self.clone()

    # ------------------------------------------------------------------------------------ copies
    def record_stream(self, stream: int) -> None:
        self.storage.use_on(self.storage.heap.streams.get(stream))

    def copy_(self, source: Any, casting: Any = "same_kind") -> NullArray:
        is_ours = isinstance(source, NullArray)
        target, taken = self.view, source.view if is_ours else np.array(source)  # it may change
        _check_fits(taken.dtype, taken.shape, target, casting)
        ours = self.storage.heap.streams.current
        theirs = source.storage.heap.streams.current if is_ours else ours
        ours.follow(theirs)
        launch(
            ours, [target, taken] if is_ours else [target], lambda: np.copyto(target, taken, casting=casting), (taken.dtype, target.dtype)
        )
        theirs.follow(ours)
        return self

    def fill_(self, value: Any) -> NullArray:
        return self.copy_(value, "unsafe")

    def clone(self) -> NullArray:
        return self.astype(self.dtype)

    def astype(self, dtype: Any) -> NullArray:
        return NullArray.new(self.storage.heap, dtype_named(np.dtype(dtype).name), self.shape).copy_(self, "unsafe")

    def is_contiguous(self) -> bool:
        return bool(self.view.flags.c_contiguous)

    def contiguous(self) -> NullArray:
        return self if self.is_contiguous() else self.clone()

    # ------------------------------------------------------------------------------------ views
    def __getitem__(self, key: Any) -> NullArray:
        keys = key if isinstance(key, tuple) else (key,)
        for each in keys:
            if isinstance(each, bool) or not (each is None or each is Ellipsis or isinstance(each, (int, slice, np.integer))):
                raise TypeError(f"arrays on pretended devices are indexed by ints, slices, None and Ellipsis, not by {each!r}")
        # With an Ellipsis, numpy returns an array also for one element.
        return NullArray(self.storage, self.view[keys if Ellipsis in keys else (*keys, Ellipsis)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self[key].copy_(value)

    def __iter__(self) -> Iterator[NullArray]:
        return (self[index] for index in range(len(self)))

    def reshape(self, *shape: Any) -> NullArray:
        """A view, or a copy if the array is not in C order."""
        dense = self.contiguous()
        return NullArray(dense.storage, dense.view.reshape(*shape))

    def transpose(self, *axes: Any) -> NullArray:
        return NullArray(self.storage, self.view.transpose(*axes))

    T = property(transpose)

    # ------------------------------------------------------------------------------------ arithmetic
    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, out: tuple[Any, ...] = (), **options: Any) -> Any:
        arrays = [each for each in inputs if isinstance(each, NullArray)]
        if method != "__call__" or options or not all(isinstance(each, (NullArray, complex, float, int, np.generic)) for each in inputs):
            return NotImplemented
        for each in arrays:
            if each.storage.heap is not self.storage.heap:
                raise RuntimeError(f"expected all arrays to be on the same device, but found devices {self.device} and {each.device}")
        dtype = function(*(np.empty(0, each.dtype) if isinstance(each, NullArray) else each for each in inputs)).dtype
        if function is np.matmul:
            left, right = arrays
            if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
                raise ValueError(f"arrays of shapes {left.shape} and {right.shape} cannot be multiplied")
            shape: tuple[int, ...] = (left.shape[0], right.shape[1])
        else:
            shape = np.broadcast_shapes(*(each.shape for each in arrays))
        operands = [each.view if isinstance(each, NullArray) else each for each in inputs]
        return self._computed(function, dtype, shape, arrays, lambda out: function(*operands, out=out, casting="same_kind"), *out)

    def _reduce(self, function: np.ufunc, axis: int | None = None) -> NullArray:
        dtype, shape = function.reduce(np.ones(1, self.dtype)).dtype, () if axis is None else np.delete(self.shape, axis).tolist()
        view = self.view
        return self._computed(function, dtype, shape, [self], lambda out: function.reduce(view, axis, out=out))

    sum, max, min = partialmethod(_reduce, np.add), partialmethod(_reduce, np.maximum), partialmethod(_reduce, np.minimum)

    def mean(self, axis: int | None = None) -> NullArray:
        mean: NullArray = self.sum(axis) / (self.size if axis is None else self.shape[axis])
        return mean

    def _computed(
        self,
        kernel: object,
        dtype: Any,
        shape: Sequence[int],
        arrays: Sequence[NullArray],
        work: Callable[[Any], object],
        target: NullArray | None = None,
    ) -> NullArray:
        """Queue work whose result goes into the target or a new array."""
        result = NullArray.new(self.storage.heap, dtype, shape) if target is None else target
        view = result.view
        _check_fits(dtype, shape, view)
        launch(self.storage.heap.streams.current, [*(each.view for each in arrays), view], lambda: work(view), kernel)
        return result


def _check_fits(dtype: Any, shape: Sequence[int], target: Any, casting: Any = "same_kind") -> None:
    if not np.can_cast(dtype, target.dtype, casting):
        raise TypeError(f"elements of dtype {dtype} do not fit into an array of dtype {target.dtype}")
    if np.broadcast_shapes(tuple(shape), target.shape) != target.shape:
        raise ValueError(f"elements of shape {tuple(shape)} do not fit into an array of shape {target.shape}")


def launch(stream: NullStream, views: Sequence[Any], work: Callable[[], object], kernel: object = None) -> None:
    """Queue a copy, or a kernel, that touches these views."""

    def run() -> None:
        regions = [_hold(view) for view in views if view.size]
        with np.errstate(all="ignore"):
            work()
        del regions

    stream.launch(run, kernel)


def bring_back(data: Any, index: int) -> NullArray:
    """Unpickle on the device with this index, or else on the first."""
    here = heaps()
    if not here:
        raise RuntimeError(
            "This value holds an array of a pretended device, and this process has no such device (MRAY_NULL_DEVICES). "
            'Send array.numpy(), or say device="cpu" in the type hint of the edge.'
        )
    heap = here[index] if index < len(here) else here[0]
    return NullArray.new(heap, data.dtype, data.shape).copy_(data)


def dense(array: NullArray) -> tuple[NullArray, TensorInfo]:
    """The array, or a copy in C order if it has gaps or repeats, and its description."""
    if not is_dense(array.shape, array.strides, array.dtype.itemsize):
        array = array.clone()
    strides = None if array.is_contiguous() else tuple(stride // array.dtype.itemsize for stride in array.strides)
    return array, TensorInfo(array.device, array.address, array.nbytes, array.dtype.name, array.shape, strides)
