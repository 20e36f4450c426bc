"""The objects of user code when its process ends in order: they go as at the end of any Python process, and its files are whole."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

PROGRAM = '''
import asyncio, atexit, csv, gzip, os, signal, sys, tempfile, threading, time, weakref
import ENGINE as ray

kind, how, folder = sys.argv[1:4]

def note(what):
    with open(f"{folder}/notes", "a") as file:
        file.write(what + "\\n")

class Noting:
    def __init__(self, what):
        self.what = what
    def __del__(self):
        note(self.what)

def begin():
    """Variables of the program and of a module of its own, and what exit handlers do."""
    global noting, beside
    import own
    noting, beside = Noting("global gone"), open(f"{folder}/beside", "w")
    beside.write("beside")
    own.noting, own.file = Noting("module gone"), open(f"{folder}/module", "w")
    own.file.write("module")
    atexit.register(note, "atexit")

class Actor:
    def __init__(self):
        begin()
        self.text = open(f"{folder}/text", "w")
        self.text.write("text")
        self.packed = gzip.open(f"{folder}/packed", "wt")
        self.packed.write("packed")
        type(self).table = open(f"{folder}/table", "w")
        csv.writer(type(self).table).writerow([1, 2])
        self.temporary = tempfile.TemporaryDirectory(dir=folder, prefix="temporary")
        weakref.finalize(self, note, "finalized")
        self.noting = Noting("attribute gone")
        self.circle = Noting("circle gone")
        self.circle.itself, self.circle.file = self.circle, open(f"{folder}/circle", "w")
        self.circle.file.write("circle")
        def generate():
            try:
                yield
            finally:
                note("generator over")
        self.items = generate()
        next(self.items)
        if how == "constructor":
            raise ValueError("on the way")

    def __ray_shutdown__(self):
        note("shut down")

    def __del__(self):
        note("actor gone")

    def ping(self):
        return os.getpid()

    def fail(self):
        raise ValueError("on the way")

    def exit_actor(self):
        ray.actor.exit_actor()

    def sys_exit(self):
        sys.exit(1)

    def beside(self):
        pass

    def child(self):
        import multiprocessing
        self.process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
        self.process.start()
        return self.process.pid

    def slowly(self, seconds):
        note("slow one begins")
        try:
            time.sleep(seconds)
        finally:
            note("slow one over")
        return "done"

class AsyncActor(Actor):
    async def exit_actor(self):
        ray.actor.exit_actor()

    async def beside(self):
        async def run():
            try:
                await asyncio.sleep(1000)
            finally:
                note("task over")
        self.task = asyncio.create_task(run())
        await asyncio.sleep(0)

    async def slowly(self, seconds):
        note("slow one begins")
        try:
            await asyncio.sleep(seconds)
        finally:
            note("slow one over")
        return "done"

class ThreadedActor(Actor):
    def beside(self):
        def run():
            while True:
                time.sleep(1000)
                self.noting
        threading.Thread(target=run, daemon=True).start()

def wait_until(condition):
    while not condition():
        time.sleep(0.01)

def notes():
    try:
        with open(f"{folder}/notes") as file:
            return file.read().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []

def is_over(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True

def outcome(ref):
    try:
        return str(ray.get(ref))
    except ray.exceptions.RayError as error:
        return type(error).__name__

def act():
    options = {"max_concurrency": 3} if kind == "threaded" else {}
    actor = ray.remote(num_cpus=0, **options)(AsyncActor if kind == "async" else ThreadedActor if how == "thread" else Actor).remote()
    if how == "constructor":
        print("OUTCOME", outcome(actor.ping.remote()), flush=True)
        wait_until(lambda: "circle gone" in notes())
        return
    pid = ray.get(actor.ping.remote())
    if how == "thread" or kind == "async":
        ray.get(actor.beside.remote())
    if how == "failed":
        outcome(actor.fail.remote())
    if how == "exit_actor":
        outcome(actor.exit_actor.remote())
    elif how == "sys.exit":
        outcome(actor.sys_exit.remote())
    elif how == "terminate":
        outcome(actor.__ray_terminate__.remote())
    elif how == "SIGTERM of a parent":
        child = ray.get(actor.child.remote())
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: is_over(child))
    elif how == "SIGTERM":
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: outcome(actor.ping.remote()) == "ActorDiedError")  # a call that is there before the signal is answered
    elif how == "SIGTERM amidst":
        slow = actor.slowly.remote(2)
        wait_until(lambda: "slow one begins" in notes())
        os.kill(pid, signal.SIGTERM)
        print("OUTCOME", outcome(slow), flush=True)
    del actor
    wait_until(lambda: is_over(pid))

@ray.remote(max_retries=0)
def task():
    begin()
    note(f"pid {os.getpid()}")
    try:
        if how == "sys.exit":
            sys.exit(3)
        if how == "SIGTERM":
            note("slow one begins")
            time.sleep(1000)
    finally:
        note("finally")
    return "value"

def run_task():
    last = ray.remote(max_calls=1, max_retries=0)(task._function) if how == "max_calls" else task
    result = last.remote()
    if how == "SIGTERM":
        wait_until(lambda: "slow one begins" in notes())
    pid = lambda: int(next(line for line in notes() if line.startswith("pid ")).split()[1])
    if how == "SIGTERM":
        os.kill(pid(), signal.SIGTERM)
    print("OUTCOME", outcome(result), flush=True)
    wait_until(lambda: is_over(pid()))

ray.init(num_cpus=1, logging_level="error", log_to_driver=False)
run_task() if kind == "task" else act()
ray.shutdown()
'''

KINDS = ["sync", "threaded", "async"]
FILES = {"text": "text", "table": "1,2\n", "circle": "circle", "beside": "beside", "module": "module"}
GONE = ["attribute gone", "generator over", "finalized", "atexit", "circle gone", "global gone", "module gone", "actor gone"]


class Left:
    """The notes and files that a program has left in its folder."""

    def __init__(self, folder: Path, said: str) -> None:
        self.said = dict(line.split(" ", 1) for line in said.splitlines())
        self.notes = (folder / "notes").read_text().splitlines()
        self.files = {name: (folder / name).read_text() for name in FILES if (folder / name).exists()}
        self.packed = gzip.decompress((folder / "packed").read_bytes()).decode() if (folder / "packed").exists() else None
        self.temporary = [path.name for path in folder.glob("temporary*")]


@pytest.fixture
def left_by(run_program: Any, tmp_path: Path) -> Any:
    def run(kind: str, how: str) -> Left:
        (tmp_path / "own.py").write_text("file = noting = None\n")
        return Left(tmp_path, run_program(PROGRAM, kind, how, str(tmp_path)).stdout)

    return run


pytestmark = pytest.mark.processes("what Python does at the end of one")


def assert_all_is_gone(left: Left, hook: bool = True) -> None:
    assert left.files == FILES
    assert left.packed == "packed"
    assert left.temporary == []
    missing = [what for what in GONE if what not in left.notes]
    assert missing == [], left.notes
    assert ("shut down" in left.notes) == hook
    assert left.notes.index("actor gone") < left.notes.index("atexit") < left.notes.index("circle gone")


@pytest.mark.only("mray")  # on Ray the variables of modules and, of async actors, of the program do not go
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["scope", "exit_actor", "terminate", "sys.exit", "SIGTERM", "failed"])
def test_an_actor_that_ends_in_order_leaves_whole_files_and_its_objects_go(left_by, kind, how):
    left = left_by(kind, how)
    assert_all_is_gone(left)
    if kind == "async":
        assert "task over" in left.notes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["scope", "exit_actor", "terminate"])
def test_what_an_actor_has_open_is_flushed_and_closed(left_by, kind, how):
    left = left_by(kind, how)
    assert (left.files["text"], left.packed, left.temporary) == ("text", "packed", [])
    assert "shut down" in left.notes[:2]  # Ray makes an object of the class besides the actor, which goes first
    assert left.notes.index("shut down") < left.notes.index("generator over") < left.notes.index("atexit")


@pytest.mark.only("mray")  # Ray shuts down what has not come to be
def test_what_an_actor_has_open_whose_constructor_raises_is_flushed_and_closed(left_by):
    left = left_by("sync", "constructor")
    assert (left.files["text"], left.packed, left.temporary) == ("text", "packed", [])
    assert "shut down" not in left.notes and "actor gone" in left.notes


@pytest.mark.only("mray")  # on Ray such a thread keeps them for ever
def test_the_files_of_an_actor_that_a_thread_knows_are_whole(left_by):
    left = left_by("sync", "thread")
    assert (left.files, left.packed, left.temporary) == (FILES, "packed", [])


@pytest.mark.parametrize(("kind", "outcome"), [("sync", "ActorDiedError"), ("threaded", "done"), ("async", "done")])
def test_sigterm_ends_an_actor_amidst_a_call_in_order(left_by, kind, outcome):
    """The call of a sync actor ends with it, as by an exception; others come to their ends."""
    left = left_by(kind, "SIGTERM amidst")
    assert left.said["OUTCOME"] == outcome
    expected = ["slow one begins", "slow one over", "shut down"]
    assert [what for what in left.notes if what in expected] == expected
    assert "atexit" in left.notes and left.files["text"] == "text"


def test_sigterm_ends_an_actor_and_the_processes_that_it_has_started(left_by):
    assert "atexit" in left_by("sync", "SIGTERM of a parent").notes


@pytest.mark.parametrize("how", ["max_calls", "sys.exit", "SIGTERM"])
def test_the_worker_of_tasks_that_ends_in_order_leaves_whole_files_and_runs_exit_handlers(left_by, how):
    left = left_by("task", how)
    assert left.said["OUTCOME"] == ("value" if how == "max_calls" else "WorkerCrashedError")
    assert left.files == {"beside": "beside", "module": "module"}
    assert [what for what in left.notes if what in ("finally", "atexit")] == ["finally", "atexit"]
