"""Sudden death around a persistent session: its node, its zygote, drivers, `mray start` in the middle, a machine that was switched off."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mray._ipc.reaper import ADDRESS, LOCK
from mray._ipc.sessions import parent_of
from mray._joining import address as addresses
from tests.checkout import python_path

MARK = "MRAY_CRASH_MARK"

#: A driver with an actor, an object and a task that never ends; it waits for the task and says what it gets.
DRIVER = """
import json, os, sys, time
import mray

@mray.remote(num_cpus=0)
class A:
    def pid(self):
        return os.getpid()

@mray.remote(num_cpus=0)
def endless():
    time.sleep(1000)

mray.init(address="auto", logging_level="ERROR")
actor = A.remote()
kept = mray.put(b"x" * 500_000)
ref = endless.remote()
print(json.dumps({"me": os.getpid(), "actor": mray.get(actor.pid.remote())}), flush=True)
if "idle" in sys.argv:
    sys.stdin.read()
try:
    mray.get(ref)
except mray.exceptions.RayError as error:
    print(json.dumps({"kind": type(error).__name__, "text": str(error)}), flush=True)
"""


class Scene:
    """A persistent session and its drivers, all of them with the mark of the run."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.environment = {**os.environ, MARK: run.mark, "MRAY_TMPDIR": str(run.sessions), "PYTHONPATH": python_path()}
        self.drivers: list[subprocess.Popen[str]] = []
        self.parent = parent_of(str(run.sessions))

    def mray(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mray", *words]
        return subprocess.run(command, capture_output=True, text=True, env=self.environment, check=False, cwd="/")

    def start(self) -> addresses.Address:
        done = self.mray("start", "--num-cpus", "2")
        assert done.returncode == 0, done.stderr
        self.run.note_sessions()
        found = addresses.running_in(self.parent)
        assert found is not None
        return found

    def driver(self, *words: str) -> dict[str, Any]:
        """Start one; what it says first."""
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self.environment, cwd="/",
        )  # fmt: skip
        self.drivers.append(process)
        assert process.stdout is not None
        return json.loads(process.stdout.readline())  # type: ignore[no-any-return]

    def outcomes(self) -> list[dict[str, Any]]:
        """The result of each driver's task; the drivers end."""
        found = []
        for process in self.drivers:
            said, _errors = process.communicate()
            if process.returncode != -signal.SIGKILL:
                found.append(json.loads(said))
        return found

    def close(self) -> None:
        for process in self.drivers:
            process.kill()
            process.communicate()


@pytest.fixture
def scene(run: Any) -> Iterator[Scene]:
    scene = Scene(run)
    yield scene
    scene.close()


def test_a_dead_node_is_told_to_every_driver_and_nothing_is_left(scene: Scene, run: Any) -> None:
    session = scene.start()
    for _ in range(2):
        scene.driver()
    os.kill(session.node_pid, signal.SIGKILL)
    outcomes = scene.outcomes()
    assert [each["kind"] for each in outcomes] == ["NodeDiedError"] * 2
    assert all(f"the node process (pid {session.node_pid})" in each["text"] for each in outcomes)
    run.assert_nothing_left()
    assert addresses.running_in(scene.parent) is None
    assert not os.path.exists(os.path.join(scene.parent, ADDRESS))


COMPILES = """
import json, sys
import mray
from mray.dag import InputNode

mray.init(address="auto", logging_level="CRITICAL")

@mray.remote(num_cpus=0)
class A:
    def echo(self, value):
        return value

actor = A.remote()
try:
    while True:
        with InputNode() as value:
            graph = actor.echo.bind(value).experimental_compile()
        assert graph.execute(7).get() == 7
        graph.teardown()
        print("{}", flush=True)
except mray.exceptions.RayError as error:
    print(json.dumps({"kind": type(error).__name__, "text": str(error)}), flush=True)
"""


def test_a_driver_that_compiles_a_graph_as_the_session_ends_is_told_how_that_has_ended(scene: Scene, run: Any) -> None:
    session = scene.start()
    drivers = [
        subprocess.Popen([sys.executable, "-c", COMPILES], stdout=subprocess.PIPE, text=True, env=scene.environment, cwd="/")
        for _ in range(4)
    ]
    for each in drivers:
        assert each.stdout is not None and each.stdout.readline() == "{}\n"
    os.kill(session.node_pid, signal.SIGKILL)
    told = [json.loads(each.communicate()[0].splitlines()[-1]) for each in drivers]
    for each in told:
        assert each["kind"] in ("NodeDiedError", "ActorDiedError", "RayChannelError") and "(pid " in each["text"], told
    run.assert_nothing_left()


def test_when_node_and_zygote_die_together_the_drivers_clean(scene: Scene, run: Any) -> None:
    session = scene.start()
    scene.driver()
    zygote = run.pid_of("zygote")
    os.kill(session.node_pid, signal.SIGSTOP)
    os.kill(zygote, signal.SIGKILL)
    os.kill(session.node_pid, signal.SIGKILL)
    assert [each["kind"] for each in scene.outcomes()] == ["NodeDiedError"]
    run.assert_nothing_left()


def test_a_zygote_that_takes_its_time_to_die_with_the_node_leaves_nothing(scene: Scene, run: Any) -> None:
    session = scene.start()
    scene.driver()
    with open(os.path.join(session.session_dir, LOCK)) as file:

        def hold_lock() -> None:
            """As the zygote does until the kernel has ended it."""
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(0.3)
            fcntl.flock(file, fcntl.LOCK_UN)

        holder = threading.Thread(target=hold_lock)
        holder.start()
        os.kill(session.node_pid, signal.SIGSTOP)
        os.kill(run.pid_of("zygote"), signal.SIGKILL)
        os.kill(session.node_pid, signal.SIGKILL)
        holder.join()
    assert [each["kind"] for each in scene.outcomes()] == ["NodeDiedError"]
    run.assert_nothing_left()


def test_when_everybody_dies_the_next_start_cleans(scene: Scene, run: Any) -> None:
    session = scene.start()
    said = scene.driver()
    zygote = run.pid_of("zygote")
    for pid in (session.node_pid, zygote, said["me"]):
        os.kill(pid, signal.SIGSTOP)
    for pid in (said["me"], zygote, session.node_pid):
        os.kill(pid, signal.SIGKILL)
    scene.outcomes()
    again = scene.start()
    assert again.session_dir != session.session_dir
    assert not os.path.exists(session.session_dir)
    assert scene.mray("stop").returncode == 0
    run.assert_nothing_left()


def test_a_dead_zygote_is_replaced_and_the_drivers_go_on(scene: Scene, run: Any) -> None:
    scene.start()
    scene.driver("idle")
    os.kill(run.pid_of("zygote"), signal.SIGKILL)
    scene.driver("idle")
    assert scene.mray("stop").returncode == 0
    assert [each["kind"] for each in scene.outcomes()] == ["NodeDiedError"] * 2
    run.assert_nothing_left()


def test_a_node_that_does_not_answer_is_killed_by_stop(scene: Scene, run: Any) -> None:
    session = scene.start()
    scene.driver()
    os.kill(session.node_pid, signal.SIGSTOP)
    done = scene.mray("stop", "--grace-period", "0.2")
    assert "its node had to be killed" in done.stdout
    assert [each["kind"] for each in scene.outcomes()] == ["NodeDiedError"]
    run.assert_nothing_left()


MOMENTS: dict[str, Callable[[Scene], bool]] = {
    "the directory is there": lambda scene: bool(os.path.isdir(scene.parent) and os.listdir(scene.parent)),
    "the node listens": lambda scene: any(path.name == "node.sock" for path in scene.run.paths()),
    "the zygote runs": lambda scene: any(title.startswith("ray::zygote") for title in scene.run.processes().values()),
}


#: A namespace of pids, with the folders and the shared memory of this one: a container that shares them.
ANOTHER = ("unshare", "--pid", "--fork", "--mount", "--mount-proc")


@pytest.mark.parametrize("words", [("stop",), ("stop", "--force")], ids=" ".join)
def test_a_session_whose_processes_cannot_be_seen_is_left_as_it_is(scene: Scene, run: Any, words: tuple[str, ...]) -> None:
    tried = subprocess.run([*ANOTHER, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no namespaces here: {tried.stderr}")
    session = scene.start()
    scene.driver("idle")
    token = os.path.basename(session.session_dir).rpartition("_")[2]
    names = sorted(name for name in os.listdir("/dev/shm") if token in name)
    files = set(os.listdir(session.session_dir))

    def there(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**scene.environment, **variables}
        return subprocess.run([*ANOTHER, sys.executable, *command], capture_output=True, text=True, env=environment, check=False, cwd="/")

    stopped = there("-m", "mray", *words)
    assert stopped.returncode == 1 and "cannot be seen from here" in stopped.stderr, stopped
    assert "persistent" in there("-m", "mray", "status").stdout
    # As where the folder of sessions is not shared, and only names in shared memory are.
    orphans = there("-c", "from mray.cli.checks import left_over; print(left_over().segments)", MRAY_TMPDIR=str(run.folder))
    assert orphans.returncode == 0 and token not in orphans.stdout, orphans
    assert sorted(name for name in os.listdir("/dev/shm") if token in name) == names != []
    assert files <= set(os.listdir(session.session_dir))
    assert addresses.running_in(scene.parent) == session
    assert scene.mray("stop").returncode == 0
    assert ["the session" in each["text"] for each in scene.outcomes()] == [True]
    run.assert_nothing_left()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_start_that_is_killed_in_the_middle_leaves_nothing(scene: Scene, run: Any, moment: str) -> None:
    process = subprocess.Popen([sys.executable, "-m", "mray", "start"], stdout=subprocess.DEVNULL, env=scene.environment, cwd="/")
    while not MOMENTS[moment](scene) and process.poll() is None:
        pass
    process.kill()
    process.wait()
    run.note_sessions()
    # It may have been ready already: then the session is there, whole, and can be ended.
    scene.mray("stop")
    # Files that were made before there was a node are swept by the next start.
    scene.start()
    assert scene.mray("stop").returncode == 0
    run.assert_nothing_left()


def test_what_a_machine_leaves_that_was_switched_off_stops_nobody(scene: Scene, run: Any) -> None:
    session = scene.start()
    assert scene.mray("stop").returncode == 0
    # The files of a session, its lock free, and its node's pid that of somebody else by now: of this process.
    os.makedirs(os.path.join(session.session_dir, "logs"), 0o700)
    Path(session.session_dir, "lock").touch()
    stale = {**session._asdict(), "node_pid": os.getpid()}
    Path(scene.parent, ADDRESS).write_text(json.dumps(stale))
    assert "no session of `mray start` is running" in scene.mray("stop").stderr
    assert not os.path.exists(os.path.join(scene.parent, ADDRESS))
    Path(scene.parent, ADDRESS).write_text("{broken")
    scene.start()
    assert not os.path.exists(session.session_dir)
    scene.driver("idle")
    assert scene.mray("stop").returncode == 0
    scene.outcomes()
    run.assert_nothing_left()
