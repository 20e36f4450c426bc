"""CUDA's driver by ctypes, without mray: its calls, this process's streams, events, memory and words, and a second process with the same.

`gpu_probes` asks its questions with it. A second process is this file as a program (`Peer`).
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import mmap
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

LIBRARY = "libcuda.so.1"
PAGE = mmap.PAGESIZE
#: Values of the header.
NOT_READY = 600
NON_BLOCKING = 1
DISABLE_TIMING, INTERPROCESS = 2, 4
PORTABLE, DEVICE_MAP, READ_ONLY = 1, 2, 8
AT_LEAST, EQUAL = 0, 1
NO_MEMORY_BARRIER = 1
CAPTURE_GLOBAL, CAPTURE_THREAD, CAPTURE_RELAXED = 0, 1, 2

#: Words of two processes that follow each other: by their streams, data are ready and the next kernel has started; by their hosts, a
#: message, and that the other is there; and one that nobody looks at.
READY, STARTED, MESSAGE, THERE, OCCUPIED = 40, 41, 42, 43, 44
#: Ways of a kernel to follow one of another process (`Side.follow`).
FOLLOWING = {
    "ahead": "its wait and its kernel are queued before",
    "told": "a message tells its host, which then queues both, as mray does",
    "late": "the same, and its host is 100 us late",
    "polls": "its host polls the word, and then queues the kernel",
}

#: Kernels: a store to every element, one that the host sees at once, a wait of so many nanoseconds, a store to where nothing is.
PTX = b"""
.version 6.4
.target sm_75
.address_size 64

.visible .entry fill(.param .u64 p_at, .param .u32 p_value, .param .u32 p_count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p_at];
    ld.param.u32 %r1, [p_value];
    ld.param.u32 %r2, [p_count];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r2;
    @%p1 bra DONE;
    mul.wide.u32 %rd2, %r6, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
DONE:
    ret;
}

.visible .entry stamp(.param .u64 p_at, .param .u64 p_value)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p_at];
    ld.param.u64 %rd2, [p_value];
    st.volatile.global.u64 [%rd1], %rd2;
    membar.sys;
    ret;
}

.visible .entry spin(.param .u64 p_nanoseconds)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [p_nanoseconds];
    mov.u64 %rd2, %globaltimer;
AGAIN:
    mov.u64 %rd3, %globaltimer;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra AGAIN;
    ret;
}

.visible .entry bad()
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    mov.u64 %rd1, 16;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
\x00"""


def tell(subject: str, value: object) -> None:
    """One line of the report."""
    print(f"   {subject}: {value}", flush=True)


def doing(step: str) -> None:
    """Name the step that comes now, in a line that the next one is printed over: of a process that hangs, the last one is seen."""
    print(f"   {step} ...", end="\r", flush=True)


def as_seen(output: str) -> str:
    """The output as a terminal shows it: of lines printed over each other, the last."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in output.split("\n"))


class Failure(RuntimeError):
    """A call that returned an error."""


class Handle(ctypes.Structure):
    """Of memory and of an event: 64 bytes, passed by value."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


_int, _uint, _size, _address, _opaque, _long = (
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_size_t,
    ctypes.c_uint64,
    ctypes.c_void_p,
    ctypes.c_uint64,
)
_to = ctypes.POINTER
_launch = (_opaque, *(_uint,) * 7, _opaque, _opaque, _opaque)
_value = (_opaque, _address, _long, _uint)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_uint,),
    "cuDriverGetVersion": (_to(_int),),
    "cuGetErrorName": (_int, _to(ctypes.c_char_p)),
    "cuDeviceGet": (_to(_int), _int),
    "cuDeviceGetAttribute": (_to(_int), _int, _int),
    "cuDevicePrimaryCtxRetain": (_to(_opaque), _int),
    "cuCtxSetCurrent": (_opaque,),
    "cuCtxSynchronize": (),
    "cuThreadExchangeStreamCaptureMode": (_to(_int),),
    "cuModuleLoadData": (_to(_opaque), ctypes.c_char_p),
    "cuModuleGetFunction": (_to(_opaque), _opaque, ctypes.c_char_p),
    "cuLaunchKernel": _launch,
    "cuMemAlloc_v2": (_to(_address), _size),
    "cuMemFree_v2": (_address,),
    "cuMemcpyDtoHAsync_v2": (_opaque, _address, _size, _opaque),
    "cuMemcpyHtoDAsync_v2": (_address, _opaque, _size, _opaque),
    "cuMemcpyAsync": (_address, _address, _size, _opaque),
    "cuMemHostAlloc": (_to(_opaque), _size, _uint),
    "cuMemHostRegister_v2": (_opaque, _size, _uint),
    "cuMemHostUnregister": (_opaque,),
    "cuMemHostGetDevicePointer_v2": (_to(_address), _opaque, _uint),
    "cuIpcGetMemHandle": (_to(Handle), _address),
    "cuIpcOpenMemHandle_v2": (_to(_address), Handle, _uint),
    "cuIpcCloseMemHandle": (_address,),
    "cuIpcGetEventHandle": (_to(Handle), _opaque),
    "cuIpcOpenEventHandle": (_to(_opaque), Handle),
    "cuStreamCreate": (_to(_opaque), _uint),
    "cuStreamDestroy_v2": (_opaque,),
    "cuStreamSynchronize": (_opaque,),
    "cuStreamQuery": (_opaque,),
    "cuStreamWaitEvent": (_opaque, _opaque, _uint),
    "cuStreamWaitValue64": _value,
    "cuStreamWaitValue64_v2": _value,
    "cuStreamWriteValue64": _value,
    "cuStreamWriteValue64_v2": _value,
    "cuStreamBeginCapture_v2": (_opaque, _int),
    "cuStreamEndCapture": (_opaque, _to(_opaque)),
    "cuStreamIsCapturing": (_opaque, _to(_int)),
    "cuStreamGetId": (_opaque, _to(ctypes.c_ulonglong)),
    "cuGraphInstantiateWithFlags": (_to(_opaque), _opaque, ctypes.c_ulonglong),
    "cuGraphLaunch": (_opaque, _opaque),
    "cuEventCreate": (_to(_opaque), _uint),
    "cuEventDestroy_v2": (_opaque,),
    "cuEventQuery": (_opaque,),
    "cuEventRecord": (_opaque, _opaque),
}


class Driver:
    """The driver's calls by their names, in the primary context of the first device."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL(LIBRARY)
        for name, types in SIGNATURES.items():
            with contextlib.suppress(AttributeError):  # an older driver's, which lacks it
                getattr(self.cuda, name).argtypes = types
        self("cuInit", 0)
        ordinal, context = _int(), _opaque()
        self("cuDeviceGet", ctypes.byref(ordinal), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        self.context = context
        self.enter()

    def enter(self) -> None:
        """Make calls of this thread, too."""
        self("cuCtxSetCurrent", self.context)

    def status(self, name: str, *arguments: Any) -> int:
        status: int = getattr(self.cuda, name)(*arguments)
        return status

    def name(self, status: int) -> str:
        text = ctypes.c_char_p()
        self.status("cuGetErrorName", status, ctypes.byref(text))
        return (text.value or b"error %d" % status).decode()

    def says(self, name: str, *arguments: Any) -> str:
        return self.name(self.status(name, *arguments))

    def __call__(self, name: str, *arguments: Any) -> None:
        status = self.status(name, *arguments)
        if status:
            raise Failure(f"{name}: {self.name(status)}")


class Side:
    """A process's streams, events, memory and words, by names. The peer has the same."""

    def __init__(self) -> None:
        self.driver = driver = Driver()
        self.streams: dict[str, int] = {"0": 0}
        self.events: dict[str, int] = {}
        self.maps: list[Any] = []
        self.host = self.device = 0
        modern = hasattr(driver.cuda, "cuStreamWaitValue64_v2")
        self.wait_value, self.write_value = (f"cuStream{kind}Value64{'_v2' if modern else ''}" for kind in ("Wait", "Write"))
        module = _opaque()
        driver("cuModuleLoadData", ctypes.byref(module), PTX)
        self.kernels: dict[str, Any] = {}
        for name in ("fill", "stamp", "spin", "bad"):
            kernel = _opaque()
            driver("cuModuleGetFunction", ctypes.byref(kernel), module, name.encode())
            self.kernels[name] = kernel
        # Their first launches may wait for the device.
        self.fill("0", 0, 0, 0)
        self.spin("0", 0)
        driver("cuCtxSynchronize")

    # ------------------------------------------------------------------------------------------------- words
    def map(self, path: str, size: int = PAGE, offset: int = 0, *, writable: bool = True) -> int:
        """Map a file, and register nothing; its address."""
        descriptor = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
        library = ctypes.CDLL(None, use_errno=True)
        library.mmap.restype, library.mmap.argtypes = _opaque, (_opaque, _size, _int, _int, _int, ctypes.c_long)
        address = library.mmap(None, size, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0), mmap.MAP_SHARED, descriptor, offset)
        os.close(descriptor)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "mmap")
        return int(address)

    def register(self, address: int, size: int = PAGE, flags: int = PORTABLE | DEVICE_MAP) -> int:
        """Register memory; its address for the device."""
        self.driver("cuMemHostRegister_v2", address, size, flags)
        return self.device_address(address)

    def device_address(self, address: int) -> int:
        found = _address()
        self.driver("cuMemHostGetDevicePointer_v2", ctypes.byref(found), address, 0)
        return found.value

    def words(self, path: str, size: int = PAGE) -> bool:
        """Map and register a file as the words of this side; whether both addresses are one."""
        self.host = self.map(path, size)
        self.device = self.register(self.host, size)
        return self.device == self.host

    def store(self, index: int, value: int) -> None:
        ctypes.c_uint64.from_address(self.host + 8 * index).value = value

    def load(self, index: int) -> int:
        return ctypes.c_uint64.from_address(self.host + 8 * index).value

    def write(self, stream: str, index: int, value: int) -> None:
        self.driver(self.write_value, self.stream(stream), self.device + 8 * index, value, 0)

    def wait(self, stream: str, index: int, value: int) -> None:
        self.driver(self.wait_value, self.stream(stream), self.device + 8 * index, value, AT_LEAST)

    # ------------------------------------------------------------------------------------- streams and kernels
    def stream(self, name: str, flags: int = NON_BLOCKING) -> int:
        if name not in self.streams:
            stream = _opaque()
            self.driver("cuStreamCreate", ctypes.byref(stream), flags)
            assert stream.value is not None
            self.streams[name] = stream.value
        return self.streams[name]

    def launch(self, kernel: str, stream: str, *arguments: Any, blocks: int = 1, threads: int = 1) -> str:
        pointers = (_opaque * max(1, len(arguments)))(*(ctypes.addressof(each) for each in arguments))
        call = self.kernels[kernel], blocks, 1, 1, threads, 1, 1, 0, self.stream(stream), ctypes.cast(pointers, _opaque), None
        return self.driver.says("cuLaunchKernel", *call)

    def fill(self, stream: str, address: int, value: int, count: int = 1) -> str:
        """A kernel that stores an int32 in so many places."""
        words = _address(address), _uint(value), _uint(count)
        return self.launch("fill", stream, *words, blocks=max(1, (count + 255) // 256), threads=max(1, min(count, 256)))

    def stamp(self, stream: str, index: int, value: int) -> str:
        """A kernel that stores a word."""
        return self.launch("stamp", stream, _address(self.device + 8 * index), _long(value))

    def until(self, index: int, value: int, within: float = 8.0) -> float:
        """Poll a word until it has come to a value; when it had (`time.perf_counter`)."""
        word, clock = ctypes.c_uint64.from_address(self.host + 8 * index), time.perf_counter
        end = clock() + within
        while word.value < value:
            if clock() > end:
                raise TimeoutError(f"word {index} is {word.value}, and not yet {value}, after {within:g} s")
        return clock()

    def spin(self, stream: str, seconds: float) -> str:
        return self.launch("spin", stream, _long(int(seconds * 1e9)))

    def bad(self, stream: str) -> str:
        return self.launch("bad", stream)

    def done(self, stream: str, within: float = 0.5) -> str:
        """Whether a stream has nothing left to do, or has not within so many seconds; or the error."""
        end = time.monotonic() + within
        while (status := self.driver.status("cuStreamQuery", self.stream(stream))) == NOT_READY and time.monotonic() < end:
            time.sleep(0.0005)
        return {0: "done", NOT_READY: "waits"}.get(status) or self.driver.name(status)

    def synchronize(self, stream: str) -> str:
        return self.driver.says("cuStreamSynchronize", self.stream(stream))

    # ------------------------------------------------------------------------------------- events and memory
    def event(self, name: str) -> bytes:
        event, handle = _opaque(), Handle()
        self.driver("cuEventCreate", ctypes.byref(event), DISABLE_TIMING | INTERPROCESS)
        self.driver("cuIpcGetEventHandle", ctypes.byref(handle), event)
        self.events[name] = event.value or 0
        return bytes(handle)

    def open_event(self, name: str, handle: bytes) -> None:
        event = _opaque()
        self.driver("cuIpcOpenEventHandle", ctypes.byref(event), Handle.from_buffer_copy(handle))
        self.events[name] = event.value or 0

    def close_event(self, name: str) -> None:
        self.driver("cuEventDestroy_v2", self.events.pop(name))

    def record(self, event: str, stream: str) -> str:
        return self.driver.says("cuEventRecord", self.events[event], self.stream(stream))

    def wait_event(self, stream: str, event: str) -> str:
        return self.driver.says("cuStreamWaitEvent", self.stream(stream), self.events[event], 0)

    def query(self, event: str) -> str:
        return self.driver.says("cuEventQuery", self.events[event])

    def forsake(self, event: str) -> str:
        """As mray does: mark the event on a new stream."""
        stream = _opaque()
        self.driver("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        said = self.driver.says("cuEventRecord", self.events[event], stream)
        self.driver("cuStreamDestroy_v2", stream)
        return said

    def allocate(self, size: int) -> tuple[int, bytes]:
        address, handle = _address(), Handle()
        self.driver("cuMemAlloc_v2", ctypes.byref(address), size)
        self.driver("cuIpcGetMemHandle", ctypes.byref(handle), address)
        return address.value, bytes(handle)

    def open(self, handle: bytes) -> int:
        address = _address()
        self.driver("cuIpcOpenMemHandle_v2", ctypes.byref(address), Handle.from_buffer_copy(handle), 1)
        return address.value

    def close(self, address: int) -> None:
        self.driver("cuIpcCloseMemHandle", address)

    def says(self, name: str, *arguments: Any) -> str:
        """The answer of a call of the driver."""
        return self.driver.says(name, *arguments)

    # ------------------------------------------------------------------------------- longer parts of the peer
    def produce(self, address: int, count: int, rounds: int) -> None:
        """For each round: wait until the last one was read (word 1), fill the memory, say so (word 0)."""
        for number in range(1, rounds + 1):
            self.wait("s", 1, number - 1)
            self.fill("s", address, number, count)
            self.write("s", 0, number)

    def answer(self, address: int, rounds: int) -> None:
        """For each round: wait for word 0, run a kernel, write word 1."""
        for number in range(1, rounds + 1):
            self.wait("s", 0, number)
            self.fill("s", address, number)
            self.write("s", 1, number)

    def answer_by_events(self, address: int, theirs: str, mine: str, rounds: int) -> None:
        """The same with events; words 2 and 3 say on the host that they have been recorded."""
        for number in range(1, rounds + 1):
            while self.load(2) < number:
                pass
            self.wait_event("s", theirs)
            self.fill("s", address, number)
            self.record(mine, "s")
            self.store(3, number)

    def occupy(self) -> None:
        """Be the process that had the GPU last."""
        self.stamp("0", OCCUPIED, 1)
        self.synchronize("0")

    def take_turns(self, first: int, rounds: int) -> None:
        """For each round: see the other's kernel, launch one."""
        for number in range(first, first + rounds):
            self.until(READY, number)
            self.stamp("0", STARTED, number)

    def follow(self, way: str, number: int) -> None:
        """Have had the GPU; then let a kernel follow what the other's stream says by READY, queued as `FOLLOWING` says."""
        self.occupy()
        if way == "ahead":
            self.wait("0", READY, number)
            self.stamp("0", STARTED, number)
        self.store(THERE, number)
        if way == "polls":
            self.until(READY, number)
        elif way != "ahead":
            told = self.until(MESSAGE, number)
            while way == "late" and time.perf_counter() < told + 100e-6:
                pass
            self.wait("0", READY, number)
        if way != "ahead":
            self.stamp("0", STARTED, number)

    def open_events(self, handles: list[bytes], seconds: float) -> str:
        """Open as many as that time allows; how many, and the error that ended it."""
        start, count = time.monotonic(), 0
        try:
            for count, handle in enumerate(handles):
                self.open_event(f"many {count}", handle)
                if time.monotonic() - start > seconds:
                    break
        except Failure as failure:
            return f"{count} opened, then {failure}"
        return f"{count + 1} opened in {time.monotonic() - start:.1f} s"


class Peer:
    """A second process with a `Side`: calls its methods. A call that takes too long is a TimeoutError, and shows the process's stacks."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._is_late = False
        self._sent = 0
        #: The number of the call, whether it returned, what it returned or raised.
        self._replies: queue.SimpleQueue[tuple[int, bool, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                self._replies.put(pickle.load(self.process.stdout))
        self._replies.put((ENDED, False, "it has ended"))

    def __call__(self, method: str, *arguments: Any, within: float = 12.0) -> Any:
        self.send(method, *arguments)
        return self.result(method, within)

    def send(self, method: str, *arguments: Any) -> None:
        assert self.process.stdin is not None
        self._sent += 1
        pickle.dump((self._sent, method, arguments), self.process.stdin)
        self.process.stdin.flush()

    def result(self, method: str, within: float = 12.0) -> Any:
        """The result of the call sent last. After one that was late, others are given two seconds."""
        end = time.monotonic() + (min(within, 2.0) if self._is_late else within)
        number = 0
        while number not in (self._sent, ENDED):  # else of a call that was late
            try:
                number, is_result, result = self._replies.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                if not self._is_late:
                    self.process.send_signal(signal.SIGUSR1)
                self._is_late = True
                raise TimeoutError(f"{method} of the other process has not returned within {within:g} s") from None
        if not is_result:
            raise Failure(f"the other process: {result}")
        return result

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


#: In place of a call's number.
ENDED = -1


def be_peer() -> None:
    """Do what is asked on stdin, until it ends."""
    side = Side()
    while True:
        try:
            number, method, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            os._exit(0)
        try:
            reply = number, True, getattr(side, method)(*arguments)
        except Exception as error:
            reply = number, False, f"{type(error).__name__}: {error}"
        pickle.dump(reply, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def memfd(size: int = PAGE) -> str:
    """A path that other processes open new memory by."""
    descriptor = os.memfd_create("words")
    os.ftruncate(descriptor, size)
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def both() -> tuple[Side, Peer]:
    """This side and another process, with the same words."""
    me, peer, path = Side(), Peer(), memfd()
    me.words(path)
    peer("words", path, within=20)
    return me, peer


def attempt(subject: str, action: Callable[[], object]) -> Any:
    """Tell what it returns, or the exception; returns the former."""
    try:
        result = action()
    except Exception as error:
        tell(subject, f"{type(error).__name__}: {error}")
        return None
    tell(subject, "ok" if result is None else str(result)[:400])
    return result


def milliseconds(action: Callable[[], object]) -> str:
    start = time.perf_counter()
    try:
        said = action()
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    took = f"{1e3 * (time.perf_counter() - start):.2f} ms"
    return took if said in (None, "CUDA_SUCCESS") or isinstance(said, int | bytes | tuple) else f"{took} ({said})"


def microseconds(action: Callable[[], object], times: int = 300) -> str:
    action()
    start = time.perf_counter()
    for _ in range(times):
        action()
    return f"{(time.perf_counter() - start) / times * 1e6:.2f} us"


def later(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer


class Watch:
    """Is told each call before it is made. Tells the first one that does not return in some seconds, and whether an action ends it."""

    def __init__(self, seconds: float, action: Callable[[], object]) -> None:
        self._seconds, self._action = seconds, action
        self._call, self._since = "", time.monotonic()
        self._has_hung = self._has_ended = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def __call__(self, call: str) -> None:
        """The next call. Raises Failure where the last one has hung: later answers would mean nothing."""
        self._since = time.monotonic()
        self._call = call
        if self._has_hung:
            self._thread.join()
            raise Failure("a call has hung")
        doing(call)

    def end(self) -> None:
        """All have returned."""
        self("")
        self._has_ended = True

    def _watch(self) -> None:
        while time.monotonic() - self._since < self._seconds or not self._call:
            if self._has_ended:
                return
            time.sleep(0.1)
        self._has_hung, call = True, self._call
        tell(call, f"has not returned for {self._seconds:g} s")
        faulthandler.dump_traceback()
        self._action()
        end = time.monotonic() + 4
        while self._call is call and time.monotonic() < end:
            time.sleep(0.01)
        tell("  and returned when what streams wait for was stored", self._call is not call)


def show_stacks_on_request() -> None:
    """Upon SIGUSR1, also of threads that are in C, and upon a crash."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)


if __name__ == "__main__":
    show_stacks_on_request()
    be_peer()
