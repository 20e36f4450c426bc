"""Measures one row on one engine, in a process of its own, and prints the samples as JSON on the last line.

    python bench/measure.py ENGINE ROW

ENGINE is ``mray`` or ``ray`` (the module of that name), ``pool`` (`multiprocessing.Pool`), ``executor``
(`concurrent.futures.ProcessPoolExecutor`), ``loky`` (of joblib), ``memcpy``, ``pickle``, or ``gloo`` (`torch.distributed` in actors of
mray). `compare.py` starts these in turn. Nothing but numpy and the engine is imported (and torch and joblib, where the row is about them),
so that the program runs in the peer's own virtual environment as well.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import importlib
import json
import logging
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Every process started from here inherits it: so that the processes of a session can be counted from outside.
MARK = "MRAY_BENCH_MARK"
MIB = 1 << 20


# ---------------------------------------------------------------------------------------------- timing
def times(call: Callable[[], object], count: int, warmup: int) -> list[float]:
    """Seconds of each of `count` calls, one at a time, after `warmup` calls that are not counted."""
    for _ in range(warmup):
        call()
    clock = time.perf_counter
    samples = []
    for _ in range(count):
        start = clock()
        call()
        samples.append(clock() - start)
    return samples


def per_item(batch: Callable[[], object], items: int, repeats: int, warmup: int = 1) -> list[float]:
    """Seconds per item of `repeats` batches of `items`."""
    return [sample / items for sample in times(batch, repeats, warmup)]


# --------------------------------------------------------------------------------- sessions and actors
@contextmanager
def session(ray: Any, **options: Any) -> Iterator[None]:
    options.setdefault("num_cpus", 4)
    start(ray, **options)
    try:
        yield
    finally:
        ray.shutdown()


def start(ray: Any, **options: Any) -> None:
    if ray.__name__ == "ray":
        options["include_dashboard"] = False
    ray.init(logging_level=logging.ERROR, log_to_driver=False, **options)


def echo_actor(ray: Any) -> Any:
    class Echo:
        def echo(self, value: Any) -> Any:
            return value

        def pid(self) -> int:
            return os.getpid()

    return ray.remote(Echo)


def empty_task(ray: Any) -> Any:
    @ray.remote
    def nothing() -> None:
        return None

    return nothing


# -------------------------------------------------------------------------------------- compiled graphs
def graph_times(ray: Any, shape: str, value: object, count: int, warmup: int, **options: Any) -> list[float]:
    dag = importlib.import_module(f"{ray.__name__}.dag")
    Echo = echo_actor(ray)
    with session(ray):
        actors = [Echo.remote() for _ in range({"echo": 1, "chain4": 4, "fan4": 4}[shape])]
        with dag.InputNode() as value_in:
            if shape == "fan4":
                root: Any = dag.MultiOutputNode([actor.echo.bind(value_in) for actor in actors])
            else:
                root = value_in
                for actor in actors:
                    root = actor.echo.bind(root)
        graph = root.experimental_compile(**options)
        try:
            return times(lambda: ray.get(graph.execute(value)), count, warmup)
        finally:
            graph.teardown()


def graph_echo(ray: Any) -> list[float]:
    return graph_times(ray, "echo", "hello", 3000, 300)


def graph_parked(ray: Any) -> list[float]:
    """Each message wakes a process that sleeps: by an eventfd."""
    os.environ["MRAY_SPIN"] = "0"
    return graph_echo(ray)


def graph_semaphores(ray: Any) -> list[float]:
    os.environ["MRAY_SEMAPHORES"] = "1"
    return graph_parked(ray)


def graph_chain4(ray: Any) -> list[float]:
    return graph_times(ray, "chain4", "hello", 1500, 200)


def graph_elsewhere(ray: Any) -> list[float]:
    """By an actor that was given the graph."""
    dag = importlib.import_module(f"{ray.__name__}.dag")

    class Caller:
        def call(self, graph: Any) -> list[float]:
            return times(lambda: ray.get(graph.execute("hello")), 1000, 200)

    with session(ray):
        actor = echo_actor(ray).remote()
        with dag.InputNode() as value:
            echo = actor.echo.bind(value)
        graph = echo.experimental_compile()
        try:
            samples: list[float] = ray.get(ray.remote(Caller).remote().call.remote(graph))
            return samples
        finally:
            graph.teardown()


def graph_fan4(ray: Any) -> list[float]:
    return graph_times(ray, "fan4", "hello", 1500, 200)


def graph_array(ray: Any, mebibytes: int, count: int) -> list[float]:
    import numpy

    array = numpy.ones(mebibytes * MIB, dtype=numpy.uint8)
    return graph_times(ray, "echo", array, count, 20, _buffer_size_bytes=(mebibytes + 1) * MIB)


def graph_echo_1m(ray: Any) -> list[float]:
    return graph_array(ray, 1, 500)


def graph_echo_16m(ray: Any) -> list[float]:
    return graph_array(ray, 16, 100)


def graph_tensor(ray: Any, kibibytes: int, count: int) -> list[float]:
    import torch

    tensor = torch.ones(kibibytes << 10, dtype=torch.uint8)
    return graph_times(ray, "echo", tensor, count, 20, _buffer_size_bytes=2 * MIB + (kibibytes << 10))


def graph_tensor_4k(ray: Any) -> list[float]:
    return graph_tensor(ray, 4, 2000)


def graph_tensor_1m(ray: Any) -> list[float]:
    return graph_tensor(ray, 1024, 500)


def graph_tensor_16m(ray: Any) -> list[float]:
    return graph_tensor(ray, 16 * 1024, 80)


def graph_pipeline8(ray: Any) -> list[float]:
    dag = importlib.import_module(f"{ray.__name__}.dag")
    Echo = echo_actor(ray)
    with session(ray):
        first, second = Echo.remote(), Echo.remote()
        with dag.InputNode() as value_in:
            root = second.echo.bind(first.echo.bind(value_in))
        graph = root.experimental_compile(_max_inflight_executions=8)

        def stream(items: int = 2000) -> None:
            flying: collections.deque[Any] = collections.deque()
            for _ in range(items):
                if len(flying) == 8:
                    ray.get(flying.popleft())
                flying.append(graph.execute("hello"))
            while flying:
                ray.get(flying.popleft())

        try:
            return per_item(stream, 2000, 3)
        finally:
            graph.teardown()


def graph_attributes8(ray: Any) -> list[float]:
    """One positional argument of `execute` for each of the method's."""
    dag = importlib.import_module(f"{ray.__name__}.dag")

    class Collect:
        def collect(self, *values: Any) -> int:
            return len(values)

    with session(ray):
        actor = ray.remote(Collect).remote()
        with dag.InputNode() as value_in:
            root = actor.collect.bind(*[value_in[number] for number in range(8)])
        graph = root.experimental_compile()
        values = ["hello"] * 8
        assert ray.get(graph.execute(*values)) == 8
        try:
            return times(lambda: ray.get(graph.execute(*values)), 2000, 300)
        finally:
            graph.teardown()


def graph_scatter4(ray: Any) -> list[float]:
    """Each actor gets a part of the input."""
    dag = importlib.import_module(f"{ray.__name__}.dag")
    Echo = echo_actor(ray)
    with session(ray):
        actors = [Echo.remote() for _ in range(4)]
        with dag.InputNode() as value_in:
            root = dag.MultiOutputNode([actor.echo.bind(value_in[number]) for number, actor in enumerate(actors)])
        graph = root.experimental_compile()
        parts = ["a", "b", "c", "d"]
        assert ray.get(graph.execute(*parts)) == parts
        try:
            return times(lambda: ray.get(graph.execute(*parts)), 1500, 200)
        finally:
            graph.teardown()


def graph_asyncio(ray: Any) -> list[float]:
    """One at a time, in the event loop of the driver."""
    Echo = echo_actor(ray)
    dag = importlib.import_module(f"{ray.__name__}.dag")

    async def run(root: Any, count: int) -> list[float]:
        # In the loop that awaits the results: Ray binds a graph to the loop that is there when it is compiled.
        graph = root.experimental_compile(enable_asyncio=True)
        samples = []
        for _ in range(count):
            begin = time.perf_counter()
            future = await graph.execute_async("hello")
            await future
            samples.append(time.perf_counter() - begin)
        graph.teardown()
        return samples

    with session(ray):
        actor = Echo.remote()
        with dag.InputNode() as value_in:
            root = actor.echo.bind(value_in)
        return asyncio.run(run(root, 2200))[200:]


def graph_compile20(ray: Any) -> list[float]:
    """Five layers of four actors; each DAG node reads its own actor's and its neighbour's of the layer before."""
    dag = importlib.import_module(f"{ray.__name__}.dag")

    class Add:
        def add(self, left: int, right: int) -> int:
            return left + right

    Actor = ray.remote(Add)
    with session(ray):
        actors = [Actor.remote() for _ in range(4)]
        samples = []
        for _ in range(6):
            with dag.InputNode() as value_in:
                layer: list[Any] = [value_in] * 4
                for _ in range(5):
                    layer = [actor.add.bind(layer[number], layer[(number + 1) % 4]) for number, actor in enumerate(actors)]
            root = dag.MultiOutputNode(layer)
            begin = time.perf_counter()
            graph = root.experimental_compile()
            compiled = time.perf_counter()
            assert ray.get(graph.execute(1)) == [2**5] * 4
            torn = time.perf_counter()
            graph.teardown()
            samples.append(compiled - begin + time.perf_counter() - torn)
        return samples[1:]


# -------------------------------------------------------------------------------------- calls and tasks
def actor_call(ray: Any) -> list[float]:
    Echo = echo_actor(ray)
    with session(ray):
        actor = Echo.remote()
        return times(lambda: ray.get(actor.echo.remote("hello")), 2000, 300)


def actor_call_beside(ray: Any) -> list[float]:
    """While two others compute: they have the cores as much as they want."""

    class Other:
        def compute(self, seconds: float) -> None:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                pass

    Echo = echo_actor(ray)
    with session(ray):
        actor = Echo.remote()
        times(lambda: ray.get(actor.echo.remote("hello")), 1, 300)
        others = [ray.remote(num_cpus=0)(Other).remote() for _ in range(2)]
        ray.get([other.compute.remote(0) for other in others])
        busy = [other.compute.remote(3) for other in others]
        time.sleep(0.2)
        samples = []
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            samples += times(lambda: ray.get(actor.echo.remote("hello")), 50, 0)
        ray.get(busy)
    return samples


def actor_flight(ray: Any) -> list[float]:
    Echo = echo_actor(ray)
    with session(ray):
        actor = Echo.remote()
        return per_item(lambda: ray.get([actor.echo.remote("hello") for _ in range(5000)]), 5000, 4)


def submission(ray: Any) -> list[float]:
    Echo = echo_actor(ray)
    samples = []
    with session(ray):
        actor = Echo.remote()
        for _ in range(12):
            start = time.perf_counter()
            refs = [actor.echo.remote("hello") for _ in range(500)]
            samples.append((time.perf_counter() - start) / 500)
            ray.get(refs)
    return samples[4:]


def pickle_rows(_row: str) -> list[float]:
    """Pickling the arguments of `submission`, and making an object for each."""
    return per_item(lambda: [(pickle.dumps((("hello",), {}), 5), object()) for _ in range(500)], 500, 50, 10)


def task_call(ray: Any) -> list[float]:
    nothing = empty_task(ray)
    with session(ray):
        return times(lambda: ray.get(nothing.remote()), 1000, 200)


def task_flight(ray: Any) -> list[float]:
    nothing = empty_task(ray)
    with session(ray, num_cpus=2):
        return per_item(lambda: ray.get([nothing.remote() for _ in range(3000)]), 3000, 4)


# ---------------------------------------------------------------------------------------------- objects
def put_small(ray: Any) -> list[float]:
    with session(ray):
        return times(lambda: ray.put("hello"), 2000, 200)


def get_small(ray: Any) -> list[float]:
    with session(ray):
        ref = ray.put("hello")
        return times(lambda: ray.get(ref), 5000, 200)


def put_array(ray: Any, mebibytes: int, count: int) -> list[float]:
    import numpy

    array = numpy.ones(mebibytes * MIB, dtype=numpy.uint8)
    with session(ray, object_store_memory=1 << 30):
        return times(lambda: ray.put(array), count, 6)


def put_64m(ray: Any) -> list[float]:
    return put_array(ray, 64, 20)


def put_256m(ray: Any) -> list[float]:
    return put_array(ray, 256, 8)


#: The limit of memory, the total of objects, and the size of an object, in MiB.
SPILL_LIMIT, SPILL_TOTAL, SPILL_ITEM = 512, 1536, 32


def read_back(ray: Any, refs: list[Any]) -> None:
    """Look at every page of every array."""
    for ref in refs:
        value = ray.get(ref)
        assert int(value[::4096].sum()) == value.nbytes // 4096
        del value


def spill_put(ray: Any) -> list[float]:
    import numpy

    array = numpy.ones(SPILL_ITEM * MIB, dtype=numpy.uint8)
    with session(ray, object_store_memory=SPILL_LIMIT * MIB):
        begin = time.perf_counter()
        refs = [ray.put(array) for _ in range(SPILL_TOTAL // SPILL_ITEM)]
        read_back(ray, refs)
        return [time.perf_counter() - begin]


def spill_tasks(ray: Any) -> list[float]:
    @ray.remote
    def make() -> Any:
        import numpy

        return numpy.ones(SPILL_ITEM * MIB, dtype=numpy.uint8)

    with session(ray, object_store_memory=SPILL_LIMIT * MIB, num_cpus=2):
        ray.get([make.remote() for _ in range(4)])
        begin = time.perf_counter()
        refs = [make.remote() for _ in range(SPILL_TOTAL // SPILL_ITEM)]
        read_back(ray, refs)
        return [time.perf_counter() - begin]


def memcpy(mebibytes: int, count: int) -> list[float]:
    import numpy

    source = numpy.ones(mebibytes * MIB, dtype=numpy.uint8)
    target = numpy.zeros(mebibytes * MIB, dtype=numpy.uint8)
    return times(lambda: numpy.copyto(target, source), count, 3)


# ----------------------------------------------------------------------------- starting, standing, idling
def actors_20(ray: Any) -> list[float]:
    Echo = echo_actor(ray)
    with session(ray):
        begin = time.perf_counter()
        actors = [Echo.remote() for _ in range(20)]
        ray.get([actor.echo.remote("hello") for actor in actors])
        return [time.perf_counter() - begin]


def init_cycle(ray: Any) -> list[float]:
    nothing = empty_task(ray)
    begin = time.perf_counter()
    start(ray, num_cpus=2)
    ray.get(nothing.remote())
    ray.shutdown()
    return [time.perf_counter() - begin]


def idle_actor_pss(ray: Any) -> list[float]:
    Echo = echo_actor(ray)
    with session(ray):
        actors = [Echo.remote() for _ in range(4)]
        pids = ray.get([actor.pid.remote() for actor in actors])
        time.sleep(1.0)
        return [proportional_set_size(pid) for pid in pids]


def proportional_set_size(pid: int) -> float:
    """Megabytes (10^6) of memory that this process accounts for."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(f"no Pss for process {pid}")


def idle_session_cpu(ray: Any) -> list[float]:
    Echo = echo_actor(ray)
    with session(ray):
        actor = Echo.remote()
        ray.get(actor.pid.remote())
        return idle_cpu()


def idle_graph_cpu(ray: Any) -> list[float]:
    dag = importlib.import_module(f"{ray.__name__}.dag")
    Echo = echo_actor(ray)
    with session(ray):
        actors = [Echo.remote() for _ in range(2)]
        with dag.InputNode() as value_in:
            root = actors[1].echo.bind(actors[0].echo.bind(value_in))
        graph = root.experimental_compile()
        try:
            for _ in range(5):
                ray.get(graph.execute("hello"))
            return idle_cpu()
        finally:
            graph.teardown()


def idle_cpu(seconds: float = 5.0) -> list[float]:
    """Percent of a core that this process and all it started use while nothing is asked of them."""
    time.sleep(1.0)
    before, begin = cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    used = sum(after - before.get(pid, 0.0) for pid, after in cpu_seconds().items())
    return [100.0 * used / (time.perf_counter() - begin)]


def cpu_seconds() -> dict[int, float]:
    """CPU seconds of every process that descends from this one or carries its mark."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    marked = {os.getpid()}
    needle = f"{MARK}={os.environ[MARK]}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        pid = int(entry)
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            # schedstat counts nanoseconds; stat only ticks of 10 ms.
            nanoseconds = sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
            if needle in Path(f"/proc/{pid}/environ").read_bytes():
                marked.add(pid)
        except (OSError, IndexError):
            continue
        parents[pid] = int(fields[1])
        used[pid] = nanoseconds / 1e9
    while True:
        more = {pid for pid, parent in parents.items() if parent in marked} - marked
        if not more:
            return {pid: used[pid] for pid in marked if pid in used}
        marked |= more


# ------------------------------------------------------------------------------------------------ pools
def _nothing(_: object = None) -> None:
    return None


def pool_rows(row: str) -> list[float]:
    begin = time.perf_counter()
    with multiprocessing.Pool(2) as pool:
        if row == "init_cycle":
            pool.apply(_nothing)
            pool.close()
            pool.join()
            return [time.perf_counter() - begin]
        if row == "task_call":
            return times(lambda: pool.apply(_nothing), 1000, 200)
        return per_item(lambda: pool.map(_nothing, range(3000), chunksize=1), 3000, 4)


def executor_rows(row: str) -> list[float]:
    begin = time.perf_counter()
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        if row == "init_cycle":
            executor.submit(_nothing).result()
            executor.shutdown()
            return [time.perf_counter() - begin]
        if row == "task_call":
            return times(lambda: executor.submit(_nothing).result(), 1000, 200)
        return per_item(lambda: [f.result() for f in [executor.submit(_nothing) for _ in range(3000)]], 3000, 4)


def memcpy_rows(row: str) -> list[float]:
    return memcpy(64, 20) if row == "put_64m" else memcpy(256, 8)


# ------------------------------------------------------------------------------------------ collectives
def allreduce_times(ray: Any, actors: int, gloo: bool) -> list[float]:
    """An allreduce of 1 MiB in actors that a graph drives: as a node of the graph, or as a method that calls `torch.distributed`."""
    dag = importlib.import_module("mray.dag")
    collective = importlib.import_module("mray.experimental.collective")

    class Member:
        def __init__(self, rank: int, meeting: str) -> None:
            import torch

            torch.set_num_threads(1)
            self.value = torch.full((MIB // 4,), float(rank + 1))
            if meeting:
                torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=actors)

        def tensor(self, _number: int) -> Any:
            return self.value

        def gloo(self, _number: int) -> float:
            import torch

            torch.distributed.all_reduce(self.value)
            return self.last(self.value)

        def clear(self) -> None:
            """So that sums that are taken in place do not grow."""
            self.value.zero_()

        def last(self, value: Any) -> float:
            return float(value[-1])

    with tempfile.TemporaryDirectory() as folder, session(ray, preload=["torch"]):
        Actor = ray.remote(Member)
        members = [Actor.remote(rank, f"{folder}/meeting" if gloo else "") for rank in range(actors)]
        with dag.InputNode() as number_in:
            if gloo:
                totals = [member.gloo.bind(number_in) for member in members]
            else:
                sums = collective.allreduce.bind([member.tensor.bind(number_in) for member in members])
                totals = [member.last.bind(value) for member, value in zip(members, sums, strict=True)]
        graph = dag.MultiOutputNode(totals).experimental_compile()
        try:
            assert ray.get(graph.execute(0)) == [actors * (actors + 1) / 2] * actors
            ray.get([member.clear.remote() for member in members])
            return times(lambda: ray.get(graph.execute(0)), 400, 50)
        finally:
            graph.teardown()


def allreduce2_1m(ray: Any) -> list[float]:
    return allreduce_times(ray, 2, gloo=False)


def allreduce4_1m(ray: Any) -> list[float]:
    return allreduce_times(ray, 4, gloo=False)


def gloo_rows(row: str) -> list[float]:
    return allreduce_times(importlib.import_module("mray"), 4 if row == "allreduce4_1m" else 2, gloo=True)


PLAIN = {"pool": pool_rows, "executor": executor_rows, "memcpy": memcpy_rows, "gloo": gloo_rows, "pickle": pickle_rows}


#: Modules whose functions are rows too.
MORE = ("stream_rows", "concurrency_rows", "util_rows", "object_rows", "many_rows")


def main(engine: str, row: str) -> None:
    os.environ.setdefault(MARK, f"{os.getpid()}")
    if engine in ("mray", "gloo"):
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    found = {**{name: value for module in MORE for name, value in vars(importlib.import_module(module)).items()}, **globals()}
    if engine == "loky" or (engine in PLAIN and row in vars(importlib.import_module("util_rows"))):
        samples = importlib.import_module("util_rows").peer(engine, row)
    elif engine in PLAIN:
        samples = PLAIN[engine](row)
    else:
        samples = found[row](importlib.import_module(engine))
    print(json.dumps(samples))


if __name__ == "__main__":
    main(*sys.argv[1:])
