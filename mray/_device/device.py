"""The contract of devices: what mray needs of GPUs, and of their null counterparts.

Work is queued on *streams* and done later, in order; only `Platform.synchronize` waits for it. Addresses are plain ints. No context or
thread is created before a call needs it: the identity of devices (`uuid`, `name`, `can_access`) needs none.

Any thread; a call that names no stream uses the thread's current one. A forked process must not use what it inherited.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, NamedTuple

from mray._common import settings


class DeviceOutOfMemoryError(MemoryError):
    """A device has no memory left for a tensor."""


class NotExportedError(RuntimeError):
    """Memory of this process cannot be exported, or no other process can wait for its streams."""


class NotOpenedError(RuntimeError):
    """Memory of another process cannot be opened: the process is dead, or cannot share with this one."""


class DeviceFaultError(RuntimeError):
    """Work of this process on a device has failed: each call of any of its devices raises this, except releases, which do nothing."""

    #: The platform's name for it, such as ``CUDA_ERROR_ILLEGAL_ADDRESS``.
    name: str


class CaptureError(RuntimeError):
    """A graph is being captured from the stream, so its end cannot be marked."""


class TensorInfo(NamedTuple):
    """Address and layout of a dense tensor."""

    device: int
    address: int
    #: Bytes, without gaps.
    size: int
    #: torch's: ``"float32"``, ``"bfloat16"``.
    dtype: str
    shape: tuple[int, ...]
    #: In elements; None: C order.
    strides: tuple[int, ...] | None


class Mark(ABC):
    """A point in a stream, with the time at which the stream reached it."""

    __slots__ = ()

    @abstractmethod
    def time(self) -> int | None:
        """Nanoseconds of CLOCK_MONOTONIC; None until the stream reaches it."""


class Device(ABC):
    """A device as this process sees it."""

    #: Its number in this process, as torch counts.
    index: int
    #: Unique on the machine: ``GPU-...``.
    uuid: str
    name: str

    @cached_property
    def belongings(self) -> dict[str, Any]:
        """Objects that users of the device attach to it."""
        # Two concurrent first calls, without a lock, get the same.
        found: dict[str, Any] = self.__dict__.setdefault("belongings", {})
        return found

    def can_access(self, uuid: str) -> bool:
        """Whether kernels and copies of this device may access that one's memory, visible to this process or not."""
        return uuid == self.uuid or (settings.has_peer_access() and self.reaches(uuid))

    @abstractmethod
    def reaches(self, uuid: str) -> bool:
        """Whether `can_access` another device, according to the machine."""

    def is_mps_client(self) -> bool | None:
        """Whether MPS shares this process's contexts on the device; None if unknown. Creates no context."""
        return None

    def check(self) -> None:  # noqa: B027  (there are devices without faults)
        """Raise DeviceFaultError if work of this process has failed. Never waits."""

    # ------------------------------------------------------------------------------------ memory
    @abstractmethod
    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""

    @abstractmethod
    def allocate(self, size: int) -> int:
        """The address of new exportable memory. Raises MemoryError when the device is full."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Undo `allocate`. No process may have it open, and no work may be queued on it."""

    @abstractmethod
    def export_memory(self, base: int) -> bytes:
        """The handle of the allocation that starts there. Raises RuntimeError if it cannot be exported."""

    @abstractmethod
    def open_memory(self, handle: bytes) -> int:
        """The address of another process's allocation, on this device or one that it can access. May take long.

        Raises RuntimeError when it no longer exists.
        """

    @abstractmethod
    def close_memory(self, address: int) -> None:
        """Undo `open_memory`. No work may be queued on it."""

    @abstractmethod
    def register_host(self, address: int, size: int) -> None:
        """Pin host memory, so that copies are asynchronous, and streams can use its words. May wait for the device."""

    @abstractmethod
    def unregister_host(self, address: int) -> None:
        """Undo `register_host`."""

    # ------------------------------------------------------------------------------------ order
    @abstractmethod
    def current_stream(self) -> int:
        """This thread's current stream."""

    @abstractmethod
    def create_stream(self) -> int:
        """A stream that does not synchronize with others by itself."""

    @abstractmethod
    def stream_id(self, stream: int) -> int:
        """The id of the stream that has this handle, unique among all that this process ever has."""

    @abstractmethod
    def destroy_stream(self, stream: int) -> None:
        """Queued work is done first."""

    @abstractmethod
    def on_stream(self, stream: int) -> AbstractContextManager[None]:
        """Context manager: make it this thread's current stream."""

    def why_unordered(self) -> str:
        """Why its streams neither set host words nor wait for them, in a sentence; or ""."""
        return ""

    @abstractmethod
    def set_word(self, address: int, number: int, stream: int) -> None:
        """Queue: set eight bytes of registered host memory to the number, once all earlier work is done and visible to every process.
        Raises CaptureError, and RuntimeError when the device lacks the operation. Waits only where a hardware queue is full.
        """

    @abstractmethod
    def await_word(self, address: int, number: int, stream: int) -> None:
        """Queue: wait until eight bytes of registered host memory are the number or up to 2**63 - 1 more, set by a stream of any process or
        by a processor. Raises as `set_word`.
        """

    @abstractmethod
    def mark(self, stream: int) -> Mark:
        """Mark the present end of the stream's work. Never waits, except for the first mark of a process, which synchronizes the clocks."""

    @abstractmethod
    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Queue a copy. Either end is memory of this device, of one that it can access, or registered host memory."""

    # ------------------------------------------------------------------------------------ tensors
    @abstractmethod
    def empty(self, dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None) -> Any:
        """A dense, uninitialized tensor of the process's own allocator. Raises MemoryError when the device is full."""

    @abstractmethod
    def tensor(self, address: int, size: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None, keep: object) -> Any:
        """A tensor over `size` bytes of device memory; every view of it keeps `keep` alive."""

    @abstractmethod
    def aliases(self, tensor: Any) -> Aliases | None:
        """For tensors over this one's memory, which has no other holder; None if holders cannot be counted."""


class Aliases(ABC):
    """Tensors over the memory of a retained one."""

    __slots__ = ()
    #: Holders per tensor when its weak reference calls back.
    dying: int

    @abstractmethod
    def another(self) -> Any:
        """One more tensor, which takes weak references."""

    @abstractmethod
    def are_left(self, besides: int = 0) -> bool:
        """Whether anything else in this process holds the memory: such tensors beyond `dying`, views of them, arrays over it. May count a
        dying one.
        """


class Platform(ABC):
    """The devices of one kind that this process sees, by index."""

    #: ``"cuda"`` or ``"null"``: processes of one name understand each other's handles.
    name: str
    devices: Sequence[Device]
    #: Waits of this process for a device through mray.
    synchronizations: int

    @abstractmethod
    def is_tensor(self, value: object) -> bool:
        """Whether it is on one of the devices."""

    @abstractmethod
    def info(self, tensor: Any) -> tuple[Any, TensorInfo]:
        """The tensor, or a dense copy of one with gaps or overlaps (queued on the current stream, and retained until then), and its facts.

        Raises RuntimeError for a tensor that requires grad.
        """

    def look(self, tensor: Any) -> tuple[Hashable, int] | None:
        """(kind, address) of a tensor; tensors of equal kind differ in nothing else but contents.

        None for a tensor that `info` would copy or refuse, that has no elements, or that is on no device here.
        """
        if not self.is_tensor(tensor):
            return None
        dense, info = self.info(tensor)
        return (info._replace(address=0), info.address) if dense is tensor and info.size else None

    @abstractmethod
    def synchronize(self, device: Device, stream: int) -> None:
        """Wait until the stream's work is done; raises its error."""

    def close(self) -> None:
        """Free memory. Idempotent."""
        for device in self.devices:
            timelines = device.belongings.pop("timelines", None)
            if timelines is not None:
                timelines.close()

    def current_device(self) -> Device:
        """This thread's default device."""
        return self.devices[0]

    def is_in_use(self) -> bool:
        return True

    def tensor_types(self) -> tuple[type, ...]:
        """The classes of its tensors, if their library is imported; hashable by identity."""
        torch = sys.modules.get("torch")
        return () if torch is None else (torch.Tensor,)

    @abstractmethod
    def use_on(self, tensor: Any, stream: int) -> None:
        """Record that this stream's work will use the tensor, so that its memory is not reused before."""

    def placed(self, tensor: Any, where: str) -> Any:
        """A tensor of one of these classes on the host (``"cpu"``) or on the current device (``"cuda"``): itself if it is there already."""
        return tensor.to(where)

    @abstractmethod
    def nccl(self) -> Any:
        """An object with the calls of `mray._device.libnccl.LibNccl`. Raises LookupError that says what to install."""

    @abstractmethod
    def nccl_device(self, index: int) -> AbstractContextManager[Any]:
        """Context manager: create NCCL communicators of this thread on the device of this index."""

    def device_of(self, uuid: str) -> Device | None:
        return next((device for device in self.devices if device.uuid == uuid), None)
