"""Processes that a program forks beside or below a session, once and twice: they are like any others, and the session goes on."""

from __future__ import annotations

import os
import signal
import time

import pytest

from mray._ipc.reaper import sweep

#: A fork has its files open through forks of its own, and the standard library's processes work there.
ASKED = """
import gc, multiprocessing, os, select, subprocess, sys, tempfile
import mray

forks = multiprocessing.get_context("fork")

def closed(files):
    found = 0
    for file in files:
        try:
            os.fstat(file.fileno())
        except OSError:
            found += 1
    return found

def usual():
    files = [tempfile.TemporaryFile() for _ in range(60)]
    with forks.Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
    queue = forks.SimpleQueue()
    child = forks.Process(target=lambda: queue.put(closed(files)))
    child.start()
    child.join()
    subprocess.run(["true"], preexec_fn=lambda: None, check=True)
    gc.collect()
    return closed(files), queue.get(), child.exitcode

def forked(function):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            try:
                said = repr(function())
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            os.write(write, said.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said

def all_of(function=usual):
    return [repr(function()), forked(function), forked(lambda: print_plainly(forked(function)))]

class print_plainly(str):
    __repr__ = str.__str__
"""

FORKS = (
    ASKED
    + """
mray.init(num_cpus=4, logging_level="ERROR")

@mray.remote
def task():
    return all_of()

class Actor:
    def go(self):
        return all_of()
    def echo(self, value):
        return value

class AsyncActor:
    async def go(self):
        return all_of()
    def echo(self, value):
        return value

actors = [mray.remote(Actor).remote(), mray.remote(max_concurrency=2)(Actor).remote(), mray.remote(AsyncActor).remote()]

def session():
    print("DRIVER", all_of(), flush=True)
    print("TASK", mray.get(task.remote()), flush=True)
    for actor in actors:
        print("ACTOR", mray.get(actor.go.remote()), flush=True)

session()
mray.shutdown()
print("AFTER", all_of(), flush=True)
mray.init(num_cpus=4, logging_level="ERROR")
actors = [mray.remote(Actor).remote()]
session()

def own():
    mray.init(num_cpus=1, logging_level="ERROR")
    try:
        return [mray.get(mray.remote(lambda: 3).remote()), *all_of()]
    finally:
        mray.shutdown()

print("CHILD", forked(own), flush=True)
print("GRANDCHILD", forked(lambda: print_plainly(forked(own))), flush=True)
print("VALUE", mray.get(actors[0].echo.remote(5)), flush=True)
mray.shutdown()
"""
)

GRAPH = (
    ASKED
    + """
from mray.dag import InputNode
from mray.util.state import list_graphs

mray.init(num_cpus=2, logging_level="ERROR")

@mray.remote
class Actor:
    def echo(self, value):
        return value
    def fork(self, graph):
        def child():
            try:
                graph.execute(7)
            except Exception as error:
                return type(error).__name__
        return forked(child), mray.get(graph.execute(8))

actor = Actor.remote()
with InputNode() as value:
    graph = actor.echo.bind(value).experimental_compile()
assert mray.get(graph.execute(0)) == 0
flying = graph.execute(1)

def child():
    said = []
    for use in (lambda: graph.execute(7), lambda: mray.get(flying), lambda: actor.echo.remote(7)):
        try:
            use()
        except Exception as error:
            said.append(type(error).__name__)
    graph.teardown()
    gc.collect()
    return said

print("CHILD", forked(child), flush=True)
print("GRANDCHILD", forked(lambda: print_plainly(forked(child))), flush=True)
print("FLYING", mray.get(flying), mray.get(graph.execute(2)), flush=True)
listed = len(list_graphs())
print("COPY", *mray.get(Actor.remote().fork.remote(graph)), listed, flush=True)
graph.teardown()
mray.shutdown()
"""
)

BACK = """
import os, sys
import mray

def fork(how):
    child = os.fork()
    if not child:
        if how == "exits":
            sys.exit(3)
        if how == "raises":
            raise ValueError("the child's")
        return "the child's"
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

mray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)

@mray.remote
def task(how):
    return fork(how)

class Actor:
    def __init__(self, notes):
        self.notes = notes
    def go(self, how):
        return fork(how)
    def note(self):
        with open(self.notes, "a") as file:
            file.write("once ")

class AsyncActor(Actor):
    async def go(self, how):
        return fork(how)

notes = os.path.join(sys.argv[1], "notes")
actors = [mray.remote(Actor).remote(notes), mray.remote(max_concurrency=2)(Actor).remote(notes), mray.remote(AsyncActor).remote(notes)]
for how in ("returns", "exits", "raises"):
    open(notes, "w").close()
    statuses = [mray.get(task.remote(how))]
    for actor in actors:
        going = actor.go.remote(how)
        mray.get([actor.note.remote(), actor.note.remote()])
        statuses.append(mray.get(going))
    print(how.upper(), statuses, open(notes).read().split().count("once"), flush=True)
mray.shutdown()
"""


KEPT = """
import ctypes, multiprocessing, os, signal, sys
sys.path.insert(0, sys.argv[2])
import numpy
import mray

mray.init(num_cpus=1, logging_level="ERROR", preload=["forks"])
ref = mray.put(numpy.ones(1_000_000))

def stay():
    while True:
        signal.pause()

def plain():
    if not (child := os.fork()):
        stay()
    return child

def within_c():
    if not (child := ctypes.PyDLL(None).fork()):
        stay()
    return child

def of_multiprocessing():
    child = multiprocessing.get_context("fork").Process(target=stay)
    child.start()
    return child.pid

child = {"plain": plain, "within_c": within_c, "of_multiprocessing": of_multiprocessing}[sys.argv[1]]()
assert mray.get(mray.remote(lambda: 7).remote()) == 7
open(os.path.join(sys.argv[3], "begun"), "w").write(str(child))
open(os.path.join(sys.argv[3], "ready"), "w").close()
stay()
"""


@pytest.mark.parametrize("way", ["plain", "within_c", "of_multiprocessing"])
def test_a_fork_that_lives_on_keeps_nothing_of_a_session_that_is_killed_as_a_whole(run_text, tmp_path, way):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "forks.py").write_text("import os, signal\nif not os.fork():\n    while True:\n        signal.pause()\n")
    run = run_text(KEPT, way, str(tmp_path / "modules"))
    run.wait_for("ready")
    child = int((tmp_path / "begun").read_text())
    (directory,) = [path for path in run.paths() if path.name.startswith("session_")]
    killed = [run.pid_of("node"), run.pid_of("zygote"), run.pid]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # nobody sees another one end
        for pid in killed:
            os.kill(pid, number)
    run.wait()
    while not set(killed[:2]).isdisjoint(run.processes()):
        time.sleep(0.005)
    assert directory.exists() and [name for name in os.listdir("/dev/shm") if directory.name.rpartition("_")[2] in name]
    until = time.monotonic() + run.patience
    while list(run.processes()) != [child]:
        assert time.monotonic() < until, run.processes()
        sweep(str(directory.parent))  # as the next `init`; it passes over a session while a process that dies still holds its lock
    run.kill(child)
    run.assert_nothing_left()


def test_a_process_that_is_forked_once_or_twice_is_like_any_other(run_text):
    run = run_text(FORKS)
    assert run.wait() == 0, run.output()
    usual = "(0, 0, 0)"
    lines = (run.folder / "stdout").read_text().splitlines()
    all_of = str([usual] * 3)
    assert [line for line in lines if line.split(" ")[0] in ("DRIVER", "TASK", "ACTOR", "AFTER") and not line.endswith(all_of)] == []
    assert len(lines) == 5 + 1 + 3 + 3, run.output()
    said = run.said()
    assert (said["CHILD"], said["GRANDCHILD"]) == (str([3, *[usual] * 3]),) * 2
    assert said["VALUE"] == "5"
    run.assert_nothing_left()


def test_what_a_forked_process_does_with_a_graph_of_its_parent_is_an_error_there_and_nothing_here(run_text):
    run = run_text(GRAPH)
    assert run.wait() == 0, run.output()
    said = run.said()
    errors = str(["RaySystemError"] * 3)
    assert (said["CHILD"], said["GRANDCHILD"]) == (errors, errors), run.output()
    assert (said["FLYING"], said["COPY"]) == ("1 2", "'RaySystemError' 8 1"), run.output()
    run.assert_nothing_left()


def test_a_fork_that_comes_back_from_the_call_ends_there_and_runs_no_other(run_text):
    run = run_text(BACK)
    assert run.wait() == 0, run.output()
    said = run.said()
    assert said == {"RETURNS": "[0, 0, 0, 0] 6", "EXITS": "[3, 3, 3, 3] 6", "RAISES": "[1, 1, 1, 1] 6"}, run.output()
    run.assert_nothing_left()
