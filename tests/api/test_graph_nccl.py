"""Graphs whose edges and collectives go through NCCL, on pretended GPUs without peer access, or where it is asked for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._device.platform import forget_platform, platform
from mray.dag import InputNode, MultiOutputNode
from mray.exceptions import ActorDiedError, RayChannelError
from mray.experimental import collective
from mray.testing import null

pytestmark = pytest.mark.only("mray")


@pytest.fixture
def machine(init: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Starts a session on a machine with so many pretended GPUs."""

    def start(gpus: int, **options: Any) -> None:
        words = "".join(f",{name}={value}" for name, value in options.items())
        forget_platform()
        monkeypatch.setenv("MRAY_NULL_DEVICES", f"{gpus},scope=graph{os.getpid()}{words}")
        init(num_cpus=4, num_gpus=gpus, log_to_driver=False)

    yield start
    forget_platform()


class Worker:
    def __init__(self) -> None:
        self.before = 0

    def pid(self) -> int:
        return os.getpid()

    def make(self, value: float) -> Any:
        return null.full(1000, value)

    def several(self, value: float) -> Any:
        return {"name": "several", "arrays": [null.full(10, value), null.full((2, 3), value, "int32")], "number": value}

    def double(self, array: Any) -> Any:
        return array * 2

    def add(self, *arrays: Any) -> Any:
        return arrays[0] + arrays[1]

    def look(self, array: Any) -> Any:
        return array.tolist()[0]

    def look_inside(self, value: Any) -> Any:
        return value["name"], [array.tolist() for array in value["arrays"]], value["number"]

    def mark(self) -> None:
        self.before = platform().synchronizations

    def synchronizations(self) -> int:
        return platform().synchronizations - self.before

    def synchronizations_after(self, _array: Any) -> int:
        return self.synchronizations()


@pytest.fixture
def workers(ray: Any) -> Callable[..., list[Any]]:
    """So many actors with a GPU each."""
    return lambda count: [ray.remote(num_cpus=0, num_gpus=1)(Worker).remote() for _ in range(count)]


OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapping"])


def compile_and_run(node: Any, overlap: bool, inputs: list[Any]) -> list[Any]:
    graph = node.experimental_compile(_overlap_gpu_communication=overlap)
    try:
        refs = [graph.execute(value) for value in inputs]
        return [[each.get() for each in ref] if isinstance(ref, list) else ref.get() for ref in refs]
    finally:
        graph.teardown()


@OVERLAP
def test_a_chain_of_gpus(ray, machine, workers, overlap):
    machine(3, peer=0, late=0.0005)
    a, b, c = workers(3)
    with InputNode() as inp:
        made = a.make.bind(inp).with_tensor_transport("nccl")
        doubled = b.double.bind(made).with_tensor_transport("nccl")
        node = c.look.bind(doubled)
    assert compile_and_run(node, overlap, list(range(8))) == [2.0 * number for number in range(8)]


@OVERLAP
def test_one_value_for_several_readers_and_back(ray, machine, workers, overlap):
    machine(3, peer=0)
    a, b, c = workers(3)
    with InputNode() as inp:
        made = a.make.bind(inp).with_tensor_transport("nccl")
        left = b.double.bind(made).with_tensor_transport("nccl")
        right = c.double.bind(made).with_tensor_transport("nccl")
        node = a.look.bind(a.add.bind(left, right))
    assert compile_and_run(node, overlap, list(range(6))) == [4.0 * number for number in range(6)]


def test_several_tensors_of_a_value_beside_other_things(ray, machine, workers):
    machine(2, peer=0)
    a, b = workers(2)
    with InputNode() as inp:
        node = b.look_inside.bind(a.several.bind(inp).with_tensor_transport("nccl"))
    assert compile_and_run(node, False, [3, 4]) == [("several", [[float(value)] * 10, [[value] * 3] * 2], value) for value in (3, 4)]


@OVERLAP
def test_a_collective(ray, machine, workers, overlap):
    machine(3, peer=0)
    actors = workers(3)
    with InputNode() as inp:
        made = [actor.make.bind(inp) for actor in actors]
        reduced = collective.allreduce.bind(made, transport="nccl")
        node = MultiOutputNode([actor.look.bind(total) for actor, total in zip(actors, reduced, strict=True)])
    assert compile_and_run(node, overlap, [1, 2, 3]) == [[3.0 * number] * 3 for number in (1, 2, 3)]


@OVERLAP
def test_no_actor_waits_for_its_gpu(ray, machine, workers, overlap):
    machine(2, peer=0)
    a, b = workers(2)
    ray.get([actor.mark.remote() for actor in (a, b)])
    with InputNode() as inp:
        made = a.make.bind(inp).with_tensor_transport("nccl")
        doubled = b.double.bind(made).with_tensor_transport("nccl")
        node = a.synchronizations_after.bind(a.double.bind(doubled))
    assert compile_and_run(node, overlap, list(range(5))) == [0] * 5
    assert ray.get([actor.synchronizations.remote() for actor in (a, b)]) == [0, 0]


@OVERLAP
def test_two_graphs_of_the_same_actors(ray, machine, workers, overlap):
    """At once where each graph has streams of its own. On the current stream what is queued for one graph waits for what is queued before
    it for the other, and the two actors may have come to them in different orders: so there each execution ends before the next.
    """
    machine(2, peer=0)
    a, b = workers(2)
    graphs = []
    for _ in range(2):
        with InputNode() as inp:
            node = b.look.bind(a.make.bind(inp).with_tensor_transport("nccl"))
            graphs.append(node.experimental_compile(_overlap_gpu_communication=overlap))
    refs = []
    for number in range(5):
        for index, graph in enumerate(graphs):
            ref = graph.execute(10 * number + index)
            if overlap:
                refs.append((10.0 * number + index, ref))
            else:
                assert ref.get() == 10.0 * number + index
    for value, ref in refs:
        assert ref.get() == value
    for graph in graphs:
        graph.teardown()


@OVERLAP
def test_a_member_that_is_killed_ends_the_graph_and_the_others_live_on(ray, machine, workers, overlap):
    machine(3, peer=0)
    a, b, c = workers(3)
    with InputNode() as inp:
        made = a.make.bind(inp).with_tensor_transport("nccl")
        doubled = b.double.bind(made).with_tensor_transport("nccl")
        node = c.look.bind(doubled)
    graph = node.experimental_compile(_overlap_gpu_communication=overlap)
    assert graph.execute(1).get() == 2.0
    os.kill(ray.get(b.pid.remote()), signal.SIGKILL)
    with pytest.raises((ActorDiedError, RayChannelError)):
        for number in range(100):
            graph.execute(number).get()
    graph.teardown()
    with InputNode() as inp:
        again = c.look.bind(a.make.bind(inp).with_tensor_transport("nccl"))
    assert compile_and_run(again, overlap, [5]) == [5.0]
