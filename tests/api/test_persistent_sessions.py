"""Sessions that outlive their drivers: `mray start`, several drivers at once, what goes with a driver and what stays, `mray stop`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mray._api.current import current_backend
from mray._common.options import session_options
from mray._ipc.sessions import address_of
from mray._ipc.table import BYTES, ROW_WORDS
from mray._joining import address as addresses
from mray._joining import persistent
from mray._joining.persistent import stop_persistent
from mray._objects.store import SegmentStore
from mray.exceptions import RaySystemError
from tests.checkout import python_path

pytestmark = pytest.mark.only("mray")

#: The beginning of every driver program.
BEGIN = """
import json, os, signal, sys, threading, time
import mray as ray

def say(**facts):
    print(json.dumps(facts), flush=True)

@ray.remote
def where():
    context = ray.get_runtime_context()
    return {"pid": os.getpid(), "job": context.get_job_id(), "namespace": context.namespace, "cwd": os.getcwd()}

@ray.remote(num_cpus=0, max_restarts=-1)
class Counter:
    def __init__(self, start=0):
        self.count = start if isinstance(start, int) else len(start)
        self.kept = []

    def increment(self):
        self.count += 1
        return self.count

    def keep(self, refs):
        self.kept += refs
        return len(self.kept)

    def read(self):
        return ray.get(self.kept)

    def pid(self):
        return os.getpid()

    def where(self):
        return ray.get(where.remote())
"""


def mray(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command, to its end."""
    environment = {**os.environ, "PYTHONPATH": python_path(), **(env or {})}
    return subprocess.run([sys.executable, "-m", "mray", *words], capture_output=True, text=True, env=environment, check=False, cwd="/")


class Driver:
    """A driver program that runs beside the test: it says facts, line by line, and reads words."""

    def __init__(self, folder: Path, text: str, *, namespace: str | None = None) -> None:
        init = f"context = ray.init(address='auto', namespace={namespace!r}, logging_level='ERROR')\n"
        path = folder / f"driver{len(list(folder.iterdir()))}.py"
        path.write_text(BEGIN + init + textwrap.dedent(text))
        self.errors = path.with_suffix(".err")
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": python_path()},
            )
        self.printed: list[str] = []

    def hear(self) -> dict[str, Any]:
        """The next facts that it says."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)  # type: ignore[no-any-return]
            self.printed.append(line)
        pytest.fail(f"the driver has ended with {self.process.wait()}\n{''.join(self.printed)}\n{self.errors.read_text()}")

    def tell(self, word: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """Let it end; what it had still to print."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        rest = self.process.stdout.read()
        assert self.process.wait() == 0, self.errors.read_text()
        self.close()
        return "".join(self.printed) + rest

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                stream.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def session(belongings_of_module: None, shared_session: Any) -> Iterator[addresses.Address]:
    """A persistent session of four CPUs."""
    done = mray("start", "--head", "--num-cpus", "4")
    assert done.returncode == 0, done.stderr
    found = addresses.running()
    assert found is not None
    shared_session.node_pid = found.node_pid
    yield found
    shared_session.node_pid = 0
    done = mray("stop")
    assert done.returncode == 0 and "Stopped" in done.stdout, (done.stdout, done.stderr)


@pytest.fixture(scope="module")
def belongings_of_module(ray: ModuleType, shared_session: Any) -> Iterator[None]:
    """The session of another file must not be running."""
    ray.shutdown()
    shared_session.running = False
    yield
    assert addresses.running() is None


@pytest.fixture
def start_driver(session: addresses.Address, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Starts driver programs; none outlives the test."""
    drivers: list[Driver] = []

    def start(text: str, **options: Any) -> Driver:
        drivers.append(Driver(tmp_path, text, **options))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.close()


@pytest.fixture
def joined(session: addresses.Address, fresh: ModuleType) -> ModuleType:
    """The module as a driver of the session, in the namespace "shared"."""
    fresh.init(address="auto", namespace="shared", logging_level="ERROR")
    return fresh


@pytest.fixture
def counter(joined: ModuleType) -> Iterator[Callable[..., Any]]:
    """Makes detached counters, of a class of this process, and ends them."""

    class Counter:
        def __init__(self, start: Any = 0) -> None:
            self.count = start if isinstance(start, int) else len(start)

        def increment(self) -> int:
            self.count += 1
            return self.count

        def pid(self) -> int:
            return os.getpid()

    made = []

    def make(name: str, *args: Any, **options: Any) -> Any:
        options = {"num_cpus": 0, "lifetime": "detached", **options}
        made.append(joined.remote(Counter).options(name=name, **options).remote(*args))
        return made[-1]

    yield make
    for actor in made:
        joined.kill(actor)


def kill_by_name(ray: ModuleType, name: str, namespace: str = "shared") -> None:
    ray.kill(ray.get_actor(name, namespace=namespace))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# ------------------------------------------------------------------------------------------------ finding and joining
def test_a_second_start_says_that_one_runs_already(session):
    done = mray("start")
    assert done.returncode == 1
    assert "is running already" in done.stderr and session.session_dir in done.stderr


def test_status_tells_of_the_session_and_its_drivers(session, joined):
    said = mray("status", "--session", session.session_dir).stdout
    assert f"node pid {session.node_pid}; to end it: mray stop" in said
    assert f"driver     pid {os.getpid()}" in said


def test_the_session_has_no_terminal_and_a_kernel_session_of_its_own(session):
    fields = Path(f"/proc/{session.node_pid}/stat").read_text().rpartition(")")[2].split()
    assert (int(fields[3]), int(fields[4])) == (session.node_pid, 0)
    assert os.readlink(f"/proc/{session.node_pid}/cwd") == "/"
    assert os.readlink(f"/proc/{session.node_pid}/fd/0") == "/dev/null"


def test_nobody_else_may_enter(session):
    assert os.stat(os.path.dirname(session.session_dir)).st_mode & 0o077 == 0
    assert os.stat(os.path.join(os.path.dirname(session.session_dir), "address")).st_mode & 0o077 == 0


def test_auto_joins_it_and_the_context_says_so(session, fresh):
    context = fresh.init(address="auto", logging_level="ERROR")
    assert context["session_dir"] == session.session_dir
    assert context.address_info["address"] == context.address_info["gcs_address"] == address_of(session.session_dir)
    assert context.address_info["address"].rpartition(":")[2] == "6379"
    assert fresh.cluster_resources()["CPU"] == 4
    fresh.shutdown()
    assert alive(session.node_pid)


@pytest.mark.parametrize("form", ["directory", "name", "host and port", "port of this machine", "variable", "variable of a port"])
def test_it_is_joined_by_its_directory_its_name_its_port_and_by_the_variable(session, fresh, monkeypatch, form):
    named = address_of(session.session_dir)
    ways = {"directory": session.session_dir, "name": os.path.basename(session.session_dir), "host and port": named}
    address: str | None = {**ways, "port of this machine": "localhost:6379"}.get(form)
    if address is None:
        monkeypatch.setenv("RAY_ADDRESS", "auto" if form == "variable" else named)
    assert fresh.init(address, logging_level="ERROR")["session_dir"] == session.session_dir


def test_the_variable_counts_for_a_session_that_starts_by_itself(session, fresh, monkeypatch):
    monkeypatch.setenv("MRAY_ADDRESS", "auto")
    fresh.put(1)
    assert fresh.get_runtime_context().get_session_name() == os.path.basename(session.session_dir)


@pytest.mark.parametrize("address", [None, "local"])
def test_without_an_address_a_session_is_private(session, fresh, address):
    assert fresh.init(address, num_cpus=1, logging_level="ERROR")["session_dir"] != session.session_dir
    assert fresh.cluster_resources()["CPU"] == 1


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ({"num_cpus": 4}, "num_cpus and num_gpus"),
        ({"num_gpus": 0}, "num_cpus and num_gpus"),
        ({"resources": {"a": 1}}, "resources"),
        ({"labels": {"a": "b"}}, "labels"),
        ({"object_store_memory": 1 << 27}, "object_store_memory"),
    ],
)
def test_what_only_a_new_session_can_have_is_refused(session, fresh, option, what):
    with pytest.raises(ValueError, match=f"When connecting to an existing cluster, {what} must not be provided."):
        fresh.init(address="auto", **option)
    assert not fresh.is_initialized()


def test_a_driver_of_another_version_is_refused(session, fresh, monkeypatch):
    monkeypatch.setattr("mray._joining.persistent.versions", lambda: ["2.7", "0.0"])
    with pytest.raises(RuntimeError, match="Version mismatch: .* Python 2.7, mray 0.0"):
        fresh.init(address="auto")


def test_init_twice_is_an_error_here_too(joined):
    with pytest.raises(RuntimeError, match="Maybe you called ray.init twice by accident"):
        joined.init(address="auto")
    joined.init(address="auto", ignore_reinit_error=True)


def test_shutdown_disconnects_and_init_joins_again(session, fresh):
    jobs = []
    for _ in range(2):
        fresh.init(address="auto", logging_level="ERROR")
        jobs.append(fresh.get_runtime_context().get_job_id())
        fresh.shutdown()
    assert jobs[0] != jobs[1]
    assert alive(session.node_pid)


def test_a_driver_counts_in_its_row_until_it_has_let_go_of_its_memory(session, fresh, monkeypatch):
    close = SegmentStore.close

    def close_late(store):
        time.sleep(0.3)
        close(store)

    monkeypatch.setattr(SegmentStore, "close", close_late)
    fresh.init(address="auto", logging_level="ERROR")
    del [fresh.put(b"x" * 3_000_000)][:]
    fresh.shutdown()
    fresh.init(address="auto", logging_level="ERROR")  # the row may be its now
    table = current_backend().client.reactor.table
    held = [table.words[ROW_WORDS * row + BYTES] for row in range(table.rows_in_use())]
    assert min(held) >= 0, held


# ------------------------------------------------------------------------------------------------ jobs
def test_a_job_id_is_the_same_in_driver_tasks_threads_actors_and_refs(joined, start_driver):
    ray = joined
    mine = ray.get_runtime_context().get_job_id()

    @ray.remote
    def in_a_task():
        found = [ray.get_runtime_context().get_job_id()]
        thread = threading.Thread(target=lambda: found.append(ray.get_runtime_context().get_job_id()))
        thread.start()
        thread.join()
        return [*found, ray.put(1).job_id().hex()]

    @ray.remote
    class InAnActor:
        def job(self):
            return ray.get_runtime_context().get_job_id()

    ref = in_a_task.remote()
    actor = InAnActor.remote()
    found = {*ray.get(ref), ray.get(actor.job.remote()), ref.job_id().hex(), ray.put(1).job_id().hex(), actor._actor_id.job_id.hex()}
    assert found == {mine}
    other = start_driver("say(job=context and ray.get_runtime_context().get_job_id(), task=ray.get(where.remote())['job'])")
    theirs = other.hear()
    assert theirs["job"] == theirs["task"] != mine
    other.end()


def test_workers_are_not_shared_between_jobs(start_driver):
    pids: list[set[int]] = []
    for _ in range(3):
        driver = start_driver("say(pids=[each['pid'] for each in ray.get([where.remote() for _ in range(20)])])")
        pids.append(set(driver.hear()["pids"]))
        driver.end()
    assert not pids[0] & pids[1] and not pids[1] & pids[2] and not pids[0] & pids[2]


def test_workers_find_the_files_and_modules_that_their_driver_finds(start_driver, tmp_path):
    (tmp_path / "beside_the_driver.py").write_text("VALUE = 42\n")
    driver = start_driver(
        """
        @ray.remote
        def f():
            import beside_the_driver
            return beside_the_driver.VALUE, os.getcwd()
        say(found=ray.get(f.remote()))
        """
    )
    assert driver.hear()["found"] == [42, str(tmp_path)]
    driver.end()


def test_a_job_has_its_own_runtime_env_and_preload(session, fresh):
    ray = fresh
    ray.init(address="auto", runtime_env={"env_vars": {"OF_THE_JOB": "1"}}, preload=["colorsys"], logging_level="ERROR")

    @ray.remote
    def f():
        return os.environ["OF_THE_JOB"], "colorsys" in sys.modules, [name for name in os.environ if name.startswith("MRAY_WORKER_")]

    assert ray.get(f.remote()) == ("1", True, [])


def test_a_driver_finds_its_files_as_they_are_now_and_not_as_an_earlier_one_did(session, fresh, tmp_path):
    ray = fresh

    @ray.remote
    def read():
        return Path("module.py").read_text(), os.path.exists("data")

    (tmp_path / "data").mkdir()
    for text in ("1", "22"):
        (tmp_path / "module.py").write_text(text)
        ray.init(address="auto", runtime_env={"working_dir": str(tmp_path), "excludes": ["data"]}, logging_level="ERROR")
        assert ray.get(read.remote()) == (text, False)
        ray.shutdown()


def test_archives_of_a_job_may_go_once_its_driver_has_joined(session, fresh, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "text").write_text("kept")
    archive = shutil.make_archive(str(tmp_path / "archive"), "zip", tmp_path / "folder")
    module = tmp_path / "module_of_a_job.py"
    module.write_text("NAME = 'kept too'\n")
    fresh.init(address="auto", runtime_env={"working_dir": archive, "py_modules": [str(module)]}, logging_level="ERROR")
    os.remove(archive)
    os.remove(module)

    @fresh.remote
    def read():
        import module_of_a_job

        return Path("text").read_text(), module_of_a_job.NAME

    assert fresh.get(read.remote()) == ("kept", "kept too")


def test_a_driver_that_is_not_taken_keeps_nothing_open(session, fresh, monkeypatch):
    monkeypatch.setattr(persistent, "new_job", lambda *_args: {"runtime_env": {}})
    before = os.listdir("/proc/self/fd")
    with pytest.raises(fresh.exceptions.RaySystemError, match="invalid message"):
        fresh.init(address="auto")
    assert session.node_lives()
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert not fresh.is_initialized()


def test_output_goes_to_the_driver_whose_job_it_is(start_driver):
    text = """
    @ray.remote
    def shout(word):
        print(word)
    say(ready=True)
    sys.stdin.readline()
    ray.get(shout.remote({!r}))
    """
    drivers = [start_driver(text.format(word)) for word in ("of-one", "of-other")]
    for driver in drivers:
        driver.hear()
    for driver in drivers:
        driver.tell()
    one, other = (driver.end() for driver in drivers)
    assert "of-one" in one and "of-other" not in one
    assert "of-other" in other and "of-one" not in other


def test_namespaces_are_anonymous_unless_named(start_driver):
    text = """
    actor = Counter.options(name="mine").remote()
    ray.get(actor.increment.remote())
    say(namespace=ray.get_runtime_context().namespace, named=ray.util.list_named_actors(),
        all=ray.util.list_named_actors(all_namespaces=True))
    sys.stdin.readline()
    """
    first, second = start_driver(text), start_driver(text)
    one, two = first.hear(), second.hear()
    assert one["namespace"] != two["namespace"]
    assert one["named"] == two["named"] == ["mine"]
    seen = [row["namespace"] for row in max(one["all"], two["all"], key=len) if row["name"] == "mine"]
    assert sorted(seen) == sorted([one["namespace"], two["namespace"]])
    first.end()
    second.end()


def test_list_jobs_tells_how_drivers_ended(session, joined, start_driver, eventually):
    text = "say(job=ray.get_runtime_context().get_job_id())\nsys.stdin.readline()"
    ended, killed = start_driver(text), start_driver(text)
    jobs = [driver.hear()["job"] for driver in (ended, killed)]
    ended.end()
    killed.kill()

    def statuses():
        rows = json.loads(mray("list", "jobs", "--format", "json", "--session", session.session_dir).stdout)
        found = {row["job_id"]: row["status"] for row in rows}
        return [found[job] for job in jobs]

    eventually(lambda: statuses() == ["SUCCEEDED", "FAILED"])


# ------------------------------------------------------------------------------------------------ the end of a driver
END = {
    "shutdown": "ray.shutdown()",
    "exception": "raise ValueError",
    "os._exit": "os._exit(3)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
}


@pytest.mark.parametrize("manner", ["shutdown", "exception", "os._exit", "SIGKILL", "SIGTERM"])
def test_a_driver_takes_only_its_own_work_with_it(joined, start_driver, eventually, manner):
    ray = joined

    @ray.remote
    class Bystander:
        def __init__(self):
            self.count = 0

        def increment(self):
            self.count += 1
            return self.count

    bystander = Bystander.remote()
    assert ray.get(bystander.increment.remote()) == 1
    driver = start_driver(
        f"""
        import mray.util
        group = mray.util.placement_group([{{"CPU": 1}}])
        ray.get(group.ready())
        actor = Counter.options(num_cpus=1).remote()
        detached = Counter.options(name="stays-{manner}", lifetime="detached").remote()
        nested = ray.remote(lambda: ray.get(where.options(num_cpus=0).remote())).remote()
        @ray.remote
        def endless():
            while True:
                time.sleep(0.01)
        running = endless.remote()
        inner = ray.get(nested)
        say(pids=[ray.get(actor.pid.remote()), inner["pid"]], detached=ray.get(detached.pid.remote()))
        sys.stdin.readline()
        {END[manner]}
        """,
        namespace="shared",
    )
    said = driver.hear()
    driver.tell()
    driver.process.wait()
    eventually(lambda: not any(map(alive, said["pids"])))
    eventually(lambda: ray.available_resources().get("CPU") == 4)
    assert ray.get(bystander.increment.remote()) == 2
    stays = ray.get_actor(f"stays-{manner}")
    assert ray.get([stays.pid.remote(), stays.increment.remote()]) == [said["detached"], 1]
    ray.kill(stays)
    eventually(lambda: not alive(said["detached"]))


def test_when_shutdown_returns_the_work_is_gone(start_driver):
    driver = start_driver(
        """
        actors = [Counter.remote() for _ in range(3)]
        pids = ray.get([actor.pid.remote() for actor in actors]) + [ray.get(where.remote())["pid"]]
        ray.shutdown()
        say(left=[pid for pid in pids if os.path.exists(f"/proc/{pid}")])
        """
    )
    assert driver.hear()["left"] == []
    driver.end()


def test_the_child_of_a_fork_does_not_keep_a_dead_driver_alive(joined, start_driver, eventually):
    driver = start_driver(
        """
        actor = Counter.remote()
        say(pid=ray.get(actor.pid.remote()), me=os.getpid())
        sys.stdin.readline()
        import ctypes
        child = ctypes.CDLL(None).fork()  # nothing in it lets go of the sockets
        if not child:
            ctypes.CDLL(None).pause()
        say(child=child)
        time.sleep(1000)
        """
    )
    pid = driver.hear()["pid"]
    driver.tell()
    child = driver.hear()["child"]
    try:
        driver.kill()
        eventually(lambda: not alive(pid))
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_waiting_driver_goes_on_when_another_one_dies(joined, start_driver, tmp_path):
    ray = joined
    other = start_driver("say(pid=ray.get(where.remote())['pid'])\nsys.stdin.readline()")
    other.hear()

    @ray.remote
    def slow(path):
        import time

        while not os.path.exists(path):
            time.sleep(0.005)
        return "done"

    release = tmp_path / "release"
    ref = slow.remote(str(release))
    other.kill()
    assert ray.get([ray.put(1), ray.remote(lambda: 2).remote()]) == [1, 2]
    release.touch()
    assert ray.get(ref) == "done"


# ------------------------------------------------------------------------------------------------ detached actors
def test_a_detached_actor_is_found_by_other_drivers_and_passed_between_them(joined, counter, start_driver):
    counter("found", 10)
    driver = start_driver('say(count=ray.get(ray.get_actor("found").increment.remote()))', namespace="shared")
    assert driver.hear()["count"] == 11
    driver.end()
    elsewhere = start_driver('say(count=ray.get(ray.get_actor("found", namespace="shared").increment.remote()))')
    assert elsewhere.hear()["count"] == 12
    elsewhere.end()
    hidden = start_driver(
        """
        try:
            ray.get_actor("found")
        except ValueError as error:
            say(error=str(error))
        """
    )
    assert "Failed to look up actor with name 'found'" in hidden.hear()["error"]
    hidden.end()


@pytest.mark.parametrize("argument", ["5", "b'x' * 500_000", "ray.put(b'x' * 500_000)", "where.remote()"])
def test_a_detached_actor_is_restarted_after_its_creator_is_gone(joined, start_driver, eventually, argument):
    ray = joined
    driver = start_driver(
        f"""
        actor = Counter.options(name="restarts", lifetime="detached").remote({argument})
        say(pid=ray.get(actor.pid.remote()), count=ray.get(actor.increment.remote()))
        """,
        namespace="shared",
    )
    said = driver.hear()
    driver.end()
    actor = ray.get_actor("restarts")
    assert ray.get(actor.pid.remote()) == said["pid"]
    os.kill(said["pid"], signal.SIGKILL)

    def again():
        try:
            return ray.get(actor.pid.remote()) != said["pid"]
        except ray.exceptions.ActorUnavailableError:
            return False

    eventually(again)
    assert ray.get(actor.increment.remote()) == said["count"]
    own = [name for name in os.listdir("/dev/shm") if actor._actor_id.hex() in name]
    assert bool(own) == ("500_000" in argument)
    ray.kill(actor)
    eventually(lambda: not any(actor._actor_id.hex() in name for name in os.listdir("/dev/shm")))


def test_the_tasks_of_a_detached_actor_run_in_its_job_after_its_creator_is_gone(joined, start_driver, eventually, tmp_path):
    ray = joined
    driver = start_driver(
        """
        actor = Counter.options(name="works-on", lifetime="detached").remote()
        say(job=ray.get_runtime_context().get_job_id(), before=ray.get(actor.where.remote()))
        """,
        namespace="shared",
    )
    said = driver.hear()
    driver.end()
    actor = ray.get_actor("works-on")
    after = ray.get(actor.where.remote())
    assert (after["job"], after["namespace"], after["cwd"]) == (said["job"], "shared", str(tmp_path))
    assert said["before"]["job"] == said["job"]
    ray.kill(actor)
    eventually(lambda: not alive(after["pid"]))


def test_a_detached_actor_of_a_detached_actor_stays_when_that_one_is_killed(joined, eventually):
    ray = joined

    @ray.remote(num_cpus=0)
    class Parent:
        def __init__(self):
            self.child = Child.options(name="grandchild", lifetime="detached").remote()
            self.own = Child.remote()

        def pids(self):
            return ray.get([self.child.pid.remote(), self.own.pid.remote()])

    @ray.remote(num_cpus=0)
    class Child:
        def pid(self):
            return os.getpid()

    parent = Parent.options(name="parent", lifetime="detached").remote()
    child, own = ray.get(parent.pids.remote())
    ray.kill(parent)
    eventually(lambda: not alive(own))
    assert ray.get(ray.get_actor("grandchild").pid.remote()) == child
    kill_by_name(ray, "grandchild")
    eventually(lambda: not alive(child))


def test_a_name_that_is_taken_leaves_no_arguments_behind(session, joined, counter):
    token = session.session_dir.rpartition("_")[2]

    def names():
        return {name for name in os.listdir("/dev/shm") if token in name}

    counter("taken", b"x" * 500_000)
    before = names()
    with pytest.raises(joined.exceptions.ActorAlreadyExistsError):
        counter("taken", b"x" * 500_000)
    assert counter("taken", b"x" * 500_000, get_if_exists=True) is not None
    assert names() - before == set()


def test_a_hundred_creators_in_several_drivers_make_one_actor(joined, start_driver):
    text = """
    say(ready=True)
    sys.stdin.readline()
    handles = []
    def create():
        handles.append(Counter.options(name="raced", lifetime="detached", get_if_exists=True).remote())
    threads = [threading.Thread(target=create) for _ in range(25)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    say(pids=sorted(set(ray.get([handle.pid.remote() for handle in handles]))), made=len(handles))
    """
    drivers = [start_driver(text, namespace="shared") for _ in range(4)]
    for driver in drivers:
        driver.hear()
    for driver in drivers:
        driver.tell()
    said = [driver.hear() for driver in drivers]
    assert [each["made"] for each in said] == [25] * 4
    assert len({tuple(each["pids"]) for each in said}) == 1 and len(said[0]["pids"]) == 1
    for driver in drivers:
        driver.end()
    kill_by_name(joined, "raced")


def test_an_actor_whose_driver_has_died_says_so_to_other_drivers(joined, start_driver):
    ray = joined
    driver = start_driver(
        """
        actor = Counter.options(name="owned").remote()
        say(count=ray.get(actor.increment.remote()))
        sys.stdin.readline()
        """,
        namespace="shared",
    )
    driver.hear()
    actor = ray.get_actor("owned")
    assert ray.get(actor.increment.remote()) == 2
    driver.kill()
    with pytest.raises(ray.exceptions.ActorDiedError, match="The actor is dead because its owner has died"):
        while True:
            ray.get(actor.increment.remote())
    assert {"name": "owned", "namespace": "shared"} not in ray.util.list_named_actors(all_namespaces=True)


# ------------------------------------------------------------------------------------------------ objects between drivers
def test_objects_pass_between_drivers_and_are_lost_with_their_owner(joined, start_driver, eventually):
    ray = joined
    owner = start_driver(
        """
        actor = Counter.options(name="keeper", lifetime="detached").remote()
        refs = [ray.put("small"), ray.put(b"x" * 500_000), where.remote()]
        ray.get(actor.keep.remote(refs))
        never = threading.Event()
        slow = ray.remote(lambda: time.sleep(1000)).remote()
        ray.get(Counter.options(name="waiter", lifetime="detached").remote().keep.remote([slow]))
        say(me=os.getpid())
        sys.stdin.readline()
        """,
        namespace="shared",
    )
    said = owner.hear()
    keeper, waiter = ray.get_actor("keeper"), ray.get_actor("waiter")
    values = ray.get(keeper.read.remote())
    assert values[0] == "small" and values[1] == b"x" * 500_000
    waiting = waiter.read.remote()
    assert ray.wait([waiting], timeout=0.1)[0] == []
    owner.kill()
    with pytest.raises(ray.exceptions.OwnerDiedError, match=rf"the driver.*\(pid {said['me']}\)"):
        ray.get(waiting)
    for name in ("keeper", "waiter"):
        kill_by_name(ray, name)


# ------------------------------------------------------------------------------------------------ stopping
@pytest.fixture
def other_place() -> Iterator[str]:
    """A temporary directory with a session of its own, if a test starts one."""
    with tempfile.TemporaryDirectory(prefix="mo", dir="/tmp") as place:  # the paths of pytest's are too long for sockets
        yield place
        left = addresses.running(place)
        if left is not None:
            stop_persistent(left, force=True)


def test_a_session_that_ends_while_it_starts_is_an_error(other_place, monkeypatch):
    publish = persistent.publish

    def publish_and_end(directory: str, pid: int) -> None:
        publish(directory, pid)
        found = addresses.running(other_place)
        assert found is not None
        stop_persistent(found)

    monkeypatch.setattr(persistent, "publish", publish_and_end)
    with pytest.raises(RaySystemError, match="the session ended while it was starting"):
        persistent.start_persistent(session_options(num_cpus=1, temp_dir=other_place))


def test_each_temporary_directory_may_have_one(session, other_place, fresh):
    assert mray("start", "--temp-dir", other_place, "--num-cpus", "1").returncode == 0
    found = addresses.running(other_place)
    assert found is not None and found.session_dir != session.session_dir
    assert fresh.init(address="auto", _temp_dir=other_place, logging_level="ERROR")["session_dir"] == found.session_dir
    fresh.shutdown()
    assert mray("stop", "--temp-dir", other_place).returncode == 0
    assert not os.path.exists(found.session_dir)
    with pytest.raises(ConnectionError, match="Could not find any running Ray instance"):
        fresh.init(address="auto", _temp_dir=other_place)
    with pytest.raises(ConnectionError, match="no session is running there"):
        fresh.init(address=found.session_dir)


def test_stop_tells_the_drivers(other_place, fresh):
    ray = fresh
    assert mray("start", "--temp-dir", other_place, "--num-cpus", "1").returncode == 0
    ray.init(address="auto", _temp_dir=other_place, logging_level="ERROR")
    ref = ray.remote(lambda: __import__("time").sleep(1000)).remote()
    done = []
    stopper = threading.Thread(target=lambda: done.append(mray("stop", "--temp-dir", other_place)))
    stopper.start()
    with pytest.raises(ray.exceptions.NodeDiedError, match="has ended: it was stopped"):
        ray.get(ref)
    stopper.join()
    assert done[0].returncode == 0
    with pytest.raises(ray.exceptions.NodeDiedError):
        ray.put(1)


def test_stop_without_a_session_is_fine(other_place):
    done = mray("stop", "--temp-dir", other_place)
    assert done.returncode == 0
    assert "no session of `mray start` is running" in done.stderr


def test_start_blocks_until_told_to_end(other_place):
    environment = {**os.environ, "PYTHONPATH": python_path()}
    command = [sys.executable, "-m", "mray", "start", "--block", "--temp-dir", other_place, "--num-cpus", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert "mray has started a session: " in process.stdout.readline()
        found = addresses.running(other_place)
        assert found is not None
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert not os.path.exists(found.session_dir)


@pytest.mark.parametrize("words", [["--resources", "[1]"], ["--num-cpus", "-1"], ["--labels", "x"], ["--temp-dir", "relative"]])
def test_a_wrong_command_line_starts_nothing(words, other_place):
    done = mray("start", "--temp-dir", other_place, *words)
    assert done.returncode == 2
    assert addresses.running(other_place) is None


def test_its_numbers_are_served_until_it_ends(other_place, eventually):
    done = mray("start", "--temp-dir", other_place, "--num-cpus", "3", "--metrics-export-port", "0")
    [url] = re.findall(r"^Metrics: (http://127.0.0.1:\d+)$", done.stdout, re.MULTILINE)
    with urllib.request.urlopen(url + "/metrics", timeout=60) as answer:
        assert 'mray_resources_total{name="CPU"} 3.0' in answer.read().decode()
    port = url.rpartition(":")[2]
    assert mray("stop", "--temp-dir", other_place).returncode == 0

    def is_free() -> bool:
        with socket.socket() as other:
            return other.connect_ex(("127.0.0.1", int(port))) != 0

    eventually(is_free)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = mray("start", "--temp-dir", other_place, "--num-cpus", "1", "--metrics-export-port", str(taken.getsockname()[1]))
    assert (done.returncode, "Metrics: not served: [Errno 98]" in done.stdout) == (0, True), done


@pytest.mark.parametrize("words", [("start", "--metrics-export-port"), ("top", "--web", "--port")], ids=lambda words: words[0])
def test_a_port_that_cannot_be_is_told_before_anything_starts(other_place, words):
    done = mray(*words, "70000", env={"MRAY_TMPDIR": other_place})
    assert (done.returncode, done.stdout) == (2, "") and "expected 0 to 65535, got 70000" in done.stderr, done
    assert os.listdir(other_place) == []


def test_a_module_that_is_not_there_cannot_be_preloaded(other_place):
    done = mray("start", "--temp-dir", other_place, "--preload", "no_such_module")
    assert done.returncode == 1
    assert "no module named 'no_such_module'" in done.stderr
    assert addresses.running(other_place) is None


def test_objects_go_where_start_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]) -> None:
    monkeypatch.setenv("MRAY_TMPDIR", str(tmp_path))
    place = tmp_path / "place"
    words = ("--num-cpus", "1", "--object-store-memory", str(80 << 20), "--object-spilling-directory", str(place))
    assert mray("start", *words).returncode == 0
    try:
        program = """
        import sys
        import numpy
        import mray
        mray.init(address="auto", logging_level="ERROR")
        refs = [mray.put(numpy.full(8 << 20, number, dtype="u1")) for number in range(20)]
        assert [int(mray.get(ref)[-1]) for ref in refs] == list(range(20))
        print(sum(path.stat().st_size for path in __import__("pathlib").Path(sys.argv[1]).rglob("*") if path.is_file()), flush=True)
        sys.stdin.read()
        """
        driver = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": python_path()},
            text=True,
        )
        with driver:
            assert driver.stdout is not None
            assert int(driver.stdout.readline()) >= 80 << 20
            driver.kill()
        eventually(lambda: not [path for path in place.rglob("*") if path.is_file()])
    finally:
        assert mray("stop").returncode == 0
    assert not list(place.iterdir())
