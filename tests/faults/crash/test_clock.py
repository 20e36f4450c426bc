"""Time that jumps, and time that stands still: the wall clock is set, and every process of a session is stopped and goes on.

No wait ends by the wall clock; it is only shown. And who is stopped is slow, not dead, in whatever order things go on.
"""

from __future__ import annotations

import ast
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.full import FULL

PACKAGE = Path(__file__).resolve().parents[3] / "mray"

#: Places that read the wall clock, and the reason.
SHOWN = {
    "_ipc/output.py": "when a line was printed",
    "_runtime/session/breakpoints.py": "since when a breakpoint waits",
    "_runtime/node/jobs.py": "when a driver came",
    "_runtime/node/node.py": "when a driver left",
    "_runtime/session/session.py": "when the failed calls of an ended session ended",
    "_runtime/worker/worker.py": "when the calls of an ended session ended",
    "_runtime/session/launching.py": "the name of a session",
    "_runtime/node/last_records.py": "when a session ended",
    "_runtime/node/snapshot.py": "when a listing was made, and when somebody died",
    "_backends/session_trace.py": "when a trace begins",
    "_graph/watch/profile.py": "when a profile begins",
    "_trace/torch_profiler.py": "the name of a file",
    "pytest_plugin/leaks.py": "a name",
    "cli/commands/debug.py": "since when a breakpoint waits",
    "cli/commands/logs.py": "when a line was printed",
    "cli/commands/status.py": "when a driver came",
    "cli/commands/timeline.py": "the name of a file",
    "util/state/_calls.py": "when a call began and ended",
    "util/state/_processes.py": "when a process began",
    "util/state/common.py": "when something happened",
}
WALL = {"time", "time_ns", "localtime", "gmtime", "strftime", "ctime", "now", "utcnow", "today", "fromtimestamp"}


def reads_of_the_wall_clock(path: Path) -> Iterator[str]:
    """Calls of the wall clock in a file."""
    tree = ast.parse(path.read_text())
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime", "mray._common.clock")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in ("time", "datetime", "clock"):
            if called.attr in WALL - {"now"} or (called.value.id != "clock" and called.attr == "now"):
                yield f"{called.value.id}.{called.attr}"
        elif isinstance(called, ast.Name) and called.id in (imported & WALL) - {"now"}:  # (`now` is that of deadlines)
            yield called.id


def test_the_wall_clock_is_read_only_to_be_shown() -> None:
    readers = {
        str(path.relative_to(PACKAGE)): found
        for path in PACKAGE.rglob("*.py")
        if "examples" not in path.parts and (found := sorted(set(reads_of_the_wall_clock(path))))
    }
    assert set(readers) == set(SHOWN), readers


#: In every process of the session, the wall clock jumps by a day at each reading, forwards and backwards in turn.
JUMPING = """
import datetime, itertools, time

_true, _days = time.time, itertools.cycle((0, 86400, -86400, 0))
time.time = lambda: _true() + next(_days)
time.time_ns = lambda: int(time.time() * 1e9)
"""

PROGRAM = """
import asyncio
import sys
import threading
import time

import mray
from mray.util import state
from mray.util.queue import Empty, Queue

assert {time.time() > time.monotonic() for _ in range(4)}
mray.init(num_cpus=4, logging_level="ERROR")

@mray.remote
def jumps():
    moments = [time.time() for _ in range(8)]
    return max(moments) - min(moments) > 100_000

@mray.remote
def never():
    threading.Event().wait()

@mray.remote
class Actor:
    def __init__(self):
        self.opened = threading.Event()
    def wait(self, seconds):
        return self.opened.wait(seconds)
    def double(self, value):
        return 2 * value
    def stream(self):
        yield from range(3)

@mray.remote
class Async:
    async def wait(self):
        await asyncio.sleep(0.05)
        return 1

assert mray.get([jumps.remote() for _ in range(4)]) == [True] * 4, "the clock does not jump"
stuck = never.remote()
actor, asynchronous = Actor.remote(), Async.remote()
for seconds in (0, 0.05):
    begun = time.monotonic()
    try:
        mray.get(stuck, timeout=seconds)
        sys.exit("it has ended")
    except mray.exceptions.GetTimeoutError:
        assert time.monotonic() - begun >= seconds
    begun = time.monotonic()
    assert mray.wait([stuck], timeout=seconds) == ([], [stuck])
    assert time.monotonic() - begun >= seconds
assert mray.get(actor.double.remote(1), timeout=50) == 2
assert mray.wait([actor.double.remote(1)], timeout=50)[0]
assert not mray.get(actor.wait.remote(0.05), timeout=50)
assert mray.get(asynchronous.wait.remote(), timeout=50) == 1
assert [mray.get(ref, timeout=50) for ref in actor.stream.options(num_returns="streaming").remote()] == [0, 1, 2]
queue = Queue()
try:
    queue.get(timeout=0.05)
    sys.exit("the queue is not empty")
except Empty:
    pass
with mray.dag.InputNode() as given:
    graph = actor.double.bind(given).experimental_compile()
assert [mray.get(graph.execute(number), timeout=50) for number in range(20)] == [2 * number for number in range(20)]
graph.teardown()
assert {row.state for row in state.list_actors()} >= {"ALIVE"}
assert state.list_tasks() and state.list_nodes() and state.list_jobs() and state.list_workers()
assert mray.timeline()
mray.kill(actor)
try:
    while True:
        mray.get(actor.double.remote(1), timeout=50)
except mray.exceptions.ActorDiedError:
    pass
mray.cancel(stuck, force=True)
mray.wait([stuck])
mray.shutdown()
print("done")
"""


def test_whatever_the_wall_clock_does_waits_take_their_time_and_end(run, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(JUMPING)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run.start(program=program, env={"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})
    assert run.wait() == 0, run.output()
    assert "done" in run.output()
    run.assert_nothing_left()


#: A driver that has work of every kind under way, and says what became of it when it is told.
PAUSED = """
import os, sys, threading, time
from pathlib import Path
import numpy
import mray
from mray.util import state

folder = Path(sys.argv[-1])
mray.init(num_cpus=4, logging_level="ERROR")

@mray.remote(max_retries=0)
def when(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    return os.getpid()

@mray.remote(max_restarts=0)
class Actor:
    def pid(self):
        return os.getpid()
    def double(self, value):
        return 2 * value
    def make(self, size):
        return numpy.ones(size)
    def stream(self, path):
        yield 1
        while not os.path.exists(path):
            time.sleep(0.01)
        yield 2

actor, other = Actor.remote(), Actor.remote()
with mray.dag.InputNode() as given:
    graph = other.double.bind(actor.double.bind(given)).experimental_compile()
assert mray.get(graph.execute(1)) == 4
held = mray.put(numpy.ones(100_000)), actor.make.remote(100_000)
go = str(folder / "go")
tasks = [when.remote(go) for _ in range(3)]
stream = other.stream.options(num_returns="streaming").remote(go)
before = mray.get([actor.pid.remote()])
try:
    mray.get(tasks, timeout=0.01)
    sys.exit("too early")
except mray.exceptions.GetTimeoutError:
    pass
waits = []
def wait_long():
    waits.append(mray.get(tasks, timeout=1000))
def wait_briefly():
    try:
        mray.get(tasks, timeout=0.3)
        waits.append("in time")
    except mray.exceptions.GetTimeoutError:
        waits.append("timed out")
threads = [threading.Thread(target=each) for each in (wait_long, wait_briefly)]
for thread in threads:
    thread.start()
(folder / "reached").touch()
while not os.path.exists(go):
    time.sleep(0.01)
for thread in threads:
    thread.join()
assert len(waits) == 2 and [len(set(each)) for each in waits if isinstance(each, list)] == [len(set(mray.get(tasks)))], waits
assert [mray.get(ref) for ref in stream] == [1, 2]
assert mray.get([actor.pid.remote()]) == before
assert all(array.sum() == 100_000 for array in mray.get(list(held)))
assert [mray.get(graph.execute(number)) for number in range(5)] == [4 * number for number in range(5)]
graph.teardown()
another = Actor.remote()
assert mray.get(another.double.remote(4)) == 8
assert not [row for row in state.list_actors() if row.state == "DEAD"]
mray.shutdown()
print("done")
"""
ROLES = ("driver", "node", "zygote", "workers")
ORDERS = list(itertools.permutations(ROLES))
QUICK = [(ROLES, ROLES), (ROLES[::-1], ROLES[::-1]), (("node", "driver", "workers", "zygote"), ("workers", "zygote", "driver", "node"))]
#: Seconds: longer than anybody waits for anybody in the package, or in the quick suite long enough to be late for all that is quick.
PAUSE = 25.0 if FULL else 2.0


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("stops", "goes_on"), list(zip(ORDERS, ORDERS[5:] + ORDERS[:5], strict=True)) if FULL else QUICK)
def test_a_session_that_is_stopped_as_a_whole_goes_on_where_it_was(
    run, tmp_path: Path, eventually: Callable[..., None], stops: tuple[str, ...], goes_on: tuple[str, ...]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PAUSED)
    run.start(program=program)
    run.wait_for("reached")
    members: dict[str, list[int]] = {role: [] for role in ROLES}
    for pid, title in run.processes().items():
        known = {"ray::node": "node", "ray::zygote": "zygote"}
        members["driver" if pid == run.pid else known.get(title.split(" ")[0], "workers")].append(pid)
    assert all(members.values()), run.processes()
    for role in stops:
        for pid in members[role]:
            os.kill(pid, signal.SIGSTOP)
    for pids in members.values():
        for pid in pids:
            eventually(lambda pid=pid: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
    signal.sigtimedwait([], PAUSE)  # time itself is what is tried here
    run.tell("go")
    for role in goes_on:
        for pid in members[role]:
            os.kill(pid, signal.SIGCONT)
    assert run.wait() == 0, run.output()
    assert "done" in run.output()
    run.assert_nothing_left()
