"""First contact with a GPU: what the design of GPU edges rests on, asked of a machine that is there for half an hour, perhaps.

    tools/gpu --first --out FOLDER               probes, then tests/gpu file by file, then the quick benchmark
    tools/gpu --first --out FOLDER --step order  only this step; may be given several times
    tools/gpu --first --out FOLDER --wheels W    what is missing is installed from the wheels there, for this run only
    tools/gpu --first --out FOLDER --pretend     the probes on pretended devices, as far as those have an answer

Each step is a process of its own with a limit, in a group that is ended with it: a wait that no signal reaches costs its limit and nothing
else. Those that may wedge a device come first. Results are printed as they come; ``first.json`` and ``first.txt`` in the folder are written
anew after each step, so a run that is cut off leaves what it has found.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Modules that the steps import, and pip's names for them.
NEEDED = {"torch": "torch", "numpy": "numpy", "cloudpickle": "cloudpickle", "posix_ipc": "posix-ipc", "pytest": "pytest", "nvtx": "nvtx"}
#: Seconds.
PROBE_LIMIT, FILE_LIMIT, BENCH_LIMIT = 60.0, 300.0, 420.0
#: The variable that tells a probe which devices it is for.
KIND = "MRAY_FIRST_KIND"
SIZE = 4096


# ------------------------------------------------------------------------------------------ what a probe has
class Place:
    """The devices of a probe, and second processes with the same ones."""

    def __init__(self) -> None:
        from tests.conformance.device_kinds import KINDS, Peer  # noqa: PLC0415  (the runner has no devices)

        self.kind = KINDS[os.environ[KIND]]()
        os.environ.update(self.kind.environment)
        self.platform = self.kind.open()
        self.device = self.platform.devices[0]
        self._peer = Peer

    def peer(self) -> Any:
        return self._peer(self.kind)


def tell(subject: str, value: object) -> None:
    """One line of the report."""
    print(f"   {subject}: {value}", flush=True)


def _event_names() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("cuda.shm.")}


def _microseconds(function: Callable[[], object], times: int = 200) -> str:
    function()
    start = time.perf_counter()
    for _ in range(times):
        function()
    return f"{(time.perf_counter() - start) / times * 1e6:.1f} us"


# ------------------------------------------------------------------------------------------------- the probes
def forsake(place: Place) -> None:
    """Whether a stream that waits for a killed writer goes on: by its death alone, or once the reader forsakes its event."""
    device, peer = place.device, place.peer()
    event = device.open_event(peer("create_event", 0, "x"))
    peer("hold", 0)
    peer("record", "x")
    event.wait(device.current_stream())
    mine = device.create_event()
    mine.record(device.current_stream())
    tell("waits while the writer lives", not mine.done())
    peer.kill()
    time.sleep(1)
    tell("goes on by death alone", mine.done())
    event.forsake()
    time.sleep(0.5)
    tell("goes on when forsaken", mine.done())


def dead_handles(place: Place) -> None:
    """Whether handles of a killed process can be opened, and what it leaves in shared memory."""
    device, before = place.device, _event_names()
    peer = place.peer()
    memory, event = peer("export", 0, peer("allocate", 0, SIZE)), peer("create_event", 0, "x")
    tell("names of its events while it lives", sorted(_event_names() - before))
    peer.kill()
    tell("names of its events after SIGKILL", sorted(_event_names() - before))
    for what, opening, handle in (("memory", device.open_memory, memory), ("event", device.open_event, event)):
        try:
            opening(handle)
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
    from mray.cli import doctor  # noqa: PLC0415

    if len(place.platform.devices) < 2:
        tell("peers", "this machine has one GPU")
    for finding in (*doctor.topology(), *doctor.peers()):
        tell(finding.subject, f"{finding.verdict}: {finding.text}")


def order(place: Place) -> None:
    """Whether an event that is recorded again is another mark, across processes too."""
    device, peer = place.device, place.peer()
    event = device.open_event(peer("create_event", 0, "x"))
    peer("record", "x")
    peer("synchronize", 0)
    event.wait(device.current_stream())
    peer("hold", 0)
    peer("record", "x")
    mine = device.create_event()
    mine.record(device.current_stream())
    time.sleep(0.2)
    tell("the second record holds up no earlier wait", mine.done())
    event.wait(device.current_stream())
    mine.record(device.current_stream())
    time.sleep(0.2)
    tell("the second wait waits", not mine.done())
    peer("release")
    time.sleep(0.2)
    tell("and goes on", mine.done())
    peer.close()


def costs(place: Place) -> None:
    """The price of the calls of a message, and of opening memory of another process."""
    device, peer, stream = place.device, place.peer(), place.device.current_stream()
    own, opened, address = device.create_event(), device.open_event(peer("create_event", 0, "x")), device.allocate(SIZE)
    tell("record", _microseconds(lambda: own.record(stream)))
    tell("wait for an own event", _microseconds(lambda: own.wait(stream)))
    tell("wait for an opened event", _microseconds(lambda: opened.wait(stream)))
    tell("ask an event", _microseconds(own.done))
    tell("view", _microseconds(lambda: device.tensor(address, 64, "float32", (16,), None, None)))
    for size in (2 << 20, 16 << 20):
        handle, start = peer("export", 0, peer("allocate", 0, size)), time.perf_counter()
        memory = device.open_memory(handle)
        between = time.perf_counter()
        device.close_memory(memory)
        tell(f"{size >> 20} MiB: open, close", f"{1e3 * (between - start):.2f} ms, {1e3 * (time.perf_counter() - between):.2f} ms")
    peer.close()


#: Those that may wedge a device first.
PROBES: tuple[Callable[[Place], None], ...] = (peers, forsake, dead_handles, dead_memory, order, costs)


# ------------------------------------------------------------------------------------------------- the runner
class Report:
    """The results so far, in two files of a folder."""

    def __init__(self, folder: Path, facts: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._whole = {**facts, "steps": []}

    def add(self, step: dict[str, Any]) -> None:
        """Print a step's result, and write both files anew."""
        self._whole["steps"].append(step)
        print(_shown(step), flush=True)
        text = "\n".join(
            [f"{name}: {value}" for name, value in self._whole.items() if name != "steps"] + list(map(_shown, self._whole["steps"]))
        )
        for name, content in (("first.json", json.dumps(self._whole, indent=1)), ("first.txt", text + "\n")):
            fresh = self._folder / (name + ".new")
            fresh.write_text(content, encoding="utf-8")
            fresh.replace(self._folder / name)

    def failed(self) -> list[str]:
        """The names of the steps that did not pass."""
        return [step["step"] for step in self._whole["steps"] if step["status"] != "passed"]


def _shown(step: dict[str, Any]) -> str:
    return f"== {step['step']}: {step['status']} in {step['seconds']} s\n{step['output']}".rstrip()


def run_step(name: str, command: list[str], environment: dict[str, str], limit: float) -> dict[str, Any]:
    """Run a command in a group of its own, and end the group when it is done or late."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(limit)
            verdict = "passed" if status == 0 else f"failed ({status})"
        except subprocess.TimeoutExpired:
            verdict = f"hung for {limit:g} s"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
            except ProcessLookupError:
                pass
            process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")[-20000:]
    return {"step": name, "status": verdict, "seconds": round(time.monotonic() - start, 1), "output": text}


def steps(environment: dict[str, str], *, pretend: bool, limit: float | None) -> dict[str, tuple[list[str], dict[str, str], float]]:
    """The command, the environment and the limit of each step, in order."""
    known = {**environment, KIND: "null" if pretend else "cuda"}
    python = sys.executable
    found = {probe.__name__: ([python, __file__, "--probe", probe.__name__], known, limit or PROBE_LIMIT) for probe in PROBES}
    if pretend:
        return found
    options = ["-p", "no:cacheprovider", "-q", "-rs", "-o", "addopts=-ra --import-mode=importlib"]
    if importlib.util.find_spec("pytest_timeout") is not None:
        options += ["--timeout", "120", "--timeout-method=thread"]  # a wait in C hears no signal
    for path in sorted((ROOT / "tests/gpu").glob("test_*.py")):
        found[f"tests/gpu/{path.name}"] = ([python, "-m", "pytest", str(path), *options], environment, limit or FILE_LIMIT)
    if importlib.util.find_spec("ray") is not None:
        of_libraries = [python, "-m", "pytest", "tests/libraries/test_gpus.py", *options]
        found["libraries"] = (of_libraries, {**environment, "MRAY_TEST_FULL": "1"}, limit or FILE_LIMIT)
    found["bench"] = ([python, "bench/bench_gpu.py", "--quick"], environment, limit or BENCH_LIMIT)
    return found


def facts() -> dict[str, Any]:
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
    parser.add_argument("--limit", type=float, help="seconds for each step, instead of its own limit")
    parser.add_argument("--pretend", action="store_true", help="the probes on pretended devices")
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        from mray._ipc.process import die_with_parent  # noqa: PLC0415  (the runner needs nothing of mray)

        die_with_parent()  # also when the run is cut off
        {probe.__name__: probe for probe in PROBES}[options.probe](Place())
        return 0
    if options.out is None:
        parser.error("--out FOLDER says where the results go")
    with tempfile.TemporaryDirectory() as target:
        missing = [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]
        if missing and options.wheels is not None:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--find-links", str(options.wheels)]
            missing = [each for each in missing if subprocess.run([*pip, "--target", target, each], check=False).returncode]
        paths = [str(ROOT), target, os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        report = Report(options.out, {**facts(), "missing": missing})
        print(f"missing: {', '.join(missing) or 'nothing'}", flush=True)
        known = steps(environment, pretend=options.pretend, limit=options.limit)
        unknown = set(options.step or ()) - known.keys()
        if unknown:
            parser.error(f"no step is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        for name, (command, given, limit) in known.items():
            if not options.step or name in options.step:
                report.add(run_step(name, command, given, limit))
    print("all passed" if not report.failed() else f"not passed: {', '.join(report.failed())}", flush=True)
    return 1 if report.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
