"""How many waits of a compiled graph sleep in the kernel, by how long the peer computes; and what a graph costs in which nothing happens.

    python bench/graph_waits.py [--microseconds N ...] [--messages N] [--rounds N] [--idle SECONDS]

Two graphs, whose actor `busy` computes for so long per message:

    driver -> busy -> driver                the driver waits for the actor
    driver -> busy -> reader -> driver      and the actor `reader` for another actor

A wait ends while its thread looks again and again (`mray._ipc.spin`), or the thread sleeps and has to be woken. The kernel counts the
latter: a thread's voluntary context switches (`getrusage`), among which a yield of the core is not. So any version can be measured. Each
thread counts from one message to the next, after warm-up; shown is the number for 100 messages, the median of all rounds. "beyond" is what
a round trip takes longer than the peer computes.

An idle graph: a burst of calls, and then nothing for `--idle` seconds. The CPU time of each process of the session from the last result on,
so that looking for a next message, which does not come, is in it.

Exit status 1 if a process of the idle graph takes more than `IDLE` of a core.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from measure import MARK, cpu_seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mray
from mray.dag import InputNode

IDLE = 0.003
#: Messages for each length before those that are counted.
WARM_UP = 200


def sleeps() -> int:
    """How often this thread has slept in the kernel."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class Actor:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        #: The count at the beginning of each message.
        self.counts: list[int] = []

    def compute(self, value: int) -> int:
        until = time.perf_counter() + self.seconds
        self.counts.append(sleeps())
        while time.perf_counter() < until:
            pass
        return value

    def take_counts(self) -> list[int]:
        counts, self.counts = self.counts, []
        return counts

    def pid(self) -> int:
        return os.getpid()


def compile_graph(actors: list[Any]) -> Any:
    with InputNode() as value:
        root: Any = value
        for actor in actors:
            root = actor.compute.bind(root)
    return root.experimental_compile()


def count(seconds: float, actor_count: int, messages: int) -> tuple[list[float], float]:
    """Sleeping waits in 100 messages of the driver and of each actor, and seconds of a round trip."""
    actors = [mray.remote(Actor).remote(seconds if number == 0 else 0.0) for number in range(actor_count)]
    graph = compile_graph(actors)
    for number in range(WARM_UP):
        mray.get(graph.execute(number))
    before, durations = sleeps(), []
    for number in range(messages):
        begin = time.perf_counter()
        mray.get(graph.execute(number))
        durations.append(time.perf_counter() - begin)
    slept = [sleeps() - before]
    slept += [counts[-1] - counts[-1 - messages] for counts in mray.get([actor.take_counts.remote() for actor in actors])]
    graph.teardown()
    for actor in actors:
        mray.kill(actor)
    return [100 * each / messages for each in slept], statistics.median(durations)


def print_waits(microseconds: list[int], messages: int, rounds: int) -> None:
    print(f"waits that sleep, in 100 messages; {len(os.sched_getaffinity(0))} cores")
    print(f"{'graph':24}{'computes':>10}{'driver':>9}{'busy':>9}{'reader':>9}{'beyond':>11}")
    for name, actor_count in (("driver, busy", 1), ("driver, busy, reader", 2)):
        for length in microseconds:
            counted = [count(length / 1e6, actor_count, messages) for _ in range(rounds)]
            slept = [statistics.median(each) for each in zip(*(slept for slept, _seconds in counted), strict=True)]
            beyond = statistics.median(seconds for _slept, seconds in counted) * 1e6 - length
            shown = "".join(f"{each:9.1f}" for each in slept) + " " * 9 * (2 - actor_count)
            print(f"{name:24}{length:>7} µs{shown}{beyond:>8.0f} µs", flush=True)


def cpu_time(pid: int) -> float:
    """CPU seconds of a process until now: its clock, as clock_getcpuclockid(3) makes the number of it."""
    return time.clock_gettime(~pid << 3 | 2)


def idle(seconds: float, actor_count: int) -> dict[str, float]:
    """The share of a core that each process takes after a burst of calls."""
    actors = [mray.remote(Actor).remote(0.0) for _ in range(actor_count)]
    graph = compile_graph(actors)
    pids = mray.get([actor.pid.remote() for actor in actors])
    names = dict.fromkeys(cpu_seconds(), "others together") | {os.getpid(): "driver"}
    names |= {pid: f"actor {number}" for number, pid in enumerate(pids, 1)}
    for number in range(2000):
        mray.get(graph.execute(number))
    begin, before = time.perf_counter(), {pid: cpu_time(pid) for pid in names}
    time.sleep(seconds)
    shares = dict.fromkeys(names.values(), 0.0)
    for pid, name in names.items():
        shares[name] += (cpu_time(pid) - before[pid]) / (time.perf_counter() - begin)
    graph.teardown()
    for actor in actors:
        mray.kill(actor)
    return shares


def print_idle(seconds: float) -> bool:
    """Whether every process takes little enough."""
    print(f"idle graph, % of a core in {seconds:g} s after a burst (at most {100 * IDLE:g})")
    is_little = True
    for actor_count in (1, 2):
        shares = idle(seconds, actor_count)
        print("  " + ", ".join(f"{name} {100 * share:.3f}" for name, share in sorted(shares.items())), flush=True)
        is_little = is_little and max(shares.values()) <= IDLE
    return is_little


def main() -> int:
    parser = argparse.ArgumentParser(description="Waits of a compiled graph that sleep, and CPU time of an idle one.")
    parser.add_argument("--microseconds", type=int, nargs="+", default=[30, 90, 110, 300, 1000, 2000])
    parser.add_argument("--messages", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=float, default=10.0)
    options = parser.parse_args()

    os.environ.setdefault(MARK, str(os.getpid()))
    with mray.init(num_cpus=4, logging_level="ERROR"):
        print_waits(options.microseconds, options.messages, options.rounds)
        return 0 if print_idle(options.idle) else 1


if __name__ == "__main__":
    sys.exit(main())
