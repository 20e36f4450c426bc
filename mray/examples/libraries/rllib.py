"""Ray RLlib: PPO and DQN learn to balance a pole, with environments in processes of their own; says what came out as JSON."""

from __future__ import annotations

import json
from typing import Any

import ray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig


def learn(config: AlgorithmConfig, enough: float, most: int) -> dict[str, Any]:
    """Train until episodes are so long in the mean, or have not become so."""
    algorithm = config.build_algo()
    reached, iteration = 0.0, 0
    while reached < enough and iteration < most:
        iteration += 1
        reached = algorithm.train()["env_runners"].get("episode_return_mean", 0.0)
    runners = algorithm.env_runner_group.num_healthy_remote_workers()
    algorithm.stop()
    return {"reached": bool(reached >= enough), "runners": runners}


def main() -> dict[str, Any]:
    """Do both."""
    ppo = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=4000, minibatch_size=256, num_epochs=8, lr=5e-4, vf_loss_coeff=0.01)
        .debugging(seed=1)
    )
    dqn = (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=1, rollout_fragment_length=4)
        .training(lr=1e-3, epsilon=[(0, 1.0), (3000, 0.02)], num_steps_sampled_before_learning_starts=500)
        .debugging(seed=1)
    )
    return {"ppo": learn(ppo, 150, 30), "dqn": learn(dqn, 40, 60)}


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False, logging_level="ERROR")
    print(json.dumps(main()))
    ray.shutdown()
