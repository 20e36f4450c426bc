"""Ray Tune: searches, schedulers, what a trial may ask for, failures, loggers, and a search that goes on after its driver was killed."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

from tests.full import full

RAY = os.environ.get("MRAY_TEST_ENGINE") == "ray"


def climb(config: dict[str, Any]) -> None:
    from ray import tune

    for step in range(config.get("steps", 4)):
        tune.report({"score": config["slope"] * (step + 1)})


def run_config(folder: Path, name: str, **options: Any) -> Any:
    from ray import tune

    return tune.RunConfig(storage_path=str(folder), name=name, **{"verbose": 0, **options})


def test_a_launch_that_the_bundles_of_its_trial_have_no_room_for_is_an_error_at_once(ray_session: Any, tmp_path: Path) -> None:
    from ray import tune

    def train(config: dict[str, Any]) -> None:
        import ray

        @ray.remote
        def nested() -> int:
            return 1

        @ray.remote(num_cpus=1)
        class Nested:
            pass

        try:
            (nested if config["kind"] == "task" else Nested).remote()
        except RuntimeError as error:
            tune.report({"error": str(error)})

    space = {"kind": tune.grid_search(["task", "actor"])}
    results = tune.Tuner(train, param_space=space, run_config=run_config(tmp_path, "nested")).fit()
    texts = [result.metrics["error"] for result in results]
    assert ["No trial resources are available for launching the " in text for text in texts] == [True, True]
    assert ["task `" in texts[0], "actor `" in texts[1]] == [True, True]


@full
def test_a_class_trainable_saves_and_goes_on(ray_session: Any, tmp_path: Path) -> None:
    from ray import tune

    class Counter(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.count = 0
            self.flag = Path(config["flag"])

        def step(self) -> dict[str, Any]:
            self.count += 1
            if self.count == 4 and not self.flag.exists():
                self.flag.touch()
                raise RuntimeError("once")
            return {"count": self.count, "done": self.count == 6}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            Path(checkpoint_dir, "count").write_text(str(self.count))

        def load_checkpoint(self, checkpoint: str) -> None:
            self.count = int(Path(checkpoint, "count").read_text())

    results = tune.Tuner(
        Counter,
        param_space={"flag": str(tmp_path / "flag")},
        run_config=run_config(
            tmp_path,
            "class",
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=2, checkpoint_at_end=True),
            failure_config=tune.FailureConfig(max_failures=1),
        ),
    ).fit()
    (result,) = results
    assert (result.metrics["count"], results.num_errors) == (6, 0)
    assert len(result.best_checkpoints) == 2
    assert (Path(result.checkpoint.path) / "count").read_text() == "6"


@full
def test_random_search_with_a_seed_gives_the_same_points(ray_session: Any, tmp_path: Path) -> None:
    import random

    import numpy as np
    from ray import tune

    points = []
    for name in ("first", "second"):
        random.seed(3)
        np.random.seed(3)
        results = tune.Tuner(
            climb,
            param_space={"slope": tune.uniform(0, 1), "kind": tune.choice(["a", "b", "c"]), "size": tune.randint(1, 100), "steps": 1},
            tune_config=tune.TuneConfig(metric="score", mode="max", num_samples=3),
            run_config=run_config(tmp_path, name),
        ).fit()
        points.append(sorted((each.config["slope"], each.config["kind"], each.config["size"]) for each in results))
        assert results.get_best_result().metrics["score"] == max(each.config["slope"] for each in results)
    assert points[0] == points[1]


@full
def test_asha_stops_what_falls_behind(ray_session: Any, tmp_path: Path) -> None:
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    results = tune.Tuner(
        climb,
        param_space={"slope": tune.grid_search([4, 3, 2, 1]), "steps": 16},
        tune_config=tune.TuneConfig(
            metric="score", mode="max", scheduler=ASHAScheduler(max_t=16, grace_period=2, reduction_factor=2), max_concurrent_trials=1
        ),
        run_config=run_config(tmp_path, "asha"),
    ).fit()
    assert sorted(each.metrics["training_iteration"] for each in results) == [2, 2, 2, 16]


@full
def test_pbt_copies_the_better_ones(ray_session: Any, tmp_path: Path) -> None:
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining

    def grow(config: dict[str, Any]) -> None:
        total, begun = 0.0, 0
        checkpoint = tune.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                total, begun = json.loads(Path(folder, "state").read_text())
        for step in range(begun + 1, 21):
            total += config["rate"]
            time.sleep(0.05)
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "state").write_text(json.dumps([total, step]))
                tune.report({"total": total, "step": step}, checkpoint=tune.Checkpoint.from_directory(folder))

    results = tune.Tuner(
        grow,
        param_space={"rate": tune.grid_search([0.1, 0.2, 5.0, 10.0])},
        tune_config=tune.TuneConfig(
            metric="total",
            mode="max",
            scheduler=PopulationBasedTraining(
                time_attr="training_iteration", perturbation_interval=4, hyperparam_mutations={"rate": [5.0, 10.0]}, quantile_fraction=0.5
            ),
        ),
        run_config=run_config(tmp_path, "pbt", stop={"step": 20}),
    ).fit()
    assert results.num_errors == 0
    assert len(results) == 4
    # Those that began with a rate of 0.1 or 0.2 have taken the state and the rate of others.
    assert min(each.metrics["total"] for each in results) > 20 * 0.2


def test_trials_get_the_bundles_that_they_ask_for(ray_session: Any, tmp_path: Path) -> None:
    import ray
    from ray import tune

    def inside(config: dict[str, Any]) -> None:
        @ray.remote(num_cpus=1)
        def child() -> int:
            return 1

        group = ray.util.get_current_placement_group()
        mine = ray.get_runtime_context().get_assigned_resources()
        tune.report({"bundles": group.bundle_specs, "cpus": mine.get("CPU", 0), "child": ray.get(child.remote())})

    (result,) = tune.Tuner(
        tune.with_resources(inside, tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}, {"CPU": 1}], strategy="PACK")),
        run_config=run_config(tmp_path, "bundles"),
    ).fit()
    assert result.metrics["bundles"] == [{"CPU": 1.0}] * 3
    assert (result.metrics["cpus"], result.metrics["child"]) == (1.0, 1)

    def sole(config: dict[str, Any]) -> None:
        tune.report({"cpus": ray.get_runtime_context().get_assigned_resources()["CPU"]})

    (result,) = tune.Tuner(tune.with_resources(sole, {"cpu": 3}), run_config=run_config(tmp_path, "dict")).fit()
    assert result.metrics["cpus"] == 3.0


@full
def test_failures_are_counted_and_the_error_is_kept(ray_session: Any, tmp_path: Path) -> None:
    from ray import tune

    def fail(config: dict[str, Any]) -> None:
        attempts = Path(config["attempts"])
        with attempts.open("a") as file:
            file.write("x")
        if config["how"] == "raise":
            raise ValueError("always")
        os._exit(3)

    for how, name in (("raise", "ValueError"), ("exit", "ActorDiedError")):
        results = tune.Tuner(
            fail,
            param_space={"attempts": str(tmp_path / how), "how": how},
            run_config=run_config(tmp_path, f"fail-{how}", failure_config=tune.FailureConfig(max_failures=2)),
        ).fit()
        assert results.num_errors == 1
        assert (tmp_path / how).read_text() == "xxx"
        assert name in f"{type(results.errors[0]).__name__} {results.errors[0]}"
        assert "error.txt" in os.listdir(results[0].path)


def test_loggers_write_and_callbacks_hear(ray_session: Any, tmp_path: Path) -> None:
    from ray import tune

    heard: list[str] = []

    class Listener(tune.Callback):
        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            heard.append("start")

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            heard.append(f"result {result['score']}")

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            heard.append("complete")

        def on_experiment_end(self, trials: Any, **info: Any) -> None:
            heard.append("end")

    results = tune.Tuner(climb, param_space={"slope": 2, "steps": 3}, run_config=run_config(tmp_path, "logs", callbacks=[Listener()])).fit()
    assert heard == ["start", "result 2", "result 4", "result 6", "complete", "end"]
    (result,) = results
    with open(Path(result.path, "progress.csv"), newline="") as file:
        assert [row["score"] for row in csv.DictReader(file)] == ["2", "4", "6"]
    lines = Path(result.path, "result.json").read_text().splitlines()
    assert [json.loads(line)["score"] for line in lines] == [2, 4, 6]
    assert json.loads(Path(result.path, "params.json").read_text()) == {"slope": 2, "steps": 3}
    assert list(result.metrics_dataframe["score"]) == [2, 4, 6]
    if "tensorboardX" in sys.modules:
        assert any(name.startswith("events.out.tfevents") for name in os.listdir(result.path))


def test_stoppers_and_time_limits_end_trials(ray_session: Any, tmp_path: Path) -> None:
    from ray import tune

    results = tune.Tuner(
        climb, param_space={"slope": tune.grid_search([1, 2]), "steps": 100}, run_config=run_config(tmp_path, "stop", stop={"score": 4})
    ).fit()
    assert sorted(each.metrics["training_iteration"] for each in results) == [2, 4]


@full
def test_optuna_searches(ray_session: Any, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from ray import tune
    from ray.tune.search.optuna import OptunaSearch

    def valley(config: dict[str, Any]) -> None:
        tune.report({"height": (config["x"] - 3) ** 2})

    import optuna

    results = tune.Tuner(
        valley,
        param_space={"x": tune.uniform(-10, 10)},
        tune_config=tune.TuneConfig(
            metric="height",
            mode="min",
            num_samples=12,
            max_concurrent_trials=2,
            search_alg=OptunaSearch(sampler=optuna.samplers.TPESampler(seed=1)),
        ),
        run_config=run_config(tmp_path, "optuna"),
    ).fit()
    assert (len(results), results.num_errors) == (12, 0)
    assert results.get_best_result().metrics["height"] < 9


@full
def test_large_values_reach_trials_by_reference(ray_session: Any, tmp_path: Path) -> None:
    import numpy as np
    from ray import tune

    def use(config: dict[str, Any], values: Any) -> None:
        tune.report({"sum": float(values.sum()) * config["factor"]})

    results = tune.Tuner(
        tune.with_parameters(use, values=np.ones(1_000_000)),
        param_space={"factor": tune.grid_search([1, 2])},
        run_config=run_config(tmp_path, "large"),
    ).fit()
    assert sorted(each.metrics["sum"] for each in results) == [1e6, 2e6]


PROGRAM = """
import os, sys, tempfile, time
from pathlib import Path
import ray
from ray import tune

def count(config):
    begun = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            begun = int(Path(folder, "count").read_text())
    for number in range(begun + 1, 7):
        if number > 3:
            while not Path(config["folder"], "go on").exists():
                time.sleep(0.05)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "count").write_text(str(number))
            tune.report({"number": number, "begun": begun}, checkpoint=tune.Checkpoint.from_directory(folder))

if __name__ == "__main__":
    folder = sys.argv[1]
    ray.init("local", num_cpus=2, log_to_driver=False, logging_level="ERROR")
    if tune.Tuner.can_restore(os.path.join(folder, "search")):
        tuner = tune.Tuner.restore(os.path.join(folder, "search"), trainable=count, resume_errored=True)
        print("restored", flush=True)
    else:
        tuner = tune.Tuner(count, param_space={"folder": folder, "which": tune.grid_search([0, 1, 2])},
            tune_config=tune.TuneConfig(metric="number", mode="max"),
            run_config=tune.RunConfig(storage_path=folder, name="search", verbose=0))
    results = tuner.fit()
    print(sorted((each.config["which"], each.metrics["number"], each.metrics["begun"]) for each in results), results.num_errors, flush=True)
    ray.shutdown()
"""


@full
def test_a_search_goes_on_after_its_driver_was_killed(fresh: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, *([] if RAY else ["-m", "mray", "run", "--libraries"]), str(program), str(tmp_path)]
    environ = {**os.environ, "TUNE_GLOBAL_CHECKPOINT_S": "0.2"}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as first:
        until = time.monotonic() + 120
        while len(list(tmp_path.glob("search/*/checkpoint_000002"))) < 2 and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(2)
        first.send_signal(signal.SIGKILL)
    (tmp_path / "go on").touch()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1]) == ("restored", "[(0, 6, 3), (1, 6, 3), (2, 6, 0)] 0")


@full
def test_the_table_of_progress_is_printed(fresh: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("verbose=0", "verbose=1"))
    (tmp_path / "go on").touch()
    command = [sys.executable, *([] if RAY else ["-m", "mray", "run", "--libraries"]), str(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "Trial status: 3 TERMINATED" in done.stdout
    assert "Logical resource usage" in done.stdout
    assert "Configuration for experiment     search" in done.stdout
    for which in range(3):
        assert f"_0000{which}" in done.stdout
