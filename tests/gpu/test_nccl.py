"""Real NCCL: two and more GPUs, or two ranks on one where the library can do that. Run with one command on a machine that has them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mray
from mray._ipc.discovery import machine_gpus
from mray.exceptions import ActorDiedError, RayChannelError

torch = pytest.importorskip("torch")


def why_not() -> str:
    """The reason why these tests cannot run here; empty: they can. No CUDA context is made in this process."""
    if not machine_gpus():
        return "needs an NVIDIA GPU"
    from mray._device.libnccl import version_name
    from mray._device.nccl_library import SHARED_GPU_VERSION, nccl_version

    version = nccl_version()
    if not version:
        return "needs NCCL 2.10 or newer, which torch for CUDA brings along"
    if len(machine_gpus()) < 2 and version < SHARED_GPU_VERSION:
        return f"needs two GPUs, or NCCL 2.30 (this is {version_name(version)})"
    return ""


pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


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


@pytest.fixture(params=[False, True], ids=["on the current stream", "on streams of their own"])
def members(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Two actors that are ranks of one communicator, on a GPU each, or both on the only one."""
    why = why_not()
    if why:
        pytest.skip(why)
    from mray._gpu.nccl import NcclCommunicator

    gpus = len(machine_gpus())
    if gpus < 2:
        monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    mray.init(num_cpus=4, num_gpus=gpus, preload=["torch"])
    actors = [mray.remote(num_cpus=0, num_gpus=1 if gpus > 1 else 0.5)(Member).remote() for _ in range(2)]
    communicator = NcclCommunicator(actors, request.param)
    mray.get([actor.join.remote(communicator, rank) for rank, actor in enumerate(actors)])
    yield actors
    mray.shutdown()


def on_all(actors: list[Any], function: Callable[..., Any], *arguments: Any) -> list[Any]:
    return mray.get([actor.do.remote(function, *arguments) for actor in actors])


def collectives(communicator: Any, dtype: Any) -> Any:
    from mray._api.communicator import ReduceOp
    from mray._device.platform import platform

    rank = communicator.get_self_rank()
    own = torch.arange(1 << 12, device="cuda").to(dtype).remainder(7).reshape(-1, 2) + rank
    before = platform().synchronizations
    total, gathered, part = torch.empty_like(own), own.new_empty(2 * len(own), 2), own.new_empty(len(own) // 2, 2)
    for _ in range(3):
        communicator.allreduce(own, total, ReduceOp.SUM)
        communicator.allgather(own, gathered)
        communicator.reducescatter(own, part, ReduceOp.MAX)
    assert platform().synchronizations == before
    return own.cpu(), total.cpu(), gathered.cpu(), part.cpu()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64"])
def test_collectives(members, dtype):
    results = on_all(members, collectives, getattr(torch, dtype))
    (first, *_), (second, *_) = results
    for rank, (_own, total, gathered, part) in enumerate(results):
        assert torch.equal(total, first + second)
        assert torch.equal(gathered, torch.cat([first, second]))
        assert torch.equal(part, torch.maximum(first, second).chunk(2)[rank])


def relay(communicator: Any, rounds: int) -> Any:
    """Rank 0 makes, rank 1 receives and computes; memory is let go of as soon as it is sent."""
    from mray._device.platform import platform

    sums = []
    before = platform().synchronizations
    for number in range(rounds):
        shape = (number % 50 + 1, 1000)
        if communicator.get_self_rank() == 0:
            communicator.send(torch.full(shape, float(number), device="cuda"), 1)
        else:
            sums.append((communicator.recv(shape, torch.float32, 0) * 2).mean())
    assert platform().synchronizations == before
    return torch.stack(sums).tolist() if sums else None


def test_messages(members):
    assert on_all(members, relay, 500)[1] == [2.0 * number for number in range(500)]


def test_computing_goes_on_while_messages_come(members):
    def overlapping(communicator: Any) -> float:
        matrix = torch.eye(1024, device="cuda")
        total = torch.zeros((), device="cuda")
        for number in range(20):
            if communicator.get_self_rank() == 0:
                communicator.send(torch.full((1 << 20,), float(number), device="cuda"), 1)
                matrix = matrix @ matrix
            else:
                with communicator.deferring() as later:
                    arriving = communicator.recv((1 << 20,), torch.float32, 0)
                matrix = matrix @ matrix
                later.wait()
                total += arriving.mean()
        assert torch.equal(matrix, torch.eye(1024, device="cuda"))
        return float(total)

    assert on_all(members, overlapping)[1] == sum(range(20))


def test_who_waits_for_a_member_that_is_killed_is_told_who_died(members, eventually, tmp_path):
    on_all(members, relay, 2)
    pid = mray.get(members[0].pid.remote())

    def wait(communicator: Any, path: str) -> Any:
        communicator.recv((10,), torch.float32, 0)
        Path(path).touch()
        torch.cuda.synchronize()
        with pytest.raises(RayChannelError) as caught:
            communicator.recv((10,), torch.float32, 0)
        communicator.destroy()
        return str(caught.value), caught.value.__cause__

    ref = members[1].do.remote(wait, str(tmp_path / "waits"))
    eventually((tmp_path / "waits").exists)
    os.kill(pid, signal.SIGKILL)
    text, cause = mray.get(ref)
    assert f"rank 0 (actor Member, pid {pid}) has died" in text
    assert isinstance(cause, ActorDiedError)


def test_groups_come_and_go_without_taking_memory(members):
    from mray._gpu.nccl import NcclCommunicator

    on_all(members, lambda communicator: communicator.destroy())

    def free(_communicator: Any) -> int:
        torch.cuda.synchronize()
        return int(torch.cuda.mem_get_info()[0])

    used = []
    for _round in range(6):
        communicator = NcclCommunicator(members, True)
        mray.get([actor.join.remote(communicator, rank) for rank, actor in enumerate(members)])
        on_all(members, relay, 5)
        on_all(members, lambda communicator: communicator.destroy())
        used.append(min(on_all(members, free)))
    # The first rounds load modules of CUDA.
    assert used[-1] >= used[1] - (32 << 20)


def test_the_collective_api(members):
    from mray.util import collective

    def join(communicator: Any) -> None:
        collective.init_collective_group(2, communicator.get_self_rank(), "nccl", "gpu")

    on_all(members, join)

    def everything(communicator: Any) -> Any:
        rank = collective.get_rank("gpu")
        tensor = torch.full((10,), rank + 1.0, device="cuda")
        collective.allreduce(tensor, "gpu")
        collective.broadcast(tensor, 0, "gpu")
        gathered = [torch.empty(2, device="cuda") for _ in range(2)]
        collective.allgather(gathered, torch.full((2,), float(rank), device="cuda"), "gpu")
        part = torch.empty(2, device="cuda")
        collective.reducescatter(part, [torch.full((2,), rank + number, device="cuda", dtype=torch.float32) for number in range(2)], "gpu")
        collective.barrier("gpu")
        if rank:
            collective.recv(tensor, 0, "gpu")
        else:
            collective.send(tensor * 2, 1, "gpu")
        collective.destroy_collective_group("gpu")
        return tensor.tolist(), [each.tolist() for each in gathered], part.tolist()

    assert on_all(members, everything) == [
        ([3.0] * 10, [[0, 0], [1, 1]], [1, 1]),
        ([6.0] * 10, [[0, 0], [1, 1]], [3, 3]),
    ]


def test_cupy_arrays(members):
    def reduce(communicator: Any) -> Any:
        import cupy

        from mray.util import collective

        collective.init_collective_group(2, communicator.get_self_rank(), "nccl", "cupy")
        with cupy.cuda.Stream():
            array = cupy.full(1000, communicator.get_self_rank() + 1, "f4")
            collective.allreduce(array, "cupy")
            total = float((array * 2).sum())
        collective.destroy_collective_group("cupy")
        return total

    assert on_all(members, reduce) == [6000.0, 6000.0]
