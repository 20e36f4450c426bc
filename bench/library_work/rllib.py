"""Ray RLlib: a first iteration of PPO with two environment runners, then four."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ray.rllib.algorithms.ppo import PPOConfig
from shared import run, tell


def work() -> Iterator[None]:
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


if __name__ == "__main__":
    run(work)
