"""The backend NCCL of ``util.collective``, on pretended GPUs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from mray._device.platform import forget_platform, platform
from mray.exceptions import ActorDiedError, RayChannelError
from mray.experimental import collective as experimental
from mray.testing import null
from mray.util import collective
from mray.util.collective import types

pytestmark = pytest.mark.only("mray")


@pytest.fixture
def machine(init: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Starts a session on a machine with so many pretended GPUs."""

    def start(gpus: int) -> None:
        forget_platform()
        monkeypatch.setenv("MRAY_NULL_DEVICES", f"{gpus},scope=collective{os.getpid()}")
        init(num_cpus=4, num_gpus=gpus, log_to_driver=False)

    yield start
    forget_platform()


class Member:
    """A member whose tensors are on its GPU; it tells what they have become."""

    def pid(self) -> int:
        return os.getpid()

    def join(self, world_size: int, rank: int, name: str = "default") -> None:
        collective.init_collective_group(world_size, rank, "nccl", name)

    def call(self, what: str, values: list[Any], *arguments: Any, **options: Any) -> Any:
        """A collective with tensors of these values; a list of lists counts as one argument."""
        own = [list(map(null.from_numpy, value)) if isinstance(value, list) else null.from_numpy(value) for value in values]
        getattr(collective, what)(*own, *arguments, **options)
        return [[each.tolist() for each in tensor] if isinstance(tensor, list) else tensor.tolist() for tensor in own]

    def do(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)


@pytest.fixture
def members(ray: Any, machine: Callable[[int], None]) -> Callable[..., list[Any]]:
    """So many actors with a GPU each, in a group unless said otherwise."""

    def make(count: int, *, join: bool = True) -> list[Any]:
        machine(count)
        actors = [ray.remote(num_cpus=0, num_gpus=1)(Member).remote() for _ in range(count)]
        if join:
            ray.get([actor.join.remote(count, rank) for rank, actor in enumerate(actors)])
        return actors

    return make


def call_all(ray: Any, actors: list[Any], what: str, values: Callable[[int], list[Any]], *arguments: Any, **options: Any) -> list[Any]:
    return ray.get([actor.call.remote(what, values(rank), *arguments, **options) for rank, actor in enumerate(actors)])


def f4(*values: float) -> Any:
    return np.array(values, "f4")


def test_the_collectives(ray, members):
    actors = members(3)
    assert call_all(ray, actors, "allreduce", lambda rank: [f4(rank, 1)]) == [[[3, 3]]] * 3
    for op, value in (("PRODUCT", 6), ("MIN", 1), ("MAX", 3)):
        assert call_all(ray, actors, "allreduce", lambda rank: [f4(rank + 1)], op=types.ReduceOp[op]) == [[[value]]] * 3
    assert call_all(ray, actors, "broadcast", lambda rank: [f4(rank, rank)], 2) == [[[2, 2]]] * 3
    assert call_all(ray, actors, "reduce", lambda rank: [f4(rank + 1)], 1) == [[[1]], [[6]], [[3]]]
    gathered = call_all(ray, actors, "allgather", lambda rank: [[f4(9, 9)] * 3, f4(rank, -rank)])
    assert gathered == [[[[0, 0], [1, -1], [2, -2]], [rank, -rank]] for rank in range(3)]
    parts = call_all(ray, actors, "reducescatter", lambda rank: [f4(9), [f4(rank), f4(10 * rank), f4(100)]])
    assert [own for own, _parts in parts] == [[3], [30], [300]]
    assert [given for _own, given in parts] == [[[rank], [10 * rank], [100]] for rank in range(3)]
    ray.get([actor.do.remote(collective.barrier) for actor in actors])


def test_messages(ray, members):
    one, two = members(2)
    sent = one.call.remote("send", [f4(1, 2, 3)], 1)
    assert ray.get(two.call.remote("recv", [f4(0, 0, 0)], 0)) == [[1, 2, 3]]
    ray.get(sent)


def test_calls_do_not_wait_for_the_gpu(ray, members):
    actors = members(2)

    def queue() -> int:
        tensor = null.ones(10)
        before = platform().synchronizations
        for _ in range(5):
            collective.allreduce(tensor)
            collective.broadcast(tensor, 1)
        counted = platform().synchronizations - before
        assert tensor.tolist() == [32.0] * 10
        return counted

    assert ray.get([actor.do.remote(queue) for actor in actors]) == [0, 0]


def test_a_declared_group_joins_at_its_first_collective(ray, members):
    actors = members(2, join=False)
    collective.create_collective_group(actors, 2, [1, 0], "nccl", "declared")
    assert call_all(ray, actors, "broadcast", lambda rank: [f4(rank)], 0, "declared") == [[[1]], [[1]]]
    ray.get([actor.do.remote(collective.destroy_collective_group, "declared") for actor in actors])
    ray.get([actor.join.remote(2, rank, "declared") for rank, actor in enumerate(actors)])
    assert call_all(ray, actors, "allreduce", lambda rank: [f4(rank)], "declared") == [[[1]], [[1]]]


def test_a_group_that_the_driver_makes(ray, members):
    actors = members(2, join=False)
    group = experimental.create_collective_group(actors, backend="nccl", name="made")
    assert group.backend == "NCCL"
    assert call_all(ray, actors, "allreduce", lambda rank: [f4(rank)], "made") == [[[1]], [[1]]]
    experimental.destroy_collective_group(group)
    assert experimental.get_collective_groups(actors) == []


def test_an_actor_is_in_several_groups(ray, members):
    actors = members(3)
    ray.get([actor.join.remote(2, rank, "pair") for rank, actor in enumerate(actors[1:])])
    assert call_all(ray, actors[1:], "allreduce", lambda rank: [f4(1)], "pair") == [[[2]]] * 2
    assert call_all(ray, actors, "allreduce", lambda rank: [f4(1)]) == [[[3]]] * 3


def test_nccl_is_available_where_there_are_gpus(ray, members):
    actors = members(1, join=False)
    assert collective.nccl_available()
    assert collective.is_backend_available("nccl")
    assert ray.get(actors[0].do.remote(collective.nccl_available))


def test_tensors_of_the_host_are_refused(ray, members):
    (actor,) = members(1)

    def reduce_on_the_host() -> None:
        collective.allreduce(np.ones(2))

    with pytest.raises(RuntimeError, match=r"must be on GPU when using NCCL collectives, and this is a ndarray.*backend='gloo'"):
        ray.get(actor.do.remote(reduce_on_the_host))


def test_tensors_that_do_not_fit_are_refused(ray, members):
    (actor,) = members(1)
    with pytest.raises(ValueError, match=r"Expected tensors of shape \(2,\) and float32, but got \[\(\(3,\), 'float32'\)\]"):
        ray.get(actor.call.remote("allgather", [[f4(1, 2, 3)], f4(1, 2)]))


def test_who_waits_for_a_member_that_is_killed_is_told_who_died(ray, members, eventually, tmp_path):
    actors = members(3)
    pid = ray.get(actors[0].pid.remote())

    def wait(folder: str) -> Any:
        tensor = null.ones(10)
        collective.allreduce(tensor)
        open(os.path.join(folder, str(os.getpid())), "w").close()
        tensor.numpy()
        with pytest.raises(RayChannelError) as caught:
            collective.allreduce(tensor)
        collective.destroy_collective_group()
        return str(caught.value), caught.value.__cause__

    refs = [actor.do.remote(wait, str(tmp_path)) for actor in actors[1:]]
    eventually(lambda: len(list(tmp_path.iterdir())) == 2)
    os.kill(pid, signal.SIGKILL)
    for text, cause in ray.get(refs):
        assert f"rank 0 (actor Member, pid {pid}) has died" in text
        assert isinstance(cause, ActorDiedError)
    ray.get([actor.join.remote(2, rank) for rank, actor in enumerate(actors[1:])])
    assert call_all(ray, actors[1:], "allreduce", lambda rank: [f4(1)]) == [[[2]]] * 2


def test_a_barrier_ends_with_the_death_of_a_member(ray, members, eventually, tmp_path):
    actors = members(2)
    pid = ray.get(actors[0].pid.remote())

    def meet(path: str) -> None:
        open(path, "w").close()
        collective.barrier()

    ref = actors[1].do.remote(meet, str(tmp_path / "here"))
    eventually((tmp_path / "here").exists)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RayChannelError, match="has died"):
        ray.get(ref)
