"""Actors that share a GPU as clients of MPS: daemons, clients, hints and ends, with a stand-in for NVIDIA's control program.

The GPUs are pretended: a process that first looks at one is a client if a daemon's socket is there, as CUDA has it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mray
from mray._device.platform import forget_platform
from mray._ipc.discovery import Gpu
from mray._ipc.process import command_line
from mray.cli import checks
from mray.dag import InputNode
from mray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests import mps_control
from tests.checkout import python_path

pytestmark = pytest.mark.only("mray")

PROGRAM = "nvidia-cuda-mps-control"


class Control:
    """The stand-in that is on PATH, and what it has recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.program = folder / PROGRAM
        self.program.write_text(f"#!{sys.executable} -IS\n{Path(mps_control.__file__).read_text()}")
        self.program.chmod(0o755)

    def have(self, manner: str, step: str) -> Path:
        """Have it hang, fail or die at a step, until the file is removed."""
        file = self.folder / f"{manner} {step}"
        file.touch()
        return file

    def record(self, what: str = "") -> list[dict[str, Any]]:
        """The lines of its record that begin so."""
        try:
            lines = (self.folder / "record").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [line for line in map(json.loads, lines) if line["what"].startswith(what)]

    def processes(self) -> list[int]:
        """The daemons and servers that have ever been."""
        return [pid for line in self.record() for pid in (line["pid"], line.get("server", 0)) if line["what"] in ("start", "ready") and pid]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine with two pretended GPUs, on which no daemon runs and no control program is."""
    monkeypatch.setenv("MRAY_NULL_DEVICES", f"2,scope=mps{os.getpid()}")
    monkeypatch.setenv("MRAY_MPS_DIRECTORY", str(tmp_path / "nvidia-mps"))
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "MRAY_MPS"):
        monkeypatch.delenv(name, raising=False)
    forget_platform()
    yield tmp_path
    forget_platform()


@pytest.fixture
def control(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    """NVIDIA's control program; every daemon and server is gone after the test."""
    found = Control(machine / "bin")
    monkeypatch.setenv("PATH", f"{found.folder}:{os.environ['PATH']}")
    yield found
    mray.shutdown()
    assert [pid for pid in found.processes() if mps_control.state_of(pid) not in ("", "Z")] == []


@pytest.fixture
def begin(machine: Path, fresh: Any, shared_session: Any) -> Callable[..., Any]:
    """``begin(mps)`` starts a session with the two GPUs."""
    return lambda mps=None, **options: fresh.init(num_cpus=4, num_gpus=2, mps=mps, logging_level=logging.WARNING, **options)


@mray.remote(num_gpus=0.5, num_cpus=0)
class Part:
    """An actor with half a GPU, or what its options say."""

    def variables(self) -> tuple[str | None, str | None]:
        return os.environ.get("CUDA_MPS_PIPE_DIRECTORY"), os.environ.get("CUDA_VISIBLE_DEVICES")

    def gpu_ids(self) -> list[int | str]:
        return mray.get_gpu_ids()

    def wait(self) -> None:
        time.sleep(1000)

    def pid(self) -> int:
        return os.getpid()

    def is_client(self) -> bool | None:
        from mray._device.platform import platform

        devices = platform()
        assert devices is not None
        return devices.devices[0].is_mps_client()

    def make(self, number: float) -> Any:
        from mray.testing import null

        return null.full((10,), number)

    def last(self, tensor: Any) -> float:
        return float(tensor[-1])


def edge(one: Any, other: Any) -> Any:
    """A graph with an edge between two actors."""
    with InputNode() as number:
        return other.last.bind(one.make.bind(number))


def is_gone(pid: int) -> bool:
    return mps_control.state_of(pid) in ("", "Z")


@contextlib.contextmanager
def in_threads(*functions: Callable[[], object]) -> Iterator[None]:
    """Call each in a thread; waits for all of them at the end."""
    with ThreadPoolExecutor(len(functions)) as pool:
        futures = [pool.submit(function) for function in functions]
        yield
    for future in futures:
        future.exception()  # a session that is gone is none of its own


# ------------------------------------------------------------------------------------------------ on
def test_actors_with_fractions_are_clients_of_a_daemon_for_their_gpu(begin, control):
    session_dir = begin("on")["session_dir"]
    actors = [Part.remote() for _ in range(4)]
    seen = mray.get([actor.variables.remote() for actor in actors])
    assert sorted(uuid for _pipe, uuid in seen) == ["GPU-null-0", "GPU-null-0", "GPU-null-1", "GPU-null-1"]
    started = {line["gpus"]: line for line in control.record("start")}
    assert {(line["pipe"], uuid) for uuid, line in started.items()} == set(seen)
    assert len(control.record("start")) == 2
    assert all(line["pipe"].startswith(session_dir) and line["log"].startswith(session_dir) for line in started.values())
    assert all(mray.get([actor.is_client.remote() for actor in actors]))
    assert sorted(mray.get(actor.gpu_ids.remote())[0] for actor in actors) == [0, 0, 1, 1]


def test_folders_of_a_daemon_are_private(begin, control):
    session_dir = begin("on")["session_dir"]
    mray.get(Part.remote().variables.remote())
    (line,) = control.record("start")
    assert line["modes"] == [0o700, 0o700]
    folders = [path for path in (Path(session_dir) / "mps").rglob("*") if path.is_dir()]
    assert folders
    assert {stat.S_IMODE(path.stat().st_mode) for path in (Path(session_dir) / "mps", *folders)} == {0o700}


def test_who_has_a_whole_gpu_is_no_client(begin, control):
    begin("on")
    whole = Part.options(num_gpus=1).remote()
    assert mray.get(whole.variables.remote()) == (None, "0")
    assert not mray.get(whole.is_client.remote())
    assert control.record() == []


@mray.remote(num_cpus=0, max_calls=0)
def variables_and_pid() -> tuple[str | None, str | None, int]:
    return os.environ.get("CUDA_MPS_PIPE_DIRECTORY"), os.environ.get("CUDA_VISIBLE_DEVICES"), os.getpid()


def test_a_worker_is_never_used_both_as_a_client_and_as_none(begin, control):
    begin("on")
    seen = [mray.get(variables_and_pid.options(num_gpus=gpus).remote()) for gpus in (0.5, 1, 0.5, 0, 1, 0.5)]
    clients = {pid for pipe, _gpu, pid in seen if pipe}
    assert [bool(pipe) for pipe, _gpu, _pid in seen] == [True, False, True, False, False, True]
    assert clients.isdisjoint(pid for pipe, _gpu, pid in seen if not pipe)


def test_a_task_with_a_fraction_is_a_client(begin, control):
    begin("on")

    @mray.remote(num_gpus=0.25)
    def variables():
        return os.environ.get("CUDA_MPS_PIPE_DIRECTORY")

    assert set(mray.get([variables.remote() for _ in range(4)])) == {control.record("start")[0]["pipe"]}


def test_fractions_of_a_bundle_make_clients(begin, control):
    begin("on")
    group = mray.util.placement_group([{"GPU": 1}])
    where = PlacementGroupSchedulingStrategy(group)
    actors = [Part.options(scheduling_strategy=where).remote() for _ in range(2)]
    assert {mray.get(actor.variables.remote()) for actor in actors} == {(line["pipe"], line["gpus"]) for line in control.record("start")}


@pytest.mark.parametrize(
    ("name", "value", "seen"),
    [
        ("CUDA_MPS_PIPE_DIRECTORY", "/no", ("/no", "0")),
        ("CUDA_VISIBLE_DEVICES", "1,0", (None, "1")),
        ("MRAY_NOSET_CUDA_VISIBLE_DEVICES", "1", (None, None)),
    ],
)
def test_who_has_a_daemon_or_gpus_of_its_own_is_left_alone(begin, control, name, value, seen):
    begin("on")
    actor = Part.options(runtime_env={"env_vars": {name: value}}).remote()
    assert mray.get(actor.variables.remote()) == seen
    assert control.record() == []


# ------------------------------------------------------------------------------------------------ refusals
def test_another_word_is_refused(machine, fresh, monkeypatch):
    with pytest.raises(ValueError, match="mps must be one of 'off', 'on', 'auto', got 'yes'"):
        fresh.init(mps="yes")
    monkeypatch.setenv("MRAY_MPS", "yes")
    with pytest.raises(ValueError, match="MRAY_MPS='yes': expected one of off, on, auto"):
        fresh.init()


def test_the_setting_holds_where_init_is_not_told(begin, control, monkeypatch):
    monkeypatch.setenv("MRAY_MPS", "on")
    begin()
    assert mray.get(Part.remote().is_client.remote())


def test_a_session_that_runs_takes_no_word(begin, control, monkeypatch):
    address = begin("off")["address"]
    program = f"import mray; mray.init({address!r}, mps='on')"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": python_path()}, capture_output=True, text=True)
    assert "mps must not be provided" in done.stderr


def test_without_the_program_on_is_an_error(begin, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(mray.exceptions.RaySystemError, match=f"{PROGRAM} is not on PATH: install it"):
        begin("on")
    assert not mray.is_initialized()


def test_without_the_program_auto_warns(begin, monkeypatch, caplog):
    monkeypatch.setenv("PATH", "/nowhere")
    begin("auto")
    assert f"{PROGRAM} is not on PATH" in caplog.text
    assert mray.get(Part.remote().variables.remote()) == (None, "0")


def test_devices_that_are_left_alone_are_no_place_for_clients(begin, control, monkeypatch):
    monkeypatch.setenv("MRAY_NOSET_CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(mray.exceptions.RaySystemError, match="keeps CUDA_VISIBLE_DEVICES of workers unchanged"):
        begin("on")


@pytest.mark.parametrize(("manner", "words"), [("fail", "exited with exit code 3"), ("die", "was killed by SIGKILL")])
def test_a_daemon_that_ends_as_it_starts_is_an_error_with_its_last_lines(begin, control, manner, words):
    begin("on")
    control.have(manner, "start")
    with pytest.raises(mray.exceptions.ActorDiedError) as caught:
        mray.get(Part.remote().pid.remote())
    assert "there is no MPS on GPU 0" in str(caught.value)
    assert words in str(caught.value)
    assert "Starting control daemon" in str(caught.value)
    assert ("the stand-in fails at start" in str(caught.value)) == (manner == "fail")
    assert len(control.record("start")) == 1
    assert mray.get(Part.options(num_gpus=1).remote().variables.remote()) == (None, "0")


def test_a_task_without_its_daemon_fails_as_its_actor_would(begin, control):
    begin("on")
    control.have("fail", "start")
    with pytest.raises(mray.exceptions.WorkerCrashedError, match="there is no MPS on GPU 0"):
        mray.get(variables_and_pid.options(num_gpus=0.5).remote())
    assert len(control.record("start")) == 1


def test_a_daemon_that_does_not_answer_is_an_error(begin, control):
    control.have("hang", "start")
    begin("on")
    with pytest.raises(mray.exceptions.ActorDiedError, match="does not answer"):
        mray.get(Part.remote().pid.remote())


# ------------------------------------------------------------------------------------------------ ends of clients
def terminated(control: Control, pid: int) -> list[dict[str, Any]]:
    """The lines of the record about the termination of a client."""
    return [line for line in control.record("terminate_client") if line["what"].split()[2] == str(pid)]


def test_the_work_of_a_killed_client_is_terminated_first(begin, control, eventually):
    begin("on")
    actor, other = Part.remote(), Part.remote()
    pid, other_pid = mray.get([actor.pid.remote(), other.pid.remote()])
    mray.kill(actor)
    (line,) = terminated(control, pid)  # kill has waited for that
    assert line["what"].split()[1] == str(control.record("ready")[0]["server"])
    assert line["client"] not in ("", "Z")
    eventually(lambda: is_gone(pid))
    assert terminated(control, other_pid) == []
    assert mray.get(other.pid.remote()) == other_pid


def test_an_actor_that_is_killed_starts_anew_as_a_client(begin, control, eventually):
    begin("on")
    actor = Part.options(max_restarts=1, max_task_retries=-1).remote()
    pid = mray.get(actor.pid.remote())
    mray.kill(actor, no_restart=False)
    assert terminated(control, pid)
    eventually(lambda: is_gone(pid))
    assert mray.get(actor.is_client.remote())


def test_the_work_of_a_task_that_is_cancelled_by_force_is_terminated_first(begin, control, tmp_path, eventually):
    begin("on")
    told = tmp_path / "pid"

    @mray.remote(num_gpus=0.5, max_retries=0)
    def waits():
        told.write_text(str(os.getpid()))
        time.sleep(1000)

    ref = waits.remote()
    eventually(lambda: told.exists() and told.read_text())
    mray.cancel(ref, force=True)
    pid = int(told.read_text())
    eventually(lambda: is_gone(pid))
    assert terminated(control, pid)


def test_many_clients_are_terminated_together(begin, control, eventually):
    begin("on")
    actors = [Part.options(num_gpus=0.1).remote() for _ in range(6)]
    pids = mray.get([actor.pid.remote() for actor in actors])
    hold = control.have("hang", "get_server_list")
    with in_threads(*(partial(mray.kill, actor) for actor in actors)):
        hold.unlink()
    eventually(lambda: all(map(is_gone, pids)))
    assert all(terminated(control, pid) for pid in pids)


@pytest.mark.parametrize("step", ["get_server_list", "terminate_client"])
@pytest.mark.parametrize("manner", ["hang", "die"])
def test_a_client_is_killed_whatever_the_daemon_does(begin, control, eventually, manner, step):
    begin("on")
    actor = Part.remote()
    pid = mray.get(actor.pid.remote())
    control.have(manner, step)
    mray.kill(actor)
    eventually(lambda: is_gone(pid))
    with pytest.raises(mray.exceptions.RayActorError):
        mray.get(actor.pid.remote())


def test_who_has_no_gpu_is_killed_at_once_while_a_client_is_terminated(begin, control, eventually):
    begin("on")
    client, plain = Part.remote(), Part.options(num_gpus=0).remote()
    pids = mray.get([client.pid.remote(), plain.pid.remote()])
    hold = control.have("hang", "terminate_client")
    with in_threads(partial(mray.kill, client)):
        eventually(lambda: terminated(control, pids[0]))
        mray.kill(plain)
        eventually(lambda: is_gone(pids[1]))
        hold.unlink()
    eventually(lambda: is_gone(pids[0]))


def test_the_work_of_a_client_is_terminated_before_it_is_ended_for_its_memory(begin, control, tmp_path, monkeypatch, eventually):
    meminfo = tmp_path / "meminfo"
    fill = "MemTotal: 10000 kB\nMemFree: 1 kB\nMemAvailable: {} kB\n".format
    meminfo.write_text(fill(9000))
    monkeypatch.setenv("MRAY_MEMINFO", str(meminfo))
    monkeypatch.setenv("MRAY_MEMORY_MONITOR_REFRESH_MS", "10")
    begin("on")
    actor = Part.remote()
    pid = mray.get(actor.pid.remote())
    ref = actor.wait.remote()
    new = meminfo.with_suffix(".new")
    new.write_text(fill(1))
    new.rename(meminfo)
    with pytest.raises(mray.exceptions.OutOfMemoryError):
        mray.get(ref)
    meminfo.write_text(fill(9000))
    eventually(lambda: is_gone(pid))
    assert terminated(control, pid)


def test_a_client_that_ends_while_it_is_terminated_is_as_any(begin, control, eventually):
    begin("on")
    actor = Part.remote()
    pid = mray.get(actor.pid.remote())
    hold = control.have("hang", "terminate_client")
    with in_threads(partial(mray.kill, actor)):
        eventually(lambda: terminated(control, pid))
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: is_gone(pid))
        hold.unlink()
    assert mray.get(Part.remote().is_client.remote())


def test_an_actor_that_waits_for_its_daemon_can_be_killed(begin, control, eventually):
    begin("on")
    hold = control.have("hang", "start")
    actor = Part.remote()
    eventually(lambda: control.record("start"))
    mray.kill(actor)
    hold.unlink()
    with pytest.raises(mray.exceptions.RayActorError):
        mray.get(actor.pid.remote())
    assert mray.get(Part.remote().is_client.remote())


def test_a_daemon_that_dies_is_told_of_and_another_one_serves_who_comes(begin, control, eventually, capfd):
    begin("on")
    first = Part.remote()
    assert mray.get(first.is_client.remote())
    os.kill(control.record("start")[0]["pid"], signal.SIGKILL)
    said = ""

    def told() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "the MPS daemon of GPU 0 was killed by SIGKILL" in said

    eventually(told)
    assert mray.get(Part.remote().is_client.remote())
    assert len(control.record("start")) == 2


def test_a_daemon_outlives_the_zygote(begin, control, eventually):
    begin("on")
    assert mray.get(Part.remote().is_client.remote())
    node = mray._api.current.current_backend().info()["node_pid"]
    (zygote,) = [pid for pid in children_of(node) if command_line(pid).startswith("ray::zygote")]
    os.kill(zygote, signal.SIGKILL)
    eventually(lambda: is_gone(zygote))
    assert mray.get(Part.remote().is_client.remote())
    assert len(control.record("start")) == 1


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# ------------------------------------------------------------------------------------------------ ends of sessions
def test_the_end_of_a_session_terminates_its_clients_and_quits(begin, control):
    begin("on")
    actors = [Part.remote() for _ in range(4)]
    pids = mray.get([actor.pid.remote() for actor in actors])
    mray.shutdown()
    assert all(terminated(control, pid) and terminated(control, pid)[0]["client"] not in ("", "Z") for pid in pids)
    assert len(control.record("ended")) == 2
    assert all(map(is_gone, [*pids, *control.processes()]))


@pytest.mark.parametrize("step", ["get_server_list", "terminate_client", "quit"])
@pytest.mark.parametrize("manner", ["hang", "die"])
def test_a_session_ends_whatever_the_daemon_does(begin, control, manner, step):
    session_dir = begin("on")["session_dir"]
    actor = Part.remote()
    pid = mray.get(actor.pid.remote())
    control.have(manner, step)
    mray.shutdown()
    assert all(map(is_gone, [pid, *control.processes()]))
    assert not os.path.exists(session_dir)
    del actor


def test_a_session_ends_while_a_daemon_starts(begin, control, eventually):
    begin("on")
    control.have("hang", "start")
    actor = Part.remote()
    eventually(lambda: control.record("start"))
    mray.shutdown()
    assert all(map(is_gone, control.processes()))
    del actor


@pytest.mark.parametrize("step", ["", "start", "terminate_client", "get_server_list"])
def test_no_daemon_is_left_when_the_node_is_killed(begin, control, eventually, step):
    begin("on")
    node = mray._api.current.current_backend().info()["node_pid"]
    if step == "start":
        control.have("hang", step)
        actor = Part.remote()
        eventually(lambda: control.record(step))
    else:
        actor = Part.remote()
        mray.get(actor.pid.remote())
    with contextlib.ExitStack() as stack:
        if step not in ("", "start"):
            control.have("hang", step)
            before = len(control.record(step))
            stack.enter_context(in_threads(partial(mray.kill, actor)))
            eventually(lambda: len(control.record(step)) > before)
        os.kill(node, signal.SIGKILL)
        eventually(lambda: all(map(is_gone, control.processes())))
    mray.shutdown()
    del actor


@pytest.mark.parametrize("point", ["mps daemon due", "mps clients terminated", "mps daemons ending"])
def test_no_daemon_is_left_when_the_node_dies_at_a_point(begin, control, monkeypatch, eventually, tmp_path, point):
    reached = tmp_path / "reached"
    rule = {"at": point, "in": "node", "do": "SIGKILL", "log": str(reached)}
    monkeypatch.setenv("MRAY_POINTS", json.dumps({"rules": [rule]}))
    session_dir = begin("on")["session_dir"]
    actor = Part.remote()
    with contextlib.suppress(mray.exceptions.RayError):
        pid = mray.get(actor.pid.remote())
        assert point != "mps daemon due"
        if point == "mps clients terminated":
            mray.kill(actor)
            eventually(lambda: is_gone(pid))
    mray.shutdown()
    assert point in reached.read_text()
    eventually(lambda: all(map(is_gone, control.processes())))
    eventually(lambda: not os.path.exists(session_dir))


DRIVER = """
import os, signal, sys, mray

@mray.remote(num_gpus=0.5)
class Part:
    def pid(self):
        return os.getpid()

mray.init(num_gpus=1, num_cpus=2, mps="on")
part = Part.remote()
if len(sys.argv) > 1:
    while not os.path.exists(sys.argv[1]):
        pass
else:
    print(mray.get(part.pid.remote()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def run_driver(*words: str) -> str:
    """Run a driver that kills itself; returns what it has printed."""
    environment = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run([sys.executable, "-c", DRIVER, *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout


def test_no_daemon_is_left_when_the_driver_is_killed(machine, control, eventually):
    pid = int(run_driver())
    eventually(lambda: all(map(is_gone, [pid, *control.processes()])))
    assert terminated(control, pid)
    assert control.record("quit")


def test_no_daemon_is_left_when_the_driver_is_killed_while_one_starts(machine, control, eventually):
    control.have("hang", "start")
    run_driver(str(control.folder / "record"))
    assert control.processes()
    eventually(lambda: all(map(is_gone, control.processes())))


# ------------------------------------------------------------------------------------------------ daemons of the user's
@pytest.fixture
def users_daemon(control: Control, machine: Path, eventually: Callable[..., None]) -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """``users_daemon(folder)`` starts one that no session has started."""
    started: list[subprocess.Popen[bytes]] = []

    def start(pipe: Path) -> subprocess.Popen[bytes]:
        log = machine / "log"
        for folder in (pipe, log):
            folder.mkdir(exist_ok=True)
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log)}
        started.append(subprocess.Popen([control.program, "-f"], env=environment, stdout=subprocess.DEVNULL))
        eventually(lambda: control.record("ready"))
        return started[-1]

    yield start
    mray.shutdown()
    servers = [line["server"] for line in control.record("ready")]
    for each in started:
        assert each.poll() is None, "a session has ended the user's daemon"
        each.kill()
        each.wait()
    for pid in servers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: all(map(is_gone, servers)))


@pytest.mark.parametrize("mps", ["off", "on", "auto"])
@pytest.mark.parametrize("place", ["default", "variable"])
def test_a_daemon_of_the_users_is_joined(begin, control, users_daemon, machine, monkeypatch, compiled, caplog, mps, place):
    if place == "variable":
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(machine / "mine"))
    users_daemon(machine / ("mine" if place == "variable" else "nvidia-mps"))
    begin(mps)
    one, other = Part.remote(), Part.remote()
    assert mray.get(one.variables.remote()) == (os.environ.get("CUDA_MPS_PIPE_DIRECTORY"), "0")
    assert mray.get(compiled(edge(one, other)).execute(3)) == 3
    assert mray.get([one.is_client.remote(), other.is_client.remote()]) == [True, True]
    assert "change" not in caplog.text
    pid = mray.get(one.pid.remote())
    mray.kill(one)
    assert terminated(control, pid)
    pid = mray.get(other.pid.remote())
    mray.shutdown()
    assert terminated(control, pid)
    assert len(control.record("start")) == 1
    assert control.record("quit") == []


def test_a_folder_of_the_users_without_a_daemon_is_an_error(begin, control, machine, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(machine / "mine"))
    with pytest.raises(mray.exceptions.RaySystemError, match="no daemon answers at CUDA_MPS_PIPE_DIRECTORY=.*: start one there, or unset"):
        begin("on")


# ------------------------------------------------------------------------------------------------ auto
def test_a_daemon_starts_with_the_first_graph_that_has_edges_within_a_gpu(begin, control, compiled, caplog):
    begin("auto")
    one, other, elsewhere = Part.remote(), Part.remote(), Part.remote()
    pipes = {mray.get(actor.variables.remote())[0] for actor in (one, other)}
    assert len(pipes) == 1
    assert control.record() == []
    assert mray.get(compiled(edge(one, elsewhere)).execute(1)) == 1  # between two GPUs
    assert control.record() == []
    assert caplog.text == ""


def test_actors_of_such_a_graph_are_clients(begin, control, compiled, caplog):
    begin("auto")
    one, other = Part.remote(), Part.remote()
    for _ in range(2):
        assert mray.get(compiled(edge(one, other)).execute(3)) == 3
    assert mray.get([one.is_client.remote(), other.is_client.remote()]) == [True, True]
    assert [line["gpus"] for line in control.record("start")] == ["GPU-null-0"]
    assert {line["pipe"] for line in control.record()} == {mray.get(one.variables.remote())[0]}
    assert caplog.text == ""
    pid = mray.get(one.pid.remote())
    mray.kill(one)
    assert terminated(control, pid)


def test_functions_with_fractions_are_clients_too(begin, control, compiled):
    begin("auto")

    @mray.remote(num_gpus=0.5)
    def make(number):
        from mray.testing import null

        return null.full((10,), number)

    part = Part.remote()
    with InputNode() as number:
        graph = compiled(part.last.bind(make.bind(number)))
    assert mray.get(graph.execute(3)) == 3
    assert len(control.record("start")) == 1
    assert mray.get(part.is_client.remote())


def test_actors_that_have_used_their_gpu_before_are_named_with_each_graph(begin, control, compiled, caplog):
    begin("auto")
    one, other = Part.remote(), Part.remote()
    assert not mray.get(one.is_client.remote())
    for count in (1, 2):
        assert mray.get(compiled(edge(one, other)).execute(3)) == 3
        hints = [record.getMessage() for record in caplog.records if "initialised CUDA before MPS was available" in record.getMessage()]
        assert len(hints) == count
    assert hints[0] == hints[1]
    assert 'init(mps="on")' in hints[0]
    assert hints[0].count("Part(") == 3  # both ends, and the one that is no client
    assert mray.get(other.is_client.remote())


@pytest.mark.parametrize("manner", ["fail", "die"])
def test_a_graph_is_compiled_without_a_daemon_that_fails(begin, control, compiled, caplog, manner):
    begin("auto")
    control.have(manner, "start")
    one, other = Part.remote(), Part.remote()
    assert mray.get(compiled(edge(one, other)).execute(3)) == 3
    assert "there is no MPS on GPU 0" in caplog.text
    assert "Starting control daemon" in caplog.text
    assert "initialised CUDA before" not in caplog.text


# ------------------------------------------------------------------------------------------------ off
def test_one_hint_a_session_says_what_a_gpu_in_turns_costs(begin, control, compiled, caplog):
    for _ in range(2):
        caplog.clear()
        begin()
        actors = [Part.remote(), Part.remote()]
        for _ in range(2):
            assert mray.get(compiled(edge(*actors)).execute(3)) == 3
        (record,) = caplog.records
        assert "two context switches on the GPU, about 150 µs each" in record.getMessage()
        assert 'init(mps="auto")' in record.getMessage()
        assert mray.get(actors[0].variables.remote()) == (None, "0")
        del actors
        mray.shutdown()
    assert control.record() == []


def test_a_hint_suggests_nothing_that_cannot_be(begin, compiled, caplog, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    begin()
    one, other = Part.remote(), Part.remote()
    compiled(edge(one, other))
    assert f"its program {PROGRAM} is not on this machine" in caplog.text
    assert "init(" not in caplog.text


def test_nothing_is_hinted_at_between_whole_gpus(begin, control, compiled, caplog):
    begin()
    one, other = Part.options(num_gpus=1).remote(), Part.options(num_gpus=1).remote()
    assert mray.get(compiled(edge(one, other)).execute(3)) == 3
    assert caplog.text == ""


# ------------------------------------------------------------------------------------------------ mray doctor
def findings() -> list[tuple[str, str, str]]:
    return [(found.verdict, found.subject, found.text) for found in checks.gpus() if found.subject.startswith("mps")]


def test_the_doctor_tells_of_daemons_and_for_whom_they_are(begin, control, users_daemon, machine, eventually):
    assert findings() == [("ok", "mps", str(control.program))]
    session = Path(begin("on")["session_dir"]).name
    actor = Part.remote()
    assert mray.get(actor.is_client.remote())
    own = ("ok", "mps daemon", f"of the session {session}, for parts of its GPU 0; 1 server")
    assert findings()[1:] == [own]
    pipe = machine / "nvidia-mps"
    users_daemon(pipe)
    eventually(lambda: ("ok", "mps daemon", f"at {pipe}, for each process that looks there; 1 server") in findings())
    hold = control.have("hang", "get_server_list")
    assert {verdict for verdict, _subject, _text in findings()[1:]} == {"warning"}
    hold.unlink()
    del actor


def test_the_doctor_says_what_to_install(machine, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("mray._ipc.discovery.machine_gpus", lambda: [Gpu(0, "GPU-0", "H200")])
    ((verdict, subject, text),) = findings()
    assert (verdict, subject) == ("note", "mps")
    assert f"{PROGRAM} is not on PATH" in text
