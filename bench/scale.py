"""Whether cost per call stays flat: from 1 to 100 actors, and from 1 to 100,000 queued tasks.

    python bench/scale.py [--quick]

Prints a curve: microseconds per call for each size, and how that compares with the cheapest size above the first
(where nothing is amortised). Exit status 1 if the largest size costs more than twice as much.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mray

CALLS = 10_000
#: How much dearer than the cheapest size the largest may be and still count as flat.
FLAT = 2.0


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def over_actors(sizes: list[int], repeats: int) -> dict[int, float]:
    """Seconds per call when the same number of calls is spread over more and more actors."""

    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    Actor = mray.remote(Echo)
    curve = {}
    for size in sizes:
        actors = [Actor.remote() for _ in range(size)]
        mray.get([actor.echo.remote(0) for actor in actors])
        rounds = CALLS // size

        def spread(actors: list[Any] = actors, rounds: int = rounds) -> None:
            mray.get([actor.echo.remote(1) for _ in range(rounds) for actor in actors])

        # A forked worker copies the pages it touches during its first calls; that is the cost of starting, not of calling.
        spread()
        spread()
        curve[size] = statistics.median(seconds(spread) for _ in range(repeats)) / (rounds * size)
        for actor in actors:
            mray.kill(actor)
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
    cheapest = min(curve.values())
    longest = max(curve.values())
    for size, cost in curve.items():
        print(f"  {size:>8} {cost * 1e6:10.1f} µs  {cost / cheapest:5.2f}x  {'#' * max(1, round(50 * cost / longest))}")
    flat = list(curve.values())[-1] <= FLAT * cheapest
    print(f"  {'flat' if flat else 'NOT FLAT'}")
    return flat


def main() -> int:
    parser = argparse.ArgumentParser(description="Cost per call over the number of actors and of queued tasks.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    quick = parser.parse_args().quick
    mray.init(num_cpus=2, logging_level="ERROR")
    try:
        actors = over_actors([1, 2, 5, 10] if quick else [1, 2, 5, 10, 20, 50, 100], 3)
        tasks = over_tasks([1, 10, 100, 1000] if quick else [1, 10, 100, 1000, 10_000, 100_000], 3)
    finally:
        mray.shutdown()
    flat = [show("calls over the number of actors", actors), show("tasks over how many are queued", tasks)]
    return 0 if all(flat) else 1


if __name__ == "__main__":
    sys.exit(main())
