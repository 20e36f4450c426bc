"""Ray Train: two processes fit a line with torch, one of them is killed, and both go on from the checkpoint; says what came out as JSON."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.data
import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

EPOCHS = 8


def fit_line(config: dict[str, Any]) -> None:
    """The work of each of the processes: their model is one, and the rows are shared among them."""
    me = ray.train.get_context()
    torch.manual_seed(0)
    plain = torch.nn.Linear(1, 1)
    begun = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"))
        begun = state["epoch"] + 1
        plain.load_state_dict(state["weights"])
    model = prepare_model(plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    rows = ray.train.get_dataset_shard("train")
    for epoch in range(begun, EPOCHS):
        seen = torch.tensor(0)
        for batch in rows.iter_torch_batches(batch_size=8, dtypes=torch.float32):
            loss = torch.nn.functional.mse_loss(model(batch["x"][:, None]), batch["y"][:, None])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(batch["x"])
        torch.distributed.all_reduce(seen)
        if me.get_world_rank() == 1 and not begun and Path(config["die"]).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        kept = None
        with tempfile.TemporaryDirectory() as folder:
            if me.get_world_rank() == 0:
                torch.save({"epoch": epoch, "weights": plain.state_dict()}, Path(folder, "state.pt"))
                kept = Checkpoint.from_directory(folder)
            ray.train.report({"epoch": epoch, "begun": begun, "seen": int(seen), "world": me.get_world_size()}, checkpoint=kept)


class KillOnce(ray.train.UserCallback):  # type: ignore[misc]
    """Lets a process die after the third checkpoint is safe."""

    def __init__(self, path: str) -> None:
        self._path = path

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        if metrics[0]["epoch"] == 2:
            Path(self._path).touch()


def main(folder: str) -> dict[str, Any]:
    """Do all of it, with results in a folder."""
    # Around zero: whichever process gets which rows, the line is found.
    rows = ray.data.from_items([{"x": number / 128, "y": 2 * number / 128 + 1} for number in range(-128, 128)])
    die = os.path.join(folder, "die")
    result = TorchTrainer(
        fit_line,
        train_loop_config={"die": die},
        scaling_config=ScalingConfig(num_workers=2),
        datasets={"train": rows},
        run_config=RunConfig(
            storage_path=folder,
            name="line",
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            callbacks=[KillOnce(die)],
        ),
    ).fit()
    with result.checkpoint.as_directory() as kept:
        weights = torch.load(Path(kept, "state.pt"))["weights"]
    metrics = result.metrics
    return {
        "last": (metrics["epoch"], metrics["seen"], metrics["world"]),
        "went on": metrics["begun"] >= 3,
        "checkpoints": len(result.best_checkpoints),
        "line": (round(float(weights["weight"]), 1), round(float(weights["bias"]), 1)),
    }


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(main(folder)))
    ray.shutdown()
