"""Sudden death of the processes that hold a session together: who waits is told, what is unaffected goes on, nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import python_path

#: A driver with one idle actor ("idle"), one that computes for ever ("busy"), one with a child process ("child"). It kills who is named,
#: then works on. "deaf" stops the node first, and lets the zygote tell it of a death that it never reads.
DRIVER = """
import json, os, signal, subprocess, sys, time
import mray

@mray.remote
class A:
    def pid(self):
        return os.getpid()
    def compute(self):
        while True:
            pass
    def child(self):
        return subprocess.Popen(["sleep", "1000"]).pid

@mray.remote
def task():
    return os.getpid()

def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])

mray.init(num_cpus=2)
idle, busy, with_child = A.remote(), A.remote(), A.remote()
pids = dict(driver=os.getpid(), idle=mray.get(idle.pid.remote()), busy=mray.get(busy.pid.remote()))
pids["child"] = mray.get(with_child.child.remote())
pids["zygote"] = parent(pids["idle"])
pids["node"] = parent(pids["zygote"])
busy.compute.remote()
print(json.dumps(pids), flush=True)
for name in sys.argv[1:]:
    if name == "deaf":
        os.kill(pids["node"], signal.SIGSTOP)
        os.kill(pids["idle"], signal.SIGKILL)
        while os.path.exists(f"/proc/{pids['idle']}"):
            time.sleep(0.001)
    else:
        os.kill(pids[name], signal.SIGKILL)

def outcome(ref):
    try:
        return "value" if mray.get(ref, timeout=60) else "nothing"
    except Exception as error:
        return type(error).__name__

def attempt(call):
    try:
        return outcome(call())
    except Exception as error:
        return type(error).__name__

def until_noticed(call, wanted):
    # The kill above is noticed at some moment: calls may still succeed before.
    while (found := attempt(call)) not in wanted:
        assert found == "value", found
        time.sleep(0.001)
    return found

dead_node = "node" in sys.argv
print(json.dumps({
    "idle": until_noticed(idle.pid.remote, ["ActorDiedError", "NodeDiedError"] if dead_node or "idle" in sys.argv else ["value"]),
    "task": until_noticed(task.remote, ["NodeDiedError"] if dead_node else ["value"]),
}), flush=True)
mray.shutdown()
"""

CASES = [
    ((), {"idle": "value", "task": "value"}),
    (("idle",), {"idle": "ActorDiedError", "task": "value"}),
    (("busy",), {"idle": "value", "task": "value"}),
    (("zygote",), {"idle": "value", "task": "value"}),
    (("zygote", "idle"), {"idle": "ActorDiedError", "task": "value"}),
    (("node",), {"task": "NodeDiedError"}),
    (("zygote", "node"), {"task": "NodeDiedError"}),
    (("driver",), None),
    (("node", "driver"), None),
    (("deaf", "node", "driver"), None),
    (("zygote", "driver"), None),
]


def run_driver(tmp_path: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    environment = {**os.environ, "PYTHONPATH": python_path()}
    ended = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, env=environment, check=False)
    print(ended.stderr)
    return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(("killed", "outcomes"), CASES, ids=["+".join(killed) or "nobody" for killed, _ in CASES])
def test_sudden_death(killed: tuple[str, ...], outcomes: dict[str, str] | None, tmp_path: Path, eventually: Callable[..., None]):
    code, said = run_driver(tmp_path, *killed)
    if outcomes is None:
        assert code == -9
    else:
        assert code == 0
        assert outcomes.items() <= said[1].items()
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in said[0].values()), what=f"the end of {said[0]}")


def test_the_next_session_sweeps_after_a_death_of_all_three(tmp_path: Path, eventually: Callable[..., None]):
    code, said = run_driver(tmp_path, "zygote", "node", "driver")
    assert code == -9
    pids = said[0]
    child = pids.pop("child")
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids.values()), what="the end of the workers")
    code, _said = run_driver(tmp_path)
    assert code == 0
    eventually(lambda: not os.path.exists(f"/proc/{child}"), what="the end of a dead worker's child")
