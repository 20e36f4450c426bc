"""Whether a compiled graph stays as it is: 100,000 executions under sustained load.

    python bench/soak.py [--executions N] [--in-flight N] [--flat RATIO]

A graph of two actors and the driver, always with several executions in flight: small values, every eighth a dict of 10 KB and every 64th an
array of 256 KiB, so that payload slots are used too. Prints the latency of every tenth of the run (median, 99th percentile) and the memory
at its end: what the driver and the actors account for (PSS), and the shared memory that they have mapped. Then nothing is executed for some
seconds, and the CPU time that the driver, the node and the actors take is counted.

Exit status 1 if the second half's latency is more than `--flat` times the first's, if the memory of any process or what is shared grows
by more than 2 MB after the first tenth, or if the idle graph takes 1 % of a core.
"""

from __future__ import annotations

import argparse
import collections
import os
import statistics
import sys
import time
from array import array
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MRAY_BENCH_MARK", f"{os.getpid()}-soak")

import numpy as np
from measure import cpu_seconds, proportional_set_size

import mray
from mray.dag import InputNode

#: Megabytes (10^6) that memory may grow by after the first tenth.
GROWTH = 2.0
#: Percent of a core that an idle graph may take.
IDLE = 1.0


class Relay:
    def relay(self, value: Any) -> Any:
        return value

    def pid(self) -> int:
        return os.getpid()


class Tenth(NamedTuple):
    """The figures of one tenth of the executions; memory in MB (10^6 bytes)."""

    median: float
    p99: float
    rate: float
    processes: tuple[float, ...]
    shared: float


def shared_memory(pids: list[int]) -> float:
    """Megabytes of shared memory that these processes have mapped, by name or without, each segment counted once."""
    ends: dict[str, int] = {}
    for pid in pids:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith("/dev/shm/mray-"):
                low, high = (int(part, 16) for part in fields[0].split("-"))
                ends[fields[4]] = max(ends.get(fields[4], 0), int(fields[2], 16) + high - low)
    return sum(ends.values()) / 1e6


def values() -> list[Any]:
    """The values that are sent, in turn."""
    record = {f"key-{number}": list(range(20)) for number in range(100)}
    sent: list[Any] = [number if number % 2 else f"text {number}" for number in range(64)]
    sent[8::8] = [record] * len(sent[8::8])
    sent[0] = np.arange(32 * 1024, dtype=np.float64)
    return sent


def run(graph: Any, count: int, in_flight: int, sent: list[Any]) -> tuple[array[float], float]:
    """The latency of each execution, from `execute` to its result, and the seconds of all."""
    latencies = array("d", bytes(8 * count))
    flying: collections.deque[tuple[float, Any]] = collections.deque()
    clock = time.perf_counter
    begin = clock()
    done = 0
    for number in range(count):
        if len(flying) == in_flight:
            start, ref = flying.popleft()
            mray.get(ref)
            latencies[done] = clock() - start
            done += 1
        flying.append((clock(), graph.execute(sent[number & 63])))
    while flying:
        start, ref = flying.popleft()
        mray.get(ref)
        latencies[done] = clock() - start
        done += 1
    return latencies, clock() - begin


def idle(seconds: float = 5.0) -> float:
    """Percent of a core that all processes of the session take."""
    time.sleep(1.0)
    before, begin = cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    used = sum(after - before.get(pid, 0.0) for pid, after in cpu_seconds().items())
    return 100 * used / (time.perf_counter() - begin)


def main() -> int:
    parser = argparse.ArgumentParser(description="Latency and memory of a compiled graph under sustained load, and its idle CPU.")
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--flat", type=float, default=1.2, help="the second half's latency over the first's, at most")
    options = parser.parse_args()

    mray.init(num_cpus=2, logging_level="ERROR")
    try:
        Actor = mray.remote(Relay)
        first, second = Actor.remote(), Actor.remote()
        pids = [os.getpid(), *mray.get([first.pid.remote(), second.pid.remote()])]
        with InputNode() as value:
            graph = second.relay.bind(first.relay.bind(value)).experimental_compile(_max_inflight_executions=options.in_flight)
        sent = values()
        run(graph, 2000, options.in_flight, sent)
        tenths = []
        print(f"{'':8}{'median':>10}{'p99':>10}{'per s':>9}   PSS of driver, actors (MB)   shared (MB)")
        for number in range(10):
            latencies, seconds = run(graph, options.executions // 10, options.in_flight, sent)
            ordered = sorted(latencies)
            tenth = Tenth(
                statistics.median(ordered),
                ordered[len(ordered) * 99 // 100],
                len(ordered) / seconds,
                tuple(proportional_set_size(pid) for pid in pids),
                shared_memory(pids),
            )
            tenths.append(tenth)
            latency = f"{tenth.median * 1e6:>8.1f}µs{tenth.p99 * 1e6:>8.1f}µs{tenth.rate:>9.0f}"
            memory = " ".join(f"{size:8.1f}" for size in tenth.processes)
            print(f"{number + 1:>5}/10{latency}   {memory}   {tenth.shared:11.2f}", flush=True)
        resting = idle()
        print(f"submitted and finished: {graph.statistics()['submitted']}, {graph.statistics()['finished']}")
        graph.teardown()
    finally:
        mray.shutdown()

    return judge(tenths, resting, options.flat)


def judge(tenths: list[Tenth], resting: float, flat: float) -> int:
    start, end = tenths[0], tenths[-1]
    growth = max(after - before for before, after in zip((*start.processes, start.shared), (*end.processes, end.shared), strict=True))
    # Half of the tenths at each end: a single one may have met a slow spell of the machine.
    slower = statistics.median(tenth.median for tenth in tenths[5:]) / statistics.median(tenth.median for tenth in tenths[:5])
    checks = {
        f"latency of the second half over the first: {slower:.2f} (at most {flat:g})": slower <= flat,
        f"memory grown since the first tenth: {growth:.2f} MB (at most {GROWTH:g})": growth <= GROWTH,
        f"idle CPU: {resting:.2f} % of a core (below {IDLE:g})": resting < IDLE,
    }
    for told, holds in checks.items():
        print(("ok      " if holds else "MISSED  ") + told)
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
