"""The contract of devices: what mray needs of GPUs, and of what stands in for them.

    Platform      the devices of one kind that this process sees, and the tensors on them: CUDA's, or pretended ones of host memory
    Device        one of them: memory, streams, copies, and words of the host that streams set and wait for

Work is queued on *streams* and done later, in order; nothing here waits for it but `Platform.synchronize`, which counts. Addresses are
plain ints. Nothing is initialized, no context is made and no thread is started before something is asked for that needs it: the identity
of devices (`uuid`, `name`, `can_access`) is had without.

Any thread; each call is for the thread's own current stream where it names none. A process that has forked must not use what it inherited.
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
    """A device has no memory left for what an edge carries."""


class NotExportedError(RuntimeError):
    """Memory of this process cannot be exported, or no other process can wait for its streams."""


class NotOpenedError(RuntimeError):
    """Memory of another process cannot be opened: that one is dead, or nothing can be shared with it."""


class DeviceFaultError(RuntimeError):
    """Work of this process on a device has gone wrong: none of its devices does anything any more, and each call raises this,
    but for those that let go of something, which do nothing. Only another process can use them.
    """

    #: The platform's name for it, such as ``CUDA_ERROR_ILLEGAL_ADDRESS``.
    name: str


class CaptureError(RuntimeError):
    """A graph is being captured from the stream, so that its present end cannot be marked."""


class Facts(NamedTuple):
    """Where a dense tensor lies and how to look at it."""

    #: Which device of the platform, by its index in this process.
    device: int
    address: int
    #: Bytes from the address on, without gaps.
    size: int
    #: torch's name for it: ``"float32"``, ``"bfloat16"``.
    dtype: str
    shape: tuple[int, ...]
    #: In elements; None: C order.
    strides: tuple[int, ...] | None


class Mark(ABC):
    """A place in the work of a stream, and when the stream came there. For who looks on."""

    __slots__ = ()

    @abstractmethod
    def time(self) -> int | None:
        """Nanoseconds of CLOCK_MONOTONIC; None as long as the stream has not come there."""


class Device(ABC):
    """One device, as this process sees it."""

    #: Number in this process, as torch counts.
    index: int
    #: Unique on the machine: ``GPU-...``. How processes agree on which device they mean.
    uuid: str
    #: The model.
    name: str

    @cached_property
    def belongings(self) -> dict[str, Any]:
        """Objects that users of the device keep with it, for as long as it is used."""
        # Two threads that ask first at once, of which neither locks, get the same.
        found: dict[str, Any] = self.__dict__.setdefault("belongings", {})
        return found

    def can_access(self, uuid: str) -> bool:
        """Whether kernels and copies of this device may reach the memory of that one. Also for devices that this process does not see."""
        return uuid == self.uuid or (settings.has_peer_access() and self.reaches(uuid))

    @abstractmethod
    def reaches(self, uuid: str) -> bool:
        """Whether they can, by what the machine says; of another device."""

    def is_mps_client(self) -> bool | None:
        """Whether contexts of this process on the device are shared by MPS; None if the driver does not tell. Makes no context."""
        return None

    def check(self) -> None:  # noqa: B027  (there are devices without faults)
        """Raise DeviceFaultError if work of this process has gone wrong. Never waits."""

    # ------------------------------------------------------------------------------------ memory
    @abstractmethod
    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""

    @abstractmethod
    def allocate(self, size: int) -> int:
        """The address of new memory that can be exported. Raises MemoryError when the device is full."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Undo `allocate`. Nobody may have it open, and no work may be queued on it."""

    @abstractmethod
    def export_memory(self, base: int) -> bytes:
        """The handle by which other processes open the allocation that starts there. Raises RuntimeError when it cannot be."""

    @abstractmethod
    def open_memory(self, handle: bytes) -> int:
        """Map another process's allocation, of this device or of one that it can access: the address of its beginning. May take long.

        Raises RuntimeError when it is gone.
        """

    @abstractmethod
    def close_memory(self, address: int) -> None:
        """Undo `open_memory`. No work may be queued on it."""

    @abstractmethod
    def register_host(self, address: int, size: int) -> None:
        """Pin host memory, so that copies from and to it are asynchronous, and its words order streams. May wait for the device."""

    @abstractmethod
    def unregister_host(self, address: int) -> None:
        """Undo `register_host`."""

    # ------------------------------------------------------------------------------------ order
    @abstractmethod
    def current_stream(self) -> int:
        """The stream on which this thread's work on the device is queued."""

    @abstractmethod
    def create_stream(self) -> int:
        """A stream that waits for no other by itself."""

    @abstractmethod
    def stream_id(self, stream: int) -> int:
        """The number of the stream that has this handle: no other stream of this process ever has the same."""

    @abstractmethod
    def destroy_stream(self, stream: int) -> None:
        """Undo `create_stream`; what is queued is done first."""

    @abstractmethod
    def on_stream(self, stream: int) -> AbstractContextManager[None]:
        """Makes it this thread's current stream of the device while entered."""

    def why_unordered(self) -> str:
        """Why its streams neither set words of the host nor wait for them, in a sentence; empty: they do."""
        return ""

    @abstractmethod
    def set_word(self, address: int, number: int, stream: int) -> None:
        """Queue: the eight bytes there, of registered memory of the host, become the number, once all that is queued before is done and can
        be seen by everybody. Raises CaptureError, and RuntimeError when the device has no such thing. Waits only where a hardware
        queue of the device is full.
        """

    @abstractmethod
    def await_word(self, address: int, number: int, stream: int) -> None:
        """Have the stream wait until the eight bytes there, of registered memory of the host, are the number or up to 2**63 - 1 more,
        whoever sets them: a stream of any process, or a store of a processor. The caller does not wait. Raises as `set_word`.
        """

    def mark(self, stream: int) -> Mark:
        """Mark the end of what is queued on this stream now. Never waits, but for the first of a process, which sets the clocks."""
        raise NotImplementedError(f"{type(self).__name__} tells no times")

    @abstractmethod
    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Queue a copy on the stream. Either end is memory of this device, of one that it can access, or registered memory of the host."""

    # ------------------------------------------------------------------------------------ tensors
    @abstractmethod
    def empty(self, dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None) -> Any:
        """A dense tensor of the process's own allocator, its contents undefined. Raises MemoryError when the device is full."""

    @abstractmethod
    def tensor(self, address: int, size: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None, keep: object) -> Any:
        """A tensor over `size` bytes of memory of this device; whatever views the memory keeps `keep` alive."""

    @abstractmethod
    def aliases(self, tensor: Any) -> Aliases | None:
        """For tensors over the memory of this one, which nobody else has; None where nobody can tell who has it."""


class Aliases(ABC):
    """Tensors over the memory of one that is kept here."""

    __slots__ = ()
    #: How many a tensor still counts for whose weak reference calls.
    dying: int

    @abstractmethod
    def another(self) -> Any:
        """One more tensor. Takes weak references."""

    @abstractmethod
    def are_left(self, besides: int = 0) -> bool:
        """Whether anything in this process has the memory: such tensors, but for so many, views of them, arrays over it.

        May say so of what is just about to go.
        """


class Platform(ABC):
    """The devices of one kind that this process sees, in the order of their indices."""

    #: ``"cuda"`` or ``"null"``: processes of one name understand each other's handles.
    name: str
    devices: Sequence[Device]
    #: How often this process has waited for a device through mray.
    synchronizations: int

    @abstractmethod
    def is_tensor(self, value: object) -> bool:
        """Whether it is a tensor on one of the devices."""

    @abstractmethod
    def facts(self, tensor: Any) -> tuple[Any, Facts]:
        """The tensor, or a dense copy of one that has gaps or repeats (queued on the current stream, and kept until then), and its facts.

        Raises RuntimeError for a tensor that requires grad.
        """

    def look(self, tensor: Any) -> tuple[Hashable, int] | None:
        """The kind of a tensor, which it has in common with others that differ in nothing but contents and address; and its address.

        None for one that `facts` would make dense or refuse, that has no elements, or is none of a device here. For tensors that come again
        and again.
        """
        if not self.is_tensor(tensor):
            return None
        dense, facts = self.facts(tensor)
        return (facts._replace(address=0), facts.address) if dense is tensor and facts.size else None

    @abstractmethod
    def synchronize(self, device: Device, stream: int) -> None:
        """Wait until what is queued on the stream is done; raises what went wrong there. Counts in `synchronizations`."""

    def close(self) -> None:
        """This process uses the devices no more: give back what can be given back. Idempotent."""
        for device in self.devices:
            timelines = device.belongings.pop("timelines", None)
            if timelines is not None:
                timelines.close()

    def current_device(self) -> Device:
        """The one that this thread works on where it names none."""
        return self.devices[0]

    def is_in_use(self) -> bool:
        """Whether this process works with its devices already, so that asking more of them makes no context."""
        return True

    def tensor_types(self) -> tuple[type, ...]:
        """The classes of its tensors, as far as their library is imported; hashable by identity."""
        torch = sys.modules.get("torch")
        return () if torch is None else (torch.Tensor,)

    @abstractmethod
    def use_on(self, tensor: Any, stream: int) -> None:
        """Work on this stream is going to use the tensor: should that die before, its memory is not used again until the work is done."""

    def placed(self, tensor: Any, where: str) -> Any:
        """A tensor of one of these classes on the host (``"cpu"``) or on the current device (``"cuda"``): itself if it is there."""
        return tensor.to(where)

    @abstractmethod
    def nccl(self) -> Any:
        """An object with the calls of `mray._device.libnccl.LibNccl` for these devices. Raises LookupError that says what to install."""

    @abstractmethod
    def nccl_device(self, index: int) -> AbstractContextManager[Any]:
        """While entered, NCCL's communicators of this thread are made on the device of this index."""

    def device_of(self, uuid: str) -> Device | None:
        """The device of that name, if this process sees it."""
        return next((device for device in self.devices if device.uuid == uuid), None)
