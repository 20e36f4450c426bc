"""The communicator over NCCL in the hands of actors, on pretended GPUs: streams, memory, members that die or leave."""

from __future__ import annotations

import os
import pickle
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mray._api.communicator import ReduceOp
from mray._channel.board import GRACE
from mray._device.lending import lend_stream
from mray._device.platform import forget_platform, platform
from mray._gpu.nccl import NcclCommunicator
from mray.exceptions import ActorDiedError, RayChannelError
from mray.experimental.channel.nccl_group import _NcclGroup
from mray.testing import null

pytestmark = pytest.mark.only("mray")


@pytest.fixture
def machine(init: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Starts a session on a machine with so many pretended GPUs; `late`: seconds that their work is late."""

    def start(gpus: int, **options: Any) -> None:
        words = "".join(f",{name}={value}" for name, value in options.items())
        forget_platform()
        monkeypatch.setenv("MRAY_NULL_DEVICES", f"{gpus},scope=api{os.getpid()}{words}")
        init(num_cpus=4, num_gpus=gpus, log_to_driver=False)

    yield start
    forget_platform()


class Member:
    """An actor that is a rank; `do` runs a function of the test in it."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.communicator: Any = None

    def pid(self) -> int:
        return os.getpid()

    def join(self, communicator: Any, rank: int) -> int:
        self.communicator = communicator
        communicator.initialize(rank)
        return communicator.get_self_rank()

    def do(self, function: Any, *arguments: Any) -> Any:
        return function(self, *arguments)


@pytest.fixture
def actors(ray: Any) -> Callable[..., list[Any]]:
    """So many actors, each with a GPU unless said otherwise."""
    return lambda count, **options: [ray.remote(**{"num_cpus": 0, "num_gpus": 1, **options})(Member).remote() for _ in range(count)]


@pytest.fixture
def group(ray: Any, actors: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """So many actors that are ranks of one communicator."""

    def make(count: int, streams: bool = False, **options: Any) -> list[Any]:
        members = actors(count, **options)
        communicator = NcclCommunicator(members, streams)
        assert ray.get([member.join.remote(communicator, rank) for rank, member in enumerate(members)]) == list(range(count))
        return members

    return make


def on_all(ray: Any, members: list[Any], function: Any, *arguments: Any) -> list[Any]:
    return ray.get([member.do.remote(function, *arguments) for member in members])


def destroy(member: Any) -> None:
    member.communicator.destroy()
    member.communicator.destroy()


STREAMS = pytest.mark.parametrize("streams", [False, True], ids=["on the current stream", "on streams of their own"])


# ------------------------------------------------------------------------------------------------- results
def collectives(member: Any) -> Any:
    communicator = member.communicator
    rank = communicator.get_self_rank()
    own = null.from_numpy(np.arange(6, dtype="f4").reshape(3, 2) + rank)
    before = platform().synchronizations
    total, product, mean = null.empty((3, 2)), null.empty((3, 2)), null.empty((3, 2))
    communicator.allreduce(own, total)
    communicator.allreduce(own, product, ReduceOp.PRODUCT)
    communicator.allreduce(own, mean, ReduceOp.AVG)
    gathered, part = null.empty((9, 2)), null.empty((1, 2))
    communicator.allgather(own, gathered)
    communicator.reducescatter(own, part, ReduceOp.MAX)
    communicator.allreduce(own, own, ReduceOp.MIN)
    flags, whole = null.from_numpy(np.array([rank == 1, False])), null.from_numpy(np.array([rank, 1], "i8"))
    communicator.allreduce(flags, flags)
    communicator.allreduce(whole, whole)
    doubled = total * 2
    assert platform().synchronizations == before
    return [each.numpy() for each in (total, product, mean, gathered, part, own, flags, whole, doubled)]


@STREAMS
def test_collectives_compute_and_nothing_waits_for_a_gpu(ray, machine, group, streams):
    machine(3)
    members = group(3, streams)
    values = [np.arange(6, dtype="f4").reshape(3, 2) + rank for rank in range(3)]
    for rank, results in enumerate(on_all(ray, members, collectives)):
        total = values[0] + values[1] + values[2]
        expected = [
            total,
            values[0] * values[1] * values[2],
            total / 3,
            np.concatenate(values),
            values[2][rank : rank + 1],
            values[0],
            np.array([True, False]),
            np.array([3, 3]),
            total * 2,
        ]
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, right)
    on_all(ray, members, destroy)


def relay(member: Any, rounds: int) -> Any:
    """Rank 0 makes, the others add one and pass on, the last keeps all; tensors are let go of as soon as they are sent."""
    communicator = member.communicator
    rank, last = communicator.get_self_rank(), communicator.get_world_size() - 1
    kept = []
    before = platform().synchronizations
    for number in range(rounds):
        shape = (number % 7 + 1, 50)
        if rank:
            tensor = communicator.recv(shape, "float32", rank - 1)
        else:
            tensor = null.full(shape, number)
        tensor = tensor + 1
        if rank < last:
            communicator.send(tensor, rank + 1)
        else:
            kept.append(tensor)
    assert platform().synchronizations == before
    return [(tuple(tensor.shape), np.unique(tensor.numpy()).tolist()) for tensor in kept]


@STREAMS
def test_messages_arrive_in_order_when_all_work_is_late(ray, machine, group, streams):
    machine(3, late=0.001)
    members = group(3, streams)
    *_others, kept = on_all(ray, members, relay, 40)
    assert kept == [((number % 7 + 1, 50), [number + 3.0]) for number in range(40)]
    on_all(ray, members, destroy)


def overlapping(member: Any) -> Any:
    """A computation ends while a transfer has not; a waiting stream gets the transferred value."""
    communicator = member.communicator
    if communicator.get_self_rank() == 0:
        with null.hold(communicator.member.send_stream):
            communicator.send(null.full(10, 7), 1)
            member.kept["go"] = Path(member.kept["folder"], "computed")
            while not member.kept["go"].exists():
                communicator.member.group.host.wait_until(lambda: False, 0.005)
        return None
    with communicator.deferring() as later:
        arriving = communicator.recv((10,), "float32", 0)
    computed = (null.full(10, 2) * 3).tolist()
    Path(member.kept["folder"], "computed").touch()
    later.wait()
    later.wait()
    total = arriving + 1
    return computed, total.tolist()


def test_computing_goes_on_while_a_message_comes(ray, machine, group, tmp_path):
    machine(2)
    members = group(2, streams=True)
    on_all(ray, members, lambda member, folder: member.kept.update(folder=folder), str(tmp_path))
    assert on_all(ray, members, overlapping)[1] == ([6.0] * 10, [8.0] * 10)
    on_all(ray, members, destroy)


def deferred_allreduce(member: Any) -> Any:
    communicator = member.communicator
    own = null.full(100, communicator.get_self_rank() + 1)
    with null.hold(communicator.member.send_stream), communicator.deferring() as later:
        total = null.empty(100)
        communicator.allreduce(own, total)
        meanwhile = (own * 10).tolist()
    later.wait()
    return meanwhile[0], (total * 2).tolist()[0]


def test_computing_goes_on_during_a_collective(ray, machine, group):
    machine(2)
    members = group(2, streams=True)
    assert on_all(ray, members, deferred_allreduce) == [(10.0, 6.0), (20.0, 6.0)]
    on_all(ray, members, destroy)


def memory_in_use(member: Any, rounds: int) -> int:
    communicator = member.communicator
    rank = communicator.get_self_rank()
    device = platform().devices[0]
    used = []
    for number in range(rounds):
        if rank:
            np.testing.assert_array_equal(communicator.recv((1 << 18,), "float32", 0).numpy()[:2], number)
        else:
            communicator.send(null.full(1 << 18, number), 1)
        summed = null.empty(4)
        communicator.allreduce(null.full(4, 1), summed)
        if number % 10 == 0:
            summed.tolist()  # otherwise a sender is as many messages ahead as the receiver is slow
        free, total = device.memory()
        used.append(total - free)
    return max(used)


@STREAMS
def test_memory_does_not_grow_with_the_number_of_messages(ray, machine, group, streams):
    machine(2, memory=64 << 20)
    members = group(2, streams)
    for used in on_all(ray, members, memory_in_use, 100):
        assert used < 56 << 20
    on_all(ray, members, destroy)


def test_a_group_of_one(ray, machine, group):
    machine(1)
    members = group(1)

    def alone(member: Any) -> Any:
        out = null.empty(2)
        member.communicator.allreduce(null.full(2, 3), out)
        return out.tolist()

    assert on_all(ray, members, alone) == [[3.0, 3.0]]
    on_all(ray, members, destroy)


def test_tensors_that_have_gaps_are_sent_whole_and_not_received_into(ray, machine, group):
    machine(2)
    members = group(2)

    def exchange(member: Any) -> Any:
        communicator = member.communicator
        if communicator.get_self_rank():
            with pytest.raises(ValueError, match="is not contiguous"):
                communicator.recv((3, 2), "float32", 0, lambda shape, dtype: null.zeros((2, 3)).T)
            return communicator.recv((3, 2), np.dtype("f4"), 0).tolist()
        communicator.send(null.from_numpy(np.arange(6, dtype="f4").reshape(2, 3)).T, 1)
        return None

    assert on_all(ray, members, exchange)[1] == [[0, 3], [1, 4], [2, 5]]
    on_all(ray, members, destroy)


# ------------------------------------------------------------------------------------------------- misuse
def test_what_is_no_tensor_of_the_gpu_is_refused(ray, machine, group):
    machine(2)
    members = group(2)

    def misuse(member: Any) -> Any:
        communicator = member.communicator
        own, other = communicator.get_self_rank(), 1 - communicator.get_self_rank()
        with pytest.raises(ValueError, match=r"NCCL moves tensors of GPUs, and this ndarray is on .*Move it to the GPU first"):
            communicator.send(np.ones(2), other)
        with pytest.raises(ValueError, match=f"Rank {own} is not another member"):
            communicator.send(null.ones(2), own)
        with pytest.raises(ValueError, match="Rank 2 is not another member of this group of 2"):
            communicator.recv((2,), "float32", 2)
        with pytest.raises(ValueError, match="does not compute SUM of tensors of int16"):
            communicator.allreduce(null.ones(2, dtype="int16"), null.ones(2, dtype="int16"))
        with pytest.raises(ValueError, match="same dtype"):
            communicator.allreduce(null.ones(2), null.ones(2, dtype="int32"))
        with pytest.raises(ValueError, match="Expected 2 times the elements"):
            communicator.allgather(null.ones(2), null.ones(2))
        with pytest.raises(ValueError, match="Expected 2 times the elements"):
            communicator.reducescatter(null.ones(3), null.ones(1))
        with pytest.raises(RuntimeError, match=f"This process is rank {own} of this group already"):
            communicator.initialize(own)
        # None of that was a call.
        out = null.empty(1)
        communicator.allreduce(null.ones(1), out)
        return out.tolist()

    assert on_all(ray, members, misuse) == [[2.0], [2.0]]
    on_all(ray, members, destroy)


def test_the_object_is_the_same_group_wherever_it_is(ray, machine, actors):
    machine(2)
    members = actors(2)
    communicator = NcclCommunicator(members, use_communication_streams=True)
    again = pickle.loads(pickle.dumps(communicator))
    assert again._id == communicator._id
    assert again.get_actor_handles() == members
    assert [communicator.get_rank(member) for member in members] == [0, 1]
    assert (communicator.get_self_rank(), communicator.get_world_size(), communicator.get_transport_name()) == (None, 2, "accelerator")
    with pytest.raises(ValueError, match="Actor is not in the NCCL group"):
        communicator.get_rank("nobody")
    with pytest.raises(RayChannelError, match="initialize"):
        communicator.send(None, 0)
    communicator.destroy()
    with pytest.raises(ValueError, match="Expected different actors"):
        NcclCommunicator([members[0], members[0]])


def test_an_actor_without_a_gpu_is_told(ray, machine, actors):
    machine(1)
    (member,) = actors(1, num_gpus=0, runtime_env={"env_vars": {"CUDA_VISIBLE_DEVICES": ""}})
    with pytest.raises(LookupError, match="this process sees none: give its actor num_gpus"):
        ray.get(member.join.remote(NcclCommunicator([member]), 0))


def test_the_group_as_ray_makes_it(ray, machine, actors):
    machine(2)
    members = actors(2)
    identity = _NcclGroup.generate_communicator_id()

    def make(member: Any, identity: str, rank: int, members: list[Any]) -> Any:
        member.communicator = communicator = _NcclGroup(2, identity, rank, members, None, True)
        communicator.initialize(rank)
        out = null.empty(2)
        communicator.allreduce(null.full(2, rank + 1), out)
        return communicator.get_self_rank(), out.tolist()

    made = [member.do.remote(make, identity, rank, members) for rank, member in enumerate(members)]
    assert ray.get(made) == [(0, [3.0, 3.0]), (1, [3.0, 3.0])]
    outside = pickle.loads(pickle.dumps(_NcclGroup(2, identity, None, members)))
    assert (outside.get_self_rank(), outside.get_rank(members[1])) == (None, 1)
    with pytest.raises(ValueError, match="Expected 3 actors"):
        _NcclGroup(3, identity, None, members)
    on_all(ray, members, destroy)


# -------------------------------------------------------------------------------------------- sharing a GPU
def test_actors_that_share_a_gpu_are_refused_where_the_library_cannot_do_it(ray, machine, actors, monkeypatch):
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    machine(1)
    members = actors(2, num_gpus=0.5)
    communicator = NcclCommunicator(members)
    for joining in [member.join.remote(communicator, rank) for rank, member in enumerate(members)]:
        with pytest.raises(ValueError, match=r"rank 0 \(actor Member, pid \d+\) and rank 1 .* GPU-null-0.*Duplicate GPU detected"):
            ray.get(joining)


def test_actors_share_a_gpu_where_the_library_can_and_is_told_to(ray, machine, group, monkeypatch):
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    machine(1)
    members = group(2, num_gpus=0.5)
    *_others, kept = on_all(ray, members, relay, 5)
    assert [values for _shape, values in kept] == [[number + 2.0] for number in range(5)]
    on_all(ray, members, destroy)


def fail_with_its_streams(member: Any, communicator: Any, rank: int) -> tuple[str, bool]:
    """Become a rank on a device that makes one stream and no other; what is said, and whether the one is there for the next."""
    made = []

    def create(device: Any) -> int:
        if made:
            raise MemoryError("the device makes no streams")
        made.append(create_stream(device))
        return made[0]

    device = platform().devices[0]
    create_stream = type(device).create_stream
    with pytest.MonkeyPatch.context() as patch, pytest.raises(MemoryError) as caught:
        patch.setattr(type(device), "create_stream", create)
        communicator.initialize(rank)
    return str(caught.value), lend_stream(device, "communicators") in made


def what_is_said(member: Any, rank: int) -> str:
    with pytest.raises(RayChannelError) as caught:
        member.communicator.send(null.ones(2), rank)
    return str(caught.value)


def test_a_rank_that_finds_no_streams_leaves_the_group(ray, machine, actors):
    machine(2)
    members = actors(2)
    communicator = NcclCommunicator(members, use_communication_streams=True)
    failing = members[0].do.remote(fail_with_its_streams, communicator, 0)
    assert ray.get(members[1].join.remote(communicator, 1)) == 1
    assert ray.get(failing) == ("the device makes no streams", True)
    assert "rank 0" in ray.get(members[1].do.remote(what_is_said, 0))
    ray.get(members[1].do.remote(destroy))


# ---------------------------------------------------------------------------------------------- who is gone
def wait_for_rank(member: Any, rank: int, what: str) -> Any:
    """Queue work that waits for a rank, wait for the stream, and tell what the next call says."""
    communicator = member.communicator
    communicator.on_failure(lambda: member.kept.update(told=True))
    if what == "receive":
        communicator.recv((10,), "float32", rank)
    elif what == "send":
        communicator.send(null.ones(10), rank)
    else:
        communicator.allreduce(null.ones(10), null.empty(10))
    member.kept.pop("told", None)
    Path(member.kept["folder"], f"waits{communicator.get_self_rank()}").touch()
    for stream in {communicator.member.send_stream, communicator.member.receive_stream, 0}:
        platform().synchronize(platform().devices[0], stream)
    told = member.kept.get("told")
    with pytest.raises(RayChannelError) as caught:
        communicator.send(null.ones(10), rank)
    return told, str(caught.value), caught.value.__cause__


def waiting(members: list[Any], ray: Any, folder: Path, what: str, eventually: Any) -> list[Any]:
    """All but the first wait for it."""
    on_all(ray, members, lambda member, where: member.kept.update(folder=where), str(folder))
    refs = [member.do.remote(wait_for_rank, 0, what) for member in members[1:]]
    eventually(lambda: all((folder / f"waits{rank}").exists() for rank in range(1, len(members))))
    return refs


@STREAMS
@pytest.mark.parametrize("what", ["receive", "send", "allreduce"])
def test_who_waits_for_a_member_that_is_killed_is_told_who_died(ray, machine, group, tmp_path, eventually, what, streams):
    machine(3)
    members = group(3, streams)
    pid = ray.get(members[0].pid.remote())
    refs = waiting(members, ray, tmp_path, what, eventually)
    os.kill(pid, signal.SIGKILL)
    for told, text, cause in ray.get(refs):
        assert told
        assert f"rank 0 (actor Member, pid {pid}) has died" in text
        assert "SIGKILL" in text
        assert isinstance(cause, ActorDiedError)
    on_all(ray, members[1:], destroy)
    # The survivors make a new group.
    communicator = NcclCommunicator(members[1:], streams)
    ray.get([member.join.remote(communicator, rank) for rank, member in enumerate(members[1:])])
    assert on_all(ray, members[1:], relay, 3)[1] == [((number % 7 + 1, 50), [number + 2.0]) for number in range(3)]
    on_all(ray, members[1:], destroy)


@STREAMS
def test_who_waits_for_a_member_that_leaves_is_told(ray, machine, group, tmp_path, eventually, streams):
    machine(2)
    members = group(2, streams)
    refs = waiting(members, ray, tmp_path, "receive", eventually)
    on_all(ray, members[:1], destroy)
    ((told, text, _cause),) = ray.get(refs)
    assert told
    assert "has ended: rank 0 (actor Member" in text
    assert "destroyed the group" in text
    on_all(ray, members[1:], destroy)


def test_what_both_sides_have_queued_is_done_before_a_member_leaves(ray, machine, group):
    machine(2, late=0.01)
    members = group(2)

    def send_and_leave(member: Any) -> Any:
        communicator = member.communicator
        if communicator.get_self_rank() == 0:
            for number in range(10):
                communicator.send(null.full(5, number), 1)
            communicator.member.group.barrier()
            communicator.destroy()
            return None
        tensors = [communicator.recv((5,), "float32", 0) for _ in range(10)]
        communicator.member.group.barrier()
        return [tensor.tolist()[0] for tensor in tensors]

    assert on_all(ray, members, send_and_leave)[1] == list(range(10))
    on_all(ray, members, destroy)


def test_a_message_that_nobody_receives_does_not_keep_its_sender(ray, machine, group):
    machine(2)
    members = group(2, streams=True)

    def send(member: Any) -> None:
        member.communicator.send(null.ones(5), 1)
        member.communicator.destroy()

    on_all(ray, members[:1], send)

    def receive(member: Any) -> str:
        with pytest.raises(RayChannelError) as caught:
            member.communicator.recv((5,), "float32", 0)
        return str(caught.value)

    assert "destroyed the group" in on_all(ray, members[1:], receive)[0]
    on_all(ray, members[1:], destroy)


def test_the_others_go_on_when_one_has_left(ray, machine, group):
    machine(3)
    members = group(3)
    on_all(ray, members[:1], destroy)

    def exchange(member: Any) -> Any:
        communicator = member.communicator
        if communicator.get_self_rank() == 1:
            communicator.send(null.ones(3), 2)
            with pytest.raises(RayChannelError, match="has ended: rank 0"):
                communicator.allreduce(null.ones(3), null.empty(3))
            return None
        return communicator.recv((3,), "float32", 1).tolist()

    assert on_all(ray, members[1:], exchange)[1] == [1.0] * 3
    on_all(ray, members[1:], destroy)


def test_a_member_that_dies_before_it_joins_keeps_nobody_waiting(ray, machine, actors, eventually):
    machine(2)
    members = actors(2)
    pid = ray.get(members[1].pid.remote())
    joining = members[0].join.remote(NcclCommunicator(members), 0)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RayChannelError, match="rank 1 has died before it joined"):
        ray.get(joining)


def test_a_call_of_the_library_that_fails_breaks_the_group(ray, machine, group):
    machine(2)
    members = group(2)

    def different(member: Any) -> Any:
        communicator = member.communicator
        rank = communicator.get_self_rank()
        # One of both does not do what the other does.
        out = null.zeros(4)
        communicator.allreduce(null.ones(4), out, [ReduceOp.SUM, ReduceOp.MAX][rank])
        platform().synchronize(platform().devices[0], 0)
        communicator.member.group.host.wait_until(lambda: communicator.member.group.has_failed, 30)
        with pytest.raises(RayChannelError) as caught:
            communicator.allreduce(null.ones(4), out)
        return str(caught.value)

    for text in on_all(ray, members, different):
        assert "NCCL failed in rank" in text or "destroyed the group" in text
    on_all(ray, members, destroy)


@pytest.mark.parametrize("what", ["allreduce", "send", "recv"])
def test_who_has_queued_its_half_of_a_call_that_another_one_is_refused_is_told_why(ray, machine, group, what):
    machine(2)
    members = group(2)

    def work(member: Any) -> Any:
        communicator = member.communicator
        out, host = null.zeros(4), np.ones(4)
        if communicator.get_self_rank():
            with pytest.raises(ValueError, match="NCCL moves tensors of GPUs"):
                if what == "allreduce":
                    communicator.allreduce(host, out)
                elif what == "send":
                    communicator.recv((4,), "float32", 0, lambda shape, dtype: host)
                else:
                    communicator.send(host, 0)
            return ""
        if what == "allreduce":
            communicator.allreduce(null.ones(4), out)
        elif what == "send":
            communicator.send(null.ones(4), 1)
        else:
            communicator.recv((4,), "float32", 1, lambda shape, dtype: out)
        communicator.member.group.host.wait_until(lambda: communicator.member.group.has_failed, 30)
        with pytest.raises(RayChannelError) as caught:
            communicator.allreduce(null.ones(4), out)
        return str(caught.value)

    text = on_all(ray, members, work)[0]
    assert re.search(r"rank 1 \(actor .*\) did not take part, because the call was refused: ValueError\(.*NCCL moves tensors of GPUs", text)
    on_all(ray, members, destroy)


@pytest.mark.parametrize("what", ["send", "recv"])
def test_a_message_that_was_refused_and_then_done_is_not_held_against_later_ones(ray, machine, group, what):
    machine(2)
    members = group(2)

    def work(member: Any) -> Any:
        communicator = member.communicator
        host = np.ones(4)
        late = communicator.get_self_rank() == 1

        def move(number: int) -> Any:
            if (what == "send") is late:
                return communicator.recv((4,), "float32", 1 - communicator.get_self_rank()).tolist()
            return communicator.send(null.full((4,), number), 1 - communicator.get_self_rank())

        if late:
            with pytest.raises(ValueError, match="NCCL moves tensors of GPUs"):
                if what == "send":
                    communicator.recv((4,), "float32", 0, lambda shape, dtype: host)
                else:
                    communicator.send(host, 0)
        first = move(1)
        if late:
            time.sleep(2 * GRACE)
        return first, move(2)

    assert [each for each in on_all(ray, members, work) if each != (None, None)] == [([1.0] * 4, [2.0] * 4)]
    on_all(ray, members, destroy)


def test_graphs_of_one_actor_after_the_other_leave_nothing(ray, machine, actors):
    machine(2)
    members = actors(2)
    for _round in range(5):
        communicator = NcclCommunicator(members, use_communication_streams=True)
        ray.get([member.join.remote(communicator, rank) for rank, member in enumerate(members)])
        on_all(ray, members, relay, 2)
        on_all(ray, members, destroy)

    def what_is_left(member: Any) -> Any:
        import threading

        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("mray-nccl")]
        return names, [name for name in map(str, Path("/proc/self/fd").iterdir()) if "group" in os.path.realpath(name)]

    assert on_all(ray, members, what_is_left) == [([], [])] * 2
