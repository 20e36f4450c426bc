"""The commands at a running session: what they print, in which form, and with which status they end."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import re
import resource
import select
import signal as signals
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mray.util import state
from mray.util.state.exception import RayStateApiException
from tests.forked import Interpreter

pytestmark = pytest.mark.only("mray")

#: Commands that look at sessions.
LOOKING = ("list", "get", "summary", "status", "memory", "stack", "logs", "timeline", "doctor", "metrics", "top")
Eventually = Callable[..., None]
Completed = subprocess.CompletedProcess[str]


def mray(*words: str, check: int | None = 0, without: str = "") -> Completed:
    """Run a command; `without` names a package that it shall not find."""
    if without:
        program = [sys.executable, "-c", f"import sys; sys.modules[{without!r}] = None; from mray.cli import main; sys.exit(main())"]
        done = subprocess.run([*program, *words], capture_output=True, text=True, check=False, timeout=100)
    else:
        done = _interpreter().run("-m", "mray", *words, timeout=100)
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


@cache
def _interpreter() -> Interpreter:
    return Interpreter("mray.util.state", *(f"mray.cli.commands.{name}" for name in LOOKING), sessions=False)


@pytest.fixture(scope="module", autouse=True)
def interpreter() -> Iterator[None]:
    """Is there before a test counts what it leaves behind, and ends with the last."""
    _interpreter()
    yield
    _interpreter().close()
    _interpreter.cache_clear()


def rows(*words: str) -> Any:
    return json.loads(mray(*words, "--format", "json").stdout)


#: The class of its actors, with where it is made.
STAGE = "Live.__init__.<locals>.Stage"


class Live:
    """A session with a named actor that computes, one that is idle, a graph, an object."""

    def __init__(self, ray: ModuleType, folder: Path) -> None:
        self.ray, self.go = ray, folder / "go"

        @ray.remote
        class Stage:
            def step(self, value: Any) -> Any:
                return value

            def compute(self, path: str) -> int:
                print("computing", flush=True)
                while not os.path.exists(path) and (os.path.exists(f"{path}.spins") or not time.sleep(0.005)):
                    pass
                return os.getpid()

            def pid(self) -> int:
                return os.getpid()

        self.joe, self.idle = Stage.options(name="joe").remote(), Stage.remote()
        self.pids = ray.get([self.joe.pid.remote(), self.idle.pid.remote()])
        with ray.dag.InputNode() as value:
            dag = self.idle.step.bind(value)
        self.graph = dag.experimental_compile()
        ray.get(self.graph.execute(1))
        self.busy = self.joe.compute.remote(str(self.go))
        self.large = ray.put(b"x" * (1 << 20))
        self.directory = ray._api.current.backend_if_started().info()["session_dir"]


@pytest.fixture
def live(init: Callable[..., Any], fresh: ModuleType, tmp_path: Path, eventually: Eventually) -> Iterator[Live]:
    init(num_cpus=2, log_to_driver=False)
    session = Live(fresh, tmp_path)
    eventually(lambda: any((Path(session.directory) / "logs").glob(f"worker-*-{session.pids[0]}.out")))
    yield session
    session.go.touch()
    fresh.get(session.busy)


# --------------------------------------------------------------------------------------- looking at rows
def test_list_prints_tables_json_and_yaml(live: Live) -> None:
    table = mray("list", "actors").stdout.splitlines()
    assert table[0].split()[:4] == ["ACTOR_ID", "CLASS_NAME", "STATE", "NAME"]
    assert len(table) == 3
    found = {row["actor_id"]: row for row in rows("list", "actors")}
    assert found[live.joe._actor_id.hex()]["name"] == "joe"
    assert found[live.joe._actor_id.hex()]["pid"] == live.pids[0]
    text = mray("list", "actors", "-f", "yaml", "--filter", "name=joe").stdout
    assert f'- actor_id: "{live.joe._actor_id.hex()}"\n  class_name: "{STAGE}"\n  state: "ALIVE"\n' in text


def test_list_filters_limits_and_details(live: Live) -> None:
    assert [row["name"] for row in rows("list", "actors", "--filter", "state=alive", "--filter", "name!=")] == ["joe"]
    assert len(rows("list", "actors", "--limit", "1")) == 1
    assert "num_restarts" not in rows("list", "actors")[0]
    (row,) = rows("list", "actors", "--detail", "--filter", "name=joe")
    assert (row["num_restarts"], row["current_task"]) == (0, "Stage.compute")
    assert [row["state"] for row in rows("list", "tasks", "--filter", "name=Stage.compute")] == ["RUNNING"]
    assert mray("list", "actors", "--filter", "nonsense=1", check=1).stderr.startswith("mray: The given filter column nonsense")
    assert "expected COLUMN=VALUE" in mray("list", "actors", "--filter", "nonsense", check=2).stderr


@pytest.mark.parametrize("kind", ["actors", "tasks", "objects", "workers", "nodes", "jobs", "graphs", "channels"])
def test_every_kind_is_listed_in_every_form(live: Live, kind: str) -> None:
    assert rows("list", kind, "--detail")
    for form in ("table", "yaml"):
        assert len(mray("list", kind, "--detail", "-f", form).stdout.splitlines()) > 1


def test_placement_groups_are_none(live: Live) -> None:
    assert mray("list", "placement-groups").stdout == "(none)\n"
    assert rows("list", "placement_groups") == []


def test_get_finds_by_id_by_its_beginning_by_name_and_by_pid(live: Live) -> None:
    actor_id = live.joe._actor_id.hex()
    for word in (actor_id, actor_id[:10], "joe"):
        assert rows("get", "actor", word)["pid"] == live.pids[0]
    assert rows("get", "worker", str(live.pids[0]))["actor_id"] == actor_id
    assert rows("get", "graph", live.graph.get_id())["submitted"] == 1
    assert f"actor_id                {actor_id}\n" in mray("get", "actor", "joe").stdout
    assert mray("get", "actor", "f" * 32, check=1).stderr == f"mray: no actor {'f' * 32!r}\n"
    assert "several actors are meant" in mray("get", "actor", "", check=1).stderr


def test_summary_counts(live: Live) -> None:
    assert rows("summary", "actors")["summary"][STAGE]["state_counts"] == {"ALIVE": 2}
    assert rows("summary", "tasks")["summary"]["Stage.pid"]["state_counts"] == {"FINISHED": 2}
    assert "LOCAL_REFERENCE" in mray("summary", "objects").stdout


def test_status_tells_resources_actors_and_what_waits(live: Live, eventually: Eventually) -> None:
    @live.ray.remote(num_cpus=2)
    def holds(path: str) -> None:
        while not os.path.exists(path):
            time.sleep(0.01)

    @live.ray.remote
    def hungry() -> None:
        pass

    refs = [holds.remote(str(live.go))]
    eventually(lambda: rows("status")[0]["resources"]["CPU"]["used"] == 2.0)
    refs.append(hungry.remote())
    eventually(lambda: rows("status")[0]["demands"])
    (status,) = rows("status")
    assert (status["driver_pid"], status["session_dir"]) == (os.getpid(), live.directory)
    assert status["actors"] == {"ALIVE": 2}
    assert [(demand["label"], demand["resources"]) for demand in status["demands"]] == [("task hungry", {"CPU": 1.0})]
    text = mray("status").stdout
    assert "CPU: 2 of 2 used" in text
    assert "waiting    1 x hungry() for CPU 1\n" in text
    live.go.touch()
    live.ray.get(refs)


def test_memory_shows_processes_and_the_largest_objects(live: Live) -> None:
    whole = rows("memory")
    (driver,) = [row for row in whole["processes"] if row["worker_type"] == "DRIVER"]
    assert driver["pid"] == os.getpid()
    assert driver["object_store_bytes"] >= 1 << 20
    assert whole["objects"][0]["object_id"] == live.large.hex()
    assert whole["objects"][0]["storage"] == "shared memory"
    assert "objects" not in rows("memory", "--stats-only")
    assert live.large.hex() in mray("memory", "--limit", "1").stdout


# ------------------------------------------------------------------------------------------------- stacks
def test_stack_shows_where_each_process_is(live: Live) -> None:
    found = {row["pid"]: row for row in rows("stack", "--no-py-spy")}
    joe = dict(found[live.pids[0]]["stacks"])
    assert "in compute\n    while not os.path.exists(path)" in joe["MainThread"]
    driver = dict(found[os.getpid()]["stacks"])
    assert "in test_stack_shows_where_each_process_is" in driver["MainThread"]
    assert {row["role"] for row in found.values()} == {"driver", "worker", "node", "zygote"}
    (node,) = [row for row in found.values() if row["role"] == "node"]
    assert "in serve" in node["stacks"][0][1]
    assert "on_ask" not in str(found)  # nobody shows the question


def test_stack_of_one_actor_or_process(live: Live) -> None:
    Path(f"{live.go}.spins").touch()  # computes, and leaves its interpreter to others now and then
    for word in ("joe", str(live.pids[0]), live.joe._actor_id.hex()[:12]):
        assert [row["pid"] for row in rows("stack", "--no-py-spy", word)] == [live.pids[0]]
    done = mray("stack", "--no-py-spy", "driver", "nobody", check=1)
    assert f"=== driver pid {os.getpid()}" in done.stdout
    assert "no process or actor nobody" in done.stderr


def test_stack_of_an_actor_in_a_graph_says_what_it_waits_for(live: Live) -> None:
    graph = live.graph.get_id()[:8]
    (row,) = rows("stack", "--no-py-spy", str(live.pids[1]))
    assert row["waits_in_graphs"] == [f"a value of the driver (graph {graph})"]
    assert f"\nwaits for a value of the driver (graph {graph})\n" in mray("stack", "--no-py-spy", str(live.pids[1])).stdout


def test_stack_of_a_stopped_process_says_why_there_is_none(live: Live) -> None:
    os.kill(live.pids[1], signals.SIGSTOP)
    try:
        done = mray("stack", "--no-py-spy", "--timeout", "1", str(live.pids[1]), check=1)
    finally:
        os.kill(live.pids[1], signals.SIGCONT)
    assert "does not answer within 1 s: it is stopped" in done.stdout


def test_stack_of_a_process_that_cannot_answer_comes_through_faulthandler(live: Live) -> None:
    """C code holds its interpreter, and sleeps."""

    @live.ray.remote
    class Holder:
        def pid(self) -> int:
            return os.getpid()

        def hold_the_interpreter(self) -> int:
            return sum(map(ctypes.PyDLL(None).sleep, itertools.repeat(600)))

    holder = Holder.remote()
    pid = live.ray.get(holder.pid.remote())
    holder.hold_the_interpreter.remote()
    try:
        for _ in range(2):
            (row,) = rows("stack", "--no-py-spy", "--timeout", "2", str(pid))
            assert row["through"] == "faulthandler"
            assert "in hold_the_interpreter" in row["stacks"][0][1]
    finally:
        live.ray.kill(holder)


def test_stack_asks_py_spy_first_and_the_process_when_that_fails(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "py-spy"
    program.write_text(
        f"""#!/bin/sh
[ "$1 $2" = "dump --pid" ] || exit 9
[ $3 = {live.pids[0]} ] || {{ echo "Error: no" >&2; exit 1; }}
echo "Thread of $3"
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = {row["pid"]: row for row in rows("stack", "joe", "driver")}
    assert (found[live.pids[0]]["through"], found[live.pids[0]]["stacks"]) == ("py-spy", [["", f"Thread of {live.pids[0]}"]])
    assert found[os.getpid()]["through"] == "itself"


# --------------------------------------------------------------------------------------------------- logs
def test_logs_lists_files_and_prints_those_of_an_actor(live: Live) -> None:
    names = [row["file"] for row in rows("logs")]
    (name,) = [name for name in names if name.endswith(f"-{live.pids[0]}.out")]
    for word in (name, "joe", str(live.pids[0])):
        assert mray("logs", word).stdout == "computing\n"
    assert mray("logs", "joe", "--tail", "0").stdout == ""
    assert "no log of 'joe'" in mray("logs", "joe", "--err", check=1).stderr
    assert "no log of 'nobody'" in mray("logs", "nobody", check=1).stderr


def test_logs_of_all_files_are_one_stream_that_can_be_searched(live: Live, eventually: Eventually) -> None:
    @live.ray.remote(num_cpus=0)
    def chat(number: int) -> None:
        print(f"first of {number}", flush=True)
        print(f"50%\r100% of {number}\nError {number}", file=sys.stderr, flush=True)

    for number in range(2):
        live.ray.get(chat.remote(number))
    eventually(lambda: mray("logs", "--grep", "Error").stdout.count("\n") == 2)
    lines = mray("logs", "all").stdout.splitlines()
    said = [re.fullmatch(r"(\d\d:\d\d:\d\d\.\d\d\d| {12}) \(([^)]*)\) (.*)", line) for line in lines]
    found = [(re.sub(r"\d+", "N", each[2]), each[3]) for each in said if each is not None]
    assert found.index(("Stage pid=N", "computing")) < found.index(("chat pid=N", "first of 0"))
    assert ("chat pid=N err", "100% of 1") in found
    assert mray("logs", "all", "--err", "--tail", "1", "--grep", "f 1|[x-z]").stdout.endswith(" err) 100% of 1\n")
    assert mray("logs", "joe", "--grep", "comp").stdout == "computing\n"
    assert mray("logs", "joe", "--grep", "nonsense").stdout == ""
    assert "--grep (: missing )" in mray("logs", "--grep", "(", check=2).stderr


@pytest.mark.parametrize("words", [("all",), ("--grep", "computing")])
def test_all_logs_are_followed_until_the_session_ends(live: Live, words: tuple[str, ...]) -> None:
    process = subprocess.Popen([sys.executable, "-m", "mray", "logs", *words, "--follow"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().endswith(f" (Stage pid={live.pids[0]}) computing\n")
    live.go.touch()
    live.ray.get([live.busy, live.joe.compute.remote(str(live.go))])
    assert process.stdout.readline().endswith(f" (Stage pid={live.pids[0]}) computing\n")
    live.ray.get(live.idle.compute.remote(str(live.go)))
    live.graph.teardown()
    assert process.stdout.readline().endswith(f"pid={live.pids[1]}) computing\n")
    live.ray.shutdown()
    rest, _nothing = process.communicate(timeout=60)
    assert (rest, process.returncode) == ("", 0)
    live.ray.init(num_cpus=1, logging_level="ERROR")
    live.busy = live.ray.put(1)


def test_logs_follow_until_the_session_ends(live: Live, eventually: Eventually) -> None:
    process = subprocess.Popen([sys.executable, "-m", "mray", "logs", "joe", "--follow"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "computing\n"
    live.go.touch()
    live.ray.get(live.busy)
    again = live.joe.compute.remote(str(live.go))
    assert process.stdout.readline() == "computing\n"
    live.ray.get(again)
    live.graph.teardown()
    live.ray.shutdown()
    rest, _nothing = process.communicate(timeout=60)
    assert (rest, process.returncode) == ("", 0)
    live.ray.init(num_cpus=1, logging_level="ERROR")
    live.busy = live.ray.put(1)


# ------------------------------------------------------------------------------------- metrics, top, others
def test_metrics_are_prometheus_text(live: Live, tmp_path: Path) -> None:
    text = mray("metrics").stdout
    assert 'mray_resources_total{name="CPU"} 2.0\n' in text
    assert 'mray_actors{class="Stage",state="ALIVE"} 2.0\n' in text
    assert 'mray_workers{state="busy"} 1.0\n' in text and 'mray_workers{state="graph"} 1.0\n' in text  # the states of listings
    used = re.search(r'^mray_resources_used{name="object_store_memory"} (\S+)$', text, re.MULTILINE)
    assert used is not None and float(used[1]) >= 1 << 20
    labels = f'actor_id="{live.idle._actor_id.hex()}",class="Stage",pid="{live.pids[1]}",role="worker"'
    calls = re.search(rf"^mray_calls_total{{{labels}}} (\S+)$", text, re.MULTILINE)
    assert calls is not None, text
    assert float(calls[1]) == 1.0
    assert f'mray_graph_executions_finished_total{{graph_id="{live.graph.get_id()}"}} 1.0\n' in text
    path = tmp_path / "mray.prom"
    assert mray("metrics", "--file", str(path)).stdout == ""
    assert "mray_object_store_limit_bytes" in path.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["mray.prom"]


def test_a_missing_package_is_named_with_its_extra() -> None:
    done = mray("top", check=4, without="rich")
    assert "mray[top]" in done.stderr
    assert done.stdout == ""


def test_top_prints_one_view_without_a_terminal(live: Live) -> None:
    pytest.importorskip("rich")
    text = mray("top", "--once", "--interval", "0.3").stdout
    line = next(line for line in text.splitlines() if line.split()[:1] == [str(live.pids[0])])
    assert "Stage" in line
    assert "joe" in line
    assert line.rstrip().endswith("Stage.compute")
    assert live.graph.get_id()[:8] in text
    assert "draws in a terminal, and this is none" in mray("top", check=2).stderr


def test_top_draws_in_a_terminal_until_q(live: Live) -> None:
    pytest.importorskip("rich")
    import pty

    pid, terminal = pty.fork()
    if not pid:
        os.environ.update(TERM="xterm", COLUMNS="160", LINES="40")
        os.execv(sys.executable, [sys.executable, "-m", "mray", "top", "--interval", "0.2"])
    seen = b""
    while seen.count(b"Stage.compute") < 2:  # drawn, and drawn again
        ready, _writable, _broken = select.select([terminal], [], [], 60)
        assert ready, seen.decode(errors="replace")
        seen += os.read(terminal, 65536)
    os.write(terminal, b"q")
    with pytest.raises(OSError, match="Input/output error"):
        while data := os.read(terminal, 65536):
            seen += data
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"\x1b[?1049h" in seen  # a screen of its own ...
    assert b"\x1b[?1049l" in seen  # ... which is left again


def test_who_waits_for_whom_is_shown(live: Live, tmp_path: Path, eventually: Eventually) -> None:
    pytest.importorskip("rich")

    @live.ray.remote(num_cpus=0)
    def waits(refs: list[Any]) -> None:
        import mray

        mray.get(refs)

    ref = waits.remote([live.busy])
    wanted = re.compile(rf"task waits \(pid \d+\) for object {live.busy.hex()[:8]} \(pid {os.getpid()}\)")
    eventually(lambda: wanted.search(mray("top", "--once", "--interval", "0.1").stdout))
    (waiting,) = [row for row in rows("list", "workers", "--detail") if row["current_task"] == "waits"]
    assert [text.partition(" (")[0] for text in waiting["waits_for"]] == [f"object {live.busy.hex()[:8]}"]
    live.go.touch()
    live.ray.get(ref)


def test_microbenchmark_measures_each_row() -> None:
    found = rows("microbenchmark", "--seconds", "0.01", "--scale", "0.01")
    assert len(found) == 25
    assert all(row["median_us"] > 0 and row["repeats"] >= 3 for row in found)
    assert [row["benchmark"] for row in rows("microbenchmark", "--seconds", "0.01", "--only", "tasks sync")] == ["single client tasks sync"]


# ------------------------------------------------------------------------------------------------ sessions
@pytest.mark.parametrize("words", ["status", "list actors", "get actor x", "summary tasks", "memory", "stack", "logs"])
def test_without_a_session_commands_end_with_3(fresh: ModuleType, words: str) -> None:
    done = mray(*words.split(), check=3)
    assert done.stderr == "mray: No session of this user is running.\n"
    assert done.stdout == ""


def test_of_several_sessions_one_must_be_chosen(live: Live, tmp_path: Path) -> None:
    program = "import mray, sys; mray.init(num_cpus=1, logging_level='ERROR'); print(1, flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "1\n"
    try:
        told = mray("list", "actors", check=3).stderr
        assert "Several sessions are running; say which one, by --session" in told
        lines = {line.split()[0]: line for line in told.splitlines()[1:]}
        assert f"pid {os.getpid()}: " in lines[os.path.basename(live.directory)]
        assert any(f"pid {other.pid}: " in line and "import mray, sys" in line for line in lines.values())
        assert {row["driver_pid"] for row in rows("status")} == {os.getpid(), other.pid}
        for word in (str(os.getpid()), os.path.basename(live.directory), live.directory, live.directory.rpartition("_")[2]):
            assert len(rows("list", "actors", "--session", word)) == 2
        assert rows("list", "actors", "--session", str(other.pid)) == []
        assert "No session 'nonsense' is running" in mray("list", "actors", "--session", "nonsense", check=3).stderr
    finally:
        other.communicate("", timeout=60)


@contextlib.contextmanager
def starved(pid: int) -> Iterator[None]:
    """While this is entered, the process gets no more file descriptors."""
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def test_who_looks_at_a_session_without_descriptors_is_told_which_process_has_none(live: Live) -> None:
    node = live.ray._api.current.current_backend().client.info["node_pid"]
    with starved(node):
        for words in (("status",), ("list", "actors"), ("timeline",)):
            told = mray(*words, check=1).stderr
            assert f"The node process (pid {node}) has no file descriptor left to answer with." in told
            assert "Too many open files" in told and "ulimit -n" in told and "Traceback" not in told
        with pytest.raises(RayStateApiException, match=f"The node process .pid {node}. has no file descriptor left"):
            state.list_actors()
        with pytest.raises(OSError, match=f"The node process .pid {node}. has no file descriptor left"):
            live.ray.timeline()
    with starved(live.pids[1]):
        done = mray("list", "actors", "--detail", "--allow-missing")
        assert f"the worker of pid {live.pids[1]} cannot answer: Too many open files" in done.stderr
        assert len(rows("list", "actors")) == 2
    assert len(rows("list", "actors", "--detail")) == 2


def test_the_doctor_cleans_after_a_session_that_was_killed_whole(fresh: ModuleType, eventually: Eventually) -> None:
    program = "import mray; mray.init(num_cpus=1, logging_level='ERROR'); r = mray.put(bytes(1 << 20)); print(1, flush=True); input()"
    driver = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "1\n"
    found = {row["role"]: row["pid"] for row in rows("stack", "--no-py-spy")}
    for role in ("zygote", "node"):  # so that nobody cleans
        os.kill(found[role], signals.SIGSTOP)
    driver.kill()
    for role in ("zygote", "node"):
        os.kill(found[role], signals.SIGKILL)
    driver.communicate()
    eventually(lambda: "its processes are dead" in mray("doctor", check=None).stdout)
    done = mray("doctor", "--clean", check=None)
    assert "removed " in done.stdout
    assert "its processes are dead" not in mray("doctor", check=None).stdout
