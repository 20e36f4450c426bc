"""GPUs as resources of Ray's libraries: who has which, whole and shared. Declared ones, so that no GPU is needed."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.full import full

pytest.importorskip("ray.data")
pytest.importorskip("starlette")
SESSION = {"num_gpus": 2}
pytestmark = full


def seen() -> list[str]:
    """The GPUs that this process may use."""
    import ray

    ids = [str(each) for each in ray.get_gpu_ids()]
    assert (os.environ.get("CUDA_VISIBLE_DEVICES") or "").split(",") == ids
    return ids


def test_trials_have_gpus_of_their_own_or_share_one(ray_session: ModuleType, tmp_path: Path) -> None:
    from ray import tune

    def trial(config: dict[str, Any]) -> None:
        tune.report({"gpus": seen()})

    for share, count in ((1, 2), (0.5, 4)):
        found = tune.Tuner(
            tune.with_resources(trial, {"cpu": 0.5, "gpu": share}),
            param_space={"x": tune.grid_search(list(range(count)))},
            run_config=tune.RunConfig(storage_path=str(tmp_path), name=f"of {share}", verbose=0),
        ).fit()
        assert not found.num_errors
        assert all(each.metrics["gpus"] in (["0"], ["1"]) for each in found)
        assert len(found) == count


def test_replicas_have_gpus(ray_session: ModuleType) -> None:
    from ray import serve

    @serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.1, "num_gpus": 1})
    class Model:
        def __call__(self) -> tuple[int, list[str]]:
            return os.getpid(), seen()

    # The thread of a handle stays in its process: it is a worker's here.
    @ray_session.remote(num_cpus=0)
    def find(handle: Any) -> list[list[str]]:
        found: dict[int, list[str]] = {}
        while len(found) < 2:
            pid, gpus = handle.remote().result(timeout_s=60)
            found[pid] = gpus
        return sorted(found.values())

    try:
        assert ray_session.get(find.remote(serve.run(Model.bind(), route_prefix=None))) == [["0"], ["1"]]
    finally:
        serve.shutdown()


def test_workers_of_a_training_run_have_one_gpu_each_and_see_those_of_the_others(ray_session: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import ray.train
    from ray.train.torch import TorchConfig, TorchTrainer

    def loop(config: dict[str, Any]) -> None:
        import torch.distributed

        context = ray.train.get_context()
        assert torch.distributed.get_world_size() == 2
        row = f"{ray.get_gpu_ids()} {os.environ['CUDA_VISIBLE_DEVICES']}"
        Path(config["folder"], str(context.get_world_rank())).write_text(row)

    TorchTrainer(
        loop,
        train_loop_config={"folder": str(tmp_path)},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"CPU": 0.5, "GPU": 1}),
        run_config=ray.train.RunConfig(storage_path=str(tmp_path / "results")),
    ).fit()
    rows = sorted(Path(tmp_path, str(rank)).read_text() for rank in range(2))
    assert [row.split(" ")[0] for row in rows] == ["[0]", "[1]"]
    assert {row.split(" ")[1] for row in rows} == {"0,1"}
