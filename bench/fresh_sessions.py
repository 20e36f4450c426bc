"""The costs of a session for each test: a file of tests with mray's fixtures, and the same with Ray.

    python bench/fresh_sessions.py [--tests N] [--ray-python PATH] [--ray-tests N] [--rounds N]

Each test makes an actor, calls it, and runs a task. Written four times: with `mray_fresh` (a session for each test), with `mray_session`
(one that is reset after each test), with a fixture that calls `mray.init` and `mray.shutdown`, and with one that does the same with Ray.
The files run in turn, each in a pytest of its own; printed is the time that its tests took, without pytest's own start. Ray's file has
fewer tests, for they take seconds each: what is compared is the time per test. Then `reset` alone, in one process: with nothing to clean,
after a task, and with an actor to end.

Exit status 1 if a session of its own is not 30 times faster than Ray's, or the median reset with nothing to clean takes a millisecond.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

REPOSITORY = Path(__file__).resolve().parents[1]
#: Of the processes that are started: this process's own may have what the interpreter lacks.
PYTHON_PATH = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
sys.path.insert(0, str(REPOSITORY))

#: How many times faster a session of its own has to be than Ray's, and how long a reset may take, in seconds.
FASTER, RESET = 30.0, 1e-3

CONFTEST = """
    import time

    spent = 0.0

    def pytest_runtest_logreport(report):
        global spent
        spent += report.duration

    def pytest_unconfigure():
        print(f"\\nspent {spent}")
"""
TESTS = """
    import pytest

    @pytest.fixture
    def own():
        import MODULE
        MODULE.init(num_cpus=2, logging_level="ERROR")
        yield MODULE
        MODULE.shutdown()

    @pytest.mark.parametrize("number", range(COUNT))
    def test_it(FIXTURE, number):
        ray = FIXTURE

        @ray.remote
        def task(x):
            return x + 1

        @ray.remote
        class Actor:
            def method(self, x):
                return x + 2

        actor = Actor.remote()
        assert ray.get([task.remote(number), actor.method.remote(number)]) == [number + 1, number + 2]
"""


def seconds_per_test(fixture: str, module: str, python: str, count: int) -> float:
    """Run the file with this fixture; seconds that a test took."""
    with tempfile.TemporaryDirectory(prefix="mt", dir="/tmp") as folder:
        text = TESTS.replace("FIXTURE", fixture).replace("MODULE", module).replace("COUNT", str(count))
        Path(folder, "test_sessions.py").write_text(textwrap.dedent(text))
        Path(folder, "conftest.py").write_text(textwrap.dedent(CONFTEST))
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        if module == "mray":
            words += ["-p", "mray.pytest_plugin", "--mray-cpus=2"]
        environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "RAY_DEDUP_LOGS": "0"}
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return float(done.stdout.rpartition("spent ")[2].split()[0]) / count


def resets(rounds: int) -> dict[str, list[float]]:
    """Seconds of each reset, by what there was to clean."""
    import mray
    from mray.util.testing import reset

    @mray.remote
    def task() -> int:
        return 1

    @mray.remote
    class Actor:
        def method(self) -> int:
            return 1

    kept = []

    def run_task() -> None:
        mray.get(task.remote())

    def make_actor() -> None:
        kept.append(Actor.remote())
        mray.get(kept[-1].method.remote())

    found: dict[str, list[float]] = {}
    with mray.init(num_cpus=2, logging_level="ERROR"):
        before: dict[str, Callable[[], object]] = {"nothing": lambda: mray.put(1)}
        before.update({"a task has run": run_task, "an actor to end": make_actor})
        for what, prepare in before.items():
            for _ in range(rounds):
                prepare()
                began = perf_counter()
                reset()
                found.setdefault(what, []).append(perf_counter() - began)
    return found


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--tests", type=int, default=100, help="tests in each of mray's files")
    arguments.add_argument("--ray-python", help="an interpreter with ray and pytest")
    arguments.add_argument("--ray-tests", type=int, default=10, help="tests in Ray's file")
    arguments.add_argument("--rounds", type=int, default=3, help="how often each file runs; the best counts")
    given = arguments.parse_args()
    files = [("mray_fresh", "mray", sys.executable, given.tests), ("own", "mray", sys.executable, given.tests)]
    files.append(("mray_session", "mray", sys.executable, given.tests))
    if given.ray_python:
        files.append(("own", "ray", given.ray_python, given.ray_tests))
    best: dict[tuple[str, str], float] = {}
    for _ in range(given.rounds):
        for fixture, module, python, count in files:
            took = seconds_per_test(fixture, module, python, count)
            best[fixture, module] = min(best.get((fixture, module), took), took)
    names = {"own": "init and shutdown", "mray_fresh": "mray_fresh", "mray_session": "mray_session"}
    for (fixture, module), took in best.items():
        print(f"{module:5} {names[fixture]:18} {took * 1e3:9.1f} ms a test, {given.tests} tests {took * given.tests:7.1f} s")
    good = True
    if ("own", "ray") in best:
        for fixture in ("mray_fresh", "own", "mray_session"):
            ratio = best["own", "ray"] / best[fixture, "mray"]
            print(f"Ray / mray, {names[fixture]:18} {ratio:6.1f}")
            good = good and ratio >= FASTER
    for what, times in resets(100).items():
        median = statistics.median(times)
        print(f"reset, {what:16} median {median * 1e3:.2f} ms, 90th percentile {sorted(times)[len(times) * 9 // 10] * 1e3:.2f} ms")
        good = good and (what != "nothing" or median < RESET)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
