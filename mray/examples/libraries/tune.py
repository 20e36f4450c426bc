"""Ray Tune: a grid, early stopping by ASHA, a trial that dies and continues from its checkpoint; prints the results as JSON."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler


def climb(config: dict[str, Any]) -> None:
    """Report a score eight times."""
    for step in range(8):
        tune.report({"score": config["slope"] * step + config["base"]})


def die_once(config: dict[str, Any]) -> None:
    """Count to five with a checkpoint for each number; the process exits at three, the first time."""
    checkpoint = tune.get_checkpoint()
    begun = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            begun = int(Path(folder, "count").read_text())
    for count in range(begun + 1, 6):
        if count == 4 and not begun:
            os._exit(1)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "count").write_text(str(count))
            tune.report({"count": count, "begun": begun}, checkpoint=tune.Checkpoint.from_directory(folder))


def main(folder: str) -> dict[str, Any]:
    """Run all of it, with results in a folder."""
    best = tune.TuneConfig(metric="score", mode="max")
    grid = tune.Tuner(
        climb,
        param_space={"slope": tune.grid_search([1, 2]), "base": tune.grid_search([10, 20])},
        tune_config=best,
        run_config=tune.RunConfig(storage_path=folder, name="grid", verbose=0),
    ).fit()
    stopped = tune.Tuner(
        climb,
        param_space={"slope": tune.grid_search([0, 1, 2, 3]), "base": 1},
        tune_config=tune.TuneConfig(metric="score", mode="max", scheduler=ASHAScheduler(max_t=8, grace_period=1), max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=folder, name="asha", verbose=0),
    ).fit()
    revived = tune.Tuner(
        die_once,
        run_config=tune.RunConfig(storage_path=folder, name="revived", verbose=0, failure_config=tune.FailureConfig(max_failures=1)),
    ).fit()
    (result,) = revived
    return {
        "grid": (len(grid), grid.num_errors, grid.get_best_result().metrics["score"], grid.get_best_result().config),
        "asha": (len(stopped), stopped.num_errors, max(each.metrics["training_iteration"] for each in stopped)),
        "revived": (result.metrics["count"], result.metrics["begun"], revived.num_errors),
    }


if __name__ == "__main__":
    ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(main(folder)))
    ray.shutdown()
