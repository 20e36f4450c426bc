"""The rows of ``mray microbenchmark``: those of ``ray microbenchmark``, under its names, and some of compiled graphs.

In the driver, with `ray` the module to measure: mray, or Ray itself (``bench/microbenchmark.py``). A row's rate counts what its name
says: calls, gigabytes, placement groups.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from mray._common.clock import perf_counter

#: calls in flight
_STREAM = 1000
_GIGABYTE = 10**9

#: (name, the count of one run, the run)
Benchmark = tuple[str, float, Callable[[], Any]]


def benchmarks(ray: Any, *, scale: float = 1.0) -> Iterator[Benchmark]:
    """Each row must be run before the next one is requested. `scale` below 1 makes the large ones smaller."""
    yield from _objects(ray, scale)
    yield from _tasks(ray, scale)
    yield from _actors(ray, scale)
    yield from _async_actors(ray, scale)
    yield from _placement_groups(ray)


def _objects(ray: Any, scale: float) -> Iterator[Benchmark]:
    import numpy as np  # noqa: PLC0415  (only when it is measured)

    value = ray.put(0)
    yield "single client get calls (Plasma Store)", 1, lambda: ray.get(value)
    yield "single client put calls (Plasma Store)", 1, lambda: ray.put(0)

    def put_small() -> None:
        for _ in range(100):
            ray.put(0)

    small: Any = ray.remote(put_small)
    yield "multi client put calls (Plasma Store)", 1000, lambda: ray.get([small.remote() for _ in range(10)])
    array = np.zeros(int(100 * 1024 * 1024 * scale), dtype=np.int64)
    yield "single client put gigabytes", array.nbytes / _GIGABYTE, lambda: ray.put(array)
    count = int(10 * 1024 * 1024 * scale)

    def put_large() -> None:
        for _ in range(10):
            ray.put(np.zeros(count, dtype=np.int64))

    large: Any = ray.remote(put_large)
    yield "multi client put gigabytes", 100 * count * 8 / _GIGABYTE, lambda: ray.get([large.remote() for _ in range(10)])


def _tasks(ray: Any, scale: float) -> Iterator[Benchmark]:
    def answer() -> bytes:
        return b"ok"

    def make_refs() -> list[Any]:
        return [ray.put(1) for _ in range(10_000)]

    small: Any = ray.remote(answer)
    yield "single client tasks and get batch", 1, lambda: ray.get([small.remote() for _ in range(_STREAM)])
    refs: Any = ray.remote(make_refs).remote()
    yield "single client get object containing 10k refs", 1, lambda: ray.get(refs)

    def wait_one_by_one() -> None:
        left = [small.remote() for _ in range(_STREAM)]
        while left:
            _ready, left = ray.wait(left)

    yield "single client wait 1k refs", 1, wait_one_by_one
    yield "single client tasks sync", 1, lambda: ray.get(small.remote())
    yield "single client tasks async", _STREAM, lambda: ray.get([small.remote() for _ in range(_STREAM)])

    class Caller:
        def run(self, count: int) -> None:
            ray.get([small.remote() for _ in range(count)])

    actors: Any = ray.remote(num_cpus=0)(Caller)
    callers = [actors.remote() for _ in range(4)]
    count = int(10_000 * scale)
    yield "multi client tasks async", 4 * count, lambda: ray.get([caller.run.remote(count) for caller in callers])


def _actors(ray: Any, scale: float) -> Iterator[Benchmark]:
    class Server:
        def small(self) -> bytes:
            return b"ok"

        def small_of(self, _value: Any) -> bytes:
            return b"ok"

    servers: Any = ray.remote(num_cpus=0)(Server)
    one = servers.remote()
    yield "1:1 actor calls sync", 1, lambda: ray.get(one.small.remote())
    yield "1:1 actor calls async", _STREAM, lambda: ray.get([one.small.remote() for _ in range(_STREAM)])
    threaded = servers.options(max_concurrency=16).remote()
    yield "1:1 actor calls concurrent", _STREAM, lambda: ray.get([threaded.small.remote() for _ in range(_STREAM)])
    yield from _many(ray, "actor calls", servers, scale, with_arguments=True)


def _async_actors(ray: Any, scale: float) -> Iterator[Benchmark]:
    class Server:
        async def small(self) -> bytes:
            return b"ok"

        async def small_of(self, _value: Any) -> bytes:
            return b"ok"

    servers: Any = ray.remote(Server)
    one = servers.remote()
    yield "1:1 async-actor calls sync", 1, lambda: ray.get(one.small.remote())
    yield "1:1 async-actor calls async", _STREAM, lambda: ray.get([one.small.remote() for _ in range(_STREAM)])
    yield "1:1 async-actor calls with args async", _STREAM, lambda: ray.get([one.small_of.remote(i) for i in range(_STREAM)])
    yield from _many(ray, "async-actor calls", servers, scale, with_arguments=False)


def _many(ray: Any, what: str, server: Any, scale: float, *, with_arguments: bool) -> Iterator[Benchmark]:
    """Callers and servers: half the number of cores, as in Ray's rows."""
    servers = [server.remote() for _ in range(max(1, multiprocessing.cpu_count() // 2))]
    count = int(5000 * scale)

    class Caller:
        def __init__(self, servers: list[Any]) -> None:
            self.servers = servers

        def run(self, count: int) -> None:
            ray.get([server.small.remote() for server in self.servers for _ in range(count)])

        def run_with_argument(self, count: int) -> None:
            argument = ray.put(0)
            ray.get([server.small_of.remote(argument) for server in self.servers for _ in range(count)])

    actors: Any = ray.remote(num_cpus=0)(Caller)
    caller = actors.remote(servers)
    yield f"1:n {what} async", count * len(servers), lambda: ray.get(caller.run.remote(count))

    def work(servers: list[Any]) -> None:
        ray.get([servers[i % len(servers)].small.remote() for i in range(count)])

    task: Any = ray.remote(work)
    yield f"n:n {what} async", 4 * count, lambda: ray.get([task.remote(servers) for _ in range(4)])
    if with_arguments:
        callers = [actors.remote([each]) for each in servers]
        few = int(1000 * scale)
        yield f"n:n {what} with arg async", few * len(callers), lambda: ray.get([each.run_with_argument.remote(few) for each in callers])


def _placement_groups(ray: Any) -> Iterator[Benchmark]:
    def create_and_remove() -> None:
        groups = [ray.util.placement_group(bundles=[{"custom": 0.001}]) for _ in range(100)]
        for group in groups:
            group.wait(timeout_seconds=30)
        for group in groups:
            ray.util.remove_placement_group(group)

    yield "placement group create/removal", 100, create_and_remove


def graph_benchmarks(ray: Any) -> Iterator[Benchmark]:
    """Rows of compiled graphs, which ``ray microbenchmark`` does not have."""
    import numpy as np  # noqa: PLC0415  (as above)

    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    actor: Any = ray.remote(Echo).remote()
    with ray.dag.InputNode() as value:
        dag = actor.echo.bind(value)
    graph = dag.experimental_compile()
    yield "compiled graph of one actor, echo", 1, lambda: ray.get(graph.execute(1))
    array = np.zeros(1 << 20, dtype=np.uint8)
    yield "compiled graph of one actor, echo of 1 MiB", 1, lambda: ray.get(graph.execute(array))
    graph.teardown()


def row(name: str, count: float, go: Callable[[], Any], seconds: float) -> dict[str, Any]:
    """The rate per second, the time per counted unit, and the number of repetitions."""
    go()
    times: list[float] = []
    end = perf_counter() + seconds
    while perf_counter() < end or len(times) < 3:
        began = perf_counter()
        go()
        times.append((perf_counter() - began) / count)
    times.sort()
    median = statistics.median(times)
    return {
        "benchmark": name,
        "per_second": round(1 / median, 2),
        "median_us": round(median * 1e6, 2),
        "p99_us": round(times[min(len(times) - 1, int(len(times) * 0.99))] * 1e6, 2),
        "repeats": len(times),
    }
