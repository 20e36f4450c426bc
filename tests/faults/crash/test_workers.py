"""Workers as processes: what they print is not lost, what they start does not stay, and each has the environment it was asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkout import python_path
from tests.faults.crash.conftest import Run

PRELUDE = """
import os, signal, subprocess, sys, time
import mray

def alive(pid):
    return os.path.exists(f"/proc/{pid}")

def until(condition):
    while not condition():
        time.sleep(0.001)
"""


def check_driver(tmp_path: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run a driver; it must succeed."""
    script = tmp_path / "driver.py"
    script.write_text(PRELUDE + body)
    environment = {**os.environ, "PYTHONPATH": python_path(), "RAY_DEDUP_LOGS": "0", "MRAY_LOG_PREFIX": "1"}
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False)
    print(ended.stdout, ended.stderr)
    assert ended.returncode == 0
    return ended


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(3)", "mray.get(mray.put(1))"])
def test_what_was_printed_before_the_end_is_shown(end: str, tmp_path: Path):
    ended = check_driver(
        tmp_path,
        f"""
@mray.remote(max_retries=0)
def f():
    for number in range(2000):
        print("line", number)
    print("last words", file=sys.stderr)
    {end}

mray.init(num_cpus=1)
try:
    mray.get(f.remote())
except mray.exceptions.WorkerCrashedError:
    pass
mray.shutdown()
""",
    )
    assert [line.split(") ")[1] for line in ended.stdout.splitlines() if line.startswith("(f pid=")] == [
        f"line {number}" for number in range(2000)
    ]
    assert any(line.startswith("(f pid=") and line.endswith(") last words") for line in ended.stderr.splitlines())


def test_output_of_a_running_task_is_shown_when_the_session_ends(tmp_path: Path):
    ended = check_driver(
        tmp_path,
        """
@mray.remote
def f(path):
    print("shown", flush=True)
    open(path, "w").close()
    while True:
        pass

mray.init(num_cpus=1)
f.remote(sys.argv[0] + ".started")
until(lambda: os.path.exists(sys.argv[0] + ".started"))
mray.shutdown()
""",
    )
    assert ") shown" in ended.stdout


def test_the_children_of_a_killed_actor_are_ended_and_those_of_others_are_not(tmp_path: Path):
    check_driver(
        tmp_path,
        """
@mray.remote
class A:
    def start(self):
        # A child, a grandchild whose parent is dead, and one that makes a process group of its own.
        child = subprocess.Popen(["sleep", "1000"]).pid
        text = subprocess.run(["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True).stdout
        grouped = subprocess.Popen(["timeout", "1000", "sleep", "1000"]).pid
        until(lambda: os.getpgid(grouped) == grouped)
        return child, int(text), grouped

mray.init(num_cpus=2)
one, two = A.remote(), A.remote()
ended, kept = mray.get(one.start.remote()), mray.get(two.start.remote())
mray.kill(one)
until(lambda: not any(map(alive, ended)))
assert all(map(alive, kept))
mray.shutdown()
assert not any(map(alive, kept))
""",
    )


def test_variables_that_a_process_reads_at_its_start_get_an_interpreter_of_their_own(tmp_path: Path):
    check_driver(
        tmp_path,
        """
@mray.remote
def seen(name):
    with open("/proc/self/environ") as file:
        return os.environ.get(name), name in file.read(), os.environ.get("MRAY_WORKER_ENVIRONMENT")

def ask(name, value):
    return mray.get(seen.options(runtime_env={"env_vars": {name: value}}).remote(name))

mray.init(num_cpus=1)
assert ask("MALLOC_ARENA_MAX", "1") == ("1", True, None)
assert ask("PLAIN", "a${HOME}b") == ("a" + os.environ["HOME"] + "b", False, None)
mray.shutdown()
""",
    )


def test_an_environment_in_which_nothing_starts_is_an_error_that_says_so(tmp_path: Path):
    check_driver(
        tmp_path,
        """
@mray.remote
def f():
    return 1

mray.init(num_cpus=1)
try:
    mray.get(f.options(runtime_env={"env_vars": {"PYTHONHOME": "/nonsense"}}).remote())
except mray.exceptions.RayError as error:
    assert "PYTHONHOME" in str(error) and "exit code 1" in str(error), error
else:
    raise SystemExit("no error")
assert mray.get(f.remote()) == 1
mray.shutdown()
""",
    )


def test_what_no_process_can_be_started_with_is_an_error_of_its_task_alone(tmp_path: Path):
    check_driver(
        tmp_path,
        """
mray.init(num_cpus=1)
for environment in (
    {"py_executable": "env A=\\0 python"},
    {"py_executable": "env A=\\ud800 python"},
    {"profiler": ["env", "A=\\0"]},
    {"profiler": ["env", "A=\\ud800"]},
):
    f = mray.remote(runtime_env=environment)(lambda: 1)
    try:
        mray.get(f.remote())
    except mray.exceptions.RuntimeEnvSetupError as error:
        assert "no process can have such variables or arguments" in str(error), error
    else:
        raise SystemExit("no error")
    assert mray.get(mray.remote(lambda: 2).remote()) == 2

variables = {"MRAY_WORKER_INTERPRETER": "x", "MRAY_WORKER_WRAPPER": "x", "PLAIN": "y"}
f = mray.remote(runtime_env={"env_vars": variables})(lambda name: os.environ.get(name))
assert mray.get([f.remote("PLAIN"), f.remote("MRAY_WORKER_INTERPRETER")]) == ["y", None]
mray.shutdown()
""",
    )


def test_hundreds_of_workers_start_and_end(tmp_path: Path):
    check_driver(
        tmp_path,
        """
@mray.remote
class A:
    def pid(self):
        return os.getpid()

mray.init(num_cpus=2)
actors = [A.remote() for _ in range(100)]
pids = mray.get([actor.pid.remote() for actor in actors])
assert len(set(pids)) == 100
del actors
until(lambda: not any(map(alive, pids)))
mray.shutdown()
""",
    )


def test_workers_that_cannot_be_started_leave_the_node_no_descriptor(tmp_path: Path):
    check_driver(
        tmp_path,
        """
from mray._api.current import current_backend

def refused():
    path = f"{sys.argv[0]}.{os.urandom(4).hex()}"
    with open(path, "w") as file:
        file.write("#!/no/such/program\\n")
    os.chmod(path, 0o700)
    f = mray.remote(max_retries=0, runtime_env={"py_executable": path})(lambda: 1)
    try:
        mray.get(f.remote())
    except mray.exceptions.RuntimeEnvSetupError:
        pass
    else:
        raise SystemExit("no error")

mray.init(num_cpus=1)
node = current_backend().client.info["node_pid"]
count = lambda: len(os.listdir(f"/proc/{node}/fd"))
before = count()
for _ in range(20):
    refused()
until(lambda: count() <= before + 10)
mray.shutdown()
""",
    )


@pytest.mark.parametrize("most", [1, 2])
def test_a_worker_that_ends_after_its_last_call_is_nobodys_actor(run_text: Callable[..., Run], most: int) -> None:
    """It is late with its end: by then its owner has asked what is free, and an actor waits for a worker."""
    rules = [{"at": "last call served", "do": "delay", "seconds": 0.5}]
    run = run_text(
        f"""
import os
import mray

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote(max_calls={most})
def once():
    return os.getpid()

@mray.remote
class Actor:
    def pid(self):
        return os.getpid()

pids = [mray.get(once.remote()) for _ in range({most})]
mray.available_resources()
actor = Actor.remote()
print("OTHER", mray.get(actor.pid.remote()) not in pids, flush=True)
mray.shutdown()
""",
        env={"MRAY_POINTS": json.dumps({"rules": rules})},
    )
    assert run.wait() == 0, run.output()
    assert run.said()["OTHER"] == "True"
    run.assert_nothing_left()
