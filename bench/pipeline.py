"""How busy a pipeline keeps its stages: 4 actors of 5 ms each, by sleeping, so that the cores have nothing to do with it.

    python bench/pipeline.py [--items N] [--stages N] [--milliseconds MS]

Enough executions are in flight that every stage always has a next item. N items through S stages then take (N + S - 1) times the
duration of a stage: as long as the first item needs to come through, and one duration for each of the others. Prints how much longer it
takes, and the share of the time in which each stage works while the pipeline is full. The duration is measured, since a sleep takes
somewhat longer than it is told to. Exit status 1 unless every stage works for more than 95 % of the time, and the whole takes at most 5 %
longer than it must.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mray
from mray.dag import InputNode

BUSY = 0.95
LONGER = 1.05

#: (begin, end) of each item's work, on the clock that all processes share.
Spans = list[tuple[float, float]]


class Stage:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.spans: Spans = []

    def work(self, item: int) -> int:
        begin = time.perf_counter()
        time.sleep(self.seconds)
        self.spans.append((begin, time.perf_counter()))
        return item

    def take_spans(self) -> Spans:
        spans, self.spans = self.spans, []
        return spans


def stream(graph: Any, items: int, in_flight: int) -> float:
    """Seconds from the first `execute` to the last result."""
    flying: collections.deque[Any] = collections.deque()
    begin = time.perf_counter()
    for item in range(items):
        if len(flying) == in_flight:
            mray.get(flying.popleft())
        flying.append(graph.execute(item))
    while flying:
        mray.get(flying.popleft())
    return time.perf_counter() - begin


def utilisation(spans: list[Spans]) -> list[float]:
    """The share of the time that each stage works, from the last stage's first item to the first stage's last."""
    begin, end = spans[-1][0][0], spans[0][-1][1]
    return [sum(max(0.0, min(last, end) - max(first, begin)) for first, last in stage) / (end - begin) for stage in spans]


def main() -> int:
    parser = argparse.ArgumentParser(description="Utilisation and makespan of a pipeline of sleeping stages.")
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--milliseconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.items <= options.stages:
        parser.error("there must be more items than stages, or the pipeline is never full")

    mray.init(num_cpus=options.stages, logging_level="ERROR")
    try:
        Actor = mray.remote(Stage)
        actors = [Actor.remote(options.milliseconds / 1e3) for _ in range(options.stages)]
        with InputNode() as value:
            root: Any = value
            for actor in actors:
                root = actor.work.bind(root)
        in_flight = 4 * options.stages
        graph = root.experimental_compile(_max_inflight_executions=in_flight)
        stream(graph, options.stages + 1, in_flight)
        busy, longer, told = [], [], []
        for _ in range(options.rounds):
            mray.get([actor.take_spans.remote() for actor in actors])
            seconds = stream(graph, options.items, in_flight)
            spans = mray.get([actor.take_spans.remote() for actor in actors])
            duration = statistics.fmean(last - first for stage in spans for first, last in stage)
            ideal = options.items + options.stages - 1
            busy.append(min(utilisation(spans)))
            longer.append(seconds / (ideal * duration))
            told.append(seconds / (ideal * options.milliseconds / 1e3))
        graph.teardown()
    finally:
        mray.shutdown()

    print(f"{options.stages} stages of {options.milliseconds:g} ms (measured: {duration * 1e3:.2f} ms), {options.items} items")
    print(f"least utilisation of a stage   {statistics.median(busy):7.1%}   required > {BUSY:.0%}")
    print(f"makespan over the ideal        {statistics.median(longer):7.3f}x  required <= {LONGER:g}x")
    print(f"... with the duration as told  {statistics.median(told):7.3f}x")
    return 0 if statistics.median(busy) > BUSY and statistics.median(longer) <= LONGER else 1


if __name__ == "__main__":
    sys.exit(main())
