"""Two processes of one GPU: what their turns cost, by calls of the driver; mray's edge between them; and both as clients of MPS.

    A  does a call block when another process had the GPU last?      how long single calls take until they return
    B  what does the device need then?                               until the host sees a word behind it
    C  how soon does a kernel follow one of another process?         by the ways to queue it
    D  the price of the same call by ctypes and by cuda.bindings

Probes of `gpu_first`, of which each is a process of its own. Each line is printed as soon as it is known.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpu_driver import FOLLOWING, MESSAGE, READY, STARTED, THERE, Failure, Side, attempt, both, microseconds, tell

TOOLS = Path(__file__).resolve().parent
#: Seconds.
LIMITS = {"turns": 30.0, "edges": 60.0, "mps": 180.0}
START_SECONDS = 15.0
#: Samples of each figure.
TIMES = 100
#: Words, besides those of `gpu_driver`: one that is reached, one that a stream sets, one for the prices.
REACHED, SEEN, SCRATCH = 30, 31, 32
#: Bytes, and messages: of CUDA, and of pretended devices.
SIZES = {"cuda": ((40, 200), (10**9, 50)), "null": ((40, 20), (10**5, 20))}


def row(subject: str, *cells: object) -> None:
    print(f"   {subject:<72}" + "".join(f"{cell:>15}" for cell in cells), flush=True)


def median(samples: list[float]) -> str:
    return f"{statistics.median(samples) * 1e6:.1f}"


def p90(samples: list[float]) -> str:
    """The time that nine of ten do not exceed."""
    return f"{sorted(samples)[len(samples) * 9 // 10] * 1e6:.1f}"


def sampled(before: Callable[[], object], timed: Callable[[], object]) -> list[float]:
    """Seconds of so many calls, each behind another one: until the time that it returns, or else its return."""
    samples = []
    for _ in range(TIMES):
        before()
        start = time.perf_counter()
        end = timed()
        samples.append((end if isinstance(end, float) else time.perf_counter()) - start)
    return samples


class Turns:
    """This process and another one, which take turns."""

    def __init__(self) -> None:
        self.me, self.peer = both()
        self.numbers = itertools.count(1)
        self.room = self.me.allocate(2 << 20)[0]
        self.me.store(REACHED, 1)

    def alone(self) -> None:
        """This process had the GPU last; its host comes from the same wait as in the other case."""
        self.me.occupy()
        self.peer("load", SEEN)

    def after_another(self) -> None:
        """The other one had."""
        self.me.synchronize("0")
        self.peer("occupy")

    def kernel(self) -> None:
        self.me.fill("0", self.room, 1)

    def copy(self) -> None:
        self.me.driver("cuMemcpyAsync", self.room + 4096, self.room, 40, 0)

    def returns(self, calls: dict[str, Callable[[], object]]) -> None:
        """A."""
        for name, call in calls.items():
            call()
            alone, after = sampled(self.alone, call), sampled(self.after_another, call)
            row(f"A  {name}", median(alone), median(after), p90(after))

    def seen(self, name: str, *actions: Callable[[], object], is_word: bool = True) -> tuple[float, float]:
        """B: by a word behind these, or else by a kernel that stores it; medians of both cases, in seconds."""
        back, last = [], self.me.write if is_word else self.me.stamp

        def timed() -> float:
            number, start = next(self.numbers), time.perf_counter()
            for action in actions:
                action()
            last("0", SEEN, number)
            back.append(time.perf_counter() - start)
            return self.me.until(SEEN, number)

        alone, after = sampled(self.alone, timed), sampled(self.after_another, timed)
        row(f"B  {name}", median(alone), median(after), median(back[TIMES:]))
        return statistics.median(alone), statistics.median(after)

    def followed(self, way: str) -> float:
        """C: of the other's kernel, by one of the ways; the median, in seconds."""
        me, back, samples = self.me, [], []
        for _ in range(TIMES):
            number = next(self.numbers)
            me.synchronize("0")
            self.peer.send("follow", way, number)
            me.until(THERE, number)
            start = time.perf_counter()
            self.kernel()
            self.copy()
            me.write("0", READY, number)
            me.store(MESSAGE, number)
            back.append(time.perf_counter() - start)
            samples.append(me.until(STARTED, number) - start)
            self.peer.result("follow")
        row(f"C  {FOLLOWING[way]}", median(samples), p90(samples), median(back))
        return statistics.median(samples)

    def handed_over(self) -> float:
        """C: kernels of both in turn, of which each host launches its own when it sees the other's; the median of one, in seconds."""
        first = next(self.numbers)
        self.numbers = itertools.count(first + TIMES)
        self.peer.send("take_turns", first, TIMES)
        samples = []
        for number in range(first, first + TIMES):
            start = time.perf_counter()
            self.me.stamp("0", READY, number)
            samples.append((self.me.until(STARTED, number) - start) / 2)
        self.peer.result("take_turns")
        row("C  hand-over: no edge and no tensor, each host polls for the other's kernel", median(samples), p90(samples), "")
        return statistics.median(samples)


def turns() -> None:
    """Whether a call blocks when another process had the GPU, what the device needs then, and how soon a kernel follows another's."""
    two = Turns()
    me = two.me
    row("A  microseconds until a call returns", "alone", "after another", "p90 of that")
    two.returns(
        {
            "launch a kernel": two.kernel,
            "copy 40 B on the device": two.copy,
            "set a word": lambda: me.write("0", SCRATCH, 1),
            "wait for a word that is reached": lambda: me.wait("0", REACHED, 1),
            "ask a stream": lambda: me.driver.status("cuStreamQuery", 0),
        }
    )
    row("B  microseconds until the host sees the word", "alone", "after another", "calls return")
    one = two.seen("a kernel that stores it", is_word=False)
    two.seen("word")
    two.seen("kernel, word", two.kernel)
    two.seen("copy, word", two.copy)
    two.seen("kernel, copy, word: mray's producer", two.kernel, two.copy)
    two.seen("kernel, kernel, word", two.kernel, two.kernel)
    prices(me)
    row("C  microseconds from the producer's launch to the consumer's kernel", "median", "p90", "calls return")
    handed_over = two.handed_over()
    followed = {way: two.followed(way) for way in FOLLOWING}
    tell("the floor of two processes", floor(one, handed_over, followed["told"]))
    attempt("torch", lambda: two.returns(calls_of_torch(me, two.room)))


def floor(one: tuple[float, float], handed_over: float, followed: float) -> str:
    """How many changes of context a hand-over and a message have in them: of a kernel, alone and after another process, and of both."""
    alone, change = one[0], one[1] - one[0]
    if change < 3e-6:
        return (
            f"no change of context ({change * 1e6:.1f} us): a hand-over takes {handed_over * 1e6:.0f} us, a kernel alone {alone * 1e6:.0f}"
        )
    return (
        f"one change of context takes {change * 1e6:.0f} us; a hand-over, {handed_over * 1e6:.0f} us, is a launch and "
        f"{(handed_over - alone) / change:.1f} changes; a message to a consumer that had the GPU last, {followed * 1e6:.0f} us, is two "
        f"launches and {(followed - 2 * alone) / change:.1f}"
    )


def prices(me: Side) -> None:
    """D."""
    call, word = getattr(me.driver.cuda, me.write_value), me.device + 8 * SCRATCH
    tell("D  ctypes: set a word", microseconds(lambda: call(0, word, 1, 0)))
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        tell("D  cuda.bindings", "not installed")
        return
    from cuda.bindings import driver  # noqa: PLC0415

    me.synchronize("0")
    attempt("D  cuda.bindings: its answer", lambda: driver.cuStreamWriteValue64(0, word, 1, 0))
    attempt("D  cuda.bindings: set a word", lambda: microseconds(lambda: driver.cuStreamWriteValue64(0, word, 1, 0)))


def calls_of_torch(me: Side, address: int) -> dict[str, Callable[[], object]]:
    """A, in the same context."""
    import torch  # noqa: PLC0415

    class Foreign:
        def __init__(self) -> None:
            self.__cuda_array_interface__ = {"shape": (10,), "typestr": "<i4", "data": (address, False), "version": 3, "strides": None}

    x = torch.zeros(10, dtype=torch.int32, device="cuda")
    return {
        "torch.empty": lambda: torch.empty(10, dtype=torch.int32, device="cuda"),
        "torch: x[:1].fill_(1)": lambda: x[:1].fill_(1),
        "torch.as_tensor of memory": lambda: torch.as_tensor(Foreign(), device="cuda"),
    }


def edges(place: Any) -> None:
    """mray's edge between two actors of one GPU, by the way that a result takes: latency, and the edge's counters."""
    sys.path.insert(0, str(TOOLS.parent / "bench"))  # workers look there, too
    import gpu_actors  # noqa: PLC0415
    import gpu_measure  # noqa: PLC0415
    from gpu_work import find_work  # noqa: PLC0415

    work = find_work()
    assert work is not None
    ways = {
        "in a list: all facts in each message": (gpu_actors.Listing, gpu_actors.ListConsumer),
        "alone: a number after the first ones": (gpu_actors.Producer, gpu_actors.Consumer),
        "made by mray.dag.output": (gpu_actors.Placing, gpu_actors.Consumer),
    }
    tell("MRAY_MPS", os.environ.get("MRAY_MPS", "not set"))
    row("microseconds from the producer's call to", "consumer called", "its kernel", "p99 of that", "launch alone", "after another")
    with gpu_measure.session(work):
        for (size, count), (name, ends) in itertools.product(SIZES[place.kind.name], ways.items()):
            found = gpu_measure.device_latency(size, count, ends=ends)
            cells = (f"{found[key] * 1e6:.1f}" for key in ("entered", "median", "p99", "alone", "after_another"))
            row(f"{size} B, {name}", *cells)
            tell(f"  of {found['messages']} messages", ", ".join(f"{key} {value}" for key, value in found["counts"].items()))


# --------------------------------------------------------------------------------------------------------- MPS
def mps() -> None:
    """`turns` as clients of a daemon, `edges` of a session with init(mps="on"); of a daemon that is there before it, if that fails."""
    from mray._device import mps_control  # noqa: PLC0415

    program, pipe = mps_control.find_program(), mps_control.pipe_directory()
    if not program:
        tell("MPS", f"{mps_control.PROGRAM} is not on PATH: nothing is known")
        return
    if mps_control.answers(pipe):
        tell("MPS", f"a daemon answers at {pipe}: all that came before was with it")
        return
    passed = [joined("turns", program), again("edges", {"MRAY_MPS": "on"})]
    if not passed[-1]:
        joined("edges", program)
    if not all(passed):
        raise Failure("not all have passed")


def joined(name: str, program: str) -> bool:
    """Run one of these probes as clients of a daemon that was there before; whether it passed."""
    try:
        with daemon(program) as variables:
            return again(name, variables)
    except Failure as failure:
        tell(name, failure)
        return False


def again(name: str, variables: dict[str, str]) -> bool:
    """Run one of these probes with these variables, in a process of its own; whether it passed."""
    print(f"  -- {name}, {variables}", flush=True)
    command = [sys.executable, str(TOOLS / "gpu_first.py"), "--probe", name]
    try:
        status = subprocess.run(command, env={**os.environ, **variables}, timeout=LIMITS[name], check=False).returncode
    except subprocess.TimeoutExpired:
        tell(name, f"hung for {LIMITS[name]:g} s")
        return False
    tell(name, f"ended with {status}")
    return status == 0


@contextlib.contextmanager
def daemon(program: str) -> Iterator[dict[str, str]]:
    """A daemon for the first GPU; the variables of its clients."""
    from mray._device import mps_control, topology  # noqa: PLC0415

    first = (os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0]
    gpu = first if not first.isdigit() else topology.uuids([int(first)]).get(int(first), first)
    # Daemon and clients count GPUs alike by uuid alone.
    seen = gpu if not gpu.isdigit() else "0"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        pipe, log, output = (Path(folder, name) for name in ("pipe", "log", "output"))
        pipe.mkdir(0o700)
        log.mkdir(0o700)
        with output.open("wb") as file:
            process = mps_control.start_daemon(program, gpu, str(pipe), str(log), file.fileno())
        try:
            end = time.monotonic() + START_SECONDS
            while not mps_control.answers(str(pipe)):
                if process.poll() is not None or time.monotonic() > end:
                    said = [path.read_text(errors="replace")[-1000:] for path in (output, *log.iterdir())]
                    raise Failure(f"the daemon does not answer: {said}")
                time.sleep(0.05)
            yield {mps_control.PIPE: str(pipe), mps_control.LOG: str(log), "CUDA_VISIBLE_DEVICES": seen}
            tell(
                "servers of the daemon, which has some if MPS was used",
                (mps_control.ask(str(pipe), ("get_server_list",)) or "none").split(),
            )
        finally:
            end_daemon(process, str(pipe))


def end_daemon(process: subprocess.Popen[bytes], pipe: str) -> None:
    """Have it quit, with its server, or else kill both."""
    from mray._device import mps_control  # noqa: PLC0415

    mps_control.ask(pipe, ("quit",), 10.0)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
