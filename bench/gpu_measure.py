"""Measures one row on the GPUs of this process, and prints the figures as JSON on the last line.

    python bench/gpu_measure.py ROW [full | quick | tiny]

`bench_gpu.py` starts one such process for each row, so that what goes wrong in one leaves the others alone. Times are in seconds, sizes in
bytes.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gpu_actors as actors
from gpu_work import Work, find_work

import mray
from mray._channel.select import CUDA_IPC, PINNED, SHM
from mray._graph.compiler import resolve
from mray.dag import InputNode
from mray.exceptions import RayError
from mray.experimental.collective import allreduce

Figures = dict[str, Any]
#: Seconds that a result may take before something is wrong.
PATIENCE = 120.0


@dataclass(frozen=True)
class Scale:
    """How large and how often."""

    #: The four sizes of tensors whose latency is measured, with the number of executions each.
    sizes: tuple[tuple[int, int], ...]
    #: The same for what copies: it takes longer.
    copied: tuple[tuple[int, int], ...]
    executions: int
    activation: int
    pipeline: int
    bandwidth: tuple[int, int]
    nccl: tuple[int, int]
    messages: int
    largest: int
    rounds: int
    #: Executions while the producer's stream is held: a stream has room for about a thousand calls.
    held: int
    #: Turns of two processes on the GPU.
    turns: int


SCALES = {
    "full": Scale(
        sizes=((40, 2000), (10**6, 1000), (10**8, 300), (10**9, 300)),
        copied=((40, 1000), (10**6, 500), (10**8, 40), (10**9, 10)),
        executions=1000, activation=64 << 20, pipeline=200, bandwidth=(1 << 30, 40), nccl=(64 << 20, 100),
        messages=10_000, largest=8 << 20, rounds=100, held=100, turns=300,
    ),
    "quick": Scale(
        sizes=((40, 300), (10**6, 200), (10**8, 50), (10**9, 50)),
        copied=((40, 200), (10**6, 100), (10**8, 10), (10**9, 4)),
        executions=200, activation=64 << 20, pipeline=40, bandwidth=(1 << 30, 15), nccl=(16 << 20, 20),
        messages=2000, largest=8 << 20, rounds=10, held=100, turns=100,
    ),
    "tiny": Scale(
        sizes=((40, 20), (10**4, 20), (10**5, 20), (10**6, 20)),
        copied=((40, 10), (10**4, 10), (10**5, 10), (10**6, 10)),
        executions=20, activation=1 << 16, pipeline=6, bandwidth=(1 << 20, 6), nccl=(1 << 16, 3),
        messages=200, largest=1 << 16, rounds=2, held=12, turns=10,
    ),
}  # fmt: skip


# ------------------------------------------------------------------------------------- sessions and graphs
@contextlib.contextmanager
def session(work: Work, gpus: int = 1) -> Iterator[None]:
    with mray.init(num_cpus=8, num_gpus=gpus, preload=list(work.preload), logging_level="ERROR"):
        yield


def on_gpu(cls: type, *arguments: Any, share: float = 0.5) -> Any:
    """An actor that shares the GPU. Waits for those that nobody can reach any more to give theirs back."""
    gc.collect()  # nodes of graphs refer to each other, and to actors
    return mray.remote(num_gpus=share)(cls).remote(*arguments)


@contextlib.contextmanager
def compiled(root: Any, **options: Any) -> Iterator[Any]:
    graph = root.experimental_compile(**options)
    try:
        yield graph
    finally:
        graph.teardown()


def chain(*methods: Any) -> Any:
    """A graph in which each of these methods takes what the one before returns."""
    with InputNode() as value:
        root: Any = value
        for method in methods:
            root = method.bind(root)
    return root


def run(graph: Any, count: int, in_flight: int = 1) -> list[Any]:
    """The results of so many executions, numbered."""
    results, flying = [], []
    for number in range(count):
        if len(flying) == in_flight:
            results.append(mray.get(flying.pop(0), timeout=PATIENCE))
        flying.append(graph.execute(number))
    return results + [mray.get(ref, timeout=PATIENCE) for ref in flying]


@contextlib.contextmanager
def forced(transport: str) -> Iterator[None]:
    """Edges that would use CUDA IPC use `transport`, in graphs that are compiled meanwhile: on one GPU it is never chosen by itself."""
    choose = resolve.select

    def select(*arguments: Any, **options: Any) -> str:
        chosen = choose(*arguments, **options)
        return transport if chosen == CUDA_IPC else chosen

    resolve.select = select
    try:
        yield
    finally:
        resolve.select = choose


def transports(graph: Any) -> set[str]:
    """Those of the edges of a graph that are not the driver's."""
    return {channel.transport for channel in graph._plan.channels if channel.source.step >= 0 and channel.readers != ("",)}


def quartiles(samples: list[float]) -> Figures:
    ordered = sorted(samples)
    return {
        "median": statistics.median(ordered),
        "p10": ordered[len(ordered) // 10],
        "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "samples": len(ordered),
    }


# --------------------------------------------------------------------------------------------------- rows
def latencies(producer: Any, consumer: Any, count: int, expected: str | None = None) -> Figures:
    """From the producer's call to the start of the consumer's kernel, and to the call of its method."""
    warmup = max(5, count // 10)
    with compiled(chain(producer.make, consumer.take)) as graph:
        used = transports(graph)
        if expected is not None and used != {expected}:
            raise RuntimeError(f"the edge goes by {used}, not by {expected}")
        run(graph, warmup + count)
        counts = copies(graph)
    started = mray.get(producer.times.remote())[warmup:]
    entered, seen = (times[warmup:] for times in mray.get(consumer.times.remote()))
    return {
        **quartiles([end - begin for begin, end in zip(started, seen, strict=True)]),
        "entered": statistics.median(end - begin for begin, end in zip(started, entered, strict=True)),
        "messages": warmup + count,
        "counts": counts,
    }


def host_latency(count: int) -> Figures:
    """Of the same graph with 40 bytes in host memory."""
    producer, consumer = mray.remote(actors.HostProducer).remote(40), mray.remote(actors.HostConsumer).remote()
    return latencies(producer, consumer, count)


def device_latency(
    size: int, count: int, transport: str = CUDA_IPC, ends: tuple[type, type] = (actors.Producer, actors.Consumer)
) -> Figures:
    with forced(transport):
        producer, consumer = on_gpu(ends[0], size), on_gpu(ends[1])
        figures = latencies(producer, consumer, count, transport)
        alone = statistics.median(mray.get(consumer.alone.remote(50)))
        after = []
        for number in range(1 << 21, (1 << 21) + 30):
            mray.get(consumer.prepare.remote(number))
            mray.get(producer.occupy.remote())
            after.append(mray.get(consumer.once.remote(number)))
        figures.update(size=size, alone=alone, after_another=statistics.median(after), method=mray.get(consumer.method.remote()))
        return figures


def latency(work: Work, scale: Scale) -> Figures:
    with session(work):
        (small, count), (large, fewer) = scale.sizes[0], scale.sizes[-1]
        host = host_latency(count)
        rows = [device_latency(small, count), device_latency(large, fewer)]
        # The machine may have changed its pace meanwhile.
        again = host_latency(count)
        return {"host": min(host, again, key=lambda row: row["median"]), "device": rows, "handover": handover(scale.turns)}


def handover(count: int) -> Figures:
    """From the start of a kernel in one process, as the host sees it, to that of the next one in another process: no edge, no tensor.

    The other process polls a word of memory; so the figure is a launch and whatever the GPU takes to change between contexts.
    """
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(16))
        file.flush()
        first, second = (on_gpu(actors.Turn, file.name) for _ in range(2))
        mray.get([each.pid.remote() for each in (first, second)])
        one, other = mray.get([first.take_turns.remote(0, count), second.take_turns.remote(1, count)], timeout=PATIENCE)
    return quartiles([end - begin for begin, end in zip(one, other, strict=True)])


def held(work: Work, scale: Scale) -> Figures:
    """Executions that are submitted and return while the stream of the producer is held: whoever waited for the device would hang."""
    with session(work):
        producer, consumer = on_gpu(actors.Held), on_gpu(actors.Held)
        with compiled(chain(producer.make, consumer.take)) as graph:
            run(graph, scale.held, in_flight=5)  # what is made once is there: memory, events
            consumed = mray.get(consumer.taken.remote())
            mray.get([each.forget.remote() for each in (producer, consumer)])
            mray.get(producer.hold.remote())
            returned = run(graph, scale.held, in_flight=5)
            reached = mray.get(consumer.reached.remote())
            in_time = mray.get(producer.release.remote())
            values = mray.get(consumer.taken.remote())
    expected = [number + 1 for number in range(scale.held)]
    return {
        "executions": scale.held,
        "returned": sum(one == other for one, other in zip(returned, expected, strict=True)),
        "reached": reached,
        "in_time": in_time,
        "right": consumed == values == expected,
    }


def by_queues(work: Work, scale: Scale) -> Figures:
    """Against queues of torch.multiprocessing."""
    if work.name != "cuda":
        return {"skipped": "torch.multiprocessing needs CUDA"}
    from gpu_peers import queue_times

    rows = []
    for (size, count), (_size, fewer) in zip(scale.sizes, scale.copied, strict=True):
        warmup = max(3, fewer // 10)
        peer = quartiles(queue_times(size, warmup + fewer)[warmup:])
        with session(work):
            rows.append({"size": size, "ours": device_latency(size, count), "queue": peer})
    return {"rows": rows}


def by_copies(work: Work, scale: Scale) -> Figures:
    """Against the same edge through pinned host memory, and over host memory, where the bytes of tensors are pickled."""
    rows = []
    for (size, count), (_size, fewer) in zip(scale.sizes, scale.copied, strict=True):
        with session(work):
            ways = {name: device_latency(size, fewer, way) for name, way in (("pinned", PINNED), ("host", SHM))}
            rows.append({"size": size, "ours": device_latency(size, count), **ways})
    return {"rows": rows}


def by_mps(work: Work, scale: Scale) -> Figures:
    """The smallest edge and the hand-over of the GPU, without CUDA's multi-process service and with it."""
    if work.name != "cuda":
        return {"skipped": "pretended devices have no MPS"}
    if os.path.exists(os.path.join(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control")):
        return {"skipped": "MPS runs already on this machine: every row is with it, and none is without"}
    size, count = scale.sizes[0]
    figures: Figures = {"size": size}
    with session(work):
        figures["off"], figures["off_handover"] = device_latency(size, count), handover(scale.turns)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(CUDA_MPS_PIPE_DIRECTORY=f"{folder}/pipe", CUDA_MPS_LOG_DIRECTORY=f"{folder}/log")
        for name in ("pipe", "log"):
            os.mkdir(f"{folder}/{name}")
        try:
            subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True, capture_output=True, timeout=30)
        except (OSError, subprocess.SubprocessError) as error:
            return {"skipped": f"MPS cannot be started here: {error}"}
        try:
            with session(work):
                figures["on"], figures["on_handover"] = device_latency(size, count), handover(scale.turns)
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False, capture_output=True, timeout=60)
    return figures


def waits(work: Work, scale: Scale) -> Figures:
    """How often the host waits for the device: by mray's own count, and by the profiler's."""
    with session(work):
        producer, consumer = on_gpu(actors.Stage, 4096), on_gpu(actors.Stage, 4096)
        both = producer, consumer
        with compiled(chain(producer.first, consumer.drop)) as graph:
            run(graph, 20, in_flight=5)
            idle = profiled(both, lambda: None)
            before = mray.get([actor.synchronizations.remote() for actor in both])
            busy = profiled(both, lambda: run(graph, scale.executions, in_flight=5))
            after = mray.get([actor.synchronizations.remote() for actor in both])
        found = None
        if None not in (*idle, *busy):
            # The profiler itself waits when it begins and ends.
            found = [
                {name: count - rest.get(name, 0) for name, count in counts.items() if is_wait(name)}
                for counts, rest in zip(busy, idle, strict=True)
            ]
        launches = None if found is None else sum(count for counts in busy for name, count in counts.items() if "LaunchKernel" in name)
        return {
            "executions": scale.executions,
            "mray": sum(after) - sum(before),
            "profiler": None if found is None else sum(sum(counts.values()) for counts in found),
            "names": found,
            "launches": launches,
        }


def is_wait(name: str) -> bool:
    """Whether a call of that name waits for the device."""
    return "Synchronize" in name or (name.startswith(("cudaMemcpy", "cuMemcpy")) and "Async" not in name)


def profiled(members: Any, work: Callable[[], Any]) -> list[dict[str, int] | None]:
    mray.get([member.begin_profile.remote() for member in members])
    work()
    mray.get([member.synchronize.remote() for member in members])
    counts: list[dict[str, int] | None] = mray.get([member.end_profile.remote() for member in members])
    return counts


def pipeline(work: Work, scale: Scale) -> Figures:
    """Four actors on one GPU, and what is copied between them."""
    with session(work):
        stages = [on_gpu(actors.Stage, scale.activation, share=0.25) for _ in range(4)]
        first, *middle, last = stages
        with compiled(chain(first.first, *(stage.forward for stage in middle), last.last)) as graph:
            assert run(graph, 4) == [number + len(middle) for number in range(4)]
            begun = time.perf_counter()
            counts = profiled(stages, lambda: run(graph, scale.pipeline, in_flight=4))
            profiled_for = time.perf_counter() - begun
            before = copies(graph)
            begun = time.perf_counter()
            results = run(graph, scale.pipeline, in_flight=4)
            seconds = time.perf_counter() - begun
            assert results == [number + len(middle) for number in range(scale.pipeline)]
            after = copies(graph)
        found = None if None in counts else [{name: count for name, count in each.items() if name.startswith("Memcpy")} for each in counts]
        return {
            "executions": scale.pipeline,
            "activation": scale.activation,
            "copied": after["device_copied"] - before["device_copied"],
            # The last stage reads one number for the driver: device to host.
            "profiler": None if found is None else sum(sum(count for name, count in each.items() if "DtoH" not in name) for each in found),
            "names": found,
            "seconds": seconds / scale.pipeline,
            "profiled_seconds": profiled_for / scale.pipeline,
        }


def copies(graph: Any) -> dict[str, int]:
    """The counters of its channels about tensors of devices."""
    channels = graph.statistics()["channels"].values()
    return {name: sum(counts.get(name, 0) for counts in channels) for name in ("device_copied", "device_handed", "device_refused")}


def bandwidth(work: Work, scale: Scale) -> Figures:
    """Of the copy into the pool, where a method returns what it keeps; and of a plain copy in the same process."""
    size, count = scale.bandwidth
    with session(work):
        keeper, taker = on_gpu(actors.Keeper, size), on_gpu(actors.Stage)
        plain = mray.get(keeper.plain.remote(count))
        with compiled(chain(keeper.give, taker.touch)) as graph:
            run(graph, 3)
            before = copies(graph)
            mray.get(keeper.copies.remote())
            run(graph, count, in_flight=4)
            copied = copies(graph)["device_copied"] - before["device_copied"]
            ours = mray.get(keeper.copies.remote())
        if copied != count:
            raise RuntimeError(f"{copied} of {count} tensors were copied: this row measures nothing")
        plain += mray.get(keeper.plain.remote(count))
    return {"size": size, "count": count, "ours": quartiles(ours), "plain": quartiles(plain)}


def nccl(work: Work, scale: Scale) -> Figures:
    """Two ranks on one GPU: send and receive, allreduce, overlap; what the library refuses is told."""
    size, count = scale.nccl
    with session(work):
        ranks = [on_gpu(actors.Rank, number, size) for number in range(2)]
        figures: Figures = {"size": size}
        try:
            with InputNode() as value:
                edge = ranks[1].use.bind(ranks[0].make.bind(value).with_tensor_transport("nccl"))
            with compiled(edge) as graph:
                figures["transports"] = sorted(transports(graph))
                assert run(graph, 3) == [0.0, 1.0, 2.0]
                begun = time.perf_counter()
                run(graph, count, in_flight=4)
                figures["send"] = (time.perf_counter() - begun) / count
        except (ValueError, LookupError, ImportError) as error:
            return {"skipped": f"{type(error).__name__}: {str(error)[:400]}"}
        with InputNode() as value:
            sums = allreduce.bind([rank.make.bind(value) for rank in ranks], transport="accelerator")
            root = mray.dag.MultiOutputNode([rank.use.bind(total) for rank, total in zip(ranks, sums, strict=True)])
        with compiled(root) as graph:
            assert run(graph, 3) == [[2.0 * number + 1] * 2 for number in range(3)]
            begun = time.perf_counter()
            run(graph, count, in_flight=4)
            figures["allreduce"] = (time.perf_counter() - begun) / count
        # Computing as long as sending: done one after the other, it takes twice as long.
        mray.get([rank.compute_for.remote(max(figures["send"], 1e-4)) for rank in ranks])
        for overlap in (False, True):
            with InputNode() as value:
                edge = ranks[1].use.bind(ranks[0].make.bind(value).with_tensor_transport("nccl"))
            with compiled(edge, _overlap_gpu_communication=overlap) as graph:
                assert run(graph, 3, in_flight=3) == [0.0, 1.0, 2.0]
                begun = time.perf_counter()
                run(graph, count, in_flight=4)
                figures["overlap" if overlap else "no_overlap"] = (time.perf_counter() - begun) / count
        return figures


def shapes(work: Work, scale: Scale) -> Figures:
    """Messages of changing shapes: what the device and the processes hold, at ten places."""
    with session(work):
        maker, taker = on_gpu(actors.Shapes, scale.largest), on_gpu(actors.Shapes, scale.largest)
        with InputNode() as value:
            root = taker.take.bind(maker.make.bind(value), value)
        with compiled(root) as graph:
            free, host = [], []
            number = 0
            for _place in range(10):
                flying = []
                for _ in range(scale.messages // 10):
                    if len(flying) == 5:
                        expected, ref = flying.pop(0)
                        assert mray.get(ref, timeout=PATIENCE) == expected
                    flying.append((number, graph.execute(number)))
                    number += 1
                for expected, ref in flying:
                    assert mray.get(ref, timeout=PATIENCE) == expected
                free.append(mray.get(taker.memory.remote())[0])
                host.append(sum(mray.get([member.pss.remote() for member in (maker, taker)])))
    return {"messages": scale.messages, "device": [free[0] - each for each in free], "host": [each - host[0] for each in host]}


def deaths(work: Work, scale: Scale) -> Figures:
    """Rounds in which one end of an edge is killed; the free memory of the device after each."""
    with session(work):
        survivor = on_gpu(actors.Mortal, share=0.1)
        # The first two rounds make what stays: contexts, pools.
        rounds = [(death(survivor, number), settled(survivor)) for number in range(scale.rounds + 2)]
    noticed = sorted({how for (how, _wrong), _free in rounds})
    wrong = sum(wrong for (_how, wrong), _free in rounds)
    return {"rounds": scale.rounds, "noticed": noticed, "wrong": wrong, "free": [free for _, free in rounds][1:], "total": work.memory()[1]}


def death(survivor: Any, number: int) -> tuple[str, int]:
    """Kill the other end of an edge; as what it was noticed, and how many results were wrong."""
    other = on_gpu(actors.Mortal, share=0.5)
    maker, taker = (other, survivor) if number % 2 else (survivor, other)
    wrong = 0
    with InputNode() as value:
        root = taker.take.bind(maker.make.bind(value))
    graph = root.experimental_compile()
    assert run(graph, 3) == [0, 1, 2]
    refs = [graph.execute(each) for each in range(3)]
    os.kill(mray.get(other.pid.remote()), signal.SIGKILL)
    try:
        for each, ref in enumerate([*refs, graph.execute(3)]):
            wrong += mray.get(ref, timeout=PATIENCE) != each
    except RayError as error:
        return type(error).__name__, wrong
    finally:
        graph.teardown()
    raise RuntimeError("the death of an actor was not noticed")


def settled(survivor: Any) -> int:
    """Free memory, once it grows no more: the context of a dead process goes a little later than the process."""
    most = mray.get(survivor.memory.remote())[0]
    since = time.monotonic()
    while time.monotonic() - since < 0.3:
        now = mray.get(survivor.memory.remote())[0]
        if now > most:
            most, since = now, time.monotonic()
        time.sleep(0.02)
    return int(most)


def header(work: Work, _scale: Scale) -> Figures:
    """The machine that the figures were taken on."""
    from mray._device.libnccl import version_name
    from mray._device.nccl_library import nccl_version, shares_gpus

    python, cpus = sys.version.split()[0], len(os.sched_getaffinity(0))
    info: Figures = {"platform": work.name, "python": python, "mray": mray.__version__, "cpus": cpus}
    with session(work):
        member = on_gpu(actors.Member)
        mray.get(member.pid.remote())
    code = nccl_version()
    info["nccl"] = (version_name(code) + (", several ranks on a GPU" if shares_gpus() else "")) if code else "none"
    if work.name == "cuda":
        torch = work.torch
        properties = torch.cuda.get_device_properties(0)
        info.update(
            device=properties.name,
            memory=properties.total_memory,
            gpus=torch.cuda.device_count(),
            torch=torch.__version__,
            cuda=torch.version.cuda,
            torch_nccl=".".join(map(str, torch.cuda.nccl.version())),
            driver=driver_version(),
        )
    else:
        info.update(device="pretended GPU", memory=work.memory()[1])
    return info


def driver_version() -> str:
    with contextlib.suppress(OSError, StopIteration):
        words = Path("/proc/driver/nvidia/version").read_text().split()
        return next(word for word in words if word[0].isdigit() and word.count(".") >= 1)
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    return "unknown"


ROWS: dict[str, Callable[[Work, Scale], Figures]] = {
    "header": header,
    "latency": latency,
    "queues": by_queues,
    "copies": by_copies,
    "mps": by_mps,
    "held": held,
    "waits": waits,
    "pipeline": pipeline,
    "bandwidth": bandwidth,
    "nccl": nccl,
    "shapes": shapes,
    "deaths": deaths,
}


def main(row: str, scale: str = "full") -> int:
    work = find_work()
    if work is None:
        print("this process sees no GPU, or has no torch; MRAY_NULL_DEVICES=1 pretends one", file=sys.stderr)
        return 3
    print(json.dumps(ROWS[row](work, SCALES[scale])))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
