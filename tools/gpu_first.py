"""First contact with a GPU: what the design of GPU edges rests on, asked of a machine that is there for half an hour, perhaps.

    tools/gpu --first --out FOLDER                a graph, what its edges cost, probes, tests/gpu file by file, the quick benchmark,
                                                  in 540 seconds
    tools/gpu --first --out FOLDER --budget 300   in so many seconds
    tools/gpu --first --out FOLDER --from order   from this step on: where another run had no time left
    tools/gpu --first --out FOLDER --step order   only this step; may be given several times
    tools/gpu --first --out FOLDER --wheels W     what is missing is installed from the wheels there, for this run only
    tools/gpu --first --out FOLDER --pretend      the probes on pretended devices, as far as those have an answer

Each step is a process of its own with a limit, in a group that is ended with it: a wait that no signal reaches costs its limit and nothing
else, and one that is late shows its stacks first. The steps come in the order of their worth, and those that the budget has no time for are
named in the end. Results are printed as they come; ``first.json`` and ``first.txt`` in the folder are written anew after each step, so a
run that is cut off leaves what it has found.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gpu_probes
import gpu_turns
from gpu_driver import as_seen, tell

ROOT = Path(__file__).resolve().parent.parent
#: Modules that the steps import, and pip's names for them.
NEEDED = {"torch": "torch", "numpy": "numpy", "cloudpickle": "cloudpickle", "posix_ipc": "posix-ipc", "pytest": "pytest", "nvtx": "nvtx"}
#: Seconds.
BUDGET, PROBE_LIMIT, FILE_LIMIT, BENCH_LIMIT = 540.0, 25.0, 120.0, 420.0
#: The steps before the probes, and their limits.
EARLY = {"warm_up": 120.0, "hello": PROBE_LIMIT, "graph": 60.0, **gpu_turns.LIMITS}
#: Seconds without which no step is begun.
LEAST = 4.0
#: How much of what a step prints is kept, and is printed.
KEPT, PRINTED = 20000, 5000
#: Of the tests, in the order of their worth; the others follow.
FILES = ("test_device_contract.py", "test_cuda_device.py", "test_graph_gpu.py", "test_tensor_transport.py")
NOT_PRETENDED = "needs CUDA"
#: The variable that tells a probe which devices it is for.
KIND = "MRAY_FIRST_KIND"
SIZE = 4096


# ------------------------------------------------------------------------------------------ what a probe has
class Place:
    """The devices of a probe, and second processes with the same ones."""

    def __init__(self) -> None:
        from mray._device.timelines import Peers, mark  # noqa: PLC0415  (the runner has no devices)
        from tests.conformance.device_kinds import KINDS, Peer  # noqa: PLC0415

        self.kind = KINDS[os.environ[KIND]]()
        os.environ.update(self.kind.environment)
        self.platform = self.kind.open()
        self.device = self.platform.devices[0]
        self.mark = mark
        #: Timelines of others.
        self.peers = Peers()
        self._peer = Peer

    def peer(self) -> Any:
        return self._peer(self.kind)


def _microseconds(function: Callable[[], object], times: int = 200) -> str:
    function()
    start = time.perf_counter()
    for _ in range(times):
        function()
    return f"{(time.perf_counter() - start) / times * 1e6:.1f} us"


# ------------------------------------------------------------------------------------------------- the probes
def forsake(place: Place) -> None:
    """Whether a stream that waits for a killed writer goes on by itself."""
    device, peer, peers = place.device, place.peer(), place.peers
    stream = device.current_stream()
    peers.wait(device, stream, *peer("mark", 0, "before"))
    place.mark(device, stream)
    peer("hold", 0)
    peers.wait(device, stream, *peer("mark", 0, "x"))
    mine = place.mark(device, stream)
    time.sleep(0.2)
    tell("waits while the writer lives", not mine.reached())
    peer.kill()
    start = time.monotonic()
    place.platform.synchronize(device, stream)
    tell("goes on by death alone", f"{mine.reached()}, {time.monotonic() - start:.3f} s after that")


def dead_handles(place: Place) -> None:
    """Whether handles of a killed process can be opened."""
    device, peer = place.device, place.peer()
    memory, point = peer("export", 0, peer("allocate", 0, SIZE)), peer("mark", 0, "x")
    peer.kill()
    openings: dict[str, Callable[[], object]] = {
        "memory": lambda: device.open_memory(memory),
        "timeline": lambda: place.peers.wait(device, device.current_stream(), *point),
    }
    for what, opening in openings.items():
        try:
            opening()
            tell(f"{what} of the dead", "opened, and should have been refused")
        except RuntimeError as error:
            tell(f"{what} of the dead", f"{type(error).__name__}: {error}")


def dead_memory(place: Place) -> None:
    """Whether memory of a killed process stays readable, and is free once it is closed."""
    device, peer = place.device, place.peer()
    address = peer("allocate", 0, 16 << 20)
    peer("fill", 0, address, 1000, 7)
    peer("synchronize", 0)
    memory = device.open_memory(peer("export", 0, address))
    peer.kill()
    time.sleep(1)
    tell("contents", set(place.kind.read(device.tensor(memory, 4000, "float32", (1000,), None, None))))
    open_still = device.memory()[0]
    device.close_memory(memory)
    time.sleep(0.5)
    tell("MiB that closing gave back", (device.memory()[0] - open_still) >> 20)


def peers(place: Place) -> None:
    """Whether GPUs read each other's memory right, and how they are joined."""
    from mray._device import gpu_checks as checks  # noqa: PLC0415

    if len(place.platform.devices) < 2:
        tell("peers", "this machine has one GPU")
    for finding in (*checks.topology(), *checks.peers()):
        tell(finding.subject, f"{finding.verdict}: {finding.text}")


def order(place: Place) -> None:
    """Whether each point of a stream is one of its own, across processes too."""
    device, peer, peers = place.device, place.peer(), place.peers
    stream = device.current_stream()
    peers.wait(device, stream, *peer("mark", 0, "x"))
    place.mark(device, stream)
    peer("hold", 0)
    later = peer("mark", 0, "x")
    mine = place.mark(device, stream)
    time.sleep(0.2)
    tell("a later point holds up no earlier wait", mine.reached())
    peers.wait(device, stream, *later)
    mine = place.mark(device, stream)
    time.sleep(0.2)
    tell("who waits for it waits", not mine.reached())
    peer("release")
    time.sleep(0.2)
    tell("and goes on", mine.reached())
    peer.close()


def costs(place: Place) -> None:
    """The price of the calls of a message, and of opening memory of another process."""
    device, peer, stream = place.device, place.peer(), place.device.current_stream()
    peers, address = place.peers, device.allocate(SIZE)
    theirs = peer("mark", 0, "x")
    start = time.perf_counter()
    own = place.mark(device, stream)
    between = time.perf_counter()
    peers.open(device, theirs.key, theirs.handle)
    ended = time.perf_counter()
    tell("the first mark, opening a timeline", f"{1e3 * (between - start):.2f} ms, {1e3 * (ended - between):.2f} ms")
    tell("mark", _microseconds(lambda: place.mark(device, stream)))
    opened = peers.open(device, theirs.key, theirs.handle).address + theirs.offset
    tell("wait for another's word", _microseconds(lambda: device.await_word(opened, theirs.number, stream)))
    tell("wait for another's point, which is reached", _microseconds(lambda: peers.wait(device, stream, *theirs)))
    tell("ask a point", _microseconds(own.reached))
    tell("view", _microseconds(lambda: device.tensor(address, 64, "float32", (16,), None, None)))
    for size in (2 << 20, 16 << 20):
        handle, start = peer("export", 0, peer("allocate", 0, size)), time.perf_counter()
        memory = device.open_memory(handle)
        between = time.perf_counter()
        device.close_memory(memory)
        tell(f"{size >> 20} MiB: open, close", f"{1e3 * (between - start):.2f} ms, {1e3 * (time.perf_counter() - between):.2f} ms")
    peer.close()


def graph(place: Place) -> None:
    """A graph of two actors that share a GPU, with a tensor that stays there: its value, the calls that it takes, its time."""
    import mray  # noqa: PLC0415
    from mray.dag import InputNode  # noqa: PLC0415
    from tests.gpu.actors import Maker, Taker  # noqa: PLC0415

    class Counting(Taker):
        """Tells how often each call of CUDA is made."""

        def count(self) -> None:
            self.profile = self.work.begin_profile()

        def counts(self) -> Any:
            return self.work.end_profile(self.profile)

    mray.init(num_cpus=4, num_gpus=1, preload=["torch"] if place.kind.name == "cuda" else [], logging_level="ERROR")
    maker, taker = (mray.remote(num_gpus=0.5, num_cpus=0)(cls).remote() for cls in (Maker, Counting))
    with InputNode() as value:
        tensor = maker.full.bind(value).with_tensor_transport()
        root = taker.describe.bind(tensor)
    start = time.perf_counter()
    compiled = root.experimental_compile()
    tell("compiled in", f"{time.perf_counter() - start:.2f} s")
    for number in (3, 4, 5):
        start = time.perf_counter()
        on_device, dtype, array = mray.get(compiled.execute(number), timeout=30)
        took = f"{1e3 * (time.perf_counter() - start):.2f} ms"
        tell(f"of {number}", f"{set(array.tolist())} of {dtype}, {len(array)} elements, on the device: {on_device}, {took}")
        assert on_device and set(array.tolist()) == {number}
    start = time.perf_counter()
    for number in range(200):
        mray.get(compiled.execute(number), timeout=30)
    tell("one execution of 200", f"{(time.perf_counter() - start) / 200 * 1e6:.0f} us")
    compiled.teardown()
    mray.get(taker.count.remote(), timeout=30)
    compiled = root.experimental_compile()
    for number in range(20):
        mray.get(compiled.execute(number), timeout=30)
    compiled.teardown()
    tell("calls of the taker for 20 messages", mray.get(taker.counts.remote(), timeout=30))
    mray.shutdown()


#: Those of the design's questions that pretended devices have an answer to. Those that may wedge a device come first.
PROBES: tuple[Callable[[Place], None], ...] = (forsake, dead_handles, dead_memory, order, costs, peers)


# ------------------------------------------------------------------------------------------------- the runner
class Report:
    """The results so far, in two files of a folder."""

    def __init__(self, folder: Path, info: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._whole = {**info, "steps": []}

    def add(self, step: dict[str, Any]) -> None:
        """Print a step's result, and write both files anew."""
        self._whole["steps"].append(step)
        print(_shown(step, PRINTED), flush=True)
        text = "\n".join(
            [f"{name}: {value}" for name, value in self._whole.items() if name != "steps"] + list(map(_shown, self._whole["steps"]))
        )
        for name, content in (("first.json", json.dumps(self._whole, indent=1)), ("first.txt", text + "\n")):
            fresh = self._folder / (name + ".new")
            fresh.write_text(content, encoding="utf-8")
            fresh.replace(self._folder / name)

    def failed(self) -> list[str]:
        """The names of the steps that did not pass."""
        return [step["step"] for step in self._whole["steps"] if step["status"] not in ("passed", NOT_PRETENDED)]


def _shown(step: dict[str, Any], most: int = KEPT) -> str:
    return f"== {step['step']}: {step['status']} in {step['seconds']} s\n{step['output'][-most:]}".rstrip()


@dataclass(frozen=True)
class Step:
    """One process of the run."""

    command: list[str]
    environment: dict[str, str]
    #: Seconds.
    limit: float


def run_step(name: str, step: Step) -> dict[str, Any]:
    """Run a command in a group of its own, and end the group when it is done or late."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            step.command,
            cwd=ROOT,
            env={**step.environment, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(step.limit)
            verdict = "passed" if status == 0 else f"failed ({status})"
        except subprocess.TimeoutExpired:
            verdict = f"hung for {step.limit:g} s"
            process.send_signal(signal.SIGABRT)  # shows its stacks
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)  # one that the driver holds goes later, or never
        output.seek(0)
        text = as_seen(output.read().decode(errors="replace"))[-KEPT:]
    return {"step": name, "status": verdict, "seconds": round(time.monotonic() - start, 1), "output": text}


def steps(environment: dict[str, str], *, limit: float | None) -> dict[str, Step]:
    """The steps on a GPU, in the order of their worth."""
    known = {**environment, KIND: "cuda"}

    def probe(name: str, own: float) -> Step:
        return Step([sys.executable, __file__, "--probe", name], known, limit or own)

    found = {name: probe(name, own) for name, own in {**EARLY, **_probe_limits()}.items()}
    options = ["-p", "no:cacheprovider", "-v", "--tb=short", "-rs", "-o", "addopts=-ra --import-mode=importlib"]
    options += ["-o", "faulthandler_timeout=45"]
    if importlib.util.find_spec("pytest_timeout") is not None:
        # A wait in C hears no signal. A minute and more: what a test waits for itself has a minute, and its failure says more than stacks.
        options += ["--timeout", "75", "--timeout-method=thread"]
    names = [path.name for path in sorted((ROOT / "tests/gpu").glob("test_*.py"))]
    for name in sorted(names, key=lambda name: FILES.index(name) if name in FILES else len(FILES)):
        found[f"tests/gpu/{name}"] = Step([sys.executable, "-m", "pytest", f"tests/gpu/{name}", *options], environment, limit or FILE_LIMIT)
    if importlib.util.find_spec("ray") is not None:
        of_libraries = [sys.executable, "-m", "pytest", "tests/libraries/test_gpus.py", *options]
        found["libraries"] = Step(of_libraries, {**environment, "MRAY_TEST_FULL": "1"}, limit or FILE_LIMIT)
    found["bench"] = Step([sys.executable, "bench/bench_gpu.py", "--quick"], environment, limit or BENCH_LIMIT)
    return found


def _probe_limits() -> dict[str, float]:
    """The probes by name, in order, and their limits: those of this file stand after the first of the others."""
    of_cuda = {probe.__name__: gpu_probes.LIMITS.get(probe.__name__, PROBE_LIMIT) for probe in gpu_probes.PROBES}
    urgent = {name: of_cuda[name] for name in gpu_probes.URGENT}
    return urgent | {probe.__name__: PROBE_LIMIT for probe in PROBES} | of_cuda


def pretended_steps(environment: dict[str, str], *, limit: float | None) -> dict[str, Step | None]:
    """The probes on pretended devices; None for those that ask CUDA itself."""
    known = {**environment, KIND: "null"}
    answered = {"graph", "edges", *(probe.__name__ for probe in PROBES)}
    return {
        name: Step([sys.executable, __file__, "--probe", name], known, limit or own) if name in answered else None
        for name, own in {**EARLY, **_probe_limits()}.items()
    }


def info() -> dict[str, Any]:
    """The machine, as far as it tells without a device being used."""
    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d %H:%M"), "python": sys.version.split()[0], "kernel": os.uname().release}
    query = ["nvidia-smi", "--query-gpu=name,uuid,driver_version,compute_mode,mig.mode.current", "--format=csv,noheader"]
    try:
        asked = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
        found["gpus"] = asked.stdout.strip().splitlines()
    except (OSError, subprocess.TimeoutExpired) as error:
        found["gpus"] = f"nvidia-smi: {error}"
    return found


def main() -> int:
    """Run the steps; 0 if all have passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("--out", type=Path, help="folder for first.json and first.txt")
    parser.add_argument("--wheels", type=Path, help="folder with wheels of what is missing")
    parser.add_argument("--step", action="append", help="only this step; may be repeated")
    parser.add_argument("--from", dest="first", help="the step to begin with")
    parser.add_argument("--budget", type=float, default=BUDGET, help=f"seconds for the whole run: {BUDGET:g}")
    parser.add_argument("--limit", type=float, help="seconds for each step, instead of its own limit")
    parser.add_argument("--pretend", action="store_true", help="the probes on pretended devices")
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        run_probe(options.probe)
        return 0
    if options.out is None:
        parser.error("--out FOLDER says where the results go")
    end = time.monotonic() + options.budget
    with tempfile.TemporaryDirectory() as target:
        missing, environment = install(options.wheels, target)
        known: dict[str, Any] = (pretended_steps if options.pretend else steps)(environment, limit=options.limit)
        unknown = {*(options.step or ()), options.first or next(iter(known))} - known.keys()
        if unknown:
            parser.error(f"no step is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        report = Report(options.out, {**info(), "missing": missing})
        print(f"missing: {', '.join(missing) or 'nothing'}", flush=True)
        names = list(known)[list(known).index(options.first) if options.first else 0 :]
        left = run_steps({name: known[name] for name in names if not options.step or name in options.step}, report, end)
    print("all passed" if not report.failed() else f"not passed: {', '.join(report.failed())}", flush=True)
    if left:
        print(f"left undone, for want of time: {', '.join(left)}\ngo on with: --from {left[0]}", flush=True)
    return 1 if report.failed() or left else 0


def run_probe(name: str) -> None:
    """Answer the question of this name, in this process."""
    from mray._ipc.process import die_with_parent  # noqa: PLC0415  (the runner needs nothing of mray)

    die_with_parent()  # also when the run is cut off
    before = gpu_probes.warm_up, gpu_probes.hello, gpu_turns.turns, gpu_turns.mps
    of_cuda = {probe.__name__: probe for probe in (*before, *gpu_probes.PROBES)}
    status = 0
    try:
        if name in of_cuda:
            of_cuda[name]()
        else:
            {probe.__name__: probe for probe in (graph, gpu_turns.edges, *PROBES)}[name](Place())
    except Exception as error:
        traceback.print_exc()
        tell("failed", f"{type(error).__name__}: {error}")
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if os.environ[KIND] == "cuda":
        os._exit(status)  # the way out waits for what is still queued on a device
    sys.exit(status)


def install(wheels: Path | None, target: str) -> tuple[list[str], dict[str, str]]:
    """The modules that are missing once the wheels have been installed into a folder, and the variables of processes that find that."""
    missing = [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing and wheels is not None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--find-links", str(wheels)]
        missing = [each for each in missing if subprocess.run([*pip, "--target", target, each], check=False).returncode]
    paths = [str(ROOT), target, os.environ.get("PYTHONPATH", "")]
    return missing, {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_steps(chosen: dict[str, Any], report: Report, end: float) -> list[str]:
    """Run steps until a time; the names of those that had none, or not enough."""
    for number, (name, step) in enumerate(chosen.items()):
        time_left = end - time.monotonic()
        if time_left < LEAST:
            return list(chosen)[number:]
        if step is None:
            report.add({"step": name, "status": NOT_PRETENDED, "seconds": 0, "output": ""})
            continue
        result = run_step(name, replace(step, limit=min(step.limit, time_left)))
        if result["status"].startswith("hung") and time_left < step.limit:
            result["status"] = f"cut off by the budget after {time_left:.0f} s"
            report.add(result)
            return list(chosen)[number:]
        report.add(result)
    return []


if __name__ == "__main__":
    sys.exit(main())
