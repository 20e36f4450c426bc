"""The work of `libraries.py` for one of Ray's libraries: ``library_work.py <library>``, on Ray, or on mray under ``mray run --libraries``.

Prints a line of JSON for each figure as it is known, ``{"name": ..., "value": ...}``; that of "first" is the time of day of the first
result. After ``{"name": "idle"}`` it does nothing until its standard input ends.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray

CPUS = 4
PORT = 8127


def tell(name: str, value: float | None = None) -> None:
    print(json.dumps({"name": name, "value": value}), flush=True)


def rate(count: int, work: Callable[[], object]) -> float:
    """So many things a second."""
    begun = time.perf_counter()
    work()
    return count / (time.perf_counter() - begun)


def data() -> Iterator[None]:
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False

    def double(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"] * 2}

    ray.data.range(100, override_num_blocks=2).map_batches(double).take(1)
    tell("first", time.time())
    rows, blocks = 4_000_000, 200
    tell("rows/s", rate(rows, ray.data.range(rows, override_num_blocks=16).map_batches(double).materialize))
    tell("small blocks/s", rate(blocks, ray.data.range(blocks, override_num_blocks=blocks).map_batches(double).materialize))
    yield


def tune() -> Iterator[None]:
    from ray import tune

    def trial(config: dict[str, Any]) -> None:
        for step in range(5):
            tune.report({"score": config["slope"] * step})

    def fit(count: int) -> None:
        space = {"slope": tune.grid_search(list(range(count)))}
        with tempfile.TemporaryDirectory() as folder:
            found = tune.Tuner(trial, param_space=space, run_config=tune.RunConfig(storage_path=folder, verbose=0)).fit()
        assert len(found) == count and not found.num_errors

    fit(1)
    tell("first", time.time())
    tell("trials/s", rate(16, lambda: fit(16)))
    yield


def train() -> Iterator[None]:
    import ray.train
    from ray.train.torch import TorchTrainer

    def loop(config: dict[str, Any]) -> None:
        import torch
        import torch.distributed

        begun = time.perf_counter()
        for step in range(config["steps"]):
            total = torch.ones(1000)
            torch.distributed.all_reduce(total)
            ray.train.report({"step": step})
        if not ray.train.get_context().get_world_rank():
            Path(config["took"]).write_text(str(time.perf_counter() - begun))

    def fit(steps: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            trainer = TorchTrainer(
                loop,
                train_loop_config={"steps": steps, "took": f"{folder}/took"},
                scaling_config=ray.train.ScalingConfig(num_workers=2),
                run_config=ray.train.RunConfig(storage_path=folder),
            )
            trainer.fit()
            return float(Path(folder, "took").read_text())

    fit(1)
    tell("first", time.time())
    tell("steps/s", 100 / fit(100))
    yield


def serve() -> Iterator[None]:
    from ray import serve

    @serve.deployment
    class Echo:
        async def __call__(self, request: Any) -> str:
            return str(request if isinstance(request, int) else request.query_params["number"])

    def fetch(number: int) -> float:
        begun = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/?number={number}", timeout=60) as answer:
            assert answer.read() == str(number).encode()
        return time.perf_counter() - begun

    def fetch_at(begin: float, number: int) -> float:
        time.sleep(max(0.0, begin + number / 100 - time.perf_counter()))
        return fetch(number)

    serve.start(http_options={"port": PORT})
    handle = serve.run(Echo.bind())
    fetch(1)
    tell("first", time.time())
    for _ in range(50):
        fetch(1)
        handle.remote(1).result()
    tell("calls by handle/s", rate(300, lambda: [handle.remote(1).result() for _ in range(300)]))
    tell("requests/s", rate(300, lambda: [fetch(number) for number in range(300)]))
    with ThreadPoolExecutor(8) as pool:
        begin = time.perf_counter() + 0.1
        took = sorted(pool.map(lambda number: fetch_at(begin, number), range(500)))
    tell("ms at 100 requests/s, median", 1e3 * statistics.median(took))
    tell("ms at 100 requests/s, p99", 1e3 * took[int(len(took) * 0.99)])
    yield
    serve.shutdown()


def rllib() -> Iterator[None]:
    from ray.rllib.algorithms.ppo import PPOConfig

    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=2).training(train_batch_size_per_learner=2000)
    algorithm = config.build_algo()
    algorithm.train()
    tell("first", time.time())
    begun, steps = time.perf_counter(), 0
    for _ in range(4):
        steps += int(algorithm.train()["env_runners"]["num_env_steps_sampled"])
    tell("env steps/s", steps / (time.perf_counter() - begun))
    yield
    algorithm.stop()


WORK = {"data": data, "tune": tune, "train": train, "serve": serve, "rllib": rllib}


if __name__ == "__main__":
    importlib.import_module(f"ray.{sys.argv[1]}")  # at the top, as programs do
    ray.init(num_cpus=CPUS, log_to_driver=False, logging_level="ERROR")
    work = WORK[sys.argv[1]]()
    next(work)
    tell("idle")
    sys.stdin.read()
    next(work, None)
    ray.shutdown()
