"""Nothing is left of a session with one of Ray's libraries, whichever process is killed; the library goes on unless that is the driver."""

from __future__ import annotations

import json
import os
import signal
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray.data")

from tests.conftest import wait_until
from tests.faults.crash.conftest import Run
from tests.full import full
from tests.libraries.conftest import PATIENCE, free_port

pytestmark = pytest.mark.skipif(os.environ.get("MRAY_TEST_ENGINE") == "ray", reason="about what mray leaves")

BEGIN = """
import json, os, sys, time
import mray.libraries
import ray.{library}
from ray.util.state import list_actors

port, folder = int(sys.argv[1]), sys.argv[-1]
driver = os.getpid()

def tell(**pids):
    part = f"{folder}/part-{os.getpid()}"
    with open(part, "w") as file:
        json.dump({"driver": driver, **pids}, file)
    os.rename(part, f"{folder}/pids")
    while not os.path.exists(f"{folder}/end"):
        time.sleep(0.05)

def pid_of(word):
    return next(actor.pid for actor in list_actors(filters=[("state", "=", "ALIVE")]) if word in f"{actor.class_name} {actor.name}")

ray.init(num_cpus=4, log_to_driver=False, logging_level="ERROR")
"""
END = """
ray.shutdown()
"""
PROGRAMS = {
    "data": """
        import ray.data
        ray.data.DataContext.get_current().enable_progress_bars = False

        class Slow:
            def __call__(self, batch):
                tell(worker=os.getpid())
                return batch

        assert ray.data.range(10, override_num_blocks=2).map_batches(Slow, concurrency=1).sum("id") == 45
    """,
    "tune": """
        from ray import tune

        def trial(config):
            tell(trial=os.getpid())
            tune.report({"score": 1})

        run = tune.RunConfig(storage_path=folder, name="search", verbose=0, failure_config=tune.FailureConfig(max_failures=1))
        assert not tune.Tuner(trial, run_config=run).fit().num_errors
    """,
    "train": """
        from ray import train
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        def work():
            if train.get_context().get_world_rank() == 0:
                tell(worker=os.getpid(), controller=pid_of("TrainController"))
            train.report({"score": 1})

        run = train.RunConfig(storage_path=folder, name="run", failure_config=train.FailureConfig(max_failures=1))
        trainer = DataParallelTrainer(work, scaling_config=train.ScalingConfig(num_workers=2), run_config=run)
        try:
            assert trainer.fit().error is None
        except ray.exceptions.ActorDiedError:
            print("no controller")
    """,
    "rllib": """
        from ray.rllib.algorithms.ppo import PPOConfig

        config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=1)
        algorithm = config.training(train_batch_size_per_learner=200, minibatch_size=100, num_epochs=1).build_algo()
        algorithm.train()
        tell(runner=algorithm.env_runner_group.foreach_env_runner(lambda _runner: os.getpid(), local_env_runner=False)[0])
        algorithm.stop()
    """,
    "serve": """
        from ray import serve

        serve.start(http_options={"port": port})

        @serve.deployment
        class Hello:
            def __call__(self, request):
                return str(os.getpid())

        serve.run(Hello.bind())
        tell(**{word.lower(): pid_of(word) for word in ("CONTROLLER", "PROXY", "REPLICA")})
        serve.shutdown()
    """,
}
#: The package that a library's program needs besides.
NEEDED = {"rllib": "gymnasium", "serve": "fastapi"}
VICTIMS = [
    *(("data", victim) for victim in ("driver", "worker")),
    *(("tune", victim) for victim in ("driver", "trial")),
    *(("train", victim) for victim in ("driver", "controller", "worker")),
    *(("rllib", victim) for victim in ("driver", "runner")),
    *(("serve", victim) for victim in ("driver", "controller", "proxy", "replica")),
]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path, 4 * PATIENCE)  # a program that imports a library, and whose session does, on a busy machine
    yield run
    run.close()


def fetch(port: int) -> str:
    """The body of the answer; nothing when there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@full
@pytest.mark.parametrize(("library", "victim"), VICTIMS)
def test_nothing_is_left(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, victim: str) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # with the second process that a program has
    if library in NEEDED:
        pytest.importorskip(NEEDED[library])
    program = tmp_path / "program.py"
    program.write_text(BEGIN.replace("{library}", library) + textwrap.dedent(PROGRAMS[library]) + END)
    port = free_port()
    run.start(str(port), program=program)
    pids = json.loads(run.wait_for("pids"))
    replica = str(pids.get("replica", ""))
    assert fetch(port) == replica
    os.kill(pids[victim], signal.SIGKILL)
    if victim != "driver":
        if replica:
            wait_until(lambda: (fetch(port) not in ("", replica)) if victim == "replica" else fetch(port) == replica)
        run.tell("end")
    assert run.wait() == (-signal.SIGKILL if victim == "driver" else 0), run.output()
    run.assert_nothing_left()
