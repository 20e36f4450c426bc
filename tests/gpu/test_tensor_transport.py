"""Tensors that stay with their actor on a real GPU, and are opened by others: as `tests/api/test_tensor_transport_devices`, with torch."""

from __future__ import annotations

import os
import signal as signals

import pytest

import mray
from mray._gpu.cuda_ipc import trim_pools

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, and a torch that sees it")


@pytest.fixture(scope="module")
def session():
    mray.init(num_cpus=4, num_gpus=1, preload=["torch"])
    yield
    mray.shutdown()
    trim_pools()


@mray.remote(num_gpus=0.25, num_cpus=0)
class Actor:
    def __init__(self):
        self.kept = []

    @mray.method(tensor_transport="cuda_ipc")
    def make(self, value, size=1000, dtype="float32"):
        return torch.full((size,), value, device="cuda", dtype=getattr(torch, dtype))

    @mray.method(tensor_transport="cuda_ipc")
    def make_slowly(self, rounds):
        matrix = torch.eye(2048, device="cuda")
        for _ in range(rounds):
            matrix = matrix @ torch.eye(2048, device="cuda")
        return matrix.sum() * torch.ones(1000, device="cuda")

    @mray.method(tensor_transport="cuda_ipc")
    def make_and_keep(self, value):
        self.kept.append(torch.full((1000,), float(value), device="cuda"))
        return {"kept": self.kept[-1], "transposed": torch.arange(6, device="cuda").reshape(2, 3).t()}

    @mray.method(tensor_transport="cuda_ipc")
    def make_for_gradients(self):
        return torch.ones(3, device="cuda", requires_grad=True)

    def write_again_once_free(self):
        mray.experimental.wait_tensor_freed(self.kept[-1])
        self.kept[-1].fill_(-1)

    def keep(self, tensor):
        self.kept.append(tensor)

    def kept_totals(self):
        return [tensor.double().sum().item() for tensor in self.kept]

    def total(self, value):
        if isinstance(value, dict):
            return {name: tensor.double().sum().item() for name, tensor in value.items()}
        assert value.is_cuda
        return value.double().sum().item()

    def pid(self):
        return os.getpid()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "uint8"])
@pytest.mark.parametrize("size", [0, 1, 1000, 10_000_000])
def test_a_tensor_goes_from_actor_to_actor(session, size, dtype):
    sender, receiver = Actor.remote(), Actor.remote()
    assert mray.get(receiver.total.remote(sender.make.remote(1, size, dtype))) == size


def test_the_receivers_stream_waits_for_what_makes_the_tensor(session):
    sender, receiver = Actor.remote(), Actor.remote()
    assert mray.get(receiver.total.remote(sender.make_slowly.remote(50))) == 2048 * 1000


def test_tensors_in_a_value_arrive_and_may_be_written_to_again(session):
    sender, receiver = Actor.remote(), Actor.remote()
    for value in range(1, 6):
        ref = sender.make_and_keep.remote(value)
        result = receiver.total.remote(ref)
        written = sender.write_again_once_free.remote()
        del ref
        assert mray.get(result) == {"kept": 1000.0 * value, "transposed": 15.0}
        mray.get(written)


def test_views_outlive_call_ref_and_holder(session):
    sender, receiver = Actor.remote(), Actor.remote()
    for value in range(4):
        mray.get(receiver.keep.remote(sender.make.remote(value)))
    for value in range(20):
        mray.get(receiver.total.remote(sender.make.remote(value)))
    assert mray.get(receiver.kept_totals.remote()) == [0, 1000, 2000, 3000]
    ref = sender.make.remote(5)
    mray.wait([ref])
    pid = mray.get(sender.pid.remote())
    os.kill(pid, signals.SIGKILL)
    with pytest.raises(mray.exceptions.ActorDiedError, match=rf"pid {pid}"):
        mray.get(receiver.total.remote(ref))
    assert mray.get(receiver.kept_totals.remote()) == [0, 1000, 2000, 3000]


def test_the_driver_gets_puts_and_names_targets(session):
    actor = Actor.remote()
    ref = actor.make.remote(3.0)
    assert mray.get(ref).is_cuda
    target = torch.zeros(1000, device="cuda")
    mray.experimental.set_target_for_ref(ref, [target])
    assert mray.get(ref) is target and target.sum() == 3000
    put = mray.put(torch.full((10,), 2.0, device="cuda"), _tensor_transport="cuda_ipc")
    assert mray.get(actor.total.remote(put)) == 20
    assert mray.get(ref, _use_object_store=True).sum() == 3000


def test_gradients_stay_behind_and_that_is_said(session):
    with pytest.raises(RuntimeError, match=r"Return tensor\.detach\(\)"):
        mray.get(Actor.remote().make_for_gradients.remote())


def test_memory_of_dead_actors_comes_back(session):
    def round_():
        sender, receiver = Actor.remote(), Actor.remote()
        mray.get(receiver.keep.remote(sender.make.remote(1.0, 1 << 24)))
        for actor in (sender, receiver):
            os.kill(mray.get(actor.pid.remote()), signals.SIGKILL)
            with pytest.raises(mray.exceptions.ActorDiedError):
                mray.get(actor.pid.remote())

    round_()
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(5):
        round_()
    assert torch.cuda.mem_get_info()[0] >= free - (64 << 20)
