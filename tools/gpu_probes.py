"""Questions to CUDA itself: what the driver does where its documentation says nothing, or where mray rests on what it says.

Each probe is a process of its own, started by `gpu_first`; second processes are this file as a program (`Peer`), and so are cases that
need variables of their own (`together`). Calls are made by ctypes on the driver, without mray, except where a probe is about torch or
NCCL. Each line is printed as soon as it is known: a probe that hangs has told what came before.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import mmap
import os
import pickle
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIBRARY = "libcuda.so.1"
PAGE = mmap.PAGESIZE
#: Values of the header.
NOT_READY = 600
NON_BLOCKING = 1
DISABLE_TIMING, INTERPROCESS = 2, 4
PORTABLE, DEVICE_MAP, READ_ONLY = 1, 2, 8
AT_LEAST, EQUAL = 0, 1
CAPTURE_GLOBAL, CAPTURE_THREAD, CAPTURE_RELAXED = 0, 1, 2

#: Attributes of a device, by the header's numbers.
ATTRIBUTES = {
    "unified addressing": 41,
    "copy engines": 40,
    "compute preemption": 90,
    "host pointer is the device's for registered memory": 91,
    "stream memory operations (v1)": 92,
    "64-bit stream memory operations (v1)": 93,
    "flush of remote writes": 98,
    "host memory can be registered": 99,
    "pageable access by the host's page tables": 100,
    "read-only host memory can be registered": 113,
    "64-bit stream memory operations": 122,
    "wait for a value by NOR": 123,
    "IPC of events": 125,
    "MPS": 133,
}

#: Kernels: a store to every element, a wait of so many nanoseconds, a store to where nothing is.
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
        self.library = ctypes.CDLL(LIBRARY)
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
        function = getattr(self.library, name)
        function.argtypes, function.restype = SIGNATURES[name], _int
        status: int = function(*arguments)
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
        modern = hasattr(driver.library, "cuStreamWaitValue64_v2")
        self.wait_value, self.write_value = (f"cuStream{kind}Value64{'_v2' if modern else ''}" for kind in ("Wait", "Write"))
        module = _opaque()
        driver("cuModuleLoadData", ctypes.byref(module), PTX)
        self.kernels: dict[str, Any] = {}
        for name in ("fill", "spin", "bad"):
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
    """A second process with a `Side`: calls its methods, and raises what they raise. A call that takes too long is a TimeoutError."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, __file__, "peer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, method: str, *arguments: Any, within: float = 12.0) -> Any:
        self.send(method, *arguments)
        return self.result(method, within)

    def send(self, method: str, *arguments: Any) -> None:
        assert self.process.stdin is not None
        pickle.dump((method, arguments), self.process.stdin)
        self.process.stdin.flush()

    def result(self, method: str, within: float = 12.0) -> Any:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], within)[0]:
            raise TimeoutError(f"{method} of the other process has not returned within {within:g} s")
        is_result, result = pickle.load(self.process.stdout)
        if not is_result:
            raise result
        return result

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def be_peer() -> None:
    """Do what is asked on stdin, until it ends."""
    side = Side()
    while True:
        try:
            method, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            os._exit(0)
        try:
            reply = True, getattr(side, method)(*arguments)
        except Exception as error:
            reply = False, Failure(f"the other process: {type(error).__name__}: {error}")
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


def together(cases: list[tuple[str, dict[str, str]]], seconds: float) -> None:
    """Run cases at the same time, each in a process of its own: this program with these words; print what each has said."""
    started = []
    for words, variables in cases:
        output = tempfile.TemporaryFile()  # noqa: SIM115  (read below)
        command = [sys.executable, __file__, *words.split()]
        started.append((subprocess.Popen(command, env={**os.environ, **variables}, stdout=output, stderr=subprocess.STDOUT), output))
    end = time.monotonic() + seconds
    for (words, variables), (process, output) in zip(cases, started, strict=True):
        try:
            verdict = f"ended with {process.wait(max(0.1, end - time.monotonic()))}"
        except subprocess.TimeoutExpired:
            process.kill()
            verdict = "HANGS"
        output.seek(0)
        said = output.read().decode(errors="replace")[-1500:].rstrip()
        print(f"  -- {words} {' '.join(f'{name}={value}' for name, value in variables.items())}: {verdict}\n{said}", flush=True)


def later(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer


# ------------------------------------------------------------------------------------------ before the probes
def warm_up() -> None:
    """The first import of torch and the first context, which read gigabytes: apart, so that no probe pays for it."""
    start = time.monotonic()
    side = Side()
    tell("first context of the driver", f"{time.monotonic() - start:.1f} s")
    start = time.monotonic()
    import torch  # noqa: PLC0415

    tell("import of torch", f"{time.monotonic() - start:.1f} s")
    start = time.monotonic()
    value = torch.ones(4, device="cuda").sum().item()
    tell("first kernels of torch", f"{time.monotonic() - start:.1f} s, {value}")
    tell("driver", side.says("cuCtxSynchronize"))


def hello() -> None:
    """Versions, symbols, attributes and limits of this machine."""
    import torch  # noqa: PLC0415

    library = ctypes.CDLL(LIBRARY)
    version = _int()
    library.cuDriverGetVersion(ctypes.byref(version))
    tell("python", sys.version.split()[0])
    tell("torch", f"{torch.__version__}, CUDA {torch.version.cuda}, allocator {torch.cuda.get_allocator_backend()}")
    tell("driver", f"CUDA {version.value // 1000}.{version.value % 1000 // 10}")
    attempt("NCCL of torch", torch.cuda.nccl.version)

    def ours() -> str:
        from mray._device import libcuda, nccl  # noqa: PLC0415

        return f"{nccl.nccl_version()}, functions of {LIBRARY} that it lacks: {libcuda.missing_functions(library) or 'none'}"

    attempt("mray: NCCL", ours)
    tell("functions of the probes that are missing", [name for name in SIGNATURES if not hasattr(library, name)] or "none")
    driver = Driver()
    for name, number in ATTRIBUTES.items():
        answer = _int()
        status = driver.status("cuDeviceGetAttribute", ctypes.byref(answer), number, 0)
        tell(name, answer.value if not status else driver.name(status))
    for name in ("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_VISIBLE_DEVICES", "CUDA_MODULE_LOADING", "PYTORCH_CUDA_ALLOC_CONF"):
        tell(name, os.environ.get(name, "not set"))
    pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    tell("MPS", f"runs: {Path(pipe, 'control').exists()}, program: {shutil.which('nvidia-cuda-mps-control')}")
    shm = shutil.disk_usage("/dev/shm")
    tell("/dev/shm", f"{shm.total >> 20} MiB, {shm.free >> 20} free")
    tell("memory that may be locked", resource.getrlimit(resource.RLIMIT_MEMLOCK))
    tell("open files", resource.getrlimit(resource.RLIMIT_NOFILE))
    tell("programs", {name: shutil.which(name) for name in ("nvcc", "compute-sanitizer", "nsys")})
    for path in ("/proc/driver/nvidia/version", "/proc/driver/nvidia/params"):
        attempt(path, lambda path=path: [line for line in Path(path).read_text().splitlines() if "NVRM" in line or "StreamMem" in line])


# ------------------------------------------------------------------------------------------- words of streams
def words() -> None:
    """Whether a stream waits for a word of shared host memory, and each way of setting it lets it go on."""
    me, path = Side(), memfd()
    tell("calls", f"{me.wait_value}, {me.write_value}")
    tell("the host's address is the device's", me.words(path))
    me.wait("s", 0, 1)
    tell("waits", me.done("s", 0.2))
    me.store(0, 1)
    tell("released by a store of the own CPU", me.done("s"))
    me.wait("s", 0, 1)
    tell("what is reached already", me.done("s"))
    me.store(1, 5)
    me.wait("s", 1, 3)
    tell("a word beyond the value", me.done("s"))
    for name in ("s", "0", "blocking"):
        me.stream(name, 0)
        index = 2 + len(name)
        attempt(f"stream {name}: write", lambda name=name, index=index: me.write(name, index, 7))
        tell("  done, and the word is", f"{me.done(name)}, {me.load(index)}")
        attempt(f"stream {name}: wait", lambda name=name, index=index: me.wait(name, index, 8))
        tell("  before and after the store", (me.done(name, 0.1), me.store(index, 8), me.done(name)))
    peer = Peer()
    tell("the other process: the host's address is the device's", peer("words", path, within=20))
    me.wait("s", 20, 1)
    tell("waits", me.done("s", 0.2))
    peer("store", 20, 1)
    tell("released by a store of the other's CPU", me.done("s"))
    me.wait("s", 21, 1)
    peer("write", "s", 21, 1)
    tell("released by the other's stream", me.done("s"))
    peer("wait", "held", 22, 1)
    peer("write", "held", 23, 1)
    me.wait("s", 23, 1)
    tell("waits for the other's stream, which waits", me.done("s", 0.2))
    peer.kill()
    time.sleep(0.5)
    tell("when the other is killed", me.done("s", 0.2))
    me.store(23, 1)
    tell("and its word is stored here", me.done("s"))
    peer = Peer()
    peer("words", path, within=20)
    me.wait("s", 24, 1)
    later(0.5, lambda: me.store(24, 1))
    tell("released in a thread while synchronizing", me.synchronize("s"))
    for big in (1 << 33, (1 << 63) - 1, (1 << 64) - 1):
        me.store(25, 0)
        me.wait("s", 25, big)
        tell(f"{big:#x}: at 0", me.done("s", 0.1))
        me.store(25, big)
        tell("  when reached", me.done("s"))


def words_order() -> None:
    """Whether data that another process's kernel wrote before a word are there for a stream that waited for it: 400 rounds of 4 MiB."""
    me, peer = both()
    count, rounds = 1 << 20, 400
    address, handle = peer("allocate", 4 * count)
    at, sink = me.open(handle), _opaque()
    me.driver("cuMemHostAlloc", ctypes.byref(sink), 16 * rounds, PORTABLE)
    seen = (_uint * (4 * rounds)).from_address(sink.value or 0)
    start = time.monotonic()
    peer.send("produce", address, count, rounds)
    for number in range(1, rounds + 1):
        me.wait("s", 0, number)
        for part in range(4):
            target = (sink.value or 0) + 16 * (number - 1) + 4 * part
            me.driver("cuMemcpyDtoHAsync_v2", target, at + 4 * (part * (count - 1) // 3), 4, me.stream("s"))
        me.write("s", 1, number)
    tell("queued", f"{time.monotonic() - start:.2f} s")
    tell("stream", me.done("s", 10))
    attempt("the other", lambda: peer.result("produce", 5))
    tell("words", (me.load(0), me.load(1)))
    wrong = [(place // 4 + 1, value) for place, value in enumerate(seen) if value != place // 4 + 1]
    tell("wrong values", f"{len(wrong)} of {4 * rounds}: {wrong[:8]}")
    tell("one round", f"{(time.monotonic() - start) / rounds * 1e6:.0f} us")


def words_places() -> None:
    """Which memory can hold words: files of /dev/shm, pages of a larger mapping, registered twice, read-only, large."""
    me = Side()

    def tried(
        subject: str, address: int, *, at: int = 0, release: Callable[[int], None] | None = None, flags: int = 3, size: int = PAGE
    ) -> Any:
        """Register a page, and wait for a word there."""

        def action() -> str:
            device = me.register(address, size, flags)
            me.driver(me.wait_value, me.stream(subject), device + at, 1, AT_LEAST)
            before = me.done(subject, 0.1)
            if release is None:
                ctypes.c_uint64.from_address(address + at).value = 1
            else:
                release(at)
            return f"{before}, then {me.done(subject)}; device address {'is the same' if device == address else 'is another'}"

        return attempt(subject, action)

    def unregister(subject: str, address: int) -> None:
        tell(subject, me.says("cuMemHostUnregister", address))

    name = f"/dev/shm/mray-probe-{os.getpid()}"
    Path(name).write_bytes(bytes(16 * PAGE))
    try:
        shm = me.map(name, 16 * PAGE)
        tried("page 0 of a file of /dev/shm", shm)
        tried("page 3 of it, offset 64", shm + 3 * PAGE, at=64)
        tried("page 4 of it, its neighbour", shm + 4 * PAGE)
        tried("page 3 again", shm + 3 * PAGE, at=128)
        tried("pages 2 to 5, which overlap", shm + 2 * PAGE, size=4 * PAGE)
        tried("half a page, not at its start", shm + 8 * PAGE + 512, size=512)
        tried("the other half", shm + 8 * PAGE + 1024, size=512)
        second = me.map(name, 16 * PAGE)
        tried("page 3 by a second mapping of the file", second + 3 * PAGE, at=192)
        unregister("unregister page 3", shm + 3 * PAGE)
        tried("page 3 once more", shm + 3 * PAGE, at=256)
        third = me.map(name, 16 * PAGE)

        def other(at: int) -> None:
            ctypes.c_uint64.from_address(third + 6 * PAGE + at).value = 1

        reading = me.map(name, 16 * PAGE, writable=False)
        tried("a read-only mapping, flags as always", reading + 6 * PAGE, at=0, release=other)
        tried("a read-only mapping, flag READ_ONLY", reading + 6 * PAGE, at=8, release=other, flags=DEVICE_MAP | PORTABLE | READ_ONLY)
    finally:
        os.unlink(name)
    file = me.map(memfd(16 * PAGE), PAGE, 5 * PAGE)
    tried("a memfd mapped from its page 5 on", file)
    anonymous = ctypes.create_string_buffer(3 * PAGE)
    tried("anonymous memory", ctypes.addressof(anonymous) // PAGE * PAGE + PAGE)
    for size in (PAGE, 1 << 20, 64 << 20):
        area = me.map(memfd(size), size)
        tell(f"register {size >> 10} KiB", milliseconds(lambda area=area, size=size: me.says("cuMemHostRegister_v2", area, size, 3)))
        tell(f"unregister {size >> 10} KiB", milliseconds(lambda area=area: me.says("cuMemHostUnregister", area)))
    area = me.map(memfd(2000 * PAGE), 2000 * PAGE)
    start = time.perf_counter()
    for page in range(2000):
        me.driver("cuMemHostRegister_v2", area + page * PAGE, PAGE, 3)
    tell("2000 pages one by one", f"{1e3 * (time.perf_counter() - start):.1f} ms")
    address, _handle = me.allocate(2 << 20)
    me.fill("s", address, 0, 1024)
    attempt(
        "a word in device memory: write, wait",
        lambda: (
            me.driver(me.write_value, me.stream("s"), address, 1, 0),
            me.driver(me.wait_value, me.stream("s"), address, 1, 0),
            me.done("s"),
        ),
    )
    peer = Peer()
    at = peer("open", _handle, within=20)
    attempt("a word in memory of another process: write there", lambda: peer("says", me.write_value, peer("stream", "s"), at + 64, 1, 0))
    tell("  wait here", (me.says(me.wait_value, me.stream("s"), address + 64, 1, 0), me.done("s")))


def words_costs() -> None:
    """Microseconds for a call: of writing and waiting, and of an event's recording and waiting."""
    me, peer = both()
    handle = peer("event", "theirs")
    me.open_event("theirs", handle)
    me.event("mine")
    me.store(0, 1 << 40)
    address, _handle = me.allocate(2 << 20)
    stream, word, mine, theirs = me.stream("s"), me.device, me.events["mine"], me.events["theirs"]
    rows: dict[str, Callable[[], object]] = {
        "write a word": lambda: me.driver(me.write_value, stream, word + 8, 1, 0),
        "write a word, no barrier": lambda: me.driver(me.write_value, stream, word + 8, 1, 1),
        "wait for a word that is reached": lambda: me.driver(me.wait_value, stream, word, 1, 0),
        "record an IPC event": lambda: me.driver("cuEventRecord", mine, stream),
        "wait for an own IPC event": lambda: me.driver("cuStreamWaitEvent", stream, mine, 0),
        "wait for an opened IPC event": lambda: me.driver("cuStreamWaitEvent", stream, theirs, 0),
        "launch a kernel": lambda: me.fill("s", address, 1),
        "ask a stream": lambda: me.driver.status("cuStreamQuery", stream),
    }
    for name, action in rows.items():
        tell(name, microseconds(action))
        me.done("s", 3)

    def through(*actions: Callable[[], object]) -> str:
        """With what the device needs for it."""
        start = time.perf_counter()
        for _ in range(2000):
            for action in actions:
                action()
        me.synchronize("s")
        return f"{(time.perf_counter() - start) / 2000 * 1e6:.2f} us"

    launch = rows["launch a kernel"]
    tell("2000 times, until done: kernel", through(launch))
    tell("  kernel, write", through(launch, rows["write a word"]))
    tell("  wait, kernel, write", through(rows["wait for a word that is reached"], launch, rows["write a word"]))
    tell("  kernel, record", through(launch, rows["record an IPC event"]))
    tell("  wait, kernel, record", through(rows["wait for an opened IPC event"], launch, rows["record an IPC event"]))


def words_many() -> None:
    """Whether streams that wait for words hinder others, with 1, 8 and 32 connections; and so for events."""
    ways, counts = ("word", "event"), ("1", "8", "32")
    together([(f"blocked {way}", {"CUDA_DEVICE_MAX_CONNECTIONS": count}) for way in ways for count in counts], 28)


def blocked(way: str) -> None:
    """A case: with more and more streams that wait, whether another one goes on."""
    me = Side()
    me.words(memfd())
    address, _handle = me.allocate(2 << 20)
    me.event("e")
    if way == "event":
        me.wait("holder", 0, 1)
        me.record("e", "holder")
    count = 0
    for total in (1, 4, 8, 16, 32, 64, 120):
        while count < total:
            if way == "word":
                me.wait(f"w{count}", 0, 1)
            else:
                me.wait_event(f"w{count}", "e")
            me.fill(f"w{count}", address, 1)
            count += 1
        others = []
        for number in range(8):
            me.fill(f"free{total} {number}", address, 2)
            others.append(me.done(f"free{total} {number}", 0.15))
        tell(f"{total} streams wait: of 8 new ones go on", others.count("done"))
    me.store(0, 1)
    tell("all go on when released", sum(me.done(f"w{number}") == "done" for number in range(count)))


def words_capture() -> None:
    """Whether writing and waiting can be captured in a CUDA graph, and what they do when it is replayed."""
    me = Side()
    me.words(memfd())
    for mode, name in ((CAPTURE_GLOBAL, "global"), (CAPTURE_THREAD, "thread"), (CAPTURE_RELAXED, "relaxed")):
        stream, graph, executable = me.stream(name), _opaque(), _opaque()
        me.store(0, 0)
        me.store(1, 0)
        tell(f"{name}: begin", me.says("cuStreamBeginCapture_v2", stream, mode))
        tell("  wait", me.says(me.wait_value, stream, me.device, 1, 0))
        tell("  write", me.says(me.write_value, stream, me.device + 8, 1, 0))
        tell("  end", me.says("cuStreamEndCapture", stream, ctypes.byref(graph)))
        if graph.value:
            tell("  instantiate", me.says("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0))
            tell("  launch", me.says("cuGraphLaunch", executable, stream))
            before = me.done(name, 0.2)
            me.store(0, 1)
            tell("  before the store, after, the word", (before, me.done(name), me.load(1)))


# ------------------------------------------------------------------------------------------------------ torch
def stream_zero() -> None:
    """Which of torch's streams is the driver's stream 0, and what is ordered behind it."""
    import torch  # noqa: PLC0415

    me = Side()
    me.words(memfd())
    x = torch.zeros(1 << 16, device="cuda").add_(1)  # loaded, before anything waits
    torch.cuda.synchronize()
    streams = {
        "default_stream()": torch.cuda.default_stream,
        "ExternalStream(0)": lambda: torch.cuda.ExternalStream(0),
        "get_stream_from_external(0)": lambda: torch.cuda.get_stream_from_external(0, torch.device("cuda", 0)),
        "Stream(stream_id=0, device_index=0, device_type=1)": lambda: torch.cuda.Stream(stream_id=0, device_index=0, device_type=1),
    }
    for number, (name, make) in enumerate(streams.items()):

        def ordered(make: Any = make, number: int = number) -> str:
            stream = make()
            me.store(number, 0)
            me.wait("0", number, 1)  # the driver's stream 0 does nothing from here on
            try:
                with torch.cuda.stream(stream):
                    x.add_(1)
                    mark = torch.cuda.Event()
                    mark.record()
                time.sleep(0.2)
                behind = not mark.query()
            finally:
                me.store(number, 1)
            torch.cuda.synchronize()
            return f"cuda_stream {stream.cuda_stream:#x}, ordered behind stream 0: {behind}, {stream!r}"

        attempt(name, ordered)


KINDS_OF_THREADS = ("item", "synchronize", "launches")


def release_words() -> None:
    """Whether 40 streams and a thread that waits in torch go on when a word is stored by the CPU."""
    plain = [(f"release word {kind}", {}) for kind in KINDS_OF_THREADS]
    together([*plain, *(("release word launches", {"CUDA_DEVICE_MAX_CONNECTIONS": count}) for count in ("1", "32"))], 38)


def release_events() -> None:
    """The same where they wait for an event of a process that is killed, which is marked once more then."""
    plain = [(f"release event {kind}", {}) for kind in KINDS_OF_THREADS]
    together([*plain, *(("release event launches", {"CUDA_DEVICE_MAX_CONNECTIONS": count}) for count in ("1", "32"))], 38)


def release(way: str, kind: str) -> None:
    """A case of `release_words` and `release_events`."""
    import torch  # noqa: PLC0415

    x = torch.zeros(16, device="cuda")
    x.add_(1)
    x.sum().item()
    me, peer = both()
    mine = torch.cuda.Stream()
    me.streams["torch"] = mine.cuda_stream
    if way == "event":
        handle = peer("event", "e")
        me.open_event("e", handle)
        peer("wait", "held", 0, 1)
        peer("record", "e", "held")
    names = ["torch", *(f"w{number}" for number in range(40))]
    for name in names:
        if way == "word":
            me.wait(name, 1, 1)
        else:
            me.wait_event(name, "e")
    launched = [0]

    def work() -> None:
        with torch.cuda.stream(mine):
            x.add_(1)
            if kind == "item":
                x.sum().item()
            elif kind == "synchronize":
                torch.cuda.synchronize()
            else:
                for _ in range(2000):
                    x.add_(1)
                    launched[0] += 1
                mine.synchronize()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    time.sleep(1.5)
    tell("the thread waits", f"{thread.is_alive()}, after {launched[0]} launches")
    start = time.monotonic()
    peer.kill()
    if way == "event":
        thread.join(1)
        tell("goes on by death alone", not thread.is_alive())
    start = time.monotonic()

    def let_go() -> None:
        me.driver.enter()
        tell("the release says", me.store(1, 1) if way == "word" else me.forsake("e"))

    releasing = threading.Thread(target=let_go, daemon=True)
    releasing.start()
    releasing.join(4)
    tell("the release returned", f"{not releasing.is_alive()}, after {1e3 * (time.monotonic() - start):.1f} ms")
    thread.join(4)
    tell("the thread went on", f"{not thread.is_alive()}, after {1e3 * (time.monotonic() - start):.1f} ms, {launched[0]} launches")
    tell("of 41 streams went on", sum(me.done(name, 0.2) == "done" for name in names))


def reuse() -> None:
    """When torch's allocator gives a block out again, and what `record_stream` does, also for memory of another process."""
    import torch  # noqa: PLC0415

    torch.zeros(1, dtype=torch.uint8, device="cuda").add_(1)  # loaded, before anything waits
    me, peer = both()
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    me.streams |= {"one": one.cuda_stream, "two": two.cuda_stream}

    def block(stream: Any) -> Any:
        with torch.cuda.stream(stream):
            return torch.empty(8 << 20, dtype=torch.uint8, device="cuda")

    for number, recorded in enumerate((False, True)):
        tensor = block(one)
        place = tensor.data_ptr()
        me.wait("two", number, 1)
        with torch.cuda.stream(two):
            tensor.add_(1)
        if recorded:
            tensor.record_stream(two)
        del tensor
        words = f"freed while another stream has it, record_stream: {recorded}; given out again"
        tell(words, {name: block(stream).data_ptr() == place for name, stream in (("same stream", one), ("the other", two))})
        me.store(number, 1)
        torch.cuda.synchronize()
        again = block(one)
        tell("  when it is done", again.data_ptr() == place)
        del again
    _address_there, handle = peer("allocate", 2 << 20)

    class Foreign:
        def __init__(self, address: int) -> None:
            self.__cuda_array_interface__ = {"shape": (100,), "typestr": "<f4", "data": (address, False), "version": 3, "strides": None}

    foreign = torch.as_tensor(Foreign(me.open(handle)), device="cuda")
    attempt("record_stream of a tensor in memory of another process", lambda: foreign.record_stream(two))
    attempt("  and a read of it", lambda: (foreign + 1).sum().item())


def sole() -> None:
    """How many references the results of operations have, by Python's and by torch's count: who may take them over."""
    import torch  # noqa: PLC0415

    a = torch.ones(64, 64, device="cuda", requires_grad=True)

    def inference() -> Any:
        with torch.inference_mode():
            return a @ a

    def backward() -> Any:
        (a * 2).sum().backward()
        found, a.grad = a.grad, None
        return found

    def compiled(**options: Any) -> Callable[[], Any]:
        function = torch.compile(lambda x: x * 2 + 1, **options)
        return lambda: function(a.detach())

    rows: dict[str, Callable[[], Any]] = {
        "matmul": lambda: a.detach() @ a.detach(),
        "matmul with a graph of gradients, detached": lambda: (a @ a).detach(),
        "a view": lambda: (a.detach() @ a.detach())[0],
        "a parameter's data": lambda: a.data,
        "inference mode": inference,
        "backward": backward,
        "compile": compiled(),
        "compile, reduce-overhead": compiled(mode="reduce-overhead"),
    }
    for name, make in rows.items():

        def counts(make: Callable[[], Any] = make) -> str:
            for _ in range(3):
                tensor = make()
            storage = tensor.untyped_storage()
            count = torch._C._storage_Use_Count(storage._cdata)  # noqa: SLF001
            version = "none" if tensor.is_inference() else tensor._version  # noqa: SLF001
            return f"Python {sys.getrefcount(tensor) - 1}, storage {count}, version {version}"

        attempt(name, counts)


def nccl_one() -> None:
    """NCCL with one rank: a sum of each dtype, and an abort from another thread while the stream waits."""
    import torch  # noqa: PLC0415

    from mray._device import nccl  # noqa: PLC0415

    torch.zeros(1, device="cuda")
    me = Side()
    me.words(memfd())
    start = time.monotonic()
    library = nccl.library()
    communicator = library.communicator(1, library.unique_id(), 0, 0)
    tell("communicator", f"NCCL {library.version}, {time.monotonic() - start:.2f} s")
    (source, _one), (target, _two) = me.allocate(2 << 20), me.allocate(2 << 20)

    def summed(number: int) -> str:
        communicator.allReduce(source, target, 64, number, nccl.SUM, me.stream("s"))
        return me.done("s", 3)

    for dtype, number in nccl.DTYPES.items():
        attempt(dtype, lambda number=number: summed(number))
    me.wait("s", 0, 1)
    communicator.allReduce(source, target, 64, 7, nccl.SUM, me.stream("s"))
    tell("queued behind a wait", me.done("s", 0.1))

    def abort() -> None:
        me.driver.enter()
        start = time.monotonic()
        attempt("abort", communicator.abort)
        tell("  took", f"{time.monotonic() - start:.2f} s")

    thread = threading.Thread(target=abort, daemon=True)
    thread.start()
    thread.join(3)
    tell("the abort returned while the stream waited", not thread.is_alive())
    me.store(0, 1)
    thread.join(3)
    tell("after the release: returned, stream", (not thread.is_alive(), me.done("s", 2)))


# ---------------------------------------------------------------------------------------------- ends of others
def fault() -> None:
    """The effect of a fault in another process's kernel: on its calls, its event, its word; and its kill after it."""
    os.environ["CUDA_MODULE_LOADING"] = "EAGER"  # the kernel is launched behind a wait
    me, peer = both()
    me.open_event("e", peer("event", "e"))
    peer("wait", "s", 0, 1)
    peer("bad", "s")
    peer("record", "e", "s")
    peer("write", "s", 1, 1)
    me.wait_event("by event", "e")
    me.wait("by word", 1, 1)
    tell("before the fault: by event, by word", (me.done("by event", 0.1), me.done("by word", 0.1)))
    me.store(0, 1)
    attempt("the other's stream", lambda: peer("synchronize", "s"))
    for words in (("query", "e"), ("record", "e", "s"), ("wait_event", "s", "e"), ("spin", "t", 0.0), ("says", "cuCtxSynchronize"),
                  ("says", "cuMemFree_v2", 0), ("write", "s", 2, 1), ("store", 3, 1)):  # fmt: skip
        attempt(f"  its {words[0]}", lambda words=words: peer(*words))
    tell("after the fault: by event, by word", (me.done("by event", 1), me.done("by word", 0.5)))
    tell("own kernels", (me.spin("own", 0.001), me.done("own")))
    peer.kill()
    tell("after its kill: by event, by word", (me.done("by event", 1), me.done("by word", 0.5)))
    me.store(1, 1)
    tell("the word stored here", me.done("by word"))
    tell("the event marked here", (me.forsake("e"), me.done("by event")))


def dead_pending() -> None:
    """Whether an event of a dead process, which was marked and not reached, can be opened, and what it then says."""
    me, peer = both()
    before = {name for name in os.listdir("/dev/shm") if name.startswith("cuda")}
    handle = peer("event", "e")
    peer("wait", "held", 0, 1)
    peer("record", "e", "held")
    tell("names in /dev/shm", sorted({name for name in os.listdir("/dev/shm") if name.startswith("cuda")} - before))
    peer.kill()
    time.sleep(0.5)
    tell("names after its death", sorted({name for name in os.listdir("/dev/shm") if name.startswith("cuda")} - before))
    if attempt("open", lambda: me.open_event("e", handle) or "opened") is None:
        return
    tell("ask", me.query("e"))
    tell("wait, and the stream", (me.wait_event("s", "e"), me.done("s", 1)))
    tell("marked here, and the stream", (me.forsake("e"), me.done("s", 1)))


def rerecord() -> None:
    """The effect of recording an event again while its mark is not reached."""
    me, peer = both()
    me.open_event("e", peer("event", "e"))
    peer("wait", "held", 0, 1)
    peer("record", "e", "held")
    me.wait_event("first", "e")
    tell("waits for the first mark, ask", (me.done("first", 0.2), me.query("e")))
    tell("recorded again, on an idle stream", peer("record", "e", "idle"))
    tell("the first wait", me.done("first", 0.5))
    me.wait_event("second", "e")
    tell("a second wait, ask here, ask there", (me.done("second", 0.5), me.query("e"), peer("query", "e")))
    tell("recorded here, on an idle stream", me.record("e", "idle"))
    tell("the first wait", me.done("first", 0.5))
    me.store(0, 1)
    tell("the first wait, when its stream is released", me.done("first", 0.5))


# ------------------------------------------------------------------------------------------- calls that wait
def opening() -> None:
    """Which calls wait for the device: while a stream of this process waits for 0.4 s, and while another process computes."""
    me, peer = both()
    number = [0]

    def calls() -> Iterator[tuple[str, Callable[[], object]]]:
        event, (_address_there, memory) = peer("event", "e"), peer("allocate", 2 << 20)
        opened, stream, own = [0], _opaque(), _address()
        area = me.map(memfd())
        yield "create and export an event", lambda: me.event("mine")
        yield "destroy an own event", lambda: me.close_event("mine")
        yield "open an event", lambda: me.open_event("e", event)
        yield "close an opened event", lambda: me.close_event("e")
        yield "open memory", lambda: opened.__setitem__(0, me.open(memory))
        yield "close opened memory", lambda: me.close(opened[0])
        yield "allocate", lambda: me.driver("cuMemAlloc_v2", ctypes.byref(own), 2 << 20)
        yield "free", lambda: me.driver("cuMemFree_v2", own)
        yield "create a stream", lambda: me.driver("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        yield "destroy a stream", lambda: me.driver("cuStreamDestroy_v2", stream)
        yield "register a page", lambda: me.driver("cuMemHostRegister_v2", area, PAGE, 3)
        yield "unregister a page", lambda: me.driver("cuMemHostUnregister", area)

    @contextlib.contextmanager
    def held() -> Iterator[None]:
        number[0] += 1
        value = number[0]
        me.wait("held", 0, value)
        timer = later(0.4, lambda: me.store(0, value))
        yield
        timer.cancel()
        me.store(0, value)
        me.done("held")

    @contextlib.contextmanager
    def computing() -> Iterator[None]:
        peer("spin", "s", 0.3)
        yield
        me.done("held")
        peer("synchronize", "s")

    for name, around in (("idle", contextlib.nullcontext), ("own stream held", held), ("another process computes", computing)):
        print(f"   {name}", flush=True)
        for call, action in calls():
            with around():  # type: ignore[operator]
                tell(f"  {call}", milliseconds(action))


def first_launch() -> None:
    """Whether the first use of a module or kernel waits for a stream of this process that waits for 1 s."""
    import torch  # noqa: PLC0415

    x = torch.rand(64, 64, device="cuda")
    torch.cuda.synchronize()
    me = Side()
    me.words(memfd())
    side = torch.cuda.Stream()
    module, kernel = _opaque(), _opaque()

    def queued(make: Callable[[], object]) -> Callable[[], None]:
        def action() -> None:
            with torch.cuda.stream(side):
                make()

        return action

    rows: dict[str, Callable[[], object]] = {
        "a kernel that is loaded": queued(lambda: x.add_(1)),
        "load a module": lambda: me.driver("cuModuleLoadData", ctypes.byref(module), PTX),
        "get its kernel": lambda: me.driver("cuModuleGetFunction", ctypes.byref(kernel), module, b"bad"),
        "first erfinv": queued(lambda: torch.erfinv(x)),
        "first cumsum": queued(lambda: torch.cumsum(x, 0)),
        "first sort": queued(lambda: torch.sort(x)),
        "first matmul": queued(lambda: x @ x),
        "second matmul": queued(lambda: x @ x),
    }
    for number, (name, action) in enumerate(rows.items()):
        me.wait("held", number, 1)
        later(1.0, lambda number=number: me.store(number, 1))
        tell(name, milliseconds(action))
        me.store(number, 1)
        me.done("held")


def captures() -> None:
    """Each call while another thread captures a graph in the global mode: what it returns, and whether the capture lives on."""
    me, peer = both()
    stream, address = me.stream("captured"), me.allocate(2 << 20)[0]
    event, (_address_there, memory) = peer("event", "e"), peer("allocate", 2 << 20)
    me.event("mine")
    me.open_event("theirs", event)
    other, area, opened, made, fresh, room = me.stream("other"), me.map(memfd()), _address(), _opaque(), _opaque(), _address()
    rows: list[tuple[str, tuple[Any, ...]]] = [
        ("cuEventRecord", (me.events["mine"], other)),
        ("cuStreamWaitEvent", (other, me.events["mine"], 0)),
        ("cuStreamWaitEvent", (other, me.events["theirs"], 0)),
        ("cuEventQuery", (me.events["mine"],)),
        ("cuStreamQuery", (other,)),
        (me.write_value, (other, me.device, 1, 0)),
        (me.wait_value, (other, me.device, 0, 0)),
        ("cuMemcpyAsync", (address, address + 4096, 64, other)),
        ("cuEventCreate", (ctypes.byref(made), DISABLE_TIMING | INTERPROCESS)),
        ("cuIpcGetEventHandle", (ctypes.byref(Handle()), me.events["mine"])),
        ("cuIpcOpenEventHandle", (ctypes.byref(fresh), Handle.from_buffer_copy(event))),
        ("cuIpcOpenMemHandle_v2", (ctypes.byref(opened), Handle.from_buffer_copy(memory), 1)),
        ("cuIpcCloseMemHandle", (opened,)),
        ("cuMemAlloc_v2", (ctypes.byref(room), 4096)),
        ("cuMemFree_v2", (room,)),
        ("cuMemHostRegister_v2", (area, PAGE, 3)),
        ("cuMemHostUnregister", (area,)),
        ("cuStreamCreate", (ctypes.byref(_opaque()), NON_BLOCKING)),
        ("cuEventRecord", (me.events["mine"], 0)),
    ]

    def captured(during: Callable[[], str]) -> str:
        """The answer while another thread captures, and the end of the capture."""
        ready, go, ends = threading.Event(), threading.Event(), []

        def capture() -> None:
            me.driver.enter()
            begun = me.says("cuStreamBeginCapture_v2", stream, CAPTURE_GLOBAL)
            me.fill("captured", address, 1)
            ready.set()
            go.wait(5)
            graph = _opaque()
            second, ended = me.fill("captured", address, 2), me.says("cuStreamEndCapture", stream, ctypes.byref(graph))
            ends.append("lives" if {begun, second, ended} == {"CUDA_SUCCESS"} else f"{begun}, {second}, {ended}")

        thread = threading.Thread(target=capture)
        thread.start()
        ready.wait(5)
        said = during()
        go.set()
        thread.join()
        return f"{said}, capture {ends[0]}"

    def relaxed(name: str, arguments: tuple[Any, ...]) -> str:
        mode = _int(CAPTURE_RELAXED)
        me.driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            return me.says(name, *arguments)
        finally:
            me.driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    tell("nothing", captured(lambda: "-"))
    for name, arguments in rows:
        attempt(f"{name}, relaxed", lambda name=name, arguments=arguments: captured(lambda: relaxed(name, arguments)))
        if name not in ("cuMemFree_v2", "cuIpcCloseMemHandle", "cuMemHostUnregister", "cuMemHostRegister_v2", "cuIpcOpenEventHandle"):
            attempt(f"{name}, plain", lambda name=name, arguments=arguments: captured(lambda: me.says(name, *arguments)))


# ----------------------------------------------------------------------------------------------------- amounts
def pingpong() -> None:
    """A kernel here, a kernel in another process, 200 rounds: handed over by words that are queued ahead, and by events."""
    me, peer = both()
    mine, theirs = me.allocate(2 << 20)[0], peer("allocate", 2 << 20)[0]
    for attempt_number in range(3):
        rounds = 200
        me.store(0, 0)
        me.store(1, 0)
        start = time.perf_counter()
        peer.send("answer", theirs, rounds)
        for number in range(1, rounds + 1):
            me.fill("s", mine, number)
            me.write("s", 0, number)
            me.wait("s", 1, number)
        peer.result("answer")
        said = me.done("s", 8)
        tell("  by words", f"{said}, {1e6 * (time.perf_counter() - start) / rounds:.0f} us a round, with queueing, try {attempt_number}")
    time.sleep(0.1)
    me.store(20, 0)
    me.store(0, 0)
    me.store(1, 0)
    me.wait("s", 20, 1)
    for number in range(1, 101):
        me.fill("s", mine, number)
        me.write("s", 0, number)
        me.wait("s", 1, number)
    peer("answer", theirs, 100)
    start = time.perf_counter()
    me.store(20, 1)
    said = me.done("s", 8)
    tell("  by words, all queued before", f"{said}, {1e6 * (time.perf_counter() - start) / 100:.0f} us a round")
    me.open_event("theirs", peer("event", "theirs"))
    peer("open_event", "mine", me.event("mine"))
    for attempt_number in range(3):
        rounds = 200
        me.store(2, 0)
        me.store(3, 0)
        peer.send("answer_by_events", theirs, "mine", "theirs", rounds)
        start = time.perf_counter()
        for number in range(1, rounds + 1):
            me.fill("s", mine, number)
            me.record("mine", "s")
            me.store(2, number)
            while me.load(3) < number:
                if time.perf_counter() - start > 8:
                    raise TimeoutError(f"round {number}")
            me.wait_event("s", "theirs")
        said = me.done("s", 8)
        tell("  by events", f"{said}, {1e6 * (time.perf_counter() - start) / rounds:.0f} us a round with the host, try {attempt_number}")
        peer.result("answer_by_events")
    start = time.perf_counter()
    for number in range(200):
        me.fill("s", mine, number)
        me.write("s", 30, number + 1)
        while me.load(30) < number + 1:
            pass
    tell("kernel, word, seen by the host", f"{1e6 * (time.perf_counter() - start) / 200:.0f} us a round")


def pinned() -> None:
    """Bytes a second between the device and host memory, one way and both at once: CUDA's own memory, and shared memory."""
    me, size = Side(), 256 << 20
    one, two = me.allocate(size)[0], me.allocate(size)[0]
    own = _opaque()
    me.driver("cuMemHostAlloc", ctypes.byref(own), 2 * size, PORTABLE)
    shared = me.map(memfd(2 * size), 2 * size)
    start = time.perf_counter()
    me.register(shared, 2 * size)
    tell("register 512 MiB of a memfd", f"{1e3 * (time.perf_counter() - start):.0f} ms")
    for name, host in (("CUDA's own memory", own.value or 0), ("a memfd", shared)):
        up = lambda host=host: me.driver("cuMemcpyHtoDAsync_v2", one, host, size, me.stream("up"))  # noqa: E731
        down = lambda host=host: me.driver("cuMemcpyDtoHAsync_v2", host + size, two, size, me.stream("down"))  # noqa: E731
        for direction, actions in (("to the device", [up]), ("to the host", [down]), ("both at once", [up, down])):
            for action in actions:
                action()
            me.driver("cuCtxSynchronize")
            start = time.perf_counter()
            for _ in range(8):
                for action in actions:
                    action()
            me.driver("cuCtxSynchronize")
            tell(f"{name}, {direction}", f"{8 * len(actions) * size / (time.perf_counter() - start) / 1e9:.1f} GB/s")


def belongings() -> None:
    """How many descriptors and threads a process has after each of its first steps with CUDA."""

    def count(when: str) -> None:
        files = os.listdir("/proc/self/fd")
        tell(when, f"{len(files)} descriptors, {len(os.listdir('/proc/self/task'))} threads")

    count("at first")
    library = ctypes.CDLL(LIBRARY)
    library.cuInit(0)
    count("cuInit")
    me = Side()
    count("context and module")
    me.words(memfd())
    count("registered words")
    for number in range(40):
        me.stream(f"s{number}")
    count("40 streams")
    for number in range(40):
        me.event(f"e{number}")
    count("40 IPC events")
    for _ in range(10):
        me.allocate(2 << 20)
    count("10 exported allocations")
    peer = Peer()
    count("another process")
    me.open_event("theirs", peer("event", "e", within=20))
    count("an opened event")
    me.open(peer("allocate", 2 << 20)[1])
    count("opened memory")
    import torch  # noqa: PLC0415

    torch.ones(4, device="cuda").sum().item()
    count("torch")
    kinds: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            target = target.split("[")[0] if "[" in target else target
            kinds[target] = kinds.get(target, 0) + 1
    tell("descriptors", kinds)


def many_events() -> None:
    """30,000 IPC events: how long they take, which is the first that fails; and opening them in another process."""
    me, peer = Side(), Peer()
    handles: list[bytes] = []
    start = last = time.monotonic()
    try:
        while len(handles) < 30000 and time.monotonic() - start < 10:
            handles.append(me.event(f"e{len(handles)}"))
            if len(handles) % 5000 == 0:
                tell(f"{len(handles)} created", f"{time.monotonic() - last:.2f} s")
                last = time.monotonic()
    except Failure as failure:
        tell(f"event {len(handles)}", failure)
    tell("created", len(handles))
    names = [name for name in os.listdir("/dev/shm") if name.startswith("cuda")]
    tell("names in /dev/shm", f"{len(names)}, {names[:3]}")
    tell("descriptors", len(os.listdir("/proc/self/fd")))
    attempt("the other process", lambda: peer("open_events", handles, 8.0, within=15))
    start = time.monotonic()
    for name in list(me.events)[:5000]:
        me.close_event(name)
    tell("5000 destroyed", f"{time.monotonic() - start:.2f} s")


#: In the order of their worth.
PROBES: tuple[Callable[[], None], ...] = (
    words,
    words_order,
    stream_zero,
    words_places,
    words_costs,
    words_many,
    words_capture,
    release_words,
    release_events,
    fault,
    pingpong,
    dead_pending,
    rerecord,
    opening,
    first_launch,
    captures,
    reuse,
    belongings,
    many_events,
    pinned,
    nccl_one,
    sole,
)
#: Those that go before the others of the run.
URGENT = ("words", "words_order", "stream_zero", "words_places", "words_costs")
#: Seconds, where it takes longer.
LIMITS = {"words_many": 32.0, "release_words": 42.0, "release_events": 42.0, "opening": 35.0, "many_events": 35.0, "sole": 60.0}


def main() -> None:
    """Be a second process, or a case of a probe."""
    faulthandler.enable()
    case, *words_of_case = sys.argv[1:]
    {"peer": be_peer, "blocked": blocked, "release": release}[case](*words_of_case)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
