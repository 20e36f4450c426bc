"""Questions to CUDA itself: what the driver does where its documentation says nothing, or where mray rests on what it says.

Each probe is a process of its own, started by `gpu_first`; cases that need variables of their own are this file as a program
(`together`). Calls are made on the driver, without mray, except where a probe is about torch or NCCL. Each line is printed as soon as it
is known: a probe that hangs has told what came before.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpu_driver import (
    AT_LEAST,
    CAPTURE_GLOBAL,
    CAPTURE_RELAXED,
    CAPTURE_THREAD,
    DEVICE_MAP,
    DISABLE_TIMING,
    INTERPROCESS,
    LIBRARY,
    NO_MEMORY_BARRIER,
    NON_BLOCKING,
    PAGE,
    PORTABLE,
    PTX,
    READ_ONLY,
    SIGNATURES,
    Driver,
    Failure,
    Handle,
    Peer,
    Side,
    Watch,
    as_seen,
    attempt,
    both,
    doing,
    later,
    memfd,
    microseconds,
    milliseconds,
    show_stacks_on_request,
    tell,
)

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


def together(cases: list[tuple[str, dict[str, str]]], seconds: float) -> None:
    """Run cases at the same time, each in a process of its own: this program with these words; print what each has said."""
    started = []
    for words, variables in cases:
        output = tempfile.TemporaryFile()  # noqa: SIM115  (read below)
        command = [sys.executable, __file__, *words.split()]
        started.append((subprocess.Popen(command, env={**os.environ, **variables}, stdout=output, stderr=subprocess.STDOUT), output))
    end = time.monotonic() + seconds
    for process, _output in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, end - time.monotonic()))
    hanging = [process for process, _output in started if process.poll() is None]
    for process in hanging:
        process.send_signal(signal.SIGUSR1)
    time.sleep(0.5 if hanging else 0)
    for (words, variables), (process, output) in zip(cases, started, strict=True):
        verdict = "HANGS" if process in hanging else f"ended with {process.returncode}"
        process.kill()
        output.seek(0)
        said = as_seen(output.read().decode(errors="replace"))[-3000:].rstrip()
        print(f"  -- {' '.join([words, *(f'{name}={value}' for name, value in variables.items())])}: {verdict}\n{said}", flush=True)


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
    tell("python", sys.version.split()[0])
    tell("torch", f"{torch.__version__}, CUDA {torch.version.cuda}, allocator {torch.cuda.get_allocator_backend()}")
    attempt("NCCL of torch", torch.cuda.nccl.version)

    def ours() -> str:
        from mray._device import libcuda, nccl_library  # noqa: PLC0415

        return f"{nccl_library.nccl_version()}, {libcuda.installed_driver()}"

    attempt("mray: NCCL, driver", ours)
    tell("functions of the probes that are missing", [name for name in SIGNATURES if not hasattr(library, name)] or "none")
    driver = Driver()
    for name, number in ATTRIBUTES.items():
        answer = ctypes.c_int()
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
    at, sink = me.open(handle), ctypes.c_void_p()
    me.driver("cuMemHostAlloc", ctypes.byref(sink), 16 * rounds, PORTABLE)
    seen = (ctypes.c_uint * (4 * rounds)).from_address(sink.value or 0)
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
    """Microseconds for a call, with ctypes, which the first line is nearly all of: words, events, questions, a kernel."""
    me, peer = both()
    stream, word, address = me.stream("s"), me.device, me.allocate(2 << 20)[0]
    me.store(0, 1 << 40)
    number, long_number = ctypes.c_int(), ctypes.c_ulonglong()
    me.event("mine")
    me.open_event("theirs", peer("event", "theirs"))

    def unreached() -> str:
        """Of 100 waits, which a store ends."""
        later(3.0, lambda: me.store(4, 1))  # also if they wait themselves
        start = time.perf_counter()
        for _ in range(100):
            me.driver(me.wait_value, stream, word + 32, 1, AT_LEAST)
        took = time.perf_counter() - start
        before = me.done("s", 0)
        me.store(4, 1)
        return f"{1e6 * took / 100:.2f} us; the stream {before}, and when it is stored: {me.done('s', 3)}"

    def costs(*arguments: Any) -> Callable[[], str]:
        """Of a call of the driver."""
        return lambda: microseconds(lambda: me.driver(*arguments))

    rows: dict[str, Callable[[], str]] = {
        "a call that does nothing": costs("cuDriverGetVersion", ctypes.byref(number)),
        "write a word": costs(me.write_value, stream, word + 8, 1, 0),
        "wait for a word that is reached": costs(me.wait_value, stream, word, 1, AT_LEAST),
        "wait for a word that is not": unreached,
        "record an IPC event": costs("cuEventRecord", me.events["mine"], stream),
        "wait for an own IPC event": costs("cuStreamWaitEvent", stream, me.events["mine"], 0),
        "wait for an opened IPC event": costs("cuStreamWaitEvent", stream, me.events["theirs"], 0),
        "ask whether a stream captures": costs("cuStreamIsCapturing", stream, ctypes.byref(number)),
        "ask for a stream's number": costs("cuStreamGetId", stream, ctypes.byref(long_number)),
        "launch a kernel": lambda: microseconds(lambda: me.fill("s", address, 1)),
        "ask a stream": lambda: microseconds(lambda: me.driver.status("cuStreamQuery", stream)),
        "write a word, no barrier": costs(me.write_value, stream, word + 16, 1, NO_MEMORY_BARRIER),
    }
    for name, action in rows.items():
        attempt(name, action)
        me.done("s", 3)

    def through(*actions: Callable[[], object]) -> str:
        """With what the device needs for it."""
        start = time.perf_counter()
        for _ in range(2000):
            for action in actions:
                action()
        me.synchronize("s")
        return f"{(time.perf_counter() - start) / 2000 * 1e6:.2f} us"

    def launch() -> object:
        return me.fill("s", address, 1)

    def write() -> object:
        return me.write("s", 1, 1)

    def record() -> object:
        return me.record("mine", "s")

    together_with = {
        "kernel": (launch,),
        "kernel, write": (launch, write),
        "wait, kernel, write": (lambda: me.wait("s", 0, 1), launch, write),
        "kernel, record": (launch, record),
        "wait, kernel, record": (lambda: me.wait_event("s", "theirs"), launch, record),
    }
    for name, actions in together_with.items():
        attempt(f"2000 times, until done: {name}", lambda actions=actions: through(*actions))


def words_many() -> None:
    """Whether streams that wait hinder others, by their number and that of connections; made before any waits, and meanwhile."""
    counts: list[dict[str, str]] = [{}, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}]
    cases = [(f"blocked word {made}", count) for made in ("before", "meanwhile") for count in counts]
    together([*cases, ("blocked event before", {}), ("blocked event meanwhile", {})], 28)


def blocked(way: str, made: str) -> None:
    """A case: with more and more streams that wait, whether others go on; and the call that hangs, with the numbers of streams then."""
    me = Side()
    me.words(memfd())
    address, _handle = me.allocate(2 << 20)
    waiting, free = [f"w{number}" for number in range(120)], [f"free{number}" for number in range(8)]
    watch = Watch(3.0, lambda: me.store(0, 1))
    for name in (*free, "holder", *(waiting if made == "before" else ())):
        watch(f"make and use a stream beside {len(me.streams)}, of which none waits")
        me.fill(name, address, 0)
        me.done(name)
    if way == "event":
        me.event("e")
        me.wait("holder", 0, 1)
        me.record("e", "holder")
    count = 0
    for total in (1, 4, 8, 16, 24, 32, 48, 64, 96, 120):
        for name in waiting[count:total]:
            beside = f"beside {count} that wait, {len(me.streams)} in all"
            watch(f"make a stream {beside}")
            me.stream(name)
            watch(f"let it wait {beside}")
            if way == "word":
                me.wait(name, 0, 1)
            else:
                me.wait_event(name, "e")
            watch(f"launch a kernel on it {beside}")
            me.fill(name, address, 1)
            count += 1
        going_on = []
        for name in (*free, *([f"fresh{total}"] if made == "meanwhile" else ())):
            watch(f"launch a kernel on a free stream, {name}, beside {count} that wait, {len(me.streams)} in all")
            me.fill(name, address, 2)
            going_on.append(me.done(name, 0.15))
        fresh = f", and a new one: {going_on[8]}" if len(going_on) > 8 else ""
        tell(f"{count} streams wait, {len(me.streams)} in all; of 8 others go on", f"{going_on[:8].count('done')}{fresh}")
    watch.end()
    me.store(0, 1)
    tell("all go on when released", sum(me.done(name) == "done" for name in waiting))


def words_capture() -> None:
    """Whether writing and waiting can be captured in a CUDA graph, and what they do when it is replayed."""
    me = Side()
    me.words(memfd())
    for mode, name in ((CAPTURE_GLOBAL, "global"), (CAPTURE_THREAD, "thread"), (CAPTURE_RELAXED, "relaxed")):
        stream, graph, executable = me.stream(name), ctypes.c_void_p(), ctypes.c_void_p()
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


def release_words() -> None:
    """Whether streams, 4 and 40 of them, and a thread that waits in torch go on when a word is stored by the CPU."""
    cases: list[tuple[str, dict[str, str]]] = [
        (f"release word {kind} {count}", {}) for count in (4, 40) for kind in ("item", "synchronize", "launches")
    ]
    together([*cases, ("release word launches 4", {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})], 38)


def release_events() -> None:
    """The same where they wait for an event of a process that is killed, which is marked once more then."""
    together([(f"release event {kind} {count}", {}) for count in (4, 40) for kind in ("item", "synchronize", "launches")], 38)


def work_on(stream: Any, kind: str, x: Any, launched: list[int]) -> None:
    """Launch kernels on the stream, in a way that waits for them; each of many is noted in the list."""
    import torch  # noqa: PLC0415

    with torch.cuda.stream(stream):
        x.add_(1)
        if kind == "item":
            x.sum().item()
        elif kind == "synchronize":
            torch.cuda.synchronize()
        else:
            for number in range(2000):
                x.add_(1)
                launched.append(number)
            stream.synchronize()


def release(way: str, kind: str, count: str) -> None:
    """A case of `release_words` and `release_events`."""
    import torch  # noqa: PLC0415

    x = torch.zeros(16, device="cuda")
    x.add_(1)
    x.sum().item()
    me, path = Side(), memfd()
    me.words(path)
    mine = torch.cuda.Stream()
    me.streams["torch"] = mine.cuda_stream
    names = ["torch", *(f"w{number}" for number in range(int(count)))]
    watch = Watch(4.0, lambda: (me.store(0, 1), me.store(1, 1)))
    for name in names:
        watch(f"make and use stream {name}")
        me.spin(name, 0)
        me.done(name)
    peer = Peer() if way == "event" else None
    if peer is not None:
        peer("words", path, within=20)
        me.open_event("e", peer("event", "e"))
        peer("wait", "held", 0, 1)
        peer("record", "e", "held")
    for number, name in enumerate(names):
        watch(f"let stream {name} wait beside {number} that wait")
        if way == "word":
            me.wait(name, 1, 1)
        else:
            me.wait_event(name, "e")
    watch.end()
    launched: list[int] = []
    thread = threading.Thread(target=work_on, args=(mine, kind, x, launched), daemon=True)
    doing("the thread begins")
    thread.start()
    time.sleep(1.5)
    tell("the thread waits", f"{thread.is_alive()}, after {len(launched)} launches")
    if peer is not None:
        peer.kill()
        thread.join(1)
        tell("goes on by death alone", not thread.is_alive())
    start = time.monotonic()

    def let_go() -> None:
        if way == "word":
            me.store(1, 1)
        else:
            me.driver.enter()
            tell("the event marked here", me.forsake("e"))

    releasing = threading.Thread(target=let_go, daemon=True)
    doing("the release")
    releasing.start()
    releasing.join(4)
    tell("the release returned", f"{not releasing.is_alive()}, after {1e3 * (time.monotonic() - start):.1f} ms")
    thread.join(4)
    tell("the thread went on", f"{not thread.is_alive()}, after {1e3 * (time.monotonic() - start):.1f} ms, {len(launched)} launches")
    if thread.is_alive():
        faulthandler.dump_traceback()
    doing("ask the streams")
    tell(f"of {len(names)} streams went on", sum(me.done(name, 0.1) == "done" for name in names))


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

    from mray._device import nccl_library  # noqa: PLC0415

    torch.zeros(1, device="cuda")
    me = Side()
    me.words(memfd())
    start = time.monotonic()
    library = nccl_library.library()
    communicator = library.communicator(1, library.unique_id(), 0, 0)
    tell("communicator", f"NCCL {library.version}, {time.monotonic() - start:.2f} s")
    (source, _one), (target, _two) = me.allocate(2 << 20), me.allocate(2 << 20)

    def summed(number: int) -> str:
        communicator.allReduce(source, target, 64, number, nccl_library.SUM, me.stream("s"))
        return me.done("s", 3)

    for dtype, number in nccl_library.DTYPES.items():
        attempt(dtype, lambda number=number: summed(number))
    me.wait("s", 0, 1)
    communicator.allReduce(source, target, 64, 7, nccl_library.SUM, me.stream("s"))
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
        attempt(f"  its {' '.join(map(str, words))}", lambda words=words: peer(*words))
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
        opened, stream, own = [0], ctypes.c_void_p(), ctypes.c_uint64()
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
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()

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
    other, area = me.stream("other"), me.map(memfd())
    opened, room, made, fresh = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
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
        ("cuStreamCreate", (ctypes.byref(ctypes.c_void_p()), NON_BLOCKING)),
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
            graph = ctypes.c_void_p()
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
        mode = ctypes.c_int(CAPTURE_RELAXED)
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
    own = ctypes.c_void_p()
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
    """Be a case of a probe."""
    show_stacks_on_request()
    case, *words_of_case = sys.argv[1:]
    status = 1
    try:
        {"blocked": blocked, "release": release}[case](*words_of_case)
        status = 0
    except Exception as error:
        tell("failed", f"{type(error).__name__}: {error}")
        if not isinstance(error, Failure):
            traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # the way out waits for what is still queued on a device


if __name__ == "__main__":
    main()
