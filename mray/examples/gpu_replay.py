"""A method that replays a CUDA graph over its input: with static shapes, inputs come at the same few addresses again and again.

    python -m mray.examples.gpu_replay [executions]

    Source.make ── always the same buffer ── copied into the edge's pool ══▶ Model.step: one captured CUDA graph for each address

Kernels that were captured read and write where they did when they were captured. An edge with ``_static_shape=True`` uses the memory of a
tensor again as soon as its reader has let go of it, so there are at most as many addresses as executions in flight, and one: `Model`
captures for each of them once, and replays from then on. Nothing is copied at the reader.

The output of a captured graph is a buffer of its own, which every replay writes over: what leaves the actor must be a new tensor
(``clone``), or a number, as here.
"""

from __future__ import annotations

import sys
from typing import Any

import mray
from mray.dag import InputNode
from mray.examples.gpu_arrays import find_gpu, session_options
from mray.examples.latencies import Comparison, measure, print_comparisons

SHAPE = (64, 256)
IN_FLIGHT = 2


@mray.remote(num_gpus=0.5, num_cpus=0)
class Source:
    """Fills one buffer, again and again."""

    def __init__(self) -> None:
        self.buffer = find_gpu().full(SHAPE, 0.0)

    def make(self, number: float) -> Any:
        """The buffer: as others look at it later, the edge copies it, on the GPU."""
        self.buffer.fill_(number)
        return self.buffer


def network(tensor: Any) -> Any:
    """Stands for a model: many small kernels, whose launches cost more than their work."""
    for _ in range(10):
        tensor = tensor * 0.5 + 1.0
    return tensor


@mray.remote(num_gpus=0.5, num_cpus=0)
class Model:
    """Replays what it has captured for the address at which its input is."""

    def __init__(self) -> None:
        self.gpu = find_gpu()
        self.captured: dict[int, Any] = {}
        self.replays = 0

    def step(self, tensor: Any) -> float:
        """The last element of the output."""
        replay = self.captured.get(self.gpu.address(tensor))
        if replay is None:
            replay = self.captured[self.gpu.address(tensor)] = self.gpu.capture(network, tensor)
        else:
            self.replays += 1
        return self.gpu.last(replay())

    def plain(self, tensor: Any) -> float:
        """The same, kernel by kernel."""
        return self.gpu.last(network(tensor))

    def counts(self) -> tuple[int, int]:
        """How many graphs it has captured, and how often it has replayed one."""
        return len(self.captured), self.replays


def expected(number: float) -> float:
    """The output of the network."""
    return float(network(number))


def compare(executions: int = 200) -> Comparison:
    """Measure both ways with the same actors: by ordinary calls kernel by kernel, in the graph by replaying."""
    source, model = Source.remote(), Model.remote()
    numbers = [float(number) for number in range(IN_FLIGHT)]
    wanted = [expected(number) for number in numbers]

    def call() -> list[float]:
        # One after the other: by ordinary calls, the tensor is looked at when its consumer asks for it.
        return [mray.get(model.plain.remote(source.make.remote(number))) for number in numbers]

    assert call() == wanted
    calls = measure(call, executions, warmup=2)

    with InputNode() as number:
        graph = model.step.bind(source.make.bind(number).with_tensor_transport(_static_shape=True))
    compiled = graph.experimental_compile(_max_inflight_executions=IN_FLIGHT)

    def execute() -> list[float]:
        results: list[float] = mray.get([compiled.execute(number) for number in numbers])
        return results

    try:
        assert execute() == wanted
        graph_latency = measure(execute, executions, warmup=2)
        assert execute() == wanted
    finally:
        compiled.teardown()
    captured, replays = mray.get(model.counts.remote())
    assert captured <= IN_FLIGHT + 1, f"inputs came at {captured} addresses"
    assert replays == IN_FLIGHT * (executions + 4) - captured
    print(f"{captured} graphs captured, {replays} replays")
    return Comparison("a CUDA graph, replayed", calls, graph_latency)


def main() -> None:
    """Run the example in a session of its own."""
    with mray.init(**session_options()):
        print_comparisons([compare(*map(int, sys.argv[1:2]))])


if __name__ == "__main__":
    main()
