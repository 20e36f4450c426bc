"""NVIDIA's GPUs: memory and streams by the driver, tensors by torch.

Any process without a parent that has used CUDA; any thread, finalizers included.

**Captures.** While a thread captures a CUDA graph, some calls (allocating, freeing, opening) are refused in every thread of the process,
and invalidate the capture. Where they do not concern the captured work they are made in the mode that permits them. On a captured
stream a word would be set or awaited at each replay, so `set_word` and `await_word` refuse, and leave the capture intact.

**Undefined by CUDA**, and handled by the layers above: freeing memory that another process has open. The driver frees memory of a dead
process when no other has it open.

**Order** between streams is by words of pinned host memory (64-bit stream memory operations, from CUDA 12 on). Where a device lacks
them, tensors go through the host.

**Waits for the device**: opening and pinning memory may wait, closing and freeing it does, so this is done when edges are created, grow
or end, never for a message.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from mray._common import clock
from mray._common.tensor_layout import FREED, REQUIRES_GRAD, dense, has_memory, lies_dense
from mray._device import libcuda, libnccl, nvml
from mray._device.cuda_context import CudaContext, unless_captured
from mray._device.cuda_marks import CudaMarks
from mray._device.cuda_tensors import PER_THREAD, CudaTensors
from mray._device.device import Aliases, Device, DeviceFaultError, Mark, Platform, TensorInfo
from mray._device.libcuda import CudaError, IpcHandle, LibCuda

#: Smaller allocations would be exported together with others in the same piece of memory.
_GRAIN = 2 << 20
#: Seconds between two polls of a stream.
_FIRST_PAUSE, _LAST_PAUSE = 20e-6, 1e-3


class CudaDevice(Device):
    """One GPU, or part of one (MIG)."""

    def __init__(self, cuda: LibCuda, tensors: CudaTensors, index: int) -> None:
        self._cuda = cuda
        self._tensors = tensors
        self.index = index
        ordinal = ctypes.c_int()
        cuda.check("Looking for a GPU", cuda.cuDeviceGet(ctypes.byref(ordinal), index))
        self.ordinal = ordinal.value
        self.uuid = self._ask_uuid()
        self.name = self._ask_name()
        self.context = CudaContext(cuda, self.ordinal, lambda: tensors.is_current(index))
        self._marks = CudaMarks(cuda, self.context)
        self._accessible: dict[str, bool] = {}
        self._own_streams: set[int] = set()
        self._idle_stream = 0

    # ------------------------------------------------------------------------------------ identity, without a context
    def _ask_uuid(self) -> str:
        cuda = self._cuda
        whole, own = libcuda.Uuid(), libcuda.Uuid()
        cuda.check("Asking for a GPU's name", cuda.cuDeviceGetUuid_v2(ctypes.byref(own), self.ordinal))
        cuda.check("Asking for a GPU's name", cuda.cuDeviceGetUuid(ctypes.byref(whole), self.ordinal))
        digits = bytes(own).hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return "-".join(("GPU" if bytes(own) == bytes(whole) else "MIG", *parts))

    def _ask_name(self) -> str:
        text = ctypes.create_string_buffer(256)
        self._cuda.check("Asking for a GPU's model", self._cuda.cuDeviceGetName(text, len(text), self.ordinal))
        return text.value.decode(errors="replace")

    def reaches(self, uuid: str) -> bool:
        """NVML answers for GPUs that this process does not see; unknown ones are refused."""
        known = self._accessible.get(uuid)
        if known is None:
            known = self._accessible[uuid] = self._ask_access(uuid)
        return known

    def _ask_access(self, uuid: str) -> bool:
        cuda = self._cuda
        for peer in range(_device_count(cuda)):
            if peer != self.index and CudaDevice(cuda, self._tensors, peer).uuid == uuid:
                answer = ctypes.c_int()
                cuda.check("Asking for access to a GPU", cuda.cuDeviceCanAccessPeer(ctypes.byref(answer), self.ordinal, peer))
                return answer.value != 0
        return nvml.can_access(self.uuid, uuid)

    def __repr__(self) -> str:
        return f"<GPU {self.index}: {self.name}, {self.uuid}>"

    def check(self) -> None:
        """Never queries a stream of the user: that would invalidate a capture from it."""
        if not self._idle_stream:
            self._idle_stream = self.create_stream()
        status = self.context.status_during_captures(self._cuda.cuStreamQuery, self._idle_stream)
        if status and status != libcuda.NOT_READY:
            raise self._cuda.error("Asking for faults", status)

    def is_mps_client(self) -> bool | None:
        answer = ctypes.c_int()
        status = self._cuda.cuDeviceGetAttribute(ctypes.byref(answer), libcuda.MPS_ENABLED, self.ordinal)
        return None if status else answer.value != 0

    # ------------------------------------------------------------------------------------ memory
    def memory(self) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.context.call("Asking for free memory", self._cuda.cuMemGetInfo_v2, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        size = max(1, (size + _GRAIN - 1) // _GRAIN) * _GRAIN
        address = ctypes.c_uint64()
        try:
            self.context.call_during_captures(f"Allocating {size} bytes", self._cuda.cuMemAlloc_v2, ctypes.byref(address), size)
        except MemoryError:
            raise self._full(size) from None
        return address.value

    def _full(self, size: int) -> MemoryError:
        free, total = self.memory()
        return MemoryError(f"GPU {self.index} ({self.name}, {self.uuid}) does not have {size} bytes left: {free} of {total} are free.")

    def free(self, address: int) -> None:
        self._let_go("Freeing memory", self._cuda.cuMemFree_v2, address)

    def export_memory(self, base: int) -> bytes:
        handle = IpcHandle()
        self.context.call_during_captures("Exporting memory", self._cuda.cuIpcGetMemHandle, ctypes.byref(handle), base)
        return bytes(handle)

    def open_memory(self, handle: bytes) -> int:
        """A process cannot open what it has exported."""
        address = ctypes.c_uint64()
        self.context.call_during_captures(
            "Opening another process's memory",
            self._cuda.cuIpcOpenMemHandle_v2,
            ctypes.byref(address),
            IpcHandle.from_buffer_copy(handle),
            libcuda.IPC_MEM_LAZY_ENABLE_PEER_ACCESS,
        )
        return address.value

    def close_memory(self, address: int) -> None:
        self._let_go("Closing another process's memory", self._cuda.cuIpcCloseMemHandle, address)

    def register_host(self, address: int, size: int) -> None:
        flags = libcuda.MEMHOSTREGISTER_PORTABLE
        self.context.call_during_captures("Pinning host memory", self._cuda.cuMemHostRegister_v2, address, size, flags)

    def unregister_host(self, address: int) -> None:
        self._let_go("Unpinning host memory", self._cuda.cuMemHostUnregister, address)

    def _let_go(self, action: str, function: Callable[..., int], address: int) -> None:
        if not self.context.is_forked:
            with contextlib.suppress(DeviceFaultError):
                self.context.call_during_captures(action, function, address)

    # ------------------------------------------------------------------------------------ order
    def current_stream(self) -> int:
        ask = self._tensors.asks
        stream: int = ask[1](self.index) if ask else PER_THREAD
        return self._tensors.current_stream(self.index) if stream == PER_THREAD else stream

    def create_stream(self) -> int:
        stream = ctypes.c_void_p()
        self.context.call_during_captures("Creating a stream", self._cuda.cuStreamCreate, ctypes.byref(stream), libcuda.STREAM_NON_BLOCKING)
        assert stream.value is not None
        self._own_streams.add(stream.value)
        return stream.value

    def stream_id(self, stream: int) -> int:
        number = ctypes.c_ulonglong()
        self.context.call("Asking for a stream's number", self._cuda.cuStreamGetId, stream, ctypes.byref(number))
        return number.value

    def destroy_stream(self, stream: int) -> None:
        self._own_streams.discard(stream)
        self._let_go("Destroying a stream", self._cuda.cuStreamDestroy_v2, stream)

    def on_stream(self, stream: int) -> AbstractContextManager[None]:
        return self._tensors.on_stream(self.index, stream)

    def why_unordered(self) -> str:
        return self._unordered

    @cached_property
    def _unordered(self) -> str:
        for attribute in libcuda.ORDER_NEEDS:
            has = ctypes.c_int()
            self._cuda.check("Asking what a GPU can do", self._cuda.cuDeviceGetAttribute(ctypes.byref(has), attribute, self.ordinal))
            if not has.value:
                return f"GPU {self.index} ({self.name}) has no stream memory operations on 64 bits of the host's memory."
        return ""

    def set_word(self, address: int, number: int, stream: int) -> None:
        if self.context.handle and self._tensors.is_plain(self.index, stream):
            status = self._cuda.cuStreamWriteValue64_v2(stream, address, number, 0)
            if not status:
                return
        self._queue("Setting a word of the host", self._cuda.cuStreamWriteValue64_v2, stream, address, number, 0)

    def await_word(self, address: int, number: int, stream: int) -> None:
        flags = libcuda.STREAM_WAIT_VALUE_GEQ
        if self.context.handle and self._tensors.is_plain(self.index, stream):
            status = self._cuda.cuStreamWaitValue64_v2(stream, address, number, flags)
            if not status:
                return
        self._queue("Waiting for a word of the host", self._cuda.cuStreamWaitValue64_v2, stream, address, number, flags)

    def _queue(self, action: str, function: Callable[..., int], stream: int, *arguments: Any) -> None:
        if stream in self._own_streams:  # private, so that no thread captures from it
            self.context.call(action, function, stream, *arguments)
        else:
            self.context.call(action, unless_captured, self._cuda, stream, function, stream, *arguments)

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        if size and self.context.handle and self._tensors.is_plain(self.index, stream):
            status = self._cuda.cuMemcpyAsync(target, source, size, stream)
            if not status:
                return
        if size:
            self.context.call(f"Copying {size} bytes", self._cuda.cuMemcpyAsync, target, source, size, stream)

    def mark(self, stream: int) -> Mark:
        return self._marks.mark(stream)

    def synchronize(self, stream: int) -> None:
        """Polls: a wait within the driver is not interrupted by signals, and never ends where the stream waits for a dead process."""
        pause = _FIRST_PAUSE
        while (status := self.context.status_during_captures(self._cuda.cuStreamQuery, stream)) == libcuda.NOT_READY:
            clock.sleep(pause)
            pause = min(1.5 * pause, _LAST_PAUSE)
        if status:
            raise self._cuda.error("Waiting for a stream", status)

    # ------------------------------------------------------------------------------------ tensors
    def empty(self, dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None) -> Any:
        try:
            # torch may have to allocate.
            with self.context.during_captures():
                return self._tensors.empty(self.index, dtype, shape, strides)
        except RuntimeError as error:
            # By name: torch.OutOfMemoryError has moved between versions.
            if type(error).__name__ != "OutOfMemoryError":
                raise
            raise MemoryError(f"GPU {self.index} ({self.name}, {self.uuid}) has no room for {dtype} {tuple(shape)}: {error}") from None

    def tensor(self, address: int, size: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None, keep: object) -> Any:
        del size
        return self._tensors.view(self.index, address, dtype, shape, strides, keep)

    def aliases(self, tensor: Any) -> Aliases | None:
        return self._tensors.aliases(tensor)

    def close(self) -> None:
        with contextlib.suppress(DeviceFaultError):
            self._marks.close()
        stream, self._idle_stream = self._idle_stream, 0
        if stream:
            self.destroy_stream(stream)


class CudaPlatform(Platform):
    name = "cuda"

    def __init__(self, cuda: LibCuda, tensors: CudaTensors | None = None) -> None:
        self._cuda = cuda
        self._tensors = tensors or CudaTensors()
        self.devices: list[CudaDevice] = [CudaDevice(cuda, self._tensors, index) for index in range(_device_count(cuda))]
        self.synchronizations = 0

    def is_tensor(self, value: object) -> bool:
        return self._tensors.is_tensor(value)

    def info(self, tensor: Any) -> tuple[Any, TensorInfo]:
        if tensor.requires_grad:
            raise RuntimeError(REQUIRES_GRAD)
        if not has_memory(tensor):
            raise RuntimeError(FREED)
        tensors = self._tensors
        index = tensors.device_of(tensor)
        strides: tuple[int, ...] | None = None
        if not lies_dense(tensor):
            with self.devices[index].context.during_captures():  # torch allocates a copy
                given, (tensor, strides) = tensor, dense(tensor)
                self.use_on(given, tensors.current_stream(index))  # else its memory may be reused before it is copied
        elif not tensor.is_contiguous():
            strides = tuple(tensor.stride())
        return tensor, TensorInfo(index, tensor.data_ptr(), tensor.nbytes, tensors.name_of(tensor.dtype), tuple(tensor.shape), strides)

    def look(self, tensor: Any) -> tuple[Hashable, int] | None:
        if type(tensor) is not self._tensors.tensor_type:
            return None
        try:
            kind = tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device()
            if tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.__dict__:
                return None
            address: int = tensor.data_ptr()
            before = tensor.storage_offset() * tensor.itemsize
            # As `has_memory`, of a tensor without gaps.
            if address == before or before + tensor.nbytes > tensor.untyped_storage().nbytes():
                return None
        except RuntimeError:  # of another layout
            return None
        return kind, address

    def use_on(self, tensor: Any, stream: int) -> None:
        self._tensors.use_on(tensor, stream)

    def synchronize(self, device: Device, stream: int) -> None:
        self.synchronizations += 1
        self.devices[device.index].synchronize(stream)

    def is_in_use(self) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and torch.cuda.is_initialized()

    def current_device(self) -> Device:
        ask = self._tensors.asks
        return self.devices[ask[0]() if ask else self._tensors.current_device()]

    def nccl(self) -> Any:
        return libnccl.load()

    def nccl_device(self, index: int) -> AbstractContextManager[Any]:
        return self.devices[index].context.current()

    def close(self) -> None:
        super().close()
        for device in self.devices:
            device.close()


def _device_count(cuda: LibCuda) -> int:
    count = ctypes.c_int()
    cuda.check("Counting GPUs", cuda.cuDeviceGetCount(ctypes.byref(count)))
    return count.value


def find_platform(cuda: LibCuda | None = None) -> CudaPlatform | None:
    """The platform, or None if there is no driver, it cannot be used, or it shows no device. Creates no context.

    Initializes the driver, after which forked children cannot use it.
    """
    cuda = cuda or libcuda.load()
    if cuda is None or cuda.cuInit(0) != libcuda.SUCCESS:
        return None
    try:
        platform = CudaPlatform(cuda)
    except CudaError:
        return None
    return platform if platform.devices else None
