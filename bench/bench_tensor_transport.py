"""Benchmarks of calls that pass a tensor from actor to actor: the ordinary way, and left with its maker until it is asked for.

pytest bench/bench_tensor_transport.py -o addopts= -o python_files="bench_*.py"

Tensors of the CPU, and of the GPU where there is one. ``touched``: the receiver reads the tensor, which maps its pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mray

torch = pytest.importorskip("torch")

KIB, MIB = 1 << 10, 1 << 20
SIZES = [KIB, 64 * KIB, MIB, 16 * MIB, 100 * MIB]
GPU = torch.cuda.is_available()


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    mray.init(num_cpus=4, num_gpus=1 if GPU else 0, logging_level="ERROR", object_store_memory=2 << 30, preload=["torch"])
    yield
    mray.shutdown()


class Actor:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.made: dict[tuple[int, str], Any] = {}

    def make(self, size: int, device: str) -> Any:
        if (size, device) not in self.made:
            self.made[size, device] = torch.ones(size // 4, device=device)
        return self.made[size, device]

    def take(self, tensor: Any) -> int:
        return int(tensor.nbytes)

    def touch(self, tensor: Any) -> int:
        return 4 * int(tensor.sum().item())


@pytest.fixture(scope="module")
def actors(session: None) -> list[Any]:
    cls = mray.remote(num_cpus=0, num_gpus=0.25 if GPU else 0, enable_tensor_transport=True)(Actor)
    return [cls.remote() for _ in range(2)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size // KIB}KiB")
@pytest.mark.parametrize("use", ["take", "touch"], ids=["passed on", "touched"])
@pytest.mark.parametrize(("device", "transport"), [("cpu", "object_store"), ("cpu", "shm"), ("cuda", "object_store"), ("cuda", "cuda_ipc")])
def test_a_tensor_from_actor_to_actor(benchmark: Any, actors: list[Any], size: int, use: str, device: str, transport: str) -> None:
    if device == "cuda" and not GPU:
        pytest.skip("needs a GPU")
    sender, receiver = actors
    make, look = sender.make.options(tensor_transport=transport), getattr(receiver, use)
    assert mray.get(look.remote(make.remote(size, device))) == pytest.approx(size)
    benchmark(lambda: mray.get(look.remote(make.remote(size, device))))


@pytest.mark.parametrize("transport", ["object_store", "shm"])
def test_sixteen_tensors_of_a_mebibyte_in_flight(benchmark: Any, actors: list[Any], transport: str) -> None:
    sender, receiver = actors
    make = sender.make.options(tensor_transport=transport)
    benchmark(lambda: mray.get([receiver.touch.remote(make.remote(MIB, "cpu")) for _ in range(16)]))
