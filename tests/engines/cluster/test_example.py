"""The worked example, moved to two machines by one setting."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from mray.examples import cluster as example
from tests.checkout import python_path

#: How many machines the example has found, in what it prints.
MACHINES = re.compile(r"replicas on (\d) machine\(s\)")


def run_example(address: str | None) -> str:
    """The output of the program, as a user runs it: `address` is the one setting."""
    environment = {name: value for name, value in os.environ.items() if name not in ("MRAY_ADDRESS", "MRAY_BACKEND")}
    environment["PYTHONPATH"] = python_path()
    if address is not None:
        environment["MRAY_ADDRESS"] = address
    command = [sys.executable, "-m", "mray.examples.cluster", "20"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(120)
def test_one_setting_moves_the_program_to_two_machines(cluster):
    assert MACHINES.search(run_example(cluster.address)).group(1) == "2"


def test_without_it_the_program_runs_on_this_machine():
    assert MACHINES.search(run_example(None)).group(1) == "1"


def test_the_replica_of_each_machine_writes_what_the_model_says(ray):
    replicas = example.start_replicas(on_cluster=True)
    assert len(replicas) == 2
    texts = [ray.get(replica.write.remote((7, 11, 13), 10))[0] for replica in replicas]
    first, last = example.Stage._blueprint.cls(0, "cpu"), example.Stage._blueprint.cls(1, "cpu")

    def step(token):
        return last.end(first.begin(token))

    token, expected = sum(map(step, (7, 11, 13))) % example.VOCABULARY, []
    for _ in range(10):
        token = step(token)
        expected.append(token)
    assert texts == [expected, expected]
