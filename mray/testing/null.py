"""Pretended GPUs: devices of host memory, whose work is done later, so that everything above runs and fails as with real ones.

    MRAY_NULL_DEVICES="4,peer=0,late=0.002"      four of them on the machine, visible through CUDA_VISIBLE_DEVICES as usual
    MRAY_NULL_DEVICES="4,ipc=0,words=0"          in a process that cannot open memory of others, or wait for their work;
                                                 with `exports=0`, others cannot open its memory
    MRAY_NULL_DEVICES="4,waits=1"                each call that may wait for its device does

Where CUDA's behaviour is undefined, this is an error if possible: work on memory that is freed, closed or out of bounds, or of a
device without peer access, is a fault, after which each call raises and no 64-bit field is set. Memory of dead arrays is overwritten
in the order of streams, so that late work reads garbage.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from mray._common import clock, settings
from mray._common.accelerator_kinds import GpuId
from mray._common.clock import monotonic_ns
from mray._common.settings import NullDevices
from mray._device.device import Aliases, Device, DeviceFaultError, Mark, Platform, TensorInfo
from mray._device.mps_control import has_daemon, pipe_directory
from mray._inside.memory import publish_fence, trust_fence
from mray._inside.topology import discovery
from mray.testing import null_memory, null_nccl
from mray.testing.null_array import NullArray, NullHeap, Storage, dense, dtype_named, heaps
from mray.testing.null_memory import NullRegion
from mray.testing.null_stream import Fault, StreamHold, Streams, release_all, set_late
from mray.testing.null_topology import uuid_of

__all__ = ["NullArray", "NullDevice", "NullPlatform", "arange", "empty", "from_numpy", "full", "hold", "ones", "set_late", "zeros"]


_SIGN = 1 << 63
#: Seconds between checks of a 64-bit field, at first and at most.
_FIRST_PAUSE, _LAST_PAUSE = 20e-6, 1e-3


class _HostMemory:
    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}

    def register(self, address: int, size: int) -> None:
        if self.holds(address, 1) or self.holds(address + size - 1, 1):
            raise RuntimeError(f"host memory at {address:#x} is registered already")
        self._sizes[address] = size

    def unregister(self, address: int) -> None:
        if self._sizes.pop(address, None) is None:
            raise RuntimeError(f"host memory at {address:#x} is not registered")

    def holds(self, address: int, size: int) -> bool:
        starts = sorted(self._sizes)
        place = bisect.bisect_right(starts, address)
        return place > 0 and address + size <= starts[place - 1] + self._sizes.get(starts[place - 1], 0)


class NullMark(Mark):
    """Records when the thread of a stream reached it."""

    __slots__ = ("_time",)

    def __init__(self) -> None:
        self._time: int | None = None

    def reach(self) -> None:
        self._time = monotonic_ns()

    def time(self) -> int | None:
        return self._time


class _NullAliases(Aliases):
    __slots__ = ("_array", "_storage")
    dying = 1  # weak references are called first

    def __init__(self, array: NullArray) -> None:
        self._array = array
        self._storage = array.storage

    def another(self) -> NullArray:
        return self._array[...]

    def are_left(self, besides: int = 0) -> bool:
        # The array, this object, and the argument.
        return sys.getrefcount(self._storage) > 3 + besides


class NullDevice(Device):
    """`number`: on the machine."""

    def __init__(self, platform: NullPlatform, index: int, number: int) -> None:
        self.index = index
        self.uuid = uuid_of(number)
        self.name = "Null GPU"
        self.number = number
        self._info = platform.info_of_machine
        self._host = platform.host
        self._is_mps_client = platform.is_mps_client
        self.streams = Streams(platform.fault, waits=platform.info_of_machine.waits)
        info = self._info
        self.heap = NullHeap(index, number, info.scope, info.memory, self.streams)

    def check(self) -> None:
        self.streams.fault.check()

    def is_mps_client(self) -> bool:
        return self._is_mps_client

    def reaches(self, uuid: str) -> bool:
        return self._info.peer and any(uuid == uuid_of(number) for number in range(self._info.gpus))

    def _reaches(self, number: int) -> bool:
        return number == self.number or self._info.peer

    # ------------------------------------------------------------------------------------ memory
    def memory(self) -> tuple[int, int]:
        self.streams.enter()
        self.heap.trim()
        return max(0, self._info.memory - null_memory.used_bytes(self._info.scope, self.number)), self._info.memory

    def allocate(self, size: int) -> int:
        self.streams.settle()
        return self.heap.allocate(size).base

    def free(self, address: int) -> None:
        with contextlib.suppress(DeviceFaultError):
            self.streams.settle()
        null_memory.drop(self._region(address, is_opened=False))

    def _region(self, address: int, *, is_opened: bool) -> NullRegion:
        region = null_memory.find(address)
        if region is None or region.base != address or region.is_opened != is_opened:
            raise RuntimeError(f"no memory that this process has {'opened' if is_opened else 'allocated'} starts at {address:#x}")
        return region

    def export_memory(self, base: int) -> bytes:
        self.streams.enter()
        if not self._info.exports:
            raise RuntimeError("Exporting memory failed: this pretended device has no IPC.")
        return null_memory.exported(self._region(base, is_opened=False))

    def open_memory(self, handle: bytes) -> int:
        self.streams.settle()
        if not self._info.ipc:
            raise RuntimeError("Opening another process's memory failed: this pretended device has no IPC.")
        number = null_memory.device_of(handle)
        if not self._reaches(number):
            raise RuntimeError(f"{self.uuid} has no peer access to {uuid_of(number)}, so memory there cannot be opened")
        return null_memory.open_exported(handle).base

    def close_memory(self, address: int) -> None:
        with contextlib.suppress(DeviceFaultError):
            self.streams.settle()
        null_memory.drop(self._region(address, is_opened=True))

    def register_host(self, address: int, size: int) -> None:
        self.streams.settle()
        self._host.register(address, size)

    def unregister_host(self, address: int) -> None:
        with contextlib.suppress(DeviceFaultError):
            self.streams.settle()
        self._host.unregister(address)

    # ------------------------------------------------------------------------------------ order
    def current_stream(self) -> int:
        return self.streams.current.number

    def create_stream(self) -> int:
        return self.streams.create()

    def stream_id(self, stream: int) -> int:
        return stream  # a handle is issued once

    def destroy_stream(self, stream: int) -> None:
        with contextlib.suppress(DeviceFaultError):
            self.streams.settle()
        self.streams.destroy(stream)

    def on_stream(self, stream: int) -> AbstractContextManager[None]:
        return self.streams.on(stream)

    def mark(self, stream: int) -> Mark:
        mark = NullMark()
        self.streams.get(stream).order(mark.reach)
        return mark

    def why_unordered(self) -> str:
        return "" if self._info.words else "This pretended device has no stream memory operations."

    def set_word(self, address: int, number: int, stream: int) -> None:
        self._check_word(address)
        self.streams.get(stream).order(lambda: self._set(address, number))

    def await_word(self, address: int, number: int, stream: int) -> None:
        self._check_word(address)
        self.streams.get(stream).order(lambda: self._await(address, number))

    def _check_word(self, address: int) -> None:
        self.streams.fault.check()
        if not self._info.words:
            raise RuntimeError(self.why_unordered())
        self._word(address)

    def _word(self, address: int) -> ctypes.c_uint64:
        if address % 8 or not self._host.holds(address, 8):
            raise RuntimeError(f"illegal address: {address:#x} is no word of registered memory of the host")
        return ctypes.c_uint64.from_address(address)

    def _set(self, address: int, number: int) -> None:
        # SYNC POINT timeline: work, fence, word | read word, fence, work.
        publish_fence()
        self._word(address).value = number

    def _await(self, address: int, number: int) -> None:
        """Compares as CUDA does, by the sign of the difference."""
        pause = _FIRST_PAUSE
        fault = self.streams.fault
        while (self._word(address).value - number) & _SIGN:
            if fault.error is not None:
                return
            clock.sleep(pause)
            pause = min(1.5 * pause, _LAST_PAUSE)
        # SYNC POINT timeline: work, fence, word | read word, fence, work.
        trust_fence()

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        queue = self.streams.get(stream)
        for address in (target, source):
            if null_memory.find(address) is None and not self._host.holds(address, size):
                raise RuntimeError(f"{size} bytes at {address:#x} are neither memory of a device nor registered memory of the host")
        if size:
            queue.launch(lambda: self._copy(target, source, size))

    def _copy(self, target: int, source: int, size: int) -> None:
        regions = [self._resolve(address, size) for address in (target, source) if not self._host.holds(address, size)]
        ctypes.memmove(target, source, size)
        if self._info.garbled and any(region.device != self.number for region in regions):
            ctypes.memset(target, 0xA5, min(size, 64))
        del regions

    def _resolve(self, address: int, size: int) -> NullRegion:
        region = null_memory.resolve(address, size)
        if not self._reaches(region.device):
            raise RuntimeError(f"illegal address: {self.uuid} has no peer access to {uuid_of(region.device)}")
        return region

    def launch(self, stream: int, work: Callable[[], object]) -> None:
        self.streams.get(stream).launch(work)

    # ------------------------------------------------------------------------------------ tensors
    def empty(self, dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None) -> NullArray:
        return NullArray.new(self.heap, dtype_named(dtype), shape, strides)

    def tensor(self, address: int, size: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None, keep: object) -> NullArray:
        array = NullArray.over(Storage(self.heap, None, keep), address, dtype_named(dtype), shape, strides)
        if array.nbytes > size:
            raise ValueError(f"{size} bytes are too few for shape {tuple(shape)} of {dtype}")
        return array

    def aliases(self, tensor: NullArray) -> Aliases:
        return _NullAliases(tensor)


class NullPlatform(Platform):
    """The GPUs visible to this process."""

    name = "null"

    def __init__(self, info: NullDevices, visible: Sequence[GpuId] | None = None) -> None:
        self.info_of_machine = info
        self.host = _HostMemory()
        self.fault = Fault()
        #: As in CUDA, looked up once.
        self.is_mps_client = has_daemon(pipe_directory())
        self.devices: Sequence[NullDevice] = [NullDevice(self, index, number) for index, number in enumerate(_visible(info.gpus, visible))]

    @property
    def synchronizations(self) -> int:  # type: ignore[override]
        return sum(device.streams.waits for device in self.devices)

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, NullArray)

    def info(self, tensor: NullArray) -> tuple[NullArray, TensorInfo]:
        found, info = dense(tensor)
        if found is not tensor:
            self.use_on(tensor, self.devices[info.device].current_stream())
        return found, info

    def tensor_types(self) -> tuple[type, ...]:
        return (NullArray,)

    def use_on(self, tensor: NullArray, stream: int) -> None:
        tensor.record_stream(stream)

    def placed(self, tensor: NullArray, where: str) -> Any:
        return tensor.numpy() if where == "cpu" else tensor

    def nccl(self) -> Any:
        return null_nccl

    def nccl_device(self, index: int) -> AbstractContextManager[Any]:
        return null_nccl.current_device(self.devices[index])

    def synchronize(self, device: Device, stream: int) -> None:
        assert isinstance(device, NullDevice)
        device.streams.wait_for(device.streams.get(stream))

    def close(self) -> None:
        release_all()
        super().close()
        for device in self.devices:
            device.heap.close()
        null_memory.drop_all()


def _visible(count: int, ids: Sequence[GpuId] | None) -> list[int]:
    """Numbers of the machine's devices, in this process's order."""
    if ids is None:
        return list(range(count))
    numbers: list[int] = []
    for name in ids:
        found = [number for number in range(count) if (number == name if isinstance(name, int) else uuid_of(number).startswith(name))]
        # As in CUDA, a device that does not exist ends the list.
        if len(found) != 1 or found[0] in numbers:
            break
        numbers += found
    return numbers


def find_platform() -> NullPlatform | None:
    """The platform of this process, if the setting gives it pretended GPUs."""
    info = settings.NULL_DEVICES.get()
    return None if info is None else NullPlatform(info, discovery.visible_ids())


# ------------------------------------------------------------------------------------------ making arrays
def _heap(device: int) -> NullHeap:
    here = heaps()
    if not 0 <= device < len(here):
        raise RuntimeError(f"this process has {len(here)} pretended devices (MRAY_NULL_DEVICES), and none of index {device}")
    return here[device]


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def empty(shape: int | Sequence[int], dtype: Any = "float32", device: int = 0) -> NullArray:
    """An array with undefined contents. Raises MemoryError when the device is full."""
    return NullArray.new(_heap(device), dtype_named(np.dtype(dtype).name), _shape(shape))


def full(shape: int | Sequence[int], value: Any, dtype: Any = "float32", device: int = 0) -> NullArray:
    """An array of one value."""
    return empty(shape, dtype, device).fill_(value)


def zeros(shape: int | Sequence[int], dtype: Any = "float32", device: int = 0) -> NullArray:
    """An array of zeros."""
    return full(shape, 0, dtype, device)


def ones(shape: int | Sequence[int], dtype: Any = "float32", device: int = 0) -> NullArray:
    """An array of ones."""
    return full(shape, 1, dtype, device)


def arange(*limits: Any, dtype: Any = None, device: int = 0) -> NullArray:
    """``start``, ``stop`` and ``step`` as with numpy."""
    return from_numpy(np.arange(*limits, dtype=dtype), device)


def from_numpy(array: Any, device: int = 0) -> NullArray:
    """A copy of a host array, as it is now."""
    return empty(array.shape, array.dtype, device).copy_(array)


def hold(stream: int = 0, device: int = 0) -> StreamHold:
    """Stop a stream for work queued afterwards, while the returned context manager is entered, or until its `release`."""
    return StreamHold(_heap(device).streams.get(stream))
