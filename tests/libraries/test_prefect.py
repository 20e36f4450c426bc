"""Prefect, whose task runner `RayTaskRunner` asks for ``ray`` alone: tasks of a flow are tasks of a session, on mray and on Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.full import full

RAY = os.environ.get("MRAY_TEST_ENGINE") == "ray"
#: Seconds. A flow's own server takes some of them to start, and each task asks it for its state.
PATIENCE = 240
PROGRAM = """
import json, os, sys
from prefect import flow, task
from prefect.futures import as_completed
from prefect_ray import RayTaskRunner
from prefect_ray.context import remote_options

tries = sys.argv[1]

@task
def square(number):
    return number * number

@task
async def plus_one(number):
    return number + 1

@task(retries=1)
def add(numbers):
    import ray
    with open(tries, "a") as file:
        file.write("x")
    if os.path.getsize(tries) == 1:
        raise ConnectionError("once")
    return sum(numbers), os.getpid(), ray.get_runtime_context().get_assigned_resources()["CPU"]

@task
def fail(_total):
    raise ValueError("on purpose")

@flow(task_runner=RayTaskRunner(init_kwargs={"num_cpus": 4, "log_to_driver": False}))
def work():
    numbers = plus_one.map(square.map(range(4)))
    with remote_options(num_cpus=2):
        total = add.submit(numbers)
    failed = fail.submit(total)
    last = square.submit(1, wait_for=[failed])
    last.wait()
    total, pid, cpus = total.result()
    return {
        "numbers": sorted(each.result() for each in as_completed(list(numbers))),
        "total": total,
        "elsewhere": pid != os.getpid(),
        "CPUs": cpus,
        "error": repr(failed.result(raise_on_failure=False)),
        "after it": last.state.name,
    }

print(json.dumps(work()))
"""


@full
@pytest.mark.timeout(PATIENCE + 30)
def test_tasks_of_a_flow_are_mapped_wait_for_each_other_are_tried_again_and_fail(tmp_path: Path) -> None:
    pytest.importorskip("prefect_ray")
    program = tmp_path / "flow.py"
    program.write_text(PROGRAM)
    settings = {"PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    done = subprocess.run(
        [sys.executable, *([] if RAY else ["-m", "mray", "run"]), str(program), str(tmp_path / "tries")],
        env={**os.environ, **settings, "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "numbers": [1, 2, 5, 10],
        "total": 18,
        "elsewhere": True,
        "CPUs": 2,
        "error": "ValueError('on purpose')",
        "after it": "NotReady",
    }
