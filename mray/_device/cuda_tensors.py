"""torch's tensors on CUDA devices: what mray asks of torch, and of nobody else.

Any process that has torch; any thread. torch is not imported before something needs a tensor made; a process without it can still use the
memory, the streams and the events of `mray._device.cuda`.

**Tensors over memory of others.** torch wraps what has a ``__cuda_array_interface__``: the deleter of the storage that it makes drops that
very object, which holds `keep`. So `keep` lives as long as the storage, whatever views of it exist. torch asks the driver which device the
address belongs to, and leaves the tensor there if that is the device it was told. The interface has no name for some types (bfloat16, the
8-bit floats): they are wrapped as integers of their size and viewed. Rejected: DLPack, which names device and type itself, but whose
deleter would be a Python function that C calls at any time, also while the interpreter ends.

**Outputs.** `torch.cuda.MemPool` keeps the tensors made under it in segments of their own, which torch returns to the driver only after the
pool is dropped; so other processes may keep them open. Two of torch's habits are in the way:

* The pool that was entered first gets the memory. A CUDA graph captured meanwhile would take its memory there, and its replays would write
  over what the pool has given to others since. So our pool is left while a graph is captured or another pool is used (`_make_way`).
* A pool is entered by one thread at a time. A second one makes its tensors in ordinary memory, which only costs a copy later.

While any pool of a device is entered, by whichever thread, torch does not give cached memory back to the driver in order to try again when
the device is full, and does not look whether other streams are done with tensors that were freed while those used them (`record_stream`):
that memory is nobody's until then. Both it does when something is made outside, so now and then something is (`process_events`), and the
cache is emptied before a pool is used (`free_cache`).

Private functions of torch used here, each looked for first: ``_cuda_getCurrentRawStream`` (what torch's compiled code calls; a part of the
price of `torch.cuda.current_stream`), ``_storage_Use_Count`` and ``Tensor._use_count``, and the two that begin and end the use of a pool.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

#: Types that the array interface has a name for which every torch understands; those of other types by the size of an element.
_TYPE_NAMES = {
    **{f"float{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"<i{bits // 8}" for bits in (16, 32, 64)},
    "complex64": "<c8",
    "complex128": "<c16",
    "bool": "|b1",
    "uint8": "|u1",
    "int8": "|i1",
}
_TYPE_NAMES_BY_SIZE = {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8", 16: "<c16"}


class ForeignMemory:
    """Device memory that torch did not allocate, as its ``__cuda_array_interface__`` describes it."""

    __slots__ = ("__cuda_array_interface__", "keep")

    def __init__(self, address: int, kind: str, shape: Sequence[int], strides: tuple[int, ...] | None, keep: object) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (address, False),
            "typestr": kind,
            "shape": tuple(shape),
            "strides": strides,
        }
        self.keep = keep


class _Current(threading.local):
    def __init__(self) -> None:
        #: Device -> stream, of this thread, where torch keeps no account of it.
        self.streams: dict[int, int] = {}
        #: Pools that this thread has entered, outermost first.
        self.entered: list[_Entered] = []


_current = _Current()


class CudaTensors:
    """Tensors of CUDA devices, by the numbers that torch and the driver give them in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_torch_ready = False
        self._types: dict[str, tuple[Any, str, bool]] = {}
        self._names: dict[Any, str] = {}
        self._unshared: tuple[int, int, int] | None = None
        #: Device -> its pool.
        self._pools: dict[int, Any] = {}
        #: Devices whose pool some thread has entered.
        self._busy: set[int] = set()

    def where(self, index: int) -> Any:
        """torch's name of the device."""
        import torch  # noqa: PLC0415

        return torch.device("cuda", index)

    # ------------------------------------------------------------------------------------ what a tensor is
    def is_tensor(self, value: object) -> bool:
        """Whether it is a tensor of exactly torch's type in plain memory of a CUDA device, and nothing else."""
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not getattr(torch, "Tensor", None):
            return False
        tensor: Any = value
        return bool(self.is_on_device(tensor) and tensor.layout is torch.strided and not tensor.is_quantized and not tensor.__dict__)

    def is_on_device(self, tensor: Any) -> bool:
        """Whether its memory is of a device."""
        return bool(tensor.is_cuda)

    def device_of(self, tensor: Any) -> int:
        """The number of its device."""
        return int(tensor.get_device())

    def name_of(self, dtype: Any) -> str:
        """``"float32"`` of ``torch.float32``."""
        name = self._names.get(dtype)
        if name is None:
            name = self._names[dtype] = str(dtype).removeprefix("torch.")
        return name

    def is_sole(self, tensor: Any) -> bool:
        """Whether the storage has no owner but this tensor, and the tensor none but its Python object.

        Three counts, as they are for a tensor that was just made: owners of the storage (views, numpy arrays), owners of its Python object
        (``tensor.untyped_storage()`` that somebody holds), owners of the tensor in C++ (DLPack; the backward pass of what it went into).
        The caller counts the references to the Python object of the tensor.
        """
        import torch  # noqa: PLC0415

        if tensor.requires_grad or tensor.grad_fn is not None or tensor._is_view():  # noqa: SLF001  (torch's)
            return False
        if self._unshared is None:
            try:
                self._unshared = _owners(torch, torch.empty(1))
            except AttributeError:
                self._unshared = (-1, -1, -1)  # a torch that does not tell: never sole
        return self._unshared[0] > 0 and _owners(torch, tensor) == self._unshared

    # ------------------------------------------------------------------------------------ streams
    def current_device(self) -> int:
        """The device that this thread works on where it names none."""
        torch = sys.modules.get("torch")
        return torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else 0

    def current_stream(self, index: int) -> int:
        """This thread's stream on the device: torch's where torch is loaded and knows devices, else the one set by `on_stream`, or 0."""
        raw = _torch_streams()
        return _current.streams.get(index, 0) if raw is None else raw(index)

    def on_stream(self, index: int, stream: int) -> AbstractContextManager[None]:
        """Makes it this thread's current stream."""
        if _torch_streams() is None:
            return self._on_own_stream(index, stream)
        import torch  # noqa: PLC0415

        entering: AbstractContextManager[None] = torch.cuda.stream(torch.cuda.ExternalStream(stream, device=index))
        return entering

    @contextlib.contextmanager
    def _on_own_stream(self, index: int, stream: int) -> Iterator[None]:
        streams = _current.streams
        before = streams.get(index, 0)
        streams[index] = stream
        try:
            yield
        finally:
            streams[index] = before

    # ------------------------------------------------------------------------------------ making tensors
    def empty(self, index: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None) -> Any:
        """A tensor of torch's allocator, its contents undefined. Raises torch's OutOfMemoryError."""
        import torch  # noqa: PLC0415

        if strides is None:
            return torch.empty(shape, dtype=self._type(dtype)[0], device=self.where(index))
        return torch.empty_strided(shape, strides, dtype=self._type(dtype)[0], device=self.where(index))

    def view(self, index: int, address: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None, keep: object) -> Any:
        """A tensor over memory that keeps `keep` alive; strides in elements. One without elements has no memory and keeps nothing."""
        torch_type, kind, is_viewed = self._types.get(dtype) or self._type(dtype)
        if 0 in shape:
            return self.empty(index, dtype, shape, strides)
        size = torch_type.itemsize
        in_bytes = None if strides is None else tuple([stride * size for stride in strides])
        tensor = self.wrap(index, ForeignMemory(address, kind, shape, in_bytes, keep))
        if tensor.data_ptr() != address:
            raise RuntimeError(f"torch has copied the memory at {address:#x}, which is not on GPU {index}")
        return tensor.view(torch_type) if is_viewed else tensor

    def wrap(self, index: int, memory: ForeignMemory) -> Any:
        """torch's tensor over it."""
        import torch  # noqa: PLC0415

        if not self._is_torch_ready:
            torch.cuda.init()  # torch asks about the address before it does that itself
            self._is_torch_ready = True
        # With the number of the device: without, torch would copy to the host, or to the current device.
        return torch.as_tensor(memory, device=self.where(index))

    def _type(self, dtype: str) -> tuple[Any, str, bool]:
        """torch's type of that name, how the array interface says it, and whether that is another one of the same size."""
        known = self._types.get(dtype)
        if known is None:
            import torch  # noqa: PLC0415

            torch_type = getattr(torch, dtype)
            kind = _TYPE_NAMES.get(dtype)
            known = self._types[dtype] = torch_type, kind or _TYPE_NAMES_BY_SIZE[torch_type.itemsize], kind is None
        return known

    # ------------------------------------------------------------------------------------ outputs
    def create_pool(self, index: int) -> bool:
        """Make the pool of the device, unless this torch has none that serves; says whether there is one now."""
        import torch  # noqa: PLC0415

        if index not in self._pools:
            if torch.cuda.get_allocator_backend() != "native" or not _make_way(torch):
                return False
            with torch.cuda.device(index):  # a pool belongs to the device that is current now
                self._pools[index] = torch.cuda.MemPool()
        return True

    def drop_pools(self, *devices: int) -> bool:
        """Give up the pools of these devices, or all: what no tensor lies in goes back to the driver. Nobody else may have it open.

        False: some thread has entered one of them, which stays.
        """
        with self._lock:
            idle = [index for index in devices or tuple(self._pools) if index not in self._busy]
            dropped = [self._pools.pop(index, None) for index in idle]
        # Outside of the lock: torch frees the memory, which may wait for the device.
        del dropped
        return not any(index in self._pools for index in devices or tuple(self._pools))

    def outputs(self, index: int) -> AbstractContextManager[None]:
        """While entered, this thread's tensors come from the pool of the device, unless a pool of that device is entered already."""
        return _Entered(self, index)

    def segments(self, index: int) -> list[tuple[int, int]]:
        """Addresses and sizes of the segments of the pool."""
        pool = self._pools.get(index)
        if pool is None:
            return []
        try:
            segments = pool.snapshot(include_traces=False)
        except TypeError:  # an older torch, which tells everything
            segments = pool.snapshot()
        return [(segment["address"], segment["total_size"]) for segment in segments]

    def free_cache(self, index: int) -> None:
        """Have torch give the driver back what no tensor lies in. Waits for streams that use what was freed."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            with torch.cuda.device(index):
                torch.cuda.empty_cache()

    def process_events(self, index: int) -> None:
        """Have torch see which memory other streams are done with. Does not wait; nothing happens while any thread has entered the pool."""
        self.empty(index, "uint8", (1,), None)

    def take_pool(self, index: int) -> Any:
        """The pool of a device, for who takes it until `give_back_pool`; None if there is none, or it is in use."""
        pool = self._pools.get(index)
        if pool is None:
            return None
        with self._lock:
            if index in self._busy:
                return None
            self._busy.add(index)
        return pool

    def give_back_pool(self, index: int) -> None:
        """Nobody uses it now."""
        with self._lock:
            self._busy.discard(index)

    def enter_pool(self, index: int, pool: Any) -> AbstractContextManager[None]:
        """torch's way to route this thread's allocations."""
        import torch  # noqa: PLC0415

        entering: AbstractContextManager[None] = torch.cuda.use_mem_pool(pool, device=index)
        return entering


class _Entered:
    """Once around the pool of a device; nothing happens if there is none, or it is in use."""

    __slots__ = ("_index", "_pool", "_routing", "_tensors")

    def __init__(self, tensors: CudaTensors, index: int) -> None:
        self._tensors = tensors
        self._index = index
        self._pool: Any = None
        self._routing: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        pool = self._tensors.take_pool(self._index)
        if pool is None:
            return
        self._pool = pool
        _current.entered.append(self)
        try:
            self.enter()
        except BaseException:
            self._give_back()
            raise

    def __exit__(self, *_exception: object) -> None:
        if self._pool is not None:
            try:
                self.leave()
            finally:
                self._give_back()

    def _give_back(self) -> None:
        _current.entered.remove(self)
        self._pool = None
        self._tensors.give_back_pool(self._index)

    def uses(self, pool_id: object) -> bool:
        """Whether that is torch's name of this pool."""
        return bool(self._pool.id == pool_id)

    def enter(self) -> None:
        """Idempotent."""
        if self._routing is None:
            routing = self._tensors.enter_pool(self._index, self._pool)
            routing.__enter__()
            self._routing = routing

    def leave(self) -> None:
        """Idempotent."""
        routing, self._routing = self._routing, None
        if routing is not None:
            routing.__exit__(None, None, None)


def _owners(torch: Any, tensor: Any) -> tuple[int, int, int]:
    storage = tensor.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata), sys.getrefcount(storage), tensor._use_count()  # noqa: SLF001  (torch's)


def _torch_streams() -> Any:
    """torch's function from a device to this thread's stream, or None: torch is not loaded, or was built without CUDA."""
    torch = sys.modules.get("torch")
    return getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)


def _leave_pools() -> None:
    for entered in reversed(_current.entered):
        entered.leave()


def _enter_pools() -> None:
    for entered in _current.entered:
        entered.enter()


def _make_way(torch: Any) -> bool:
    """Have a thread leave the pools of `outputs` while it captures a CUDA graph or uses another pool; says whether this torch lets us.

    All captures begin and end by two methods of CUDAGraph (`torch.cuda.graph`, ``make_graphed_callables``, ``torch.compile``);
    `use_mem_pool` and the warm-up of ``torch.compile`` by two functions, of which the first is there since torch 2.8. Before, a pool took
    in what all threads allocate: too much for ours.
    """
    names = "_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool"
    graph: Any = torch.cuda.CUDAGraph
    graph_begin: Any = vars(graph).get("capture_begin")
    graph_end: Any = vars(graph).get("capture_end")
    pool_begin, pool_end = (getattr(torch._C, name, None) for name in names)  # noqa: SLF001  (torch's)
    if graph_begin is None or graph_end is None or pool_begin is None or pool_end is None:
        return False
    if getattr(graph_begin, "makes_way", False):
        return True

    def capture_begin(self: Any, *arguments: Any, **named: Any) -> Any:
        _leave_pools()
        try:
            return graph_begin(self, *arguments, **named)
        except BaseException:
            _enter_pools()
            raise

    def capture_end(self: Any) -> Any:
        try:
            return graph_end(self)
        finally:
            _enter_pools()

    def begin(device: int, pool_id: Any) -> None:
        if not any(entered.uses(pool_id) for entered in _current.entered):
            _leave_pools()
        pool_begin(device, pool_id)

    def end(device: int, pool_id: Any) -> None:
        pool_end(device, pool_id)
        if not any(entered.uses(pool_id) for entered in _current.entered):
            _enter_pools()

    capture_begin.makes_way = True  # type: ignore[attr-defined]
    graph.capture_begin, graph.capture_end = capture_begin, capture_end
    for module in (torch._C, torch.cuda.memory):  # noqa: SLF001  (torch's)
        for name, function in zip(names, (begin, end), strict=True):
            if hasattr(module, name):
                setattr(module, name, function)
    return True
