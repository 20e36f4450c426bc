"""Ray RLlib: environments in processes of their own, which may die; what is saved; errors. That it learns is in its example."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

from tests.full import full

RAY = os.environ.get("MRAY_TEST_ENGINE") == "ray"


def ppo(runners: int = 2, **runner_options: Any) -> Any:
    from ray.rllib.algorithms.ppo import PPOConfig

    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=runners, **runner_options)
        .training(train_batch_size_per_learner=400, minibatch_size=100, num_epochs=2)
        .debugging(seed=3)
    )


def sampled(result: dict[str, Any]) -> int:
    return int(result["env_runners"]["num_env_steps_sampled"])


def pids(algorithm: Any) -> list[int]:
    return list(map(int, algorithm.env_runner_group.foreach_env_runner(lambda _runner: os.getpid(), local_env_runner=False)))


@full
def test_environments_run_in_processes_of_their_own(ray_session: Any) -> None:
    algorithm = ppo().build_algo()
    try:
        assert len({*pids(algorithm), os.getpid()}) == 3
        assert sampled(algorithm.train()) >= 400
    finally:
        algorithm.stop()


@full
def test_a_runner_that_is_killed_comes_back_and_training_goes_on(ray_session: Any) -> None:
    algorithm = ppo().fault_tolerance(restart_failed_env_runners=True).build_algo()
    try:
        algorithm.train()
        before = pids(algorithm)
        os.kill(before[0], signal.SIGKILL)
        for _ in range(20):
            assert sampled(algorithm.train()) >= 200  # what the other one has made counts
            if algorithm.env_runner_group.num_healthy_remote_workers() == 2 and len(now := pids(algorithm)) == 2:
                break
        assert len(set(now) - set(before)) == 1
        assert sampled(algorithm.train()) >= 400
    finally:
        algorithm.stop()


@full
def test_an_algorithm_is_saved_and_goes_on_elsewhere(ray_session: Any, tmp_path: Path) -> None:
    import numpy
    from ray.rllib.algorithms.algorithm import Algorithm

    first = ppo(1).build_algo()
    try:
        first.train()
        first.save_to_path(str(tmp_path / "saved"))
        weights = first.get_weights()["default_policy"]
    finally:
        first.stop()
    second = Algorithm.from_checkpoint(str(tmp_path / "saved"))
    try:
        again = second.get_weights()["default_policy"]
        assert weights.keys() == again.keys()
        assert all(numpy.array_equal(weights[name], again[name]) for name in weights)
        assert second.train()["training_iteration"] == 2
    finally:
        second.stop()


@full
def test_what_an_environment_raises_is_told(ray_session: Any) -> None:
    import gymnasium
    import numpy
    from ray.exceptions import ActorDiedError

    seen = numpy.zeros(1, numpy.float32)

    class Broken(gymnasium.Env):  # type: ignore[misc]
        observation_space = gymnasium.spaces.Box(0, 1, (1,))
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, _config: Any = None) -> None:
            self.steps = 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return seen, {}

        def step(self, _action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.steps += 1
            if self.steps > 50:
                raise RuntimeError("the pole is broken")
            return seen, 1.0, False, False, {}

    algorithm = ppo(1).environment(Broken).fault_tolerance(restart_failed_env_runners=False).build_algo()
    try:
        # RLlib ends the process with the environment; with Ray the text is in a log.
        with pytest.raises(ActorDiedError, match="exit code 1" if RAY else "the pole is broken"):
            algorithm.train()
    finally:
        algorithm.stop()


@full
def test_a_search_of_tune_trains_algorithms(ray_session: Any, tmp_path: Path) -> None:
    pytest.importorskip("PIL")  # Tune looks for an algorithm's name among all of them
    from ray import tune

    results = tune.Tuner(
        "PPO",
        param_space=ppo(1).training(lr=tune.grid_search([1e-4, 1e-3])),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="ppo", stop={"training_iteration": 2}, verbose=0),
    ).fit()
    assert results.num_errors == 0
    assert [result.metrics["training_iteration"] for result in results] == [2, 2]
    assert sorted(result.config["lr"] for result in results) == [1e-4, 1e-3]
