"""The communicator over torch.distributed in the hands of actors, with gloo on the CPU."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mray._api.communicator import ReduceOp  # noqa: E402
from mray._channel.torch_distributed import TorchDistributedCommunicator  # noqa: E402
from mray.exceptions import ActorDiedError, RayChannelError  # noqa: E402

pytestmark = [
    pytest.mark.only("mray"),  # torch.distributed has one rank in a process: in one process it is refused
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch has no gloo"),
]

PRELOAD = ["torch"]


class Member:
    """An actor that is a rank; `do` runs a function of the test in it."""

    def __init__(self) -> None:
        self.communicator: Any = None

    def pid(self) -> int:
        return os.getpid()

    def join(self, communicator: Any, rank: int) -> None:
        self.communicator = communicator
        communicator.initialize(rank)

    def do(self, function: Any, *arguments: Any) -> Any:
        return function(self.communicator, *arguments)


@pytest.fixture
def group(ray: Any, ray_session: Any) -> Callable[[int], list[Any]]:
    """So many actors that are ranks of one communicator."""

    def make(count: int) -> list[Any]:
        members = [ray.remote(num_cpus=0)(Member).remote() for _ in range(count)]
        communicator = TorchDistributedCommunicator(members, "gloo")
        ray.get([member.join.remote(communicator, rank) for rank, member in enumerate(members)])
        return members

    return make


def on_all(ray: Any, members: list[Any], function: Any, *arguments: Any) -> list[Any]:
    return ray.get([member.do.remote(function, *arguments) for member in members])


def destroy(communicator: Any) -> None:
    communicator.destroy()
    communicator.destroy()


def everything(communicator: Any) -> Any:
    rank = communicator.get_self_rank()
    own = torch.arange(6.0).reshape(3, 2) + rank
    total, mean, gathered, part = torch.empty(3, 2), torch.empty(3, 2), torch.empty(9, 2), torch.empty(1, 2)
    communicator.allreduce(own, total)
    communicator.allreduce(own, mean, ReduceOp.AVG)
    communicator.allgather(own, gathered)
    communicator.reducescatter(own, part, ReduceOp.MAX)
    communicator.allreduce(own, own, ReduceOp.MIN)
    received = []
    for number in range(5):
        if rank:
            received.append(communicator.recv((number + 1, 3), torch.int64, rank - 1))
        if rank < 2:
            communicator.send(received[-1] + 1 if rank else torch.full((number + 1, 3), number), rank + 1)
    return total, mean, gathered, part, own, received


def test_collectives_and_messages(ray, group):
    members = group(3)
    values = [torch.arange(6.0).reshape(3, 2) + rank for rank in range(3)]
    total = values[0] + values[1] + values[2]
    for rank, results in enumerate(on_all(ray, members, everything)):
        received = results[-1]
        expected = [total, total / 3, torch.cat(values), values[2][rank : rank + 1], values[0]]
        for result, right in zip(results, expected, strict=False):
            torch.testing.assert_close(result, right, rtol=0, atol=0)
        for number, tensor in enumerate(received):
            assert torch.equal(tensor, torch.full((number + 1, 3), number + rank - 1))
    on_all(ray, members, destroy)


def test_a_process_group_of_the_user_is_left_alone(ray, group, tmp_path):
    members = group(2)

    def beside(communicator: Any, path: str) -> Any:
        from torch import distributed

        distributed.init_process_group("gloo", init_method=f"file://{path}", rank=communicator.get_self_rank(), world_size=2)
        theirs, ours = torch.ones(1), torch.ones(1)
        distributed.all_reduce(theirs)
        communicator.allreduce(ours, ours)
        communicator.destroy()
        distributed.all_reduce(theirs)
        distributed.destroy_process_group()
        return theirs.item(), ours.item()

    assert on_all(ray, members, beside, str(tmp_path / "store")) == [(4.0, 2.0)] * 2


def test_it_listens_on_the_loopback_interface_only(ray, group):
    members = group(2)

    def listening(communicator: Any) -> list[str]:
        inodes = set()
        for name in Path("/proc/self/fd").iterdir():
            try:
                inodes.add(os.readlink(name).removeprefix("socket:[").rstrip("]"))
            except OSError:
                continue  # that of the listing itself
        lines = [line.split() for kind in ("tcp", "tcp6") for line in Path("/proc/self/net", kind).read_text().splitlines()[1:]]
        return [line[1] for line in lines if line[3] == "0A" and line[9] in inodes]

    for addresses in on_all(ray, members, listening):
        assert addresses
        assert all(address.startswith(("0100007F:", "0" * 24 + "01000000:")) for address in addresses)
    on_all(ray, members, destroy)


def wait_for_rank(communicator: Any, what: str, path: str) -> Any:
    Path(path, str(os.getpid())).touch()
    with pytest.raises(RayChannelError) as caught:
        if what == "recv":
            communicator.recv((4,), torch.float32, 0)
        else:
            communicator.allreduce(torch.ones(4), torch.empty(4))
    with pytest.raises(RayChannelError):
        communicator.send(torch.ones(4), 0)
    return str(caught.value), caught.value.__cause__


@pytest.mark.parametrize("what", ["recv", "allreduce"])
def test_who_waits_for_a_member_that_is_killed_is_told_who_died(ray, group, tmp_path, eventually, what):
    members = group(3)
    pid = ray.get(members[0].pid.remote())
    refs = [member.do.remote(wait_for_rank, what, str(tmp_path)) for member in members[1:]]
    eventually(lambda: len(list(tmp_path.iterdir())) == 2)
    os.kill(pid, signal.SIGKILL)
    for text, cause in ray.get(refs):
        assert f"rank 0 (actor Member, pid {pid}) has died" in text
        assert isinstance(cause, ActorDiedError)
    on_all(ray, members[1:], destroy)


def test_who_waits_for_a_member_that_leaves_is_told(ray, group, tmp_path, eventually):
    members = group(2)
    ref = members[1].do.remote(wait_for_rank, "recv", str(tmp_path))
    eventually(lambda: list(tmp_path.iterdir()))
    on_all(ray, members[:1], destroy)
    text, _cause = ray.get(ref)
    assert "has ended: rank 0 (actor Member" in text
    on_all(ray, members[1:], destroy)


def test_a_member_that_dies_before_it_joins_keeps_nobody_waiting(ray, ray_session):
    members = [ray.remote(num_cpus=0)(Member).remote() for _ in range(2)]
    pid = ray.get(members[1].pid.remote())
    joining = members[0].join.remote(TorchDistributedCommunicator(members, "gloo"), 0)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RayChannelError, match="rank 1 has died before it joined"):
        ray.get(joining)


def test_misuse_is_refused(ray, group):
    members = group(1)
    with pytest.raises(ValueError, match="Expected different actors"):
        TorchDistributedCommunicator(members * 2, "gloo")
    with pytest.raises(ValueError, match="'mpi' is neither 'nccl' nor 'gloo'"):
        TorchDistributedCommunicator(members, "mpi")
    communicator = TorchDistributedCommunicator(members, "gloo")
    assert pickle.loads(pickle.dumps(communicator))._id == communicator._id
    assert (communicator.get_rank(members[0]), communicator.get_self_rank(), communicator.get_world_size()) == (0, None, 1)
    assert communicator.get_transport_name() == "cpu"
    with pytest.raises(RayChannelError, match="initialize"):
        communicator.send(torch.ones(1), 0)
    communicator.destroy()

    def misuse(communicator: Any) -> None:
        with pytest.raises(RuntimeError, match="rank 0 of the group already"):
            communicator.initialize(0)
        with pytest.raises(ValueError, match="for tensors on cpu, and this Tensor is on meta"):
            communicator.send(torch.empty(1, device="meta"), 0)
        communicator.destroy()

    on_all(ray, members, misuse)


@pytest.mark.skipif(torch.distributed.is_nccl_available(), reason="this torch has NCCL")
def test_a_torch_without_nccl_says_so(ray, ray_session):
    (member,) = [ray.remote(num_cpus=0)(Member).remote()]
    with pytest.raises(RuntimeError, match="This torch has no nccl"):
        ray.get(member.join.remote(TorchDistributedCommunicator([member]), 0))
