"""Ray Train: what workers know of each other, ingest, checkpoints, failures, a run whose driver was killed, torch, Lightning, accelerate,
LightGBM, XGBoost.

A worker that is killed, and the run that goes on from its checkpoint, are in the example of Train (`test_programs`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

from tests.conftest import wait_until
from tests.full import full

RAY = os.environ.get("MRAY_TEST_ENGINE") == "ray"
SESSION = {"num_cpus": 6}


def trained(folder: Path, name: str, work: Callable[..., Any], *, workers: int = 2, trainer: Any = None, **options: Any) -> Any:
    """The result of a run by this trainer (`DataParallelTrainer`), with its files in a folder."""
    from ray import train
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    run_options = {key: options.pop(key) for key in ("failure_config", "checkpoint_config", "callbacks") if key in options}
    return (trainer or DataParallelTrainer)(
        work,
        scaling_config=train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(storage_path=str(folder), name=name, **run_options),
        **options,
    ).fit()


@full
def test_workers_know_their_ranks_and_meet(ray_session: Any, tmp_path: Path) -> None:
    def work(config: dict[str, Any]) -> None:
        from ray import train
        from ray.train import collective

        me = train.get_context()
        heard = collective.broadcast_from_rank_zero({"by": me.get_world_rank()})
        info = [me.get_world_rank(), me.get_local_rank(), me.get_node_rank(), me.get_world_size(), me.get_local_world_size()]
        Path(config["folder"], f"{me.get_world_rank()}").write_text(json.dumps([info, heard, me.get_experiment_name(), os.getpid()]))
        collective.barrier()
        assert len(list(Path(config["folder"]).iterdir())) == 3

    folder = tmp_path / "told"
    folder.mkdir()
    trained(tmp_path, "ranks", work, workers=3, train_loop_config={"folder": str(folder)})
    told = [json.loads((folder / str(rank)).read_text()) for rank in range(3)]
    assert [info for info, *_ in told] == [[rank, rank, 0, 3, 3] for rank in range(3)]
    assert [(by, name) for _, by, name, _ in told] == [({"by": 0}, "ranks")] * 3
    assert len({pid for *_, pid in told} | {os.getpid()}) == 4


@full
def test_a_run_returns_what_rank_zero_returns(ray_session: Any, tmp_path: Path) -> None:
    def work() -> Any:
        from ray import train

        return {"rank": train.get_context().get_world_rank()}

    assert trained(tmp_path, "returns", work).return_value == {"rank": 0}


@full
def test_the_best_checkpoints_are_kept_and_each_worker_puts_its_part_into_them(ray_session: Any, tmp_path: Path) -> None:
    from ray import train

    def work() -> None:
        from ray import train

        rank = train.get_context().get_world_rank()
        for step, score in enumerate([3, 9, 1, 7]):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, f"part-{rank}").write_text(f"{step} {rank}")
                train.report({"score": score, "step": step}, checkpoint=train.Checkpoint.from_directory(folder))

    keep = train.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score", checkpoint_score_order="max")
    result = trained(tmp_path, "best", work, checkpoint_config=keep)
    assert sorted(metrics["score"] for _, metrics in result.best_checkpoints) == [7, 9]
    best = result.get_best_checkpoint("score", "max")
    with best.as_directory() as folder:
        assert {path.name: path.read_text() for path in Path(folder).glob("part-*")} == {"part-0": "1 0", "part-1": "1 1"}
    with result.checkpoint.as_directory() as folder:
        assert Path(folder, "part-1").read_text() == "3 1"
    assert len([path for path in (tmp_path / "best").glob("checkpoint_*") if path.is_dir()]) == 2


@full
def test_an_error_of_a_worker_is_told_with_its_text_and_the_others_end(ray_session: Any, tmp_path: Path) -> None:
    from ray import train

    def work() -> None:
        from ray import train
        from ray.train import collective

        if train.get_context().get_world_rank() == 1:
            raise ValueError("no such number")
        collective.barrier()

    with pytest.raises(train.TrainingFailedError) as caught:
        trained(tmp_path, "fails", work)
    assert "no such number" in str(caught.value)
    assert isinstance(caught.value.worker_failures[1], Exception)
    assert 0 not in caught.value.worker_failures


@full
@pytest.mark.parametrize("failures", [1, 2])
def test_a_run_is_begun_again_so_often_and_no_more(ray_session: Any, tmp_path: Path, failures: int) -> None:
    from ray import train

    def work(config: dict[str, Any]) -> None:
        from ray import train

        if train.get_context().get_world_rank() == 1:
            with open(config["path"], "a", encoding="ascii") as file:
                file.write("x")
            if len(Path(config["path"]).read_text()) < 3:
                os.kill(os.getpid(), signal.SIGKILL)
        train.report({"tries": len(Path(config["path"]).read_text())})

    path = tmp_path / "tries"

    def run() -> Any:
        return trained(
            tmp_path, "again", work, train_loop_config={"path": str(path)}, failure_config=train.FailureConfig(max_failures=failures)
        )

    if failures == 2:
        assert run().error is None
    else:
        with pytest.raises(train.TrainingFailedError):
            run()
    assert path.read_text() == "x" * (failures + 1)


@full
def test_a_callback_hears_each_report(ray_session: Any, tmp_path: Path) -> None:
    from ray import train

    def work() -> None:
        from ray import train

        for step in range(3):
            train.report({"step": step, "rank": train.get_context().get_world_rank()})

    class Notes(train.UserCallback):  # type: ignore[misc]
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            with (tmp_path / "heard").open("a", encoding="ascii") as file:
                print(sorted((metric["step"], metric["rank"]) for metric in metrics), checkpoint, file=file)

    trained(tmp_path, "heard of", work, callbacks=[Notes()])
    assert (tmp_path / "heard").read_text().splitlines() == [f"[({step}, 0), ({step}, 1)] None" for step in range(3)]


# ------------------------------------------------------------------------------------------------ data
@full
def test_each_row_reaches_one_worker_in_each_epoch_and_what_is_not_split_reaches_all(ray_session: Any, tmp_path: Path) -> None:
    import ray.data
    from ray import train

    def work(config: dict[str, Any]) -> None:
        from ray import train

        rank = train.get_context().get_world_rank()
        seen = []
        for _ in range(2):
            rows = [row["number"] for batch in train.get_dataset_shard("train").iter_batches(batch_size=7) for row in _rows(batch)]
            held_out = sum(int(batch["number"].sum()) for batch in train.get_dataset_shard("test").iter_batches())
            seen.append([sorted(map(int, rows)), held_out])
        Path(config["folder"], str(rank)).write_text(json.dumps(seen))

    def _rows(batch: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"number": number} for number in batch["number"]]

    folder = tmp_path / "seen"
    folder.mkdir()
    numbers = ray.data.range(300, override_num_blocks=12).map(lambda row: {"number": row["id"] * 2})
    trained(
        tmp_path,
        "ingest",
        work,
        train_loop_config={"folder": str(folder)},
        datasets={"train": numbers, "test": ray.data.range(10).map(lambda row: {"number": row["id"]})},
        dataset_config=train.DataConfig(datasets_to_split=["train"]),
    )
    first, second = (json.loads((folder / str(rank)).read_text()) for rank in range(2))
    for (ours, held_out), (theirs, held_out_too) in zip(first, second, strict=True):
        assert sorted(ours + theirs) == [2 * number for number in range(300)]
        assert abs(len(ours) - len(theirs)) <= 2
        assert held_out == held_out_too == 45


# ------------------------------------------------------------------------------------------------ runs that go on
GOES_ON = """
    import pathlib, sys, tempfile, time
    import ray
    from ray import train
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    folder = sys.argv[1]

    def work():
        begun = 0
        checkpoint = train.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as kept:
                begun = int(pathlib.Path(kept, "step").read_text()) + 1
        for step in range(begun, 6):
            while step == 3 and not pathlib.Path(folder, "go on").exists():
                time.sleep(0.05)
            with tempfile.TemporaryDirectory() as kept:
                pathlib.Path(kept, "step").write_text(str(step))
                train.report({"step": step, "begun": begun}, checkpoint=train.Checkpoint.from_directory(kept))

    ray.init(num_cpus=4, log_to_driver=False, logging_level="ERROR", **%r)
    result = DataParallelTrainer(
        work, scaling_config=train.ScalingConfig(num_workers=2), run_config=train.RunConfig(storage_path=folder, name="run")
    ).fit()
    print(result.metrics["step"], result.metrics["begun"])
"""


@full
def test_a_run_goes_on_after_its_driver_was_killed(fresh: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(GOES_ON) % ({"include_dashboard": False, "address": "local"} if RAY else {}))
    command = [sys.executable, *([] if RAY else ["-m", "mray", "run", "--libraries"]), str(program), str(tmp_path)]
    with subprocess.Popen(command) as first:
        snapshot = tmp_path / "run" / "checkpoint_manager_snapshot.json"
        wait_until(lambda: snapshot.exists() and len(json.loads(snapshot.read_text())["checkpoint_results"]) == 3, 120)
        first.send_signal(signal.SIGKILL)
    (tmp_path / "go on").touch()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    last, begun = map(int, done.stdout.splitlines()[-1].split())
    assert last == 5
    assert begun == 3 or RAY  # there the workers of a dead driver go on for a while


# ------------------------------------------------------------------------------------------------ what computes
@full
def test_gradients_of_torch_are_averaged_over_gloo(ray_session: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from ray.train.torch import TorchTrainer

    def work() -> dict[str, Any]:
        import torch
        from ray import train
        from ray.train.torch import prepare_data_loader, prepare_model

        rank = train.get_context().get_world_rank()
        assert (torch.distributed.get_backend(), torch.distributed.get_world_size()) == ("gloo", 2)
        torch.manual_seed(rank)  # they begin apart: the first worker's weights count
        model = prepare_model(torch.nn.Linear(1, 1, bias=False))
        numbers = torch.utils.data.TensorDataset(torch.arange(8.0)[:, None])
        loader = prepare_data_loader(torch.utils.data.DataLoader(numbers, batch_size=2))
        seen = [float(number) for (batch,) in loader for number in batch]
        loss = model(torch.full((1, 1), float(rank + 1))).sum()
        loss.backward()
        weights = [torch.zeros(1, 1) for _ in range(2)]
        torch.distributed.all_gather(weights, next(model.parameters()).data)
        everything: list[Any] = [None, None]
        torch.distributed.all_gather_object(everything, seen)
        return {
            "same": bool(torch.equal(*weights)),
            "gradient": float(next(model.parameters()).grad),
            "seen": sorted(everything[0] + everything[1]),
        }

    found = trained(tmp_path, "gradients", work, trainer=TorchTrainer).return_value
    assert found == {"same": True, "gradient": 1.5, "seen": [float(number) for number in range(8)]}


@full
def test_lightning_trains_over_two_workers(ray_session: Any, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    from ray.train.torch import TorchTrainer

    def work() -> None:
        import lightning
        import ray.train.lightning as for_lightning
        import torch

        class Line(lightning.LightningModule):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)

            def training_step(self, batch: Any, _index: int) -> Any:
                x, y = batch
                loss = torch.nn.functional.mse_loss(self.layer(x), y)
                self.log("loss", loss, sync_dist=True)
                return loss

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.5)

        x = torch.arange(64.0)[:, None] / 64
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 2 * x + 1), batch_size=8)
        trainer = lightning.Trainer(
            max_epochs=12,
            accelerator="cpu",
            devices="auto",
            strategy=for_lightning.RayDDPStrategy(),
            plugins=[for_lightning.RayLightningEnvironment()],
            callbacks=[for_lightning.RayTrainReportCallback()],
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=False,
            enable_checkpointing=False,
        )
        trainer = for_lightning.prepare_trainer(trainer)
        assert trainer.world_size == 2
        trainer.fit(Line(), train_dataloaders=loader)

    result = trained(tmp_path, "lightning", work, trainer=TorchTrainer)
    assert result.metrics["epoch"] == 11
    assert result.metrics["loss"] < 0.01
    with result.checkpoint.as_directory() as folder:
        assert Path(folder, "checkpoint.ckpt").exists()


@full
def test_accelerate_trains_over_two_workers(ray_session: Any, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    from ray.train.torch import TorchTrainer

    def work() -> dict[str, Any]:
        import torch
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True)
        x = torch.arange(64.0)[:, None] / 64
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 2 * x + 1), batch_size=8)
        model = torch.nn.Linear(1, 1)
        model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.5), loader)
        for _ in range(20):
            for inputs, wanted in loader:
                loss = torch.nn.functional.mse_loss(model(inputs), wanted)
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
        losses = accelerator.gather(loss.detach()[None])
        return {"processes": accelerator.num_processes, "batches": len(loader), "loss": float(losses.max()), "all": len(losses)}

    found = trained(tmp_path, "accelerate", work, trainer=TorchTrainer).return_value
    assert (found["processes"], found["batches"], found["all"]) == (2, 4, 2)
    assert found["loss"] < 0.01


@full
def test_lightgbm_grows_trees_of_the_rows_of_two_workers(ray_session: Any, tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    import ray.data
    from ray.train.lightgbm import LightGBMTrainer, RayTrainReportCallback

    def work() -> None:
        import lightgbm
        from ray import train
        from ray.train.lightgbm import RayTrainReportCallback, get_network_params, normalize_pandas_for_lightgbm

        rows = normalize_pandas_for_lightgbm(train.get_dataset_shard("train").materialize().to_pandas())
        assert 0 < len(rows) < 400
        table = lightgbm.Dataset(rows[["x"]], label=rows["y"])
        parameters = {"objective": "regression", "tree_learner": "data_parallel", "pre_partition": True, "num_threads": 1, "verbose": -1}
        lightgbm.train(
            {**parameters, "learning_rate": 0.5, **get_network_params()},
            table,
            num_boost_round=10,
            valid_sets=[table],
            valid_names=["train"],
            callbacks=[RayTrainReportCallback()],
        )

    rows = ray.data.from_items([{"x": number / 400, "y": float(number >= 200)} for number in range(400)])
    result = trained(tmp_path, "trees", work, trainer=LightGBMTrainer, datasets={"train": rows})
    assert result.metrics["train-l2"] < 0.01
    model = RayTrainReportCallback.get_model(result.checkpoint)
    assert [round(float(value)) for value in model.predict([[0.1], [0.9]])] == [0, 1]


@full
def test_xgboost_grows_trees_of_the_rows_of_two_workers(ray_session: Any, tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    import ray.data
    from ray.train.xgboost import RayTrainReportCallback, XGBoostTrainer

    def work() -> None:
        import xgboost
        from ray import train
        from ray.train.xgboost import RayTrainReportCallback

        rows = train.get_dataset_shard("train").materialize().to_pandas()
        assert 0 < len(rows) < 400
        assert xgboost.collective.get_world_size() == 2
        table = xgboost.DMatrix(rows[["x"]], label=rows["y"])
        xgboost.train(
            {"objective": "reg:squarederror", "eta": 0.5, "nthread": 1},
            table,
            num_boost_round=10,
            evals=[(table, "train")],
            verbose_eval=False,
            callbacks=[RayTrainReportCallback()],
        )

    rows = ray.data.from_items([{"x": number / 400, "y": float(number >= 200)} for number in range(400)])
    result = trained(tmp_path, "trees of xgboost", work, trainer=XGBoostTrainer, datasets={"train": rows})
    assert result.metrics["train-rmse"] < 0.01
    model = RayTrainReportCallback.get_model(result.checkpoint)
    found = model.predict(xgboost.DMatrix([[0.1], [0.9]], feature_names=["x"]))
    assert [round(float(value)) for value in found] == [0, 1]


@full
def test_a_search_of_tune_runs_trainers(ray_session: Any, tmp_path: Path) -> None:
    from ray import tune

    def trial(config: dict[str, Any]) -> None:
        from ray import train, tune
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        def work(inner: dict[str, Any]) -> dict[str, Any]:
            return {"score": inner["slope"]}

        result = DataParallelTrainer(
            work,
            train_loop_config=config,
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(storage_path=str(tmp_path), name=f"inner-{config['slope']}"),
        ).fit()
        tune.report(result.return_value)

    results = tune.Tuner(
        tune.with_resources(trial, {"CPU": 1}),
        param_space={"slope": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="outer", verbose=0),
    ).fit()
    assert sorted(result.metrics["score"] for result in results) == [1, 2]
