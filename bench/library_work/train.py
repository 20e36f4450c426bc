"""Ray Train: a first step of two workers with torch, then three thousand."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray.train
import torch
import torch.distributed
from ray.train.torch import TorchTrainer
from shared import run, tell

#: Some seconds of them: a shorter piece of work is as long as whatever else the machine does meanwhile.
STEPS = 3000


def loop(config: dict[str, Any]) -> None:
    begun = time.perf_counter()
    for _ in range(config["steps"]):
        total = torch.ones(1000)
        torch.distributed.all_reduce(total)
    ray.train.report({"steps": config["steps"]})  # once: the controller takes a report every two seconds
    if not ray.train.get_context().get_world_rank():
        Path(config["took"]).write_text(str(time.perf_counter() - begun))


def fit(steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            loop,
            train_loop_config={"steps": steps, "took": f"{folder}/took"},
            scaling_config=ray.train.ScalingConfig(num_workers=2),
            run_config=ray.train.RunConfig(storage_path=folder),
        ).fit()
        return float(Path(folder, "took").read_text())


def work() -> Iterator[None]:
    fit(1)
    tell("first", time.time())
    tell("steps/s", STEPS / fit(STEPS))
    yield


if __name__ == "__main__":
    run(work)
