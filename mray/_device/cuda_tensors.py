"""torch's tensors on CUDA devices: everything that mray asks of torch.

Any thread. torch is imported only when a tensor must be created; a process without it can still use `mray._device.cuda`.

**Tensors over foreign memory.** torch wraps an object with a ``__cuda_array_interface__``: the deleter of the storage that it creates
drops that object, which holds `keep`. So `keep` lives as long as the storage, whatever views of it exist. torch asks the driver which
device the address belongs to, and leaves the tensor there if that is the device it was given. Types without a name in the interface
(bfloat16, the 8-bit floats) are wrapped as integers of their size and viewed. Rejected: DLPack, whose deleter would be a Python function
that C calls at any time, also while the interpreter ends.

Private functions of torch are preferred where they exist, since they are much cheaper.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from mray._device.device import Aliases

#: Types that every torch understands; integer types for the others, by the size of an element.
_TYPE_NAMES = {
    **{f"float{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"<i{bits // 8}" for bits in (16, 32, 64)},
    "complex64": "<c8",
    "complex128": "<c16",
    "bool": "|b1",
    "uint8": "|u1",
    "int8": "|i1",
}
#: CUDA's handle of the calling thread's default stream.
PER_THREAD = 2
_TYPE_NAMES_BY_SIZE = {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8", 16: "<c16"}


class ForeignMemory:
    """Device memory that torch did not allocate."""

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


class _StorageAliases(Aliases):
    """Counted by torch's use count of a storage."""

    __slots__ = ("_alone", "_count", "_storage", "_tensor", "dying")

    #: Measured once: versions of torch may differ.
    _dying: ClassVar[int | None] = None

    def __init__(self, tensor: Any, count: Callable[[int], int]) -> None:
        self._tensor = tensor
        self._count = count
        self._storage: int = tensor.untyped_storage()._cdata  # noqa: SLF001  (torch's own way to name it)
        self._alone = count(self._storage)
        if _StorageAliases._dying is None:
            _StorageAliases._dying = self._count_one_that_dies()
        self.dying = _StorageAliases._dying

    def _count_one_that_dies(self) -> int:
        counted: list[int] = []
        other = self.another()
        reference = weakref.ref(other, lambda _dead: counted.append(self._count(self._storage) - self._alone))
        del other
        assert reference() is None
        return counted[0]

    def another(self) -> Any:
        return self._tensor.data

    def are_left(self, besides: int = 0) -> bool:
        return self._count(self._storage) > self._alone + besides


class _Current(threading.local):
    def __init__(self) -> None:
        #: Device -> stream of this thread, where torch does not record it.
        self.streams: dict[int, int] = {}


_current = _Current()


class CudaTensors:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_torch_ready = False
        self.tensor_type: type[Any] | None = None
        #: torch's functions for the current device, its stream, and whether that is captured, once torch is initialized.
        self.asks: tuple[Any, ...] = ()
        self._types: dict[str, tuple[Any, str, bool]] = {}
        self._names: dict[Any, str] = {}
        #: torch's objects for streams, by device.
        self._streams: dict[tuple[int, int], Any] = {}

    def where(self, index: int) -> Any:
        import torch  # noqa: PLC0415

        return torch.device("cuda", index)

    # ------------------------------------------------------------------------------------ what a tensor is
    def is_tensor(self, value: object) -> bool:
        """Whether it has exactly torch's type and lies in plain device memory."""
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not getattr(torch, "Tensor", None):
            return False
        self.tensor_type = type(value)
        tensor: Any = value
        if not self.is_on_device(tensor) or tensor.layout is not torch.strided:
            return False
        return not (tensor.is_quantized or tensor.is_nested or tensor.__dict__)

    def is_on_device(self, tensor: Any) -> bool:
        return bool(tensor.is_cuda)

    def device_of(self, tensor: Any) -> int:
        return int(tensor.get_device())

    def name_of(self, dtype: Any) -> str:
        """``"float32"`` for ``torch.float32``."""
        name = self._names.get(dtype)
        if name is None:
            name = self._names[dtype] = str(dtype).removeprefix("torch.")
        return name

    # ------------------------------------------------------------------------------------ streams
    def current_device(self) -> int:
        torch = sys.modules.get("torch")
        return torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else 0

    def is_current(self, index: int) -> bool:
        """Whether torch reports that this thread works on the device, and has created its context."""
        ask = self.asks or self._find_asks()
        return bool(ask) and ask[0]() == index

    def is_plain(self, index: int, stream: int) -> bool:
        """Whether torch reports that this thread works on the device and the stream, and captures nothing from it. False may mean
        unknown.
        """
        ask = self.asks or self._find_asks()
        try:
            return bool(ask) and ask[0]() == index and ask[1](index) == stream and not ask[2]()
        except RuntimeError:  # the default stream, while another one is captured
            return False

    def _find_asks(self) -> tuple[Any, ...]:
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            names = ("_cuda_getDevice", "_cuda_getCurrentRawStream", "_cuda_isCurrentStreamCapturing")
            found = tuple([_of_torch(name) for name in names])
            self.asks = () if None in found else found
        return self.asks

    def current_stream(self, index: int) -> int:
        """This thread's stream on the device: torch's where torch is loaded and knows devices, else the one set by `on_stream`, or 0.

        The handle of per-thread default streams names another stream in each thread, and so in a finalizer; edges use the default
        stream, since each of those and it wait for each other.
        """
        raw = _torch_streams()
        stream: int = _current.streams.get(index, 0) if raw is None else raw(index)
        return 0 if stream == PER_THREAD else stream

    def on_stream(self, index: int, stream: int) -> AbstractContextManager[None]:
        if _torch_streams() is None:
            return self._on_own_stream(index, stream)
        import torch  # noqa: PLC0415

        entering: AbstractContextManager[None] = torch.cuda.stream(self._stream(index, stream))
        return entering

    def _stream(self, index: int, stream: int) -> Any:
        """torch's object for a stream. For 0, `ExternalStream` would take another out of its pool."""
        known = self._streams.get((index, stream))
        if known is None:
            import torch  # noqa: PLC0415

            known = torch.cuda.ExternalStream(stream, device=index) if stream else torch.cuda.default_stream(index)
            self._streams[index, stream] = known
        return known

    @contextlib.contextmanager
    def _on_own_stream(self, index: int, stream: int) -> Iterator[None]:
        streams = _current.streams
        before = streams.get(index, 0)
        streams[index] = stream
        try:
            yield
        finally:
            streams[index] = before

    def use_on(self, tensor: Any, stream: int) -> None:
        tensor.record_stream(self._stream(tensor.get_device(), stream))

    # ------------------------------------------------------------------------------------ making tensors
    def empty(self, index: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None) -> Any:
        """An uninitialized tensor. Raises torch's OutOfMemoryError."""
        import torch  # noqa: PLC0415

        if strides is None:
            return torch.empty(shape, dtype=self._type(dtype)[0], device=self.where(index))
        return torch.empty_strided(shape, strides, dtype=self._type(dtype)[0], device=self.where(index))

    def view(self, index: int, address: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None, keep: object) -> Any:
        """A tensor over memory that keeps `keep` alive; strides in elements. One without elements keeps nothing."""
        torch_type, kind, is_viewed = self._types.get(dtype) or self._type(dtype)
        if 0 in shape:
            return self.empty(index, dtype, shape, strides)
        size = torch_type.itemsize
        in_bytes = None if strides is None else tuple([stride * size for stride in strides])
        tensor = self.wrap(index, ForeignMemory(address, kind, shape, in_bytes, keep))
        if tensor.data_ptr() != address:
            raise RuntimeError(f"torch has copied the memory at {address:#x}, which is not on GPU {index}")
        return tensor.view(torch_type) if is_viewed else tensor

    def aliases(self, tensor: Any) -> Aliases | None:
        count = _of_torch("_storage_Use_Count")
        return None if count is None else _StorageAliases(tensor, count)

    def wrap(self, index: int, memory: ForeignMemory) -> Any:
        import torch  # noqa: PLC0415

        if not self._is_torch_ready:
            torch.cuda.init()  # torch asks about the address before it initializes itself
            self._is_torch_ready = True
        # With the index: without, torch would copy to the host, or to the current device.
        return torch.as_tensor(memory, device=self.where(index))

    def _type(self, dtype: str) -> tuple[Any, str, bool]:
        """torch's type of that name, its name in the array interface, and whether that is another one of the same size."""
        known = self._types.get(dtype)
        if known is None:
            import torch  # noqa: PLC0415

            self.tensor_type = torch.Tensor
            torch_type = getattr(torch, dtype)
            kind = _TYPE_NAMES.get(dtype)
            known = self._types[dtype] = torch_type, kind or _TYPE_NAMES_BY_SIZE[torch_type.itemsize], kind is None
        return known


def _of_torch(name: str) -> Any:
    return getattr(getattr(sys.modules.get("torch"), "_C", None), name, None)


def _torch_streams() -> Any:
    """torch's function from a device to this thread's stream, or None."""
    return _of_torch("_cuda_getCurrentRawStream")
