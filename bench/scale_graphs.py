"""How the latency of a compiled graph grows with its actors, also when there are more of them than cores.

    python bench/scale_graphs.py [--rounds N] [--executions N] [--sizes N ...]

A chain (each actor passes the value on to the next) and a fan-out (each gets it from the driver) over 1, 2, 4, 8 and 16 actors; each with
spinning (a wait looks again for some microseconds before it sleeps) and without (`MRAY_SPIN=0`), in sessions that take turns, so that a
slow spell of the machine hits both.

Exit status 1 if an actor of the largest graph costs more than `WORSE` times what one of the smallest graph with more processes than cores
does (so the latency grows more than linearly), or if spinning takes more than `SLOWER` times as long as sleeping for any size.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mray
from mray.dag import InputNode, MultiOutputNode

WORSE = 1.25
#: The tolerated difference between the medians of two equal runs.
SLOWER = 1.1

#: (shape, actors, whether they spin)
Case = tuple[str, int, bool]


class Echo:
    def echo(self, value: int) -> int:
        return value


def compile_graph(shape: str, actors: list[Any]) -> Any:
    with InputNode() as value:
        if shape == "chain":
            root: Any = value
            for actor in actors:
                root = actor.echo.bind(root)
        else:
            root = MultiOutputNode([actor.echo.bind(value) for actor in actors])
    return root.experimental_compile()


def measure(spins: bool, shapes: list[str], sizes: list[int], executions: int) -> dict[Case, float]:
    """The median latency of every graph, in a session of its own."""
    os.environ["MRAY_SPIN"] = str(int(spins))
    clock = time.perf_counter
    medians = {}
    with mray.init(num_cpus=4, logging_level="ERROR"):
        actors = [mray.remote(Echo).remote() for _ in range(max(sizes))]
        for shape in shapes:
            for size in sizes:
                graph = compile_graph(shape, actors[:size])
                samples = []
                for number in range(executions * 6 // 5):
                    begin = clock()
                    mray.get(graph.execute(number))
                    samples.append(clock() - begin)
                medians[shape, size, spins] = statistics.median(samples[executions // 5 :])
                graph.teardown()
    return medians


def main() -> int:
    parser = argparse.ArgumentParser(description="Latency of chains and fan-outs over the number of actors, spinning and sleeping.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--executions", type=int, default=500)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    options = parser.parse_args()
    sizes, shapes = sorted(options.sizes), ["chain", "fan-out"]

    rounds: list[dict[Case, float]] = []
    for number in range(options.rounds):
        # Each goes first as often as the other.
        both = [measure(spins, shapes, sizes, options.executions) for spins in ((True, False) if number % 2 else (False, True))]
        rounds.append(both[0] | both[1])

    cores = len(os.sched_getaffinity(0))
    oversubscribed = min((size for size in sizes if size + 1 > cores), default=sizes[-1])
    missed = []
    for shape in shapes:
        print(f"{shape}, {cores} cores")
        print(f"  {'actors':>6}{'spinning':>12}{'per actor':>12}{'sleeping':>12}{'ratio':>8}")
        for size in sizes:
            spinning, sleeping = (statistics.median(each[shape, size, spins] for each in rounds) for spins in (True, False))
            ratio = statistics.median(each[shape, size, True] / each[shape, size, False] for each in rounds)
            print(f"  {size:>6}{spinning * 1e6:>10.1f}µs{spinning / size * 1e6:>10.1f}µs{sleeping * 1e6:>10.1f}µs{ratio:>8.2f}")
            if ratio > SLOWER:
                missed.append(f"{shape} of {size}: spinning takes {ratio:.2f} times as long as sleeping")
        largest = sizes[-1]
        of = [(each[shape, largest, True] / largest, each[shape, oversubscribed, True] / oversubscribed) for each in rounds]
        growth = statistics.median(large / small for large, small in of)
        print(f"  an actor of {largest} costs {growth:.2f} times what one of {oversubscribed} does (at most {WORSE:g})")
        if growth > WORSE:
            missed.append(f"{shape}: latency grows more than linearly")
    for what in missed:
        print("MISSED  " + what)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
