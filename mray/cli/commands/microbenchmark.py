"""``mray microbenchmark``: what calls, objects and compiled graphs cost on this machine, in a few seconds."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import mray as ray
from mray.cli.terminal import DONE, add_format, guarded, parser, show
from mray.dag import InputNode

SUMMARY = "measure calls, objects and graphs on this machine"

_MEGABYTES = 8
#: Calls in flight at once where throughput is measured.
_STREAM = 1000


def main(words: list[str]) -> int:
    arguments = parser(
        "microbenchmark",
        SUMMARY,
        "Each row is repeated for --seconds; median and 99th percentile are of one call, or of one of the calls of a stream. It starts a\n"
        "session of its own. Figures of a busy machine mean little.",
    )
    arguments.add_argument("--seconds", type=float, default=0.5, help="how long to repeat each row (default 0.5)")
    add_format(arguments)
    given = arguments.parse_args(words)
    return guarded(lambda: _measure(given))


def _measure(given: argparse.Namespace) -> int:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        rows = [_row(name, calls, action, given.seconds) for name, calls, action in benchmarks()]
    finally:
        ray.shutdown()
    if given.format == "table":
        print(f"mray {ray.__version__}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    show(rows, given.format)
    return DONE


def benchmarks() -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """(name, calls in one go, the go)."""

    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    def same(value: Any) -> Any:
        return value

    task: Any = ray.remote(same)
    actor: Any = ray.remote(Echo).remote()
    payload = os.urandom(_MEGABYTES << 20)
    yield "task, one at a time", 1, lambda: ray.get(task.remote(1))
    yield "tasks, streamed", _STREAM, lambda: ray.get([task.remote(1) for _ in range(_STREAM)])
    yield "actor call, one at a time", 1, lambda: ray.get(actor.echo.remote(1))
    yield "actor calls, streamed", _STREAM, lambda: ray.get([actor.echo.remote(1) for _ in range(_STREAM)])
    yield "put and get of an int", 1, lambda: ray.get(ray.put(1))
    yield f"put and get of {_MEGABYTES} MiB", 1, lambda: ray.get(ray.put(payload))
    with InputNode() as value:
        dag = actor.echo.bind(value)
    graph = dag.experimental_compile()
    yield "compiled graph of one actor, echo", 1, lambda: ray.get(graph.execute(1))
    graph.teardown()


def _row(name: str, calls: int, action: Callable[[], Any], seconds: float) -> dict[str, Any]:
    action()
    action()
    times: list[float] = []
    end = perf_counter() + seconds
    while perf_counter() < end or len(times) < 3:
        began = perf_counter()
        action()
        times.append((perf_counter() - began) / calls)
    times.sort()
    return {
        "benchmark": name,
        "median_us": round(statistics.median(times) * 1e6, 2),
        "p99_us": round(times[min(len(times) - 1, int(len(times) * 0.99))] * 1e6, 2),
        "per_second": round(1 / statistics.median(times)),
        "repeats": len(times),
    }
