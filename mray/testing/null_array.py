"""Arrays on pretended devices: numpy's arithmetic, queued on streams.

    host                                           a thread of the stream
    shapes, dtypes and addresses are computed      the bytes at the addresses are touched
    the result is returned at once                 by numpy, later

An array never looks at its memory on the host but in `numpy`, `item` and what is made of them, which wait for the device and count. Queued
work knows addresses and keeps nothing alive, as with CUDA: memory of a dead array is used again in the order of the stream that was current
when it was made; who uses an array on another stream says so by `record_stream`, or has the streams wait for each other.
"""

from __future__ import annotations

import contextlib
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
from mray._device.device import Facts
from mray._device.platform import platform
from mray._ipc.segment import PAGE
from mray.testing import null_memory
from mray.testing.null_memory import NullRegion
from mray.testing.null_stream import NullStream, Streams

#: Memory of former arrays that is kept: blocks of at most so many bytes, so many bytes of a device.
_LARGEST_KEPT, _MOST_KEPT = 1 << 20, 4 << 20
#: Bytes of memory that is not in use any more, which work that comes too late finds there.
_STALE = 0xA5


# ------------------------------------------------------------------------------------------------- memory
class NullHeap:
    """The memory of arrays on one device in this process."""

    def __init__(self, index: int, device: int, scope: str, total: int, streams: Streams) -> None:
        self.index = index
        self.device = device
        self.scope = scope
        self.total = total
        self.streams = streams
        self.process = kernel_pid()
        #: Memory that can be used again: bytes -> regions.
        self._idle: dict[int, deque[NullRegion]] = {}
        self._is_closed = False

    def take(self, size: int) -> Storage:
        """Memory for an array. Raises MemoryError when the device is full."""
        room = max(PAGE, 1 << (size - 1).bit_length() if size <= _LARGEST_KEPT else (size + PAGE - 1) // PAGE * PAGE)
        try:
            region = self._idle[room].pop()
            region.is_live = True
        except (KeyError, IndexError):
            region = self.allocate(room)
        return Storage(self, region, None)

    def allocate(self, size: int) -> NullRegion:
        """Memory of its own. Raises MemoryError."""
        try:
            return null_memory.allocate(self.scope, self.device, self.total, size)
        except MemoryError:
            self.trim()
            return null_memory.allocate(self.scope, self.device, self.total, size)

    def give_back(self, region: NullRegion) -> None:
        """On the thread of a stream: no work on it follows."""
        region.is_live = False
        kept = sum(size * len(regions) for size, regions in list(self._idle.items()))
        if region.size <= _LARGEST_KEPT and kept + region.size <= _MOST_KEPT:
            stale = np.asarray(_Window(region.base, (region.size,), (1,), np.dtype(np.uint8)))
            stale.fill(_STALE)
            self._idle.setdefault(region.size, deque()).append(region)
            if self._is_closed:
                self.close()
        else:
            null_memory.drop(region)

    def trim(self) -> None:
        """Give memory that is not in use back to the device."""
        for regions in list(self._idle.values()):
            while regions:
                with contextlib.suppress(IndexError):
                    null_memory.drop(regions.pop())

    def close(self) -> None:
        """Keep nothing from now on."""
        self._is_closed = True
        self.trim()


class Storage:
    """The memory that views of an array share: of the heap, or kept by somebody else."""

    __slots__ = ("__weakref__", "heap", "keep", "region", "stream", "used_on")

    def __init__(self, heap: NullHeap, region: NullRegion | None, keep: object) -> None:
        self.heap = heap
        self.region = region
        self.keep = keep
        self.stream = heap.streams.current
        #: Other streams that the memory must not be used again before.
        self.used_on: list[NullStream] = []

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        region = getattr(self, "region", None)
        if region is None or is_finalizing() or kernel_pid() != self.heap.process:
            return
        for stream in self.used_on:
            self.stream.follow(stream)
        heap = self.heap
        self.stream.submit(lambda: heap.give_back(region))


class _Window:
    """Tells numpy where an array lies, and keeps nothing."""

    def __init__(self, address: int, shape: Sequence[int], strides: tuple[int, ...] | None, dtype: np.dtype[Any]) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": tuple(shape),
            "strides": strides,
            "typestr": dtype.str,
        }


def dtype_named(name: str) -> np.dtype[Any]:
    """numpy's dtype of torch's name. Raises TypeError for those that numpy does not have."""
    dtype = np.dtype(name)
    if dtype.kind not in "biufc":
        raise TypeError(f"arrays on pretended devices cannot be of dtype {name!r}")
    return dtype


def _extent(view: Any) -> tuple[int, int]:
    """First address and number of bytes that the elements of a view lie in."""
    low = high = view.__array_interface__["data"][0]
    for size, stride in zip(view.shape, view.strides, strict=True):
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    return low, high + view.itemsize - low


def held(*views: Any) -> list[NullRegion]:
    """The regions of these views, to be held while they are touched. Raises RuntimeError when one is no more."""
    return [null_memory.resolve(*_extent(view)) for view in views if view.size]


def heaps() -> list[NullHeap]:
    """Of the pretended devices of this process."""
    here = platform()
    return [] if here is None or here.name != "null" else [device.heap for device in here.devices]  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------- arrays
class NullArray(NDArrayOperatorsMixin):
    """An array on a pretended device. Made by `mray.testing.null.empty` and others.

    Operators, slices, `reshape`, `T` and reductions mean what they mean in numpy; indices are ints, slices, None and Ellipsis. Operands are
    arrays of the same device and scalars.
    """

    __slots__ = ("__weakref__", "_storage", "_view")

    def __init__(self, storage: Storage, view: Any) -> None:
        self._storage = storage
        #: Where the elements lie. Never looked into by the host.
        self._view = view

    @classmethod
    def new(cls, heap: NullHeap, dtype: np.dtype[Any], shape: Sequence[int], strides: Sequence[int] | None = None) -> NullArray:
        """Contents undefined. `strides`: in elements, of a dense array; None: C order."""
        count = 1
        for size in shape:
            count *= size
        storage = heap.take(count * dtype.itemsize)
        assert storage.region is not None
        return cls.over(storage, storage.region.base, dtype, shape, strides)

    @classmethod
    def over(
        cls, storage: Storage, address: int, dtype: np.dtype[Any], shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> NullArray:
        """An array over memory that `storage` keeps."""
        steps = None if strides is None else tuple(step * dtype.itemsize for step in strides)
        return cls(storage, np.asarray(_Window(address, shape, steps, dtype)))

    # ------------------------------------------------------------------------------------ what it is
    #: Strides in bytes.
    dtype, shape, strides = (property(attrgetter(f"_view.{name}")) for name in ("dtype", "shape", "strides"))
    ndim, size, nbytes = (property(attrgetter(f"_view.{name}")) for name in ("ndim", "size", "nbytes"))

    @property
    def device(self) -> int:
        """The index of its device in this process."""
        return self._storage.heap.index

    @property
    def address(self) -> int:
        """Of the first element."""
        return self._view.__array_interface__["data"][0]  # type: ignore[no-any-return]

    @property
    def storage(self) -> Storage:
        """The memory that its views share."""
        return self._storage

    @property
    def view(self) -> Any:
        """Where its elements lie, for work on streams (see `held`)."""
        return self._view

    def __len__(self) -> int:
        return len(self._view)

    def __repr__(self) -> str:
        return f"NullArray({self.numpy()!r}, device={self.device})"

    # ------------------------------------------------------------------------------------ to the host
    def numpy(self) -> Any:
        """A copy in host memory. Waits for the device."""
        view, result = self._view, np.empty(self.shape, self.dtype)
        launch(self._storage.heap.streams.current, [view], lambda: np.copyto(result, view), is_copy=True)
        self._storage.heap.streams.wait_for(self._storage.heap.streams.current)
        return result

    def item(self) -> Any:
        """The only element. Waits for the device."""
        return self.numpy().item()

    def tolist(self) -> Any:
        """The elements as Python's numbers. Waits for the device."""
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

    # ------------------------------------------------------------------------------------ work
    def _launch(self, views: Sequence[Any], work: Callable[[], object]) -> None:
        launch(self._storage.heap.streams.current, views, work)

    def _check_same_device(self, other: NullArray) -> None:
        if other._storage.heap is not self._storage.heap:
            raise RuntimeError(f"expected all arrays to be on the same device, but found devices {self.device} and {other.device}")

    def record_stream(self, stream: int) -> None:
        """Its memory is not used again before what is queued on this stream when it dies is done."""
        storage, user = self._storage, self._storage.heap.streams.get(stream)
        if user is not storage.stream and user not in storage.used_on:
            storage.used_on.append(user)

    def copy_(self, source: Any) -> NullArray:
        """Take the elements of another array, of any device or of numpy."""
        target, heap = self._view, self._storage.heap
        if not isinstance(source, NullArray):
            data = np.array(source)  # as it is now: the caller may change it
            _check_cast(data, target)
            self._launch([target], lambda: np.copyto(target, data, casting="same_kind"))
            return self
        other: NullArray = source
        view, their_heap = other._view, other._storage.heap
        _check_cast(view, target)
        theirs, ours = their_heap.streams.current, heap.streams.current
        if their_heap is not heap:
            ours.follow(theirs)
        self._launch([target, view], lambda: np.copyto(target, view, casting="same_kind"))
        if their_heap is not heap:
            theirs.follow(ours)
        return self

    def fill_(self, value: Any) -> NullArray:
        """Set every element."""
        return self.copy_(np.asarray(value).astype(self.dtype))

    def zero_(self) -> NullArray:
        return self.fill_(0)

    def clone(self) -> NullArray:
        """A copy in C order."""
        return NullArray.new(self._storage.heap, self.dtype, self.shape).copy_(self)

    def is_contiguous(self) -> bool:
        """Whether it is in C order."""
        return bool(self._view.flags.c_contiguous)

    def contiguous(self) -> NullArray:
        """In C order; a copy only if it is not."""
        return self if self.is_contiguous() else self.clone()

    def astype(self, dtype: Any) -> NullArray:
        """A copy of that dtype."""
        result: NullArray = NullArray.new(self._storage.heap, dtype_named(np.dtype(dtype).name), self.shape)
        view, target = self._view, result._view
        self._launch([target, view], lambda: np.copyto(target, view, casting="unsafe"))
        return result

    # ------------------------------------------------------------------------------------ views
    def __getitem__(self, key: Any) -> NullArray:
        for each in key if isinstance(key, tuple) else (key,):
            if isinstance(each, bool) or not (each is None or each is Ellipsis or isinstance(each, (int, slice, np.integer))):
                raise TypeError(f"arrays on pretended devices are indexed by ints, slices, None and Ellipsis, not by {each!r}")
        if not isinstance(key, tuple):
            key = (key,)
        # With an Ellipsis, numpy gives an array also where one element is left.
        return NullArray(self._storage, self._view[key if Ellipsis in key else (*key, Ellipsis)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self[key].copy_(value)

    def __iter__(self) -> Iterator[NullArray]:
        return (self[index] for index in range(len(self)))

    def reshape(self, *shape: Any) -> NullArray:
        """A view, or a copy if the array is not in C order."""
        dense: NullArray = self.contiguous()
        return NullArray(dense._storage, dense._view.reshape(*shape))

    def transpose(self, *axes: Any) -> NullArray:
        return NullArray(self._storage, self._view.transpose(*axes))

    @property
    def T(self) -> NullArray:  # noqa: N802
        """All axes in reverse."""
        return self.transpose()

    # ------------------------------------------------------------------------------------ arithmetic
    __eq__, __ne__, __hash__ = object.__eq__, object.__ne__, object.__hash__

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, out: tuple[Any, ...] = (), **options: Any) -> Any:
        arrays = [each for each in inputs if isinstance(each, NullArray)]
        if method != "__call__" or options or not all(isinstance(each, (NullArray, complex, float, int, np.generic)) for each in inputs):
            return NotImplemented
        for each in arrays:
            self._check_same_device(each)
        dtype = function(*(np.empty(0, each.dtype) if isinstance(each, NullArray) else each for each in inputs)).dtype
        if function is np.matmul:
            left, right = arrays
            if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
                raise ValueError(f"arrays of shapes {left.shape} and {right.shape} cannot be multiplied")
            shape: tuple[int, ...] = (left.shape[0], right.shape[1])
        else:
            shape = np.broadcast_shapes(*(each.shape for each in arrays))
        target: NullArray = out[0] if out else NullArray.new(self._storage.heap, dtype, shape)
        if shape != target.shape:
            raise ValueError(f"a result of shape {shape} does not fit into an array of shape {target.shape}")
        if not np.can_cast(dtype, target.dtype, "same_kind"):
            raise TypeError(f"a result of dtype {dtype} does not fit into an array of dtype {target.dtype}")
        operands = [each.view if isinstance(each, NullArray) else each for each in inputs]
        result = target._view
        self._launch([*(each.view for each in arrays), result], lambda: function(*operands, out=result, casting="same_kind"))
        return target

    def _reduce(self, operation: Any, axis: int | None = None) -> NullArray:
        dtype = operation(np.ones(1, self.dtype)).dtype
        shape = self.shape if axis is not None else ()
        if axis is not None:
            axis = range(self.ndim)[axis]
            shape = (*shape[:axis], *shape[axis + 1 :])
        result: NullArray = NullArray.new(self._storage.heap, dtype, shape)
        view, out = self._view, result._view
        self._launch([view, out], lambda: np.copyto(out, operation(view, axis=axis)))
        return result

    sum, mean = partialmethod(_reduce, np.sum), partialmethod(_reduce, np.mean)
    max, min = partialmethod(_reduce, np.max), partialmethod(_reduce, np.min)


def _check_cast(source: Any, target: Any) -> None:
    if not np.can_cast(source.dtype, target.dtype, "same_kind"):
        raise TypeError(f"elements of dtype {source.dtype} cannot be copied into an array of dtype {target.dtype}")
    if np.broadcast_shapes(source.shape, target.shape) != target.shape:
        raise ValueError(f"an array of shape {source.shape} cannot be copied into one of shape {target.shape}")


def launch(stream: NullStream, views: Sequence[Any], work: Callable[[], object], *, is_copy: bool = False) -> None:
    """Queue work that touches these views of device memory. A kernel, if it is no copy, is known by its code."""

    def run() -> None:
        regions = held(*views)
        with np.errstate(all="ignore"):
            work()
        del regions

    stream.launch(run, None if is_copy else getattr(work, "__code__", work))


def bring_back(data: Any, index: int) -> NullArray:
    """For unpickling: an array on the device of this index, or else on the first."""
    here = heaps()
    if not here:
        raise RuntimeError(
            "This value holds an array of a pretended device, and this process has no such device (MRAY_NULL_DEVICES). "
            'Send array.numpy(), or say device="cpu" in the type hint of the edge.'
        )
    heap = here[index] if index < len(here) else here[0]
    return NullArray.new(heap, data.dtype, data.shape).copy_(data)


def dense(array: NullArray) -> tuple[NullArray, Facts]:
    """The array, or a copy in C order if it has gaps or repeats, and its facts."""
    strides: tuple[int, ...] | None = None
    if not array.is_contiguous():
        if is_dense(array.shape, array.strides, array.dtype.itemsize):
            strides = tuple(stride // array.dtype.itemsize for stride in array.strides)
        else:
            array = array.clone()
    return array, Facts(array.device, array.address, array.nbytes, array.dtype.name, array.shape, strides)
