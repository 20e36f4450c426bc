"""Whether a driver is slowed down by sharing a session: tasks and actor calls of one driver in a private session, alone in a persistent
one, beside an idle second driver, and of two drivers at once.

    python bench/drivers.py [--rounds N] [--seconds S]

All four are measured in turn, in each round; the table shows the median and the best rate, and their ratios to those of the private
session. Exit status 1 if any best, which other load disturbs least, is below 0.9 of that.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mray

REPOSITORY = Path(__file__).resolve().parents[1]
#: Of the processes that are started: this process's own may have what the interpreter lacks.
PYTHON_PATH = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
CPUS = 2
BATCH = 200
LEAST = 0.9


# ----------------------------------------------------------------------------------------------- a driver that is told
def works() -> dict[str, Callable[[], int]]:
    """The loads of a driver; each runs a little and returns its number of calls."""

    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    @mray.remote
    def nothing() -> None:
        return None

    actor = mray.remote(num_cpus=0)(Echo).remote()

    def calls() -> int:
        mray.get([actor.echo.remote(1) for _ in range(BATCH)])
        return BATCH

    def round_trips() -> int:
        for _ in range(BATCH):
            mray.get(actor.echo.remote(1))
        return BATCH

    def tasks() -> int:
        mray.get([nothing.remote() for _ in range(BATCH)])
        return BATCH

    return {"actor calls": calls, "actor round trips": round_trips, "tasks": tasks}


def drive(address: str | None) -> None:
    begin = time.perf_counter()
    mray.init(address=address, num_cpus=CPUS if address is None else None, logging_level="ERROR")
    joined = time.perf_counter() - begin
    known = works()
    for work in known.values():
        work()
    print(joined, flush=True)
    for line in sys.stdin:
        name, seconds = line.rsplit(" ", 1)
        done, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < float(seconds):
            done += known[name]()
        print(done / (time.perf_counter() - begin), flush=True)


class Driver:
    """A driver program under this one's control."""

    def __init__(self, environment: dict[str, str], address: str) -> None:
        command = [sys.executable, __file__, "--drive", address]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        #: Seconds that `init` took.
        self.joined = self.hear()

    def tell(self, work: str, seconds: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{work} {seconds}\n")
        self.process.stdin.flush()

    def hear(self) -> float:
        assert self.process.stdout is not None
        return float(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate()


# --------------------------------------------------------------------------------------------------------- measuring
def measure(rounds: int, seconds: float) -> dict[str, dict[str, list[float]]]:
    """work -> situation -> calls a second."""
    names = ("actor round trips", "actor calls", "tasks")
    found: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    with tempfile.TemporaryDirectory(prefix="md", dir="/tmp") as place:
        environment = {**os.environ, "MRAY_TMPDIR": place, "PYTHONPATH": PYTHON_PATH}
        subprocess.run([sys.executable, "-m", "mray", "start", "--num-cpus", str(CPUS)], env=environment, check=True, stdout=sys.stderr)
        try:
            for _ in range(rounds):
                private = Driver(environment, "none")
                one_round(found, "private session", [private], seconds)
                private.end()
                first = Driver(environment, "auto")
                one_round(found, "alone", [first], seconds)
                second = Driver(environment, "auto")
                one_round(found, "beside an idle driver", [first], seconds)
                one_round(found, "two drivers in sum", [first, second], seconds)
                found.setdefault("ms to join", {}).setdefault("", []).extend(each.joined * 1e3 for each in (first, second))
                first.end()
                second.end()
        finally:
            subprocess.run([sys.executable, "-m", "mray", "stop"], env=environment, check=True, stdout=sys.stderr)
    return found


def one_round(found: dict[str, dict[str, list[float]]], situation: str, at_work: list[Driver], seconds: float) -> None:
    for name in ("actor round trips", "actor calls", "tasks"):
        for driver in at_work:
            driver.tell(name, seconds)
        found[name].setdefault(situation, []).append(sum(driver.hear() for driver in at_work))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive is not None:
        drive(None if given.drive == "none" else given.drive)
        return 0
    found = measure(given.rounds, given.seconds)
    joined = found.pop("ms to join")[""]
    worst = 1.0
    print(f"{CPUS} CPUs, {given.rounds} rounds of {given.seconds:g} s; load {os.getloadavg()[0]:.1f}\n")
    for name, situations in found.items():
        private = situations["private session"]
        for situation, rates in situations.items():
            middle, best = statistics.median(rates), max(rates)
            ratios = middle / statistics.median(private), best / max(private)
            print(f"{name:<18} {situation:<22} {middle:>10,.0f} /s {ratios[0]:5.2f}   best {best:>10,.0f} /s {ratios[1]:5.2f}")
            worst = min(worst, ratios[1])
    print(f"\njoining            {statistics.median(joined):.1f} ms (least {min(joined):.1f})")
    return 0 if worst >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
