"""Compares Ray's libraries on mray with the same libraries on Ray, on this machine, now.

    python bench/libraries.py [--python PYTHON] [--only LIBRARY ...] [--rounds N] [--limit SECONDS] [--json FILE]

PYTHON has the package ray with the libraries (and torch for train and rllib) and finds mray; it runs each program of `library_work` on
both, one after the other. Start-up is the time from the start of the program to its first result. The seconds of a processor are those of
all processes of the program until then, and for a rate those since the figure before it; another program's work lengthens them little.
Memory is the sum of the proportional set sizes of all processes of the program, and the share of a processor that they use is measured
over some seconds, while nothing runs. Ratios above 1 say that mray is better. Each process computes with one thread of OpenMP, on both:
where another program has a core, threads of torch spend more on waiting for each other than on what is measured.

One round of one library takes a minute or two on two cores without other work. Its rows are printed, and FILE is written, as soon as they
are known; a library that fails, or takes longer than the limit on one of the two, says why, and the others go on. Exit status 1 when one
has failed, or what it needs is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

#: Programs of `library_work`, which need Ray.
LIBRARIES = ("data", "tune", "train", "serve", "rllib")
#: The modules that a library's program imports besides Ray's.
NEEDED = {"train": ("torch",), "rllib": ("torch", "gymnasium")}
HERE = Path(__file__).resolve().parent
#: Seconds of idleness: until it counts, and which count.
SETTLE, IDLE = 3.0, 8.0
ENGINES = ("mray", "ray")
_PR_SET_CHILD_SUBREAPER = 36
Figures = dict[str, float]


def descendants() -> list[int]:
    """The processes below this one; orphans among them are its children (see `main`)."""
    children = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children[parent].append(int(entry))
    found, queue = [], [os.getpid()]
    while queue:
        below = children[queue.pop()]
        found += below
        queue += below
    return found


def memory(pids: list[int]) -> float:
    """MiB, each shared page divided by those that share it."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def processor_seconds(pids: list[int]) -> float:
    """Of the processes, and of children that they have waited for."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def measure(engine: str, library: str, python: str, folder: Path, limit: float) -> Figures:
    """The figures of one run, which is killed after `limit` seconds."""
    run = ["-m", "mray", "run", "--libraries"] if engine == "mray" else []
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AIR_NEW_OUTPUT": "0", "OMP_NUM_THREADS": "1"}
    others = set(descendants())

    def processes() -> list[int]:
        """Those of the program: whoever started this one may have started others before, which are its children as well."""
        return [pid for pid in descendants() if pid not in others]

    found: Figures = {}
    used, present = 0.0, list[int]()
    begun = time.time()
    errors = folder / f"{library}-{engine}.txt"
    with errors.open("w") as written, subprocess.Popen(
        [python, *run, str(HERE / "library_work" / f"{library}.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=written, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(limit, process.kill)
        late.start()
        for line in process.stdout:
            if not line.startswith('{"name"'):
                continue
            told: dict[str, Any] = json.loads(line)
            if told["name"] == "idle":
                time.sleep(SETTLE)
                before = processor_seconds(processes())
                time.sleep(IDLE)
                pids = processes()
                found["idle: share of a processor, %"] = 100 * (processor_seconds(pids) - before) / IDLE
                found["idle: memory, MiB"] = memory(pids)
                found["idle: processes"] = len(pids)
                process.stdin.close()
                break
            before, earlier, present = used, present, processes()
            used = processor_seconds(present)
            if told["name"] == "first":
                found["start to first result, s"] = told["value"] - begun
                found["start to first result, s of a processor"] = used
                continue
            found[told["name"]] = told["value"]
            # The time of a process that has ended is lost where its parent does not wait for it, as Ray's raylet.
            if told["name"].endswith("/s") and set(earlier) <= set(present):
                found[f"{told['name']}: s of a processor"] = used - before
        process.stdout.read()
    late.cancel()
    if process.returncode:
        for pid in processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # it would be measured with what follows
        raise RuntimeError(f"{library} on {engine} ended with {process.returncode}:\n{errors.read_text()[-4000:]}")
    found["whole program, s"] = time.time() - begun
    deadline = time.monotonic() + 20
    while (left := processes()) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
        time.sleep(0.1)
    found["processes left after 20 s"] = len(left)
    return found


def main() -> int:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="a Python with ray, its libraries, and mray")
    parser.add_argument("--only", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--rounds", type=int, default=1, help="of each library; the table has medians (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds of one program (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    arguments = parser.parse_args()
    # Daemons that a program leaves become this one's children, and so are counted.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rounds: dict[str, dict[str, list[Figures]]] = {}
    failed = False
    print(f"{'library':8} {'what':42} {'mray':>10} {'Ray':>10} {'ratio':>7}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for library in arguments.only:
            try:
                check_installed(arguments.python, library)
                rounds[library] = {engine: [] for engine in ENGINES}
                for _ in range(arguments.rounds):
                    for engine in ENGINES:
                        rounds[library][engine].append(measure(engine, library, arguments.python, Path(folder), arguments.limit))
            except RuntimeError as error:
                failed = True
                print(f"{library:8} {error}", flush=True)
            else:
                print_rows(library, rounds[library])
            if arguments.json:
                arguments.json.write_text(json.dumps(rounds, indent=1))
    return int(failed)


def check_installed(python: str, library: str) -> None:
    """RuntimeError for a Python that lacks a module that the program of a library imports."""
    for module in NEEDED.get(library, ()):
        find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        if subprocess.run([python, "-c", find], check=False).returncode:
            raise RuntimeError(f"is not measured: {python} has no {module}")


def print_rows(library: str, figures: dict[str, list[Figures]]) -> None:
    """The rows of one library."""
    for name in figures["mray"][0]:
        if not all(name in each for rounds in figures.values() for each in rounds):
            continue
        ours, rays = (statistics.median(each[name] for each in figures[engine]) for engine in ENGINES)
        better = ours / rays if name.endswith("/s") and rays else rays / ours if ours else float("nan")
        print(f"{library:8} {name:42} {ours:10.4g} {rays:10.4g} {better:7.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
