"""Whether cost per call stays flat: over actors, callers of one actor, queued tasks, refs of a `get` or `wait`, and cores.

    python bench/scale.py [--quick]

Prints a curve for each: microseconds per call for each size, and how much dearer a call is than at the cheapest size of a tenth or more of
it. Exit status 1 if a decade makes a call more than 1.5 times as dear. The first size is no measure for the others: nothing is amortised.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mray

CALLS = 10_000
#: How much dearer a call may be than at a size a decade smaller.
FLAT = 1.5
#: Seconds that a method computes where cores are counted.
WORK = 1e-3


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


class Echo:
    def echo(self, value: Any) -> Any:
        return value

    def call(self, other: Any, calls: int) -> None:
        mray.get([other.echo.remote(1) for _ in range(calls)])

    def compute(self) -> None:
        end = time.perf_counter() + WORK
        while time.perf_counter() < end:
            pass


def over_actors(sizes: list[int], repeats: int) -> dict[int, float]:
    """Seconds per call when the same number of calls is spread over more and more actors."""
    actor_class = mray.remote(Echo).options(num_cpus=0)
    curve = {}
    for size in sizes:
        actors = [actor_class.remote() for _ in range(size)]
        mray.get([actor.echo.remote(0) for actor in actors])
        rounds = max(1, CALLS // size)

        def spread(actors: list[Any] = actors, rounds: int = rounds) -> None:
            mray.get([actor.echo.remote(1) for _ in range(rounds) for actor in actors])

        # A forked worker copies the pages it touches during its first calls; that is the cost of starting, not of calling.
        spread()
        spread()
        curve[size] = statistics.median(seconds(spread) for _ in range(repeats)) / (rounds * size)
        for actor in actors:
            mray.kill(actor)
    return curve


def over_callers(sizes: list[int], repeats: int) -> dict[int, float]:
    """Seconds per call when the same number of calls comes to one actor from more and more processes."""
    actor_class = mray.remote(Echo).options(num_cpus=0)
    callee = actor_class.remote()
    callers: list[Any] = []
    curve = {}
    for size in sizes:
        callers += [actor_class.remote() for _ in range(size - len(callers))]

        def together(calls: int = CALLS // size) -> None:
            mray.get([caller.call.remote(callee, calls) for caller in callers])  # noqa: B023  (called before the next turn)

        together()
        curve[size] = statistics.median(seconds(together) for _ in range(repeats)) / CALLS
    for actor in (callee, *callers):
        mray.kill(actor)
    return curve


def over_refs(sizes: list[int], repeats: int, ask: Callable[[list[Any]], Any]) -> dict[int, float]:
    """Seconds per ref when one call is given more and more refs of small values."""
    refs = [mray.put(number) for number in range(max(sizes))]
    curve = {}
    for size in sizes:
        some = refs[:size]
        curve[size] = statistics.median(seconds(lambda some=some: ask(some)) for _ in range(max(repeats, 1000 // size))) / size  # type: ignore[misc]
    return curve


def over_cores(repeats: int) -> dict[int, float]:
    """Seconds per call of a method that computes for `WORK`, times the number of cores: one actor for each of them."""
    cores = sorted(os.sched_getaffinity(0))
    curve = {}
    size = 1
    while size <= min(len(cores), 16):
        os.sched_setaffinity(0, cores[:size])
        mray.init(num_cpus=size, logging_level="ERROR")
        actors = [mray.remote(Echo).remote() for _ in range(size)]

        def spread(actors: list[Any] = actors) -> None:
            mray.get([actor.compute.remote() for _ in range(100) for actor in actors])

        spread()
        curve[size] = statistics.median(seconds(spread) for _ in range(repeats)) / 100
        mray.shutdown()
        size *= 2
    os.sched_setaffinity(0, cores)
    return curve


def over_tasks(sizes: list[int], repeats: int) -> dict[int, float]:
    """Seconds per task when more and more are queued at once."""

    @mray.remote
    def nothing() -> None:
        return None

    mray.get([nothing.remote() for _ in range(100)])
    curve = {}
    for size in sizes:

        def queue(size: int = size) -> None:
            mray.get([nothing.remote() for _ in range(size)])

        curve[size] = statistics.median(seconds(queue) for _ in range(max(repeats, 200 // size))) / size
    return curve


def show(title: str, curve: dict[int, float]) -> bool:
    """Print a curve; whether it is flat."""
    print(title)
    longest = max(curve.values())
    first = min(curve)
    flat = True
    for size, cost in curve.items():
        before = [curve[other] for other in curve if size / 10 <= other < size and other != first]
        growth = cost / min(before) if before else 1.0
        flat = flat and growth <= FLAT
        print(f"  {size:>8} {cost * 1e6:10.1f} µs  {growth:5.2f}x  {'#' * max(1, round(50 * cost / longest))}")
    print(f"  {'flat' if flat else 'NOT FLAT'}", flush=True)
    return flat


def main() -> int:
    parser = argparse.ArgumentParser(description="Cost per call over the number of actors, callers, queued tasks, refs and cores.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    quick = parser.parse_args().quick
    decades = [1, 10, 100, 1000] if quick else [1, 10, 100, 1000, 10_000, 100_000]
    flat = [show(f"calls that compute for {WORK * 1e3:g} ms, over the number of cores, one actor each", over_cores(3))]
    mray.init(num_cpus=2, logging_level="ERROR")
    try:
        flat += [
            show(
                "calls in flight over the number of actors",
                over_actors([1, 2, 5, 10] if quick else [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], 3),
            ),
            show(
                "calls in flight to one actor over the number of callers",
                over_callers([1, 2, 4, 8] if quick else [1, 2, 4, 8, 16, 32, 64], 3),
            ),
            show("tasks over how many are queued", over_tasks(decades, 3)),
            show("refs of one get", over_refs(decades, 3, mray.get)),
            show("refs of one wait for all", over_refs(decades, 3, lambda refs: mray.wait(refs, num_returns=len(refs)))),
            show("refs of one wait for one", over_refs(decades, 3, mray.wait)),
        ]
    finally:
        mray.shutdown()
    return 0 if all(flat) else 1


if __name__ == "__main__":
    sys.exit(main())
