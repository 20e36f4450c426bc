"""A pretended libcuda: memory is that of null devices, streams are lists of things to do.

    machine = FakeMachine(devices=2)
    one, other = FakeCuda(machine), FakeCuda(machine)      two processes, as the driver sees them; both live in this one
    platform = platform_of(one)                            `mray._device.cuda` on it (in `fake_torch`)

For what null devices (`mray.testing.null`) cannot check, since they are devices themselves: which functions of the driver
`mray._device.cuda` calls, in which context and capture mode, with which arguments, and what it makes of their errors. The contract of
devices is checked with both (`tests/conformance/test_device.py`), between processes with null devices.

It answers misuse as the driver does, with the numbers of its header, and remembers in `FakeMachine.undefined` what the driver leaves
undefined. Functions compare what they are given with the C signatures of the header. With ``late=True`` the work of a stream is done when
somebody waits for it and no sooner, so that a missing wait is a wrong result. A stream that waits for a word has those do their work that
are to set it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mray._device import libcuda
from mray._device.cuda import CudaPlatform, find_platform
from mray._device.libcuda import IpcHandle, LibCuda
from mray.testing import null_memory
from mray.testing.null_memory import NullRegion
from tests.unit.cuda_header import SIGNATURES, Function

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, INVALID_DEVICE, INVALID_CONTEXT = 0, 1, 2, 3, 101, 201
INVALID_HANDLE, NOT_READY, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED = 400, 600, 712, 713
NOT_SUPPORTED, STREAM_CAPTURE_UNSUPPORTED = 801, 900
NAMES = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    3: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    101: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    201: ("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    400: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    801: ("CUDA_ERROR_NOT_SUPPORTED", "operation not supported"),
    900: ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"),
}
#: Functions that a capture which goes on in any thread is lost by, unless the calling thread is in the relaxed mode.
UNSAFE = {
    *("cuMemAlloc_v2", "cuMemFree_v2", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", "cuMemHostRegister_v2"),
    *("cuStreamQuery", "cuEventCreate", "cuEventElapsedTime"),
}


# ---------------------------------------------------------------------------------------------------------- the machine


class Stream:
    """Things to do, in order. One that returns False cannot be done yet."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.work: list[Any] = []
        self.done = 0

    def advance(self, end: int) -> bool:
        """Do things up to there; whether that was possible."""
        while self.done < end:
            if self.work[self.done]() is False:
                return False
            self.work[self.done] = None
            self.done += 1
        return True


class Mark:
    """An event: which work it marks."""

    def __init__(self, device: int, flags: int) -> None:
        self.device = device
        self.flags = flags
        self.stream: Stream | None = None
        self.end = 0
        #: When it was recorded, which is when it is done if nobody holds the stream.
        self.recorded = 0.0


class FakeDevice:
    def __init__(self, number: int) -> None:
        self.uuid = bytes([number]) * 16
        self.whole = self.uuid
        self.name = b"Fake GPU"
        self.peers: set[int] = set()
        #: By their numbers.
        self.attributes = dict.fromkeys(libcuda.ORDER_NEEDS, 1)


class FakeMachine:
    """The state that all processes share. `late`: work is done when waited for."""

    def __init__(self, devices: int = 1, *, memory: int = 1 << 30, peers: bool = True, late: bool = False) -> None:
        self.devices = [FakeDevice(number) for number in range(devices)]
        #: Bytes of each; and what separates their memory from that of other machines.
        self.memory = memory
        self.scope = f"fake-cuda-{os.getpid()}-{id(self):x}"
        for number, device in enumerate(self.devices):
            device.peers = set(range(devices)) - {number} if peers else set()
        self.late = late
        #: By key: the process that has exported it, and the address there, which is no other's.
        self.exported: dict[bytes, tuple[FakeCuda, int]] = {}
        #: How many processes have memory of others open, by that address.
        self.openings: Counter[int] = Counter()
        self.numbers = itertools.count(1)
        #: Addresses of words of the host -> the streams that are going to set them, and after which of their work.
        self.sets: dict[int, list[tuple[Stream, int]]] = {}
        #: Calls that the driver does not define.
        self.undefined: list[str] = []


# --------------------------------------------------------------------------------------------------------- one process
class FakeCuda:
    """The library as one process has it loaded. `visible`: which devices of the machine it sees."""

    def __init__(self, machine: FakeMachine, visible: list[int] | None = None, *, forked: bool = False) -> None:
        self.machine = machine
        self.visible = list(range(len(machine.devices))) if visible is None else visible
        self.forked = forked
        self.initialized = False
        #: The names of all calls.
        self.calls: list[str] = []
        self.retained: dict[int, int] = {}
        self.memory: dict[int, NullRegion] = {}
        #: Address -> how it is mapped here, the owner's, and how often it was opened.
        self.opened: dict[int, tuple[NullRegion, int, int]] = {}
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, Mark] = {}
        self.registered: dict[int, int] = {}
        self.captured: set[int] = set()
        self.lost_captures: set[int] = set()
        self._thread = threading.local()
        #: The status of each call that needs a context, once a kernel has gone wrong.
        self.fault = 0
        self._functions = {name: Function(name, self._unless_broken(name), self.calls) for name in SIGNATURES}
        self.lib = LibCuda(self, self)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_functions"][name]
        except KeyError:
            raise AttributeError(name) from None

    def _unless_broken(self, name: str) -> Callable[..., int]:
        body: Callable[..., int] = getattr(self, "_" + name)
        if name.startswith(("cuGetError", "cuInit", "cuDevice", "cuCtx", "cuThread")):
            return body  # which need no context

        def call(*arguments: Any) -> int:
            if self.fault or not self.current:
                return self.fault or INVALID_CONTEXT
            return STREAM_CAPTURE_UNSUPPORTED if name in UNSAFE and self.refuses_unsafe() else body(*arguments)

        return call

    def platform(self) -> CudaPlatform:
        """mray's platform on it, without tensors; `fake_torch.platform_of` has them."""
        found = find_platform(self.lib)
        assert found is not None
        return found

    @contextmanager
    def hold(self, device: int, handle: int) -> Iterator[None]:
        """While entered, the stream does nothing of what is queued from then on; afterwards, all streams do what they can."""
        stream = self.streams.setdefault(handle or device + 1, Stream(self.visible[device]))
        is_held = True
        self.queue(stream, lambda: not is_held)
        try:
            yield
        finally:
            is_held = False
            self.finish()

    def finish(self) -> None:
        """Do all that is queued, however late it is."""
        for stream in list(self.streams.values()):
            stream.advance(len(stream.work))

    def left(self) -> dict[str, int]:
        """Objects that were made or opened and not freed, by kind."""
        kinds: dict[str, Any] = {
            "memory": self.memory,
            "opened": self.opened,
            "streams": self.streams,
            "events": self.events,
            "pinned": self.registered,
        }
        ours = {kind: len(things) for kind, things in kinds.items()}
        ours["streams"] = sum(number >= 1 << 12 for number in self.streams)
        return {kind: count for kind, count in ours.items() if count}

    def find(self, address: int) -> NullRegion | None:
        """The memory an address lies in."""
        region = null_memory.find(address)
        return region if region is not None and (region.base in self.memory or region.base in self.opened) else None

    def is_registered(self, address: int, size: int) -> bool:
        """Whether so many bytes there are registered memory of the host."""
        return any(base <= address and address + size <= base + length for base, length in list(self.registered.items()))

    # contexts and captures
    @property
    def current(self) -> int:
        return int(getattr(self._thread, "context", 0))

    @current.setter
    def current(self, context: int) -> None:
        self._thread.context = context

    def device(self) -> int:
        """The device of the current context, by its number on the machine."""
        return self.visible[self.current - 1]

    def refuses_unsafe(self) -> bool:
        if self.captured and getattr(self._thread, "mode", 0) != libcuda.STREAM_CAPTURE_MODE_RELAXED:
            self.lost_captures |= self.captured
            return True
        return False

    def begin_capture(self, stream: int) -> None:
        self.captured.add(stream)

    def end_capture(self, stream: int) -> bool:
        """Whether the capture is of use."""
        self.captured.discard(stream)
        return stream not in self.lost_captures

    def stream_at(self, handle: int) -> Stream | None:
        if handle == 0:
            return self.streams.setdefault(self.current, Stream(self.device()))
        return self.streams.get(handle) if handle >= 1 << 12 else None

    def queue(self, stream: Stream, work: Callable[[], object]) -> None:
        stream.work.append(work)
        if not self.machine.late:
            stream.advance(len(stream.work))

    # the functions
    def _cuGetErrorName(self, status: int, text: Any) -> int:
        return self._describe(status, text, 0)

    def _cuGetErrorString(self, status: int, text: Any) -> int:
        return self._describe(status, text, 1)

    def _describe(self, status: int, text: Any, which: int) -> int:
        if status not in NAMES:
            return INVALID_VALUE
        text.value = NAMES[status][which].encode()
        return SUCCESS

    def _cuInit(self, flags: int) -> int:
        assert flags == 0
        if self.forked:
            return NOT_INITIALIZED
        self.initialized = True
        return SUCCESS if self.visible else 100

    def _cuDeviceGetCount(self, count: Any) -> int:
        count.value = len(self.visible)
        return SUCCESS if self.initialized else NOT_INITIALIZED

    def _cuDeviceGet(self, device: Any, index: int) -> int:
        device.value = index
        return SUCCESS if index < len(self.visible) else INVALID_DEVICE

    def _cuDeviceGetName(self, text: Any, size: int, device: int) -> int:
        assert len(text) == size
        text.value = self.machine.devices[self.visible[device]].name
        return SUCCESS

    def _cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int:
        attributes = self.machine.devices[self.visible[device]].attributes
        if attribute not in attributes:
            return INVALID_VALUE
        value.value = attributes[attribute]
        return SUCCESS

    def _cuDeviceGetUuid(self, uuid: Any, device: int) -> int:
        uuid.bytes[:] = self.machine.devices[self.visible[device]].whole
        return SUCCESS

    def _cuDeviceGetUuid_v2(self, uuid: Any, device: int) -> int:
        uuid.bytes[:] = self.machine.devices[self.visible[device]].uuid
        return SUCCESS

    def _cuDeviceCanAccessPeer(self, answer: Any, device: int, peer: int) -> int:
        if device == peer or max(device, peer) >= len(self.visible):
            return INVALID_DEVICE
        answer.value = int(self.visible[peer] in self.machine.devices[self.visible[device]].peers)
        return SUCCESS

    def _cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> int:
        if not self.initialized or self.forked:
            return NOT_INITIALIZED
        self.retained[device] = self.retained.get(device, 0) + 1
        context.value = device + 1
        return SUCCESS

    def _cuDevicePrimaryCtxRelease_v2(self, device: int) -> int:
        if not self.retained.get(device):
            return INVALID_CONTEXT
        self.retained[device] -= 1
        return SUCCESS

    def _cuCtxGetCurrent(self, context: Any) -> int:
        context.value = self.current or None
        return SUCCESS

    def _cuCtxSetCurrent(self, context: int) -> int:
        if context and not self.retained.get(context - 1):
            return INVALID_CONTEXT
        self.current = context
        return SUCCESS

    def _cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        mode.value, self._thread.mode = getattr(self._thread, "mode", 0), mode.value
        return SUCCESS

    def _cuMemGetInfo_v2(self, free: Any, total: Any) -> int:
        free.value = self.machine.memory - null_memory.used_bytes(self.machine.scope, self.device())
        total.value = self.machine.memory
        return SUCCESS

    def _cuMemAlloc_v2(self, address: Any, size: int) -> int:
        if not size:
            return INVALID_VALUE
        found = self.malloc(self.device(), size)
        if found is None:
            return OUT_OF_MEMORY
        address.value = found
        return SUCCESS

    def malloc(self, device: int, size: int) -> int | None:
        """The memory of the driver and of torch's allocator."""
        try:
            region = null_memory.allocate(self.machine.scope, device, self.machine.memory, size)
        except MemoryError:
            return None
        self.memory[region.base] = region
        return region.base

    def free(self, address: int) -> None:
        """The counterpart."""
        region = self.memory.pop(address)
        if self.machine.openings[address]:
            self.machine.undefined.append("memory was freed that another process has open")
        null_memory.drop(region)

    def _cuMemFree_v2(self, address: int) -> int:
        if address not in self.memory:
            return INVALID_VALUE
        self.free(address)
        return SUCCESS

    def _cuIpcGetMemHandle(self, handle: Any, address: int) -> int:
        if address not in self.memory:
            return INVALID_VALUE
        name = null_memory.exported(self.memory[address]).ljust(64, b"\0")
        self.machine.exported[name] = self, address
        ctypes.memmove(ctypes.addressof(handle), name, len(name))
        return SUCCESS

    def _cuIpcOpenMemHandle_v2(self, address: Any, handle: IpcHandle, flags: int) -> int:
        owner, theirs = self.machine.exported.get(bytes(handle), (self, 0))
        memory = owner.memory.get(theirs)
        if flags != libcuda.IPC_MEM_LAZY_ENABLE_PEER_ACCESS or memory is None or owner is self:
            return INVALID_VALUE
        if memory.device != self.device() and memory.device not in self.machine.devices[self.device()].peers:
            return 217
        known = next(((region, times) for region, whose, times in self.opened.values() if whose == theirs), None)
        if known is None:
            known = null_memory.open_exported(null_memory.exported(memory)), 0
            self.machine.openings[theirs] += 1
        region, times = known
        self.opened[region.base] = region, theirs, times + 1
        address.value = region.base
        return SUCCESS

    def _cuIpcCloseMemHandle(self, address: int) -> int:
        if address not in self.opened:
            return INVALID_VALUE
        region, theirs, times = self.opened.pop(address)
        if times > 1:
            self.opened[address] = region, theirs, times - 1
        else:
            self.machine.openings[theirs] -= 1
            null_memory.drop(region)
        return SUCCESS

    def _cuMemHostRegister_v2(self, address: int, size: int, flags: int) -> int:
        assert flags == libcuda.MEMHOSTREGISTER_PORTABLE
        if address in self.registered:
            return HOST_MEMORY_ALREADY_REGISTERED
        self.registered[address] = size
        return SUCCESS

    def _cuMemHostUnregister(self, address: int) -> int:
        return SUCCESS if self.registered.pop(address, None) else HOST_MEMORY_NOT_REGISTERED

    def _cuStreamCreate(self, stream: Any, flags: int) -> int:
        assert flags == libcuda.STREAM_NON_BLOCKING
        stream.value = next(self.machine.numbers) << 12
        self.streams[stream.value] = Stream(self.device())
        return SUCCESS

    def _cuStreamDestroy_v2(self, handle: int) -> int:
        stream = self.streams.pop(handle, None) if handle >= 1 << 12 else None
        if stream is None:
            return INVALID_HANDLE
        stream.advance(len(stream.work))
        return SUCCESS

    def _cuStreamSynchronize(self, handle: int) -> int:
        stream = self.stream_at(handle)
        if stream is None:
            return INVALID_HANDLE
        assert stream.advance(len(stream.work)), "waiting for a stream that is held would never end"
        return SUCCESS

    def _cuStreamQuery(self, handle: int) -> int:
        stream = self.stream_at(handle)
        if stream is None:
            return INVALID_HANDLE
        # A caller that asks is waiting: the work goes on meanwhile.
        return SUCCESS if stream.advance(len(stream.work)) else NOT_READY

    def _cuStreamGetId(self, handle: int, number: Any) -> int:
        if self.stream_at(handle) is None:
            return INVALID_HANDLE
        number.value = handle
        return SUCCESS

    def _cuStreamIsCapturing(self, handle: int, status: Any) -> int:
        status.value = int(handle in self.captured)
        return SUCCESS

    def _cuStreamWriteValue64_v2(self, handle: int, address: int, number: int, flags: int) -> int:
        stream, status = self._orders(handle, address, flags)
        if stream is None:
            return status

        def write() -> None:
            if self._has_word(address):
                ctypes.c_uint64.from_address(address).value = number

        sets = self.machine.sets.setdefault(address, [])
        sets[:] = [(other, end) for other, end in sets if other.done < end]
        sets.append((stream, len(stream.work) + 1))
        self.queue(stream, write)
        return SUCCESS

    def _cuStreamWaitValue64_v2(self, handle: int, address: int, number: int, flags: int) -> int:
        stream, status = self._orders(handle, address, flags)
        if stream is None:
            return status

        def is_there() -> bool:
            # As the header says of GEQ: (int64_t)(*addr - value) >= 0.
            return not self._has_word(address) or ctypes.c_int64(ctypes.c_uint64.from_address(address).value - number).value >= 0

        def wait() -> bool:
            return is_there() or any(other.advance(end) and is_there() for other, end in list(self.machine.sets.get(address, ())))

        self.queue(stream, wait)
        return SUCCESS

    def _orders(self, handle: int, address: int, flags: int) -> tuple[Stream | None, int]:
        """The stream, or why it can neither set that word nor wait for it."""
        if not all(self.machine.devices[self.device()].attributes.values()):
            return None, NOT_SUPPORTED
        if flags or address % 8 or not self.is_registered(address, 8):
            return None, INVALID_VALUE
        if handle in self.captured:
            self.machine.undefined.append("a word would be set or waited for whenever a graph is replayed")
        return self.stream_at(handle), INVALID_HANDLE

    def _has_word(self, address: int) -> bool:
        """When a stream comes to it."""
        if self.is_registered(address, 8):
            return True
        self.machine.undefined.append("host memory was let go of while a stream was to set or read a word of it")
        return False

    def _cuEventCreate(self, event: Any, flags: int) -> int:
        event.value = next(self.machine.numbers) << 12
        self.events[event.value] = Mark(self.device(), flags)
        return SUCCESS

    def _cuEventRecord(self, event: int, handle: int) -> int:
        mark, stream = self.events.get(event), self.stream_at(handle)
        if mark is None or stream is None or mark.device != stream.device:
            return INVALID_HANDLE
        mark.stream, mark.end = stream, len(stream.work)
        mark.recorded = time.monotonic()
        return SUCCESS

    def _cuEventElapsedTime(self, milliseconds: Any, first: int, last: int) -> int:
        marks = [self.events.get(each) for each in (first, last)]
        if None in marks or any(mark.flags & 0x2 or mark.stream is None for mark in marks if mark is not None):
            return INVALID_HANDLE
        if any(mark.stream.done < mark.end for mark in marks if mark is not None and mark.stream is not None):
            return NOT_READY
        begin, end = (mark.recorded for mark in marks if mark is not None)
        milliseconds.value = (end - begin) * 1e3
        return SUCCESS

    def _cuEventDestroy_v2(self, event: int) -> int:
        return INVALID_HANDLE if self.events.pop(event, None) is None else SUCCESS

    def _cuMemcpyAsync(self, target: int, source: int, size: int, handle: int) -> int:
        stream = self.stream_at(handle)
        if stream is None:
            return INVALID_HANDLE
        for address in (target, source):
            found = self.find(address)
            if found is None and not self.is_registered(address, size):
                return INVALID_VALUE
            if found is not None and address + size > found.end:
                return INVALID_VALUE
        self.queue(stream, lambda: ctypes.memmove(target, source, size) and None)
        return SUCCESS
