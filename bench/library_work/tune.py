"""Ray Tune: a first trial, then sixteen."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

from ray import tune
from shared import rate, run, tell


def trial(config: dict[str, Any]) -> None:
    for step in range(5):
        tune.report({"score": config["slope"] * step})


def fit(count: int) -> None:
    space = {"slope": tune.grid_search(list(range(count)))}
    with tempfile.TemporaryDirectory() as folder:
        found = tune.Tuner(trial, param_space=space, run_config=tune.RunConfig(storage_path=folder, verbose=0)).fit()
    assert len(found) == count
    assert not found.num_errors


def work() -> Iterator[None]:
    fit(1)
    tell("first", time.time())
    tell("trials/s", rate(16, lambda: fit(16)))
    yield


if __name__ == "__main__":
    run(work)
