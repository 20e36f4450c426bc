"""GPUs as resources of Ray's libraries: who has which, whole and shared.

Where torch finds GPUs, whoever has one computes on it, and training communicates with NCCL; elsewhere two are declared that nobody has.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.full import full

pytest.importorskip("ray.data")
pytest.importorskip("starlette")
pytestmark = full


def _there() -> int:
    """The number of GPUs of this machine; to ask opens none."""
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count()


REAL = _there()
COUNT = REAL or 2
IDS = [str(number) for number in range(COUNT)]
SESSION = {"num_gpus": COUNT}


def seen() -> list[str]:
    """The GPUs that this process may use, and uses where there are any."""
    import ray

    ids = [str(each) for each in ray.get_gpu_ids()]
    assert (os.environ.get("CUDA_VISIBLE_DEVICES") or "").split(",") == ids
    if REAL:
        import torch

        assert torch.cuda.device_count() == len(ids)
        assert float(torch.arange(1000.0, device="cuda").sum()) == 499_500
    return ids


def test_batches_are_mapped_on_gpus(ray_session: ModuleType) -> None:
    import ray.data

    class Model:
        def __init__(self) -> None:
            (self.gpu,) = seen()

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {"id": batch["id"], "gpu": [self.gpu] * len(batch["id"])}

    pool = ray.data.ActorPoolStrategy(size=COUNT)
    rows = ray.data.range(100, override_num_blocks=10).map_batches(Model, compute=pool, num_cpus=0.1, num_gpus=1, batch_size=10).take_all()
    assert sorted(row["id"] for row in rows) == list(range(100))
    assert {row["gpu"] for row in rows} <= set(IDS)


def test_trials_have_gpus_of_their_own_or_share_one(ray_session: ModuleType, tmp_path: Path) -> None:
    from ray import tune

    def trial(config: dict[str, Any]) -> None:
        tune.report({"gpus": seen()})

    for share, count in ((1, COUNT), (0.5, 2 * COUNT)):
        found = tune.Tuner(
            tune.with_resources(trial, {"cpu": 0.5, "gpu": share}),
            param_space={"x": tune.grid_search(list(range(count)))},
            run_config=tune.RunConfig(storage_path=str(tmp_path), name=f"of {share}", verbose=0),
        ).fit()
        assert not found.num_errors
        assert all(each.metrics["gpus"] in [[number] for number in IDS] for each in found)
        assert len(found) == count


def test_replicas_have_gpus(ray_session: ModuleType) -> None:
    from ray import serve

    @serve.deployment(num_replicas=COUNT, ray_actor_options={"num_cpus": 0.1, "num_gpus": 1})
    class Model:
        def __call__(self) -> tuple[int, list[str]]:
            return os.getpid(), seen()

    # The thread of a handle stays in its process: it is a worker's here.
    @ray_session.remote(num_cpus=0)
    def find(handle: Any) -> list[list[str]]:
        found: dict[int, list[str]] = {}
        while len(found) < COUNT:
            pid, gpus = handle.remote().result(timeout_s=60)
            found[pid] = gpus
        return sorted(found.values())

    try:
        assert ray_session.get(find.remote(serve.run(Model.bind(), route_prefix=None))) == [[number] for number in IDS]
    finally:
        serve.shutdown()


def test_workers_of_a_training_run_have_one_gpu_each_and_see_those_of_the_others(ray_session: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import ray.train
    from ray.train.torch import TorchConfig, TorchTrainer

    def loop(config: dict[str, Any]) -> None:
        import torch
        import torch.distributed
        from ray.train.torch import get_device

        rank = ray.train.get_context().get_world_rank()
        numbers = torch.ones(1000, device=get_device() if REAL else "cpu")
        torch.distributed.all_reduce(numbers)
        assert float(numbers.sum()) == 1000 * COUNT
        Path(config["folder"], str(rank)).write_text(f"{ray.get_gpu_ids()} {os.environ['CUDA_VISIBLE_DEVICES']}")

    TorchTrainer(
        loop,
        train_loop_config={"folder": str(tmp_path)},
        torch_config=TorchConfig(backend="nccl" if REAL else "gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=COUNT, use_gpu=True, resources_per_worker={"CPU": 0.5, "GPU": 1}),
        run_config=ray.train.RunConfig(storage_path=str(tmp_path / "results")),
    ).fit()
    rows = sorted(Path(tmp_path, str(rank)).read_text() for rank in range(COUNT))
    assert [row.split(" ")[0] for row in rows] == [f"[{number}]" for number in IDS]
    assert {row.split(" ")[1] for row in rows} == {",".join(IDS)}
