"""A pretended libcuda: the driver's functions over null devices (`mray.testing.null`), with their memory, streams and faults.

    machine = FakeMachine(devices=2)
    one, other = FakeCuda(machine), FakeCuda(machine)      two processes, as the driver sees them; both live in this one
    platform = platform_of(one)                            `mray._device.cuda` on it (in `fake_torch`)

For what null devices alone cannot check: which functions of the driver `mray._device.cuda` calls, in which context and capture mode, with
which arguments, and how it takes their errors. The contract of devices is checked with both (`tests/conformance/test_device.py`), between
processes with null devices.

It answers misuse as the driver does, with the numbers of its header, and collects in `FakeMachine.undefined` what the driver leaves
undefined. Functions compare their arguments with the C signatures of the header. With ``late=True`` streams do nothing until somebody waits
for one that has work, so that a missing wait is a wrong result.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from mray._common.settings import NullDevices
from mray._device import libcuda
from mray._device.cuda import CudaPlatform, find_platform
from mray._device.device import DeviceFaultError
from mray._device.libcuda import IpcHandle, LibCuda
from mray.testing import null_memory
from mray.testing.null import NullDevice, NullMark, NullPlatform
from mray.testing.null_array import Storage
from mray.testing.null_stream import NullStream, StreamHold
from tests.unit.cuda_header import SIGNATURES, Function

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, INVALID_DEVICE, INVALID_CONTEXT = 0, 1, 2, 3, 101, 201
INVALID_HANDLE, NOT_READY, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED = 400, 600, 712, 713
NOT_SUPPORTED, STREAM_CAPTURE_UNSUPPORTED, ILLEGAL_ADDRESS = 801, 900, 700
NAMES = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    3: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    101: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    201: ("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    400: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    700: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    801: ("CUDA_ERROR_NOT_SUPPORTED", "operation not supported"),
    900: ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"),
}
#: Functions that a capture which goes on in any thread is lost by, unless the calling thread is in the relaxed mode.
UNSAFE = {
    *("cuMemAlloc_v2", "cuMemFree_v2", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", "cuMemHostRegister_v2"),
    *("cuStreamQuery", "cuEventCreate", "cuEventElapsedTime"),
}


# ---------------------------------------------------------------------------------------------------------- the machine
class FakeDevice:
    def __init__(self, number: int) -> None:
        self.uuid = bytes([number]) * 16
        self.whole = self.uuid
        self.name = b"Fake GPU"
        #: By their numbers.
        self.attributes = dict.fromkeys(libcuda.ORDER_NEEDS, 1)


class FakeMachine:
    """The state that all processes share. `late`: streams work only while somebody waits."""

    def __init__(self, devices: int = 1, *, memory: int = 1 << 30, peers: bool = True, late: bool = False) -> None:
        self.devices = [FakeDevice(number) for number in range(devices)]
        scope = f"fake-cuda-{os.getpid()}-{id(self):x}"
        self.settings = NullDevices(devices, memory=memory, peer=peers, scope=scope)
        self.late = late
        #: Streams that have work and must not begin; the words that they wait for; the streams that set words.
        self.held: dict[NullStream, StreamHold] = {}
        self.awaited: dict[NullStream, set[int]] = {}
        self.setters: dict[int, NullStream] = {}
        self.processes: list[FakeCuda] = []
        #: By handle: the process that has exported it, and the address there, which is no other's.
        self.exported: dict[bytes, tuple[FakeCuda, int]] = {}
        self.handles = itertools.count(1 << 12, 1 << 12)
        #: Calls that the driver does not define.
        self.undefined: list[str] = []

    def begin(self, stream: NullStream) -> int:
        """The number of a stream that is about to get work."""
        if stream.is_idle():
            self.awaited.pop(stream, None)
        if self.late and stream not in self.held:
            self.held[stream] = StreamHold(stream)
        return stream.number

    def resume(self, *streams: NullStream) -> None:
        """These streams and those that they wait for do what is queued."""
        todo, seen = [*streams], set()
        while todo:
            stream = todo.pop()
            if stream not in seen:
                seen.add(stream)
                if (hold := self.held.pop(stream, None)) is not None:
                    hold.release()
                todo += [self.setters[word] for word in self.awaited.get(stream, ()) if word in self.setters]


# --------------------------------------------------------------------------------------------------------- one process
class FakeCuda:
    """The library as one process has it loaded. `visible`: which devices of the machine it sees."""

    def __init__(self, machine: FakeMachine, visible: list[int] | None = None, *, forked: bool = False) -> None:
        self.machine = machine
        machine.processes.append(self)
        self.visible = list(range(len(machine.devices))) if visible is None else visible
        self.null = NullPlatform(machine.settings, self.visible)
        self.forked = forked
        self.initialized = False
        #: The names of all calls.
        self.calls: list[str] = []
        self.retained: dict[int, int] = {}
        self.memory: set[int] = set()
        #: Memory of torch's tensors.
        self.storages: WeakValueDictionary[int, Storage] = WeakValueDictionary()
        #: The owner's address -> the one here, and how often it was opened.
        self.opened: dict[int, tuple[int, int]] = {}
        self.streams: dict[int, NullStream] = {}
        #: Device, flags, and the mark once it is recorded.
        self.events: dict[int, tuple[int, int, NullMark | None]] = {}
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
        body: Callable[..., int | None] = getattr(self, "_" + name)
        needs_context = not name.startswith(("cuGetError", "cuInit", "cuDevice", "cuCtx", "cuThread"))

        def call(*arguments: Any) -> int:
            if needs_context and (self.fault or not self.current):
                return self.fault or INVALID_CONTEXT
            if name in UNSAFE and self.refuses_unsafe():
                return STREAM_CAPTURE_UNSUPPORTED
            try:
                return body(*arguments) or SUCCESS
            except DeviceFaultError:
                return ILLEGAL_ADDRESS
            except MemoryError:
                return OUT_OF_MEMORY
            except RuntimeError:
                return INVALID_VALUE

        return call

    def platform(self) -> CudaPlatform:
        """mray's platform on it, without tensors; `fake_torch.platform_of` has them."""
        found = find_platform(self.lib)
        assert found is not None
        return found

    @contextmanager
    def hold(self, device: int, handle: int) -> Iterator[None]:
        """While entered, the stream does nothing of what is queued from then on; afterwards, all streams do what they can."""
        with StreamHold(self.stream_of(device, handle)):
            yield
        self.machine.resume(*self.machine.held)

    def finish(self) -> None:
        """Wait for all that is queued, however late it is."""
        self.machine.resume(*self.machine.held)
        for stream in (*self.streams.values(), *(device.streams.get(0) for device in self.null.devices)):
            stream.synchronize()

    def close(self) -> None:
        """The process ends."""
        self.finish()
        self.null.close()

    def left(self) -> dict[str, int]:
        """Objects that were made or opened and not freed, by kind."""
        kinds = {
            "memory": (*self.memory, *self.storages),
            "opened": self.opened,
            "streams": self.streams,
            "events": self.events,
            "pinned": self.null.host._sizes,
        }
        return {kind: len(things) for kind, things in kinds.items() if things}

    # contexts and captures
    @property
    def current(self) -> int:
        return int(getattr(self._thread, "context", 0))

    @current.setter
    def current(self, context: int) -> None:
        self._thread.context = context

    @property
    def device(self) -> NullDevice:
        """The device of the current context."""
        return self.null.devices[self.current - 1]

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

    def stream_of(self, device: int, handle: int) -> NullStream:
        """The stream with this handle on the device with this index."""
        return self.streams[handle] if handle else self.null.devices[device].streams.get(0)

    def stream_at(self, handle: int) -> NullStream | None:
        """The stream with this handle in the current context, if there is one."""
        return self.stream_of(self.current - 1, handle) if not handle or handle in self.streams else None

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
        answer.value = self.null.devices[device].reaches(self.null.devices[peer].uuid)
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

    def _cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        free.value, total.value = self.device.memory()

    def _cuMemAlloc_v2(self, address: Any, size: int) -> int | None:
        if not size:
            return INVALID_VALUE
        address.value = self.device.allocate(size)
        self.memory.add(address.value)
        return None

    def _cuMemFree_v2(self, address: int) -> int | None:
        if address not in self.memory:
            return INVALID_VALUE
        if any(address in process.opened for process in self.machine.processes):
            self.machine.undefined.append("memory was freed that another process has open")
        self.memory.remove(address)
        self.device.free(address)
        return None

    def _cuIpcGetMemHandle(self, handle: Any, address: int) -> int | None:
        if address not in self.memory:
            return INVALID_VALUE
        name = self.device.export_memory(address).ljust(64, b"\0")
        self.machine.exported[name] = self, address
        ctypes.memmove(ctypes.addressof(handle), name, len(name))
        return None

    def _cuIpcOpenMemHandle_v2(self, address: Any, handle: IpcHandle, flags: int) -> int | None:
        name = bytes(handle)
        owner, theirs = self.machine.exported.get(name, (self, 0))
        if flags != libcuda.IPC_MEM_LAZY_ENABLE_PEER_ACCESS or theirs not in owner.memory or owner is self:
            return INVALID_VALUE
        here, times = self.opened.get(theirs) or (self.device.open_memory(name[: null_memory.HANDLE_SIZE]), 0)
        self.opened[theirs] = here, times + 1
        address.value = here
        return None

    def _cuIpcCloseMemHandle(self, address: int) -> int | None:
        for theirs, (here, times) in self.opened.items():
            if here == address:
                self.opened[theirs] = here, times - 1
                if times == 1:
                    del self.opened[theirs]
                    self.device.close_memory(address)
                return None
        return INVALID_VALUE

    def _cuMemHostRegister_v2(self, address: int, size: int, flags: int) -> int | None:
        assert flags == libcuda.MEMHOSTREGISTER_PORTABLE
        if self.null.host.holds(address, 1):
            return HOST_MEMORY_ALREADY_REGISTERED
        self.device.register_host(address, size)
        return None

    def _cuMemHostUnregister(self, address: int) -> int | None:
        if not self.null.host.holds(address, 1):
            return HOST_MEMORY_NOT_REGISTERED
        self.device.unregister_host(address)
        return None

    def _cuStreamCreate(self, stream: Any, flags: int) -> None:
        assert flags == libcuda.STREAM_NON_BLOCKING
        stream.value = next(self.machine.handles)
        streams = self.device.streams
        self.streams[stream.value] = streams.get(streams.create())

    def _cuStreamDestroy_v2(self, handle: int) -> int | None:
        stream = self.streams.pop(handle, None)
        if stream is None:
            return INVALID_HANDLE
        self.device.destroy_stream(stream.number)
        return None

    def _cuStreamSynchronize(self, handle: int) -> int | None:
        stream = self.stream_at(handle)
        if stream is None:
            return INVALID_HANDLE
        self.machine.resume(stream)
        stream.synchronize()
        return None

    def _cuStreamQuery(self, handle: int) -> int | None:
        stream = self.stream_at(handle)
        if stream is None:
            return INVALID_HANDLE
        stream.enter()
        if stream.is_idle():
            return None
        self.machine.resume(stream)  # a caller that asks is waiting
        return NOT_READY

    def _cuStreamGetId(self, handle: int, number: Any) -> int | None:
        if self.stream_at(handle) is None:
            return INVALID_HANDLE
        number.value = handle
        return None

    def _cuStreamIsCapturing(self, handle: int, status: Any) -> None:
        status.value = int(handle in self.captured)

    def _cuStreamWriteValue64_v2(self, handle: int, address: int, number: int, flags: int) -> int | None:
        stream, status = self._orders(handle, flags)
        if stream is not None:
            self.device.set_word(address, number, self.machine.begin(stream))
            self.machine.setters[address] = stream
        return status

    def _cuStreamWaitValue64_v2(self, handle: int, address: int, number: int, flags: int) -> int | None:
        stream, status = self._orders(handle, flags)  # as the header says of GEQ
        if stream is not None:
            self.device.await_word(address, number, self.machine.begin(stream))
            self.machine.awaited.setdefault(stream, set()).add(address)
        return status

    def _orders(self, handle: int, flags: int) -> tuple[NullStream | None, int]:
        """The stream, or why it can neither set words nor wait for them."""
        if not all(self.machine.devices[self.device.number].attributes.values()):
            return None, NOT_SUPPORTED
        if flags:
            return None, INVALID_VALUE
        if handle in self.captured:
            self.machine.undefined.append("a word would be set or waited for whenever a graph is replayed")
        stream = self.stream_at(handle)
        return stream, INVALID_HANDLE if stream is None else SUCCESS

    def _cuEventCreate(self, event: Any, flags: int) -> None:
        event.value = next(self.machine.handles)
        self.events[event.value] = self.current, flags, None

    def _cuEventRecord(self, event: int, handle: int) -> int | None:
        context, flags, _mark = self.events.get(event, (0, 0, None))
        stream = self.stream_at(handle)
        if context != self.current or stream is None:
            return INVALID_HANDLE
        mark = NullMark()
        self.events[event] = context, flags, mark
        if stream.is_idle():
            mark.reach()
        else:
            stream.order(mark.reach)
        return None

    def _cuEventElapsedTime(self, milliseconds: Any, first: int, last: int) -> int | None:
        times = []
        for event in (first, last):
            _context, flags, mark = self.events.get(event, (0, 0, None))
            if flags & 0x2 or mark is None:
                return INVALID_HANDLE
            times.append(mark.time())
        begin, end = times
        if begin is None or end is None:
            return NOT_READY
        milliseconds.value = (end - begin) / 1e6
        return None

    def _cuEventDestroy_v2(self, event: int) -> int | None:
        return INVALID_HANDLE if self.events.pop(event, None) is None else None

    def _cuMemcpyAsync(self, target: int, source: int, size: int, handle: int) -> int | None:
        stream = self.stream_at(handle)
        if stream is None:
            return INVALID_HANDLE
        self.device.copy(target, source, size, self.machine.begin(stream))
        return None
