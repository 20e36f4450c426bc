"""`ray.util.state` about actors, tasks, objects, workers, the node; and, in mray only, about graphs and their channels."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal as signals
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mray._observe import observer
from mray.util.state.api import session_directory

LOCAL = os.environ.get("MRAY_TEST_ENGINE") == "local"

Eventually = Callable[..., None]


@pytest.fixture
def state(engine: str) -> ModuleType:
    """The module under test. Ray's asks a dashboard, which its smallest installation does not have."""
    if engine == "ray" and importlib.util.find_spec("aiohttp_cors") is None:
        pytest.skip("Ray's state needs ray[default]")
    return importlib.import_module(f"{engine}.util.state")


@pytest.fixture
def session(state: ModuleType, engine: str, init: Callable[..., Any], fresh: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    init(num_cpus=2, include_dashboard=True)
    if engine == "ray":  # its state does not look for the session of its own process
        monkeypatch.setenv("RAY_ADDRESS", fresh.get_runtime_context().gcs_address)
    return fresh


def at_top(thing: Any) -> Any:
    """As if it were defined at the top of its module: Ray names what is inside of functions by all of its way there."""
    thing.__qualname__ = thing.__name__
    return thing


def worker_class(ray: ModuleType) -> Any:
    @ray.remote
    @at_top
    class Worker:
        def pid(self) -> int:
            return os.getpid()

        def fail(self) -> None:
            raise ValueError("on purpose")

        def leave(self, status: int) -> None:
            sys.exit(status)

        def wait_for(self, path: str) -> None:
            while not os.path.exists(path):
                time.sleep(0.005)

    return Worker


def wait_task(ray: ModuleType) -> Any:
    @ray.remote
    @at_top
    def waits(path: str, *_after: Any) -> str:
        import time

        while not os.path.exists(path):
            time.sleep(0.01)
        return path

    return waits


# ------------------------------------------------------------------------------------------------ actors
def test_actors_are_listed_with_class_name_state_and_pid(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    cls = worker_class(session)
    named, other = cls.options(name="joe", num_cpus=1).remote(), cls.remote()
    pids = session.get([named.pid.remote(), other.pid.remote()])
    eventually(lambda: len(state.list_actors(filters=[("state", "=", "ALIVE")])) == 2)
    rows = {row.actor_id: row for row in state.list_actors()}
    row = rows[named._actor_id.hex()]
    assert (row.class_name, row.state, row.name, row.pid) == ("Worker", "ALIVE", "joe", pids[0])
    assert row["state"] == row.state
    assert rows[other._actor_id.hex()].name == ""
    assert row.node_id == session.get_runtime_context().get_node_id()
    assert row.job_id == session.get_runtime_context().get_job_id()
    # Details are there only with `detail`.
    assert row.required_resources is None
    detailed = state.get_actor(named._actor_id.hex())
    assert (detailed.required_resources, detailed.num_restarts, detailed.is_detached) == ({"CPU": 1.0}, 0, False)
    assert detailed.death_cause is None
    assert set(row.asdict()) >= {"actor_id", "class_name", "state", "pid"}


def test_a_killed_actor_stays_listed_as_dead(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    actor = worker_class(session).remote()
    pid = session.get(actor.pid.remote())
    session.kill(actor)
    eventually(lambda: [row.state for row in state.list_actors()] == ["DEAD"])
    (row,) = state.list_actors(detail=True)
    assert row.pid == pid
    assert "ray.kill" in str(row.death_cause)
    eventually(lambda: [row.pid for row in state.list_workers(filters=[("is_alive", "=", False), ("pid", "=", pid)])] == [pid])


def test_the_values_of_variables_are_not_shown(session: ModuleType, state: ModuleType, engine: str) -> None:
    def texts() -> str:
        told = [list_(detail=True) for list_ in (state.list_actors, state.list_tasks, state.list_workers, state.list_jobs)]
        if engine == "mray":
            told.append(observer.ask_node(session_directory(), "snapshot", 30))
        return repr(told)

    options: Any = {"num_cpus": 0, "runtime_env": {"env_vars": {"TOKEN": "swordfish"}}}
    actor = worker_class(session).options(**options).remote()
    assert session.get(wait_task(session).options(**options).remote("/")) == "/"
    session.get(actor.pid.remote())
    (row,) = state.list_actors(detail=True)
    shown = json.loads(row.serialized_runtime_env)["env_vars"]
    assert shown == {"TOKEN": "<redacted>" if engine == "mray" else "swordfish"}  # Ray: only to browsers
    assert ("swordfish" in texts()) == (engine != "mray")
    session.kill(actor)
    assert "TOKEN" in texts()
    assert ("swordfish" in texts()) == (engine != "mray")


def test_the_class_of_an_actor_has_the_name_of_where_it_was_made(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    @session.remote(num_cpus=0)
    class Inner:
        async def pid(self) -> int:
            return os.getpid()

    here = "test_the_class_of_an_actor_has_the_name_of_where_it_was_made.<locals>.Inner"
    actor = Inner.remote()
    session.get(actor.pid.remote())
    eventually(lambda: [row.class_name for row in state.list_actors(filters=[("class_name", "=", here)])] == [here])
    assert Inner.__ray_metadata__.class_name == here
    assert repr(actor) == f"Actor({here}, {actor._actor_id.hex()})"
    assert list(state.summarize_actors()["cluster"]["summary"]) == [here]
    # Calls are named after the class alone.
    names = ["Inner.__init__", "Inner.pid"]
    eventually(lambda: sorted(row.func_or_class_name for row in state.list_tasks()) == names)
    assert sorted(row.name for row in state.list_tasks()) == names
    session.kill(actor)
    with pytest.raises(session.exceptions.ActorDiedError, match=f"class_name: {here}"):
        session.get(actor.pid.remote())


def test_an_actor_whose_arguments_are_missing_or_that_finds_no_room_is_not_alive(
    session: ModuleType, state: ModuleType, eventually: Eventually, tmp_path: Any
) -> None:
    @session.remote
    @at_top
    class Takes:
        def __init__(self, value: Any = None) -> None:
            self.value = value

    hog = worker_class(session).options(num_cpus=2).remote()
    session.get(hog.pid.remote())
    late = wait_task(session).options(num_cpus=0).remote(str(tmp_path / "go"))
    unready, waiting = Takes.options(num_cpus=0).remote(late), Takes.options(num_cpus=1).remote()
    expected = {unready._actor_id.hex(): "DEPENDENCIES_UNREADY", waiting._actor_id.hex(): "PENDING_CREATION"}
    eventually(lambda: {row.actor_id: row.state for row in state.list_actors(filters=[("class_name", "=", "Takes")])} == expected)
    (tmp_path / "go").touch()
    eventually(lambda: state.get_actor(unready._actor_id.hex()).state == "ALIVE")


def test_filters_compare_texts_without_regard_to_case(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    cls = worker_class(session)
    first, second = cls.options(name="first").remote(), cls.remote()
    pid, _other = session.get([first.pid.remote(), second.pid.remote()])
    eventually(lambda: len(state.list_actors(filters=[("state", "=", "alive")])) == 2)
    assert [row.name for row in state.list_actors(filters=[("name", "=", "FIRST")])] == ["first"]
    assert [row.name for row in state.list_actors(filters=[("name", "!=", "first")])] == [""]
    assert [row.name for row in state.list_actors(filters=[("pid", "=", str(pid))])] == ["first"]
    assert [row.name for row in state.list_actors(filters=[("pid", "=", pid), ("state", "!=", "DEAD")])] == ["first"]
    assert state.list_actors(filters=[("state", "!=", "ALIVE")]) == []
    assert len(state.list_actors(limit=1)) == 1


def test_filters_by_type_of_error_are_about_what_failed(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    @session.remote(max_retries=0)
    @at_top
    def job(fails: bool) -> None:
        if fails:
            raise ValueError("on purpose")

    well, failed = job.remote(False), job.remote(True)
    session.wait([well, failed], num_returns=2)
    eventually(lambda: {row.state for row in state.list_tasks()} == {"FINISHED", "FAILED"})

    def states(*filters: tuple[str, str, str]) -> list[str]:
        return [row.state for row in state.list_tasks(filters=list(filters))]

    assert states(("error_type", "!=", "TASK_EXECUTION_EXCEPTION")) == []
    assert states(("error_type", "!=", "WORKER_DIED")) == ["FAILED"]
    assert len(states(("actor_id", "!=", "0" * 32))) == 2
    assert sorted(states(("name", "!=", "other"))) == ["FAILED", "FINISHED"]


def test_filters_that_make_no_sense_are_refused(session: ModuleType, state: ModuleType, engine: str) -> None:
    exceptions = importlib.import_module(f"{engine}.util.state.exception")
    actor = worker_class(session).remote()
    session.get(actor.pid.remote())
    with pytest.raises(ValueError, match="Unsupported filter predicate > is given. Available predicates: =, !="):
        state.list_actors(filters=[("state", ">", "ALIVE")])
    for words, filters in (
        ("filter column nonsense is not supported", [("nonsense", "=", "1")]),
        ("Invalid actor state for filtering: NONSENSE", [("state", "=", "NONSENSE")]),
        ("Failed to convert a value abc of type", [("pid", "=", "abc")]),
    ):
        with pytest.raises(exceptions.RayStateApiException, match=words):
            state.list_actors(filters=filters)
    with pytest.raises(exceptions.RayStateApiException, match="exceeds the supported limit 10000"):
        state.list_actors(limit=10_001)
    with pytest.warns(UserWarning, match="multiple '=' filters with the same key 'state'"):
        assert state.list_actors(filters=[("state", "=", "ALIVE"), ("state", "=", "DEAD")]) == []


def test_get_of_an_unknown_id_is_none_and_of_no_id_an_error(session: ModuleType, state: ModuleType, engine: str) -> None:
    exceptions = importlib.import_module(f"{engine}.util.state.exception")
    assert state.get_actor("0" * 32) is None
    assert not state.get_objects("0" * 56)
    with pytest.raises(exceptions.RayStateApiException, match="'0' cannot be the id of one of the actors" if engine == "mray" else ""):
        state.get_actor("0")
    with pytest.raises(exceptions.RayStateApiException, match="needs to have length 24"):
        state.get_task("00")


# ------------------------------------------------------------------------------------- tasks and objects
@pytest.mark.processes("what the garbage collector finds is everybody's")
def test_tasks_are_listed_with_the_state_they_are_in(session: ModuleType, state: ModuleType, eventually: Eventually, tmp_path: Any) -> None:
    waits, cls = wait_task(session), worker_class(session)
    go = str(tmp_path / "go")
    running = waits.options(num_cpus=2, name="runs").remote(go)
    queued = waits.options(num_cpus=1, name="queues").remote(go)
    unready = waits.options(num_cpus=1, name="lacks").remote(go, running)
    actor = cls.options(num_cpus=0).remote()
    session.get(actor.pid.remote())
    failed = actor.fail.remote()
    with pytest.raises(ValueError, match="on purpose"):
        session.get(failed)
    busy, behind = actor.wait_for.remote(go), actor.pid.remote()

    def states() -> dict[str, str]:
        return {row.task_id: row.state for row in state.list_tasks()}

    expected = {
        running.task_id().hex(): "RUNNING",
        queued.task_id().hex(): "PENDING_NODE_ASSIGNMENT",
        unready.task_id().hex(): "PENDING_ARGS_AVAIL",
        failed.task_id().hex(): "FAILED",
        busy.task_id().hex(): "RUNNING",
        behind.task_id().hex(): "SUBMITTED_TO_WORKER",
    }
    eventually(lambda: expected.items() <= states().items())
    row = state.get_task(busy)
    assert (row.name, row.func_or_class_name, row.type) == ("Worker.wait_for", "Worker.wait_for", "ACTOR_TASK")
    assert (row.actor_id, row.worker_pid) == (actor._actor_id.hex(), state.get_actor(actor._actor_id.hex()).pid)
    row = state.get_task(running.task_id().hex())
    assert (row.name, row.type, row.actor_id, row.required_resources) == ("runs", "NORMAL_TASK", None, {"CPU": 2.0})
    assert state.get_task(failed).error_type == "TASK_EXECUTION_EXCEPTION"
    assert [row.name for row in state.list_tasks(filters=[("state", "=", "RUNNING"), ("type", "=", "NORMAL_TASK")])] == ["runs"]
    (tmp_path / "go").touch()
    session.get([running, queued, unready, busy, behind])
    eventually(lambda: states().get(running.task_id().hex()) == "FINISHED")
    row = state.get_task(running)
    assert 0 <= row.end_time_ms - row.start_time_ms < 200_000


def test_failed_tasks_are_listed_with_what_they_failed_of(
    session: ModuleType, state: ModuleType, eventually: Eventually, tmp_path: Any
) -> None:
    ray = session
    waits, cls = wait_task(session), worker_class(session)
    dying = ray.remote(max_retries=0)(lambda: os._exit(27)).options(name="dies").remote()
    running = waits.options(num_cpus=2).remote(str(tmp_path / "go"))
    queued = waits.options(num_cpus=2, name="queues").remote(str(tmp_path / "go"))
    actor = cls.options(num_cpus=0).remote()
    ray.get(actor.pid.remote())
    raises = actor.fail.remote()
    with pytest.raises(ValueError, match="on purpose"):
        ray.get(raises)
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(dying)
    ray.cancel(queued)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(queued)
    actor_late = cls.options(num_cpus=0).remote()
    ray.kill(actor_late)
    late = actor_late.pid.remote()
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(late)

    def errors() -> dict[str, Any]:
        return {row.task_id: row.error_type for row in state.list_tasks(detail=True) if row.state == "FAILED"}

    expected = {
        raises.task_id().hex(): "TASK_EXECUTION_EXCEPTION",
        dying.task_id().hex(): "WORKER_DIED",
        queued.task_id().hex(): "TASK_CANCELLED",
        late.task_id().hex(): "ACTOR_DIED",
    }
    eventually(lambda: expected.items() <= errors().items())
    rows = {row.task_id: row for row in state.list_tasks(detail=True)}
    texts = {name: rows[name].error_message for name in expected}
    assert "ValueError: on purpose" in texts[raises.task_id().hex()]
    assert "exit code 27" in texts[dying.task_id().hex()]
    assert not texts[queued.task_id().hex()]
    assert rows[dying.task_id().hex()].name == "dies"
    (tmp_path / "go").touch()
    ray.get(running)


def test_the_parent_of_a_task_is_known_whatever_thread_has_made_it(
    session: ModuleType, state: ModuleType, eventually: Eventually, tmp_path: Any
) -> None:
    """In an actor that runs calls beside each other a thread belongs to none of them: its tasks are the constructor's."""
    ray = session
    waits, go = wait_task(ray), str(tmp_path / "go")

    class Parent:
        def beside(self, name: str) -> Any:
            refs: list[Any] = []
            thread = threading.Thread(target=lambda: refs.append(waits.options(num_cpus=0, name=name).remote(go)))
            thread.start()
            thread.join()
            return ray.get_runtime_context().get_task_id(), refs

    class Async(Parent):
        async def beside(self, name: str) -> Any:
            return Parent.beside(self, name)

    def rows_of(name: str) -> list[Any]:
        return [row for row in state.list_tasks(detail=True) if row.name == name]

    def parents_of(name: str) -> list[str]:
        return [row.parent_task_id for row in rows_of(name)]

    held = []
    for name, actor in (
        ("sync", ray.remote(Parent).remote()),
        ("threaded", ray.remote(Parent).options(max_concurrency=2).remote()),
        ("async", ray.remote(Async).remote()),
    ):
        task_id, refs = ray.get(actor.beside.remote(name))
        held.append((actor, refs))
        parent = task_id if name == "sync" else "f" * 16 + actor._actor_id.hex()
        eventually(lambda name=name, parent=parent: parents_of(name) == [parent])
    task_id, refs = ray.get(ray.remote(lambda: Parent().beside("task")).remote())
    held.append((None, refs))
    eventually(lambda: parents_of("task") == [task_id])
    own = waits.options(num_cpus=0, name="own").remote(go)
    eventually(lambda: parents_of("own") == ["f" * 40 + ray.get_runtime_context().get_job_id()])
    # In one process all make ids of one kind: who has made a call of the driver's is not seen once it is over.
    parents = {name: parents_of(name) for name in ("sync", "threaded", "async", "task", "own") if name != "own" or not LOCAL}
    (tmp_path / "go").touch()
    ray.get([own, *(ref for _actor, refs in held for ref in refs)])
    finished = [("FINISHED", parent) for [parent] in parents.values()]
    eventually(lambda: [(row.state, row.parent_task_id) for name in parents for row in rows_of(name)] == finished)


def test_the_error_of_a_call_is_listed_in_rays_words(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    ray = session
    cls = worker_class(session).options(num_cpus=0)
    leaves = ray.remote(max_retries=0)(lambda: sys.exit(27)).options(name="leaves").remote()
    ended, killed = cls.remote(), cls.remote()
    ray.get([ended.pid.remote(), killed.pid.remote()])
    left = ended.leave.remote(27)
    fails = killed.fail.remote()
    for ref, error in ((leaves, ray.exceptions.WorkerCrashedError), (left, ray.exceptions.ActorDiedError), (fails, ValueError)):
        with pytest.raises(error):
            ray.get(ref)
    ray.kill(killed)
    late = killed.pid.remote()
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(late)

    def texts() -> dict[str, str]:
        return {row.task_id: row.error_message for row in state.list_tasks(detail=True) if row.state == "FAILED"}

    expected = [ref.task_id().hex() for ref in (leaves, left, fails, late)]
    eventually(lambda: set(texts()) == set(expected))
    of_task, of_actor, of_error, of_killed = (texts()[task] for task in expected)
    assert of_task.startswith("UnexpectedSystemExit: Worker exits with an exit code 27.")
    assert of_actor.startswith("The actor is dead because its worker process has died.")
    assert "Worker exits with an exit code 27." in of_actor
    assert of_error.startswith("User exception:\nray::Worker.fail() (pid=")
    assert of_killed.startswith("The actor is dead because it was killed by `ray.kill`.")


def test_what_a_failed_task_was_outlives_its_worker(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    ray = session

    def fail() -> None:
        raise ValueError("on purpose")

    once = ray.remote(max_calls=1)(fail).options(name="once").remote()  # as with every task that has GPUs
    dying = ray.remote(max_retries=0)(lambda: os._exit(27)).options(name="dies").remote()
    well = ray.remote(max_calls=1)(lambda: None).options(name="well").remote()

    def generate() -> Iterator[int]:
        yield 1
        raise ValueError("on purpose")

    items = list(ray.remote(max_calls=1)(generate).options(name="generator").remote())
    for ref, error in ((once, ValueError), (dying, ray.exceptions.WorkerCrashedError), (items[1], ValueError)):
        with pytest.raises(error):
            ray.get(ref)
    ray.get(well)

    def rows() -> dict[str, Any]:
        return {row.name: row for row in state.list_tasks(detail=True)}

    expected = {"once": ("FAILED", "TASK_EXECUTION_EXCEPTION"), "dies": ("FAILED", "WORKER_DIED"), "well": ("FINISHED", None)}
    expected["generator"] = expected["once"]
    eventually(lambda: {name: (row.state, row.error_type) for name, row in rows().items()} == expected)
    found = rows()
    for name in ("once", "generator"):
        text = found[name].error_message
        assert text.startswith(f"User exception:\nray::{name}() (pid=")
        assert "ValueError: on purpose" in text
    assert found["once"].required_resources == {"CPU": 1.0}
    assert {row.parent_task_id for row in found.values()} == {"f" * 40 + ray.get_runtime_context().get_job_id()}
    workers = {name: row.worker_id for name, row in found.items()}
    eventually(lambda: all(state.get_worker(worker) is not None and not state.get_worker(worker).is_alive for worker in workers.values()))
    assert state.get_worker(workers["dies"]).exit_type == "SYSTEM_ERROR"


def test_the_call_that_ends_its_actor_has_finished_and_the_actor_is_dead_of_it(
    session: ModuleType, state: ModuleType, eventually: Eventually
) -> None:
    ray = session

    class Leaving:
        def start(self) -> Any:
            return ray.get(ray.remote(num_cpus=0)(lambda: 7).options(name="of the leaving").remote())

        def leave(self) -> None:
            ray.actor.exit_actor()

    actor = ray.remote(num_cpus=0)(Leaving).options(name="it leaves").remote()
    assert ray.get(actor.start.remote()) == 7
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.leave.remote())
    wanted = {"it leaves:Leaving.__init__", "Leaving.start", "Leaving.leave", "of the leaving"}

    def states() -> list[tuple[str, str, Any]]:
        return sorted((row.name, row.state, row.error_type) for row in state.list_tasks(detail=True) if row.name in wanted)

    eventually(lambda: states() == [(name, "FINISHED", None) for name in sorted(wanted)])
    [row] = [row for row in state.list_actors(detail=True) if row.name == "it leaves"]
    assert row.state == "DEAD" and "exit_actor()" in str(row.death_cause)


def test_tasks_that_are_over_say_what_they_held(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    @session.remote
    def task() -> None:
        """Does nothing."""

    @session.remote(max_calls=1)
    def leave() -> None:
        """Its worker ends."""

    @session.remote(max_retries=0)
    def fail() -> None:
        raise ValueError("on purpose")

    @session.remote
    def produce() -> Any:
        yield 1

    class Worker:
        def method(self) -> None:
            """Does nothing."""

    actor = session.remote(num_cpus=1)(at_top(Worker)).remote()
    beside = session.remote(max_concurrency=2)(at_top(Worker)).remote()
    refs = [
        task.options(name="by default").remote(),
        task.options(name="without", num_cpus=0).remote(),
        task.options(name="with more", num_cpus=0.5, memory=1000).remote(),
        leave.options(name="gone", num_cpus=0.25).remote(),
        actor.method.options(name="method").remote(),
        beside.method.options(name="beside").remote(),
        *produce.options(name="generator").remote(),
    ]
    session.get(refs)
    for failing in (fail.options(name="failed", num_cpus=0.5), fail.options(name="never", num_cpus=1000)):
        session.wait([failing.remote()], timeout=1)
    expected = {
        "by default": {"CPU": 1.0},
        "without": {},
        "with more": {"CPU": 0.5, "memory": 1000.0},
        "gone": {"CPU": 0.25},
        "method": {},
        "beside": {},
        "generator": {"CPU": 1.0},
        "failed": {"CPU": 0.5},
        "never": {"CPU": 1000.0},
    }
    eventually(lambda: {row.name: row.required_resources for row in state.list_tasks(detail=True) if row.name in expected} == expected)
    (row,) = state.list_tasks(filters=[("name", "=", "with more")])
    assert row.required_resources is None
    assert state.get_task(row.task_id).required_resources == expected["with more"]


def test_a_method_is_named_after_its_instance_and_its_class(
    session: ModuleType, state: ModuleType, eventually: Eventually, tmp_path: Any
) -> None:
    ray = session

    class Named:
        def __repr__(self) -> str:
            return "its-name"

        def pid(self) -> int:
            return os.getpid()

        def fail(self) -> None:
            raise ValueError("on purpose")

        def wait_for(self, path: str) -> None:
            while not os.path.exists(path):
                time.sleep(0.01)

    actor = ray.remote(at_top(Named)).options(num_cpus=0, max_concurrency=2).remote()
    ray.get([actor.pid.remote(), actor.pid.options(name="chosen").remote()])
    for failing in (actor.fail.remote(), actor.fail.options(name="killed").remote()):
        with pytest.raises(ValueError, match="on purpose"):
            ray.get(failing)
    waiting = [actor.wait_for.remote(str(tmp_path / "go")) for _ in range(3)]

    def rows() -> set[tuple[str, str, str]]:
        return {(row.name, row.func_or_class_name, row.state) for row in state.list_tasks() if row.type == "ACTOR_TASK"}

    expected = {
        ("its-name.pid", "Named.pid", "FINISHED"),
        ("chosen", "Named.pid", "FINISHED"),
        ("its-name.fail", "Named.fail", "FAILED"),
        ("killed", "Named.fail", "FAILED"),
        ("its-name.wait_for", "Named.wait_for", "RUNNING"),
        ("Named.wait_for", "Named.wait_for", "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY"),
    }
    eventually(lambda: rows() == expected)
    for word, count in (("PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY", 1), ("RUNNING_IN_RAY_GET", 0), ("NIL", 0)):
        eventually(lambda word=word, count=count: len(state.list_tasks(filters=[("state", "=", word)])) == count)
    (tmp_path / "go").touch()
    ray.get(waiting)


def test_the_constructor_of_an_actor_is_a_task(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    actor = worker_class(session).remote()
    session.get(actor.pid.remote())
    filters = [("type", "=", "ACTOR_CREATION_TASK")]
    eventually(lambda: [row.state for row in state.list_tasks(filters=filters)] == ["FINISHED"])
    (row,) = state.list_tasks(filters=filters)
    assert row.func_or_class_name == "Worker.__init__"
    assert (row.actor_id, row.task_id) == (actor._actor_id.hex(), "f" * 16 + actor._actor_id.hex())
    assert row.parent_task_id == "f" * 40 + session.get_runtime_context().get_job_id()

    @session.remote
    class Asks:
        def __init__(self) -> None:
            self.task_id = session.get_runtime_context().get_task_id()

        def what(self) -> str | None:
            return self.task_id

    asks = Asks.remote()
    assert session.get(asks.what.remote()) == "f" * 16 + asks._actor_id.hex()


@pytest.mark.processes("what the garbage collector finds is everybody's")
def test_objects_are_listed_with_size_and_kind_of_reference(
    session: ModuleType, state: ModuleType, eventually: Eventually, tmp_path: Any
) -> None:
    waits = wait_task(session)
    large, argument = session.put(b"x" * 200_000), session.put(1)
    pending = waits.remote(str(tmp_path / "go"))
    user = waits.remote(str(tmp_path / "go"), argument, pending)
    actor = worker_class(session).remote()

    def kinds() -> dict[str, str]:
        return {row.object_id: row.reference_type for row in state.list_objects()}

    expected = {large.hex(): "LOCAL_REFERENCE", pending.hex(): "USED_BY_PENDING_TASK", user.hex(): "LOCAL_REFERENCE"}
    eventually(lambda: expected.items() <= kinds().items())
    (row,) = state.get_objects(large.hex())
    assert 200_000 < row.object_size < 201_000
    assert (row.task_status, row.type, row.pid) == ("FINISHED", "DRIVER", os.getpid())
    (row,) = state.get_objects(pending.hex())
    assert row.object_size == -1
    assert "ACTOR_HANDLE" in kinds().values()
    before = large.hex()
    del large
    eventually(lambda: before not in kinds())
    (tmp_path / "go").touch()
    session.get(user)
    del actor


# -------------------------------------------------------------------------- workers, node, job, the rest
def test_the_driver_is_a_worker_and_a_job(session: ModuleType, state: ModuleType) -> None:
    (driver,) = state.list_workers(filters=[("worker_type", "=", "DRIVER")], detail=True)
    assert (driver.pid, driver.is_alive, driver.exit_type) == (os.getpid(), True, None)
    (job,) = state.list_jobs()
    assert (job.job_id, str(job.status).rpartition(".")[2], str(job.type).rpartition(".")[2]) == ("01000000", "RUNNING", "DRIVER")


def test_the_node_is_listed_with_its_resources(session: ModuleType, state: ModuleType) -> None:
    (node,) = state.list_nodes(address=session.get_runtime_context().gcs_address, detail=True)
    assert (node.state, node.is_head_node) == ("ALIVE", True)
    assert node.node_id == session.get_runtime_context().get_node_id()
    assert node.resources_total["CPU"] == 2.0
    assert node.start_time_ms > 1_600_000_000_000
    assert state.get_node(node.node_id).node_id == node.node_id
    assert state.list_placement_groups() == []


def test_placement_groups_are_listed_with_their_bundles(session: ModuleType, state: ModuleType) -> None:
    group = session.util.placement_group([{"CPU": 1}, {"CPU": 1}], name="listed")
    assert group.wait(30)
    (listed,) = state.list_placement_groups(detail=True, filters=[("name", "=", "listed")])
    assert (listed.placement_group_id, listed.state, listed.is_detached) == (group.id.hex(), "CREATED", False)
    assert [bundle["unit_resources"] for bundle in listed.bundles] == [{"CPU": 1}, {"CPU": 1}]
    session.util.remove_placement_group(group)
    assert state.get_placement_group(group.id.hex()).state == "REMOVED"


@pytest.mark.processes("what the garbage collector finds is everybody's")
def test_summaries_count_by_class_name_and_state(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    cls = worker_class(session)
    actors = [cls.remote() for _ in range(3)]
    session.get([actor.pid.remote() for actor in actors])
    held = session.put(b"x" * (1 << 20))
    expected = {"class_name": "Worker", "state_counts": {"ALIVE": 3}}
    eventually(lambda: state.summarize_actors()["cluster"]["summary"] == {"Worker": expected})
    assert state.summarize_actors()["cluster"]["total_actors"] == 3
    eventually(lambda: state.summarize_tasks()["cluster"]["total_actor_tasks"] == 3)
    tasks = state.summarize_tasks()["cluster"]
    assert tasks["summary"]["Worker.pid"] == {"func_or_class_name": "Worker.pid", "type": "ACTOR_TASK", "state_counts": {"FINISHED": 3}}
    assert (tasks["total_tasks"], tasks["total_actor_scheduled"]) == (0, 3)
    eventually(lambda: 1.0 <= state.summarize_objects()["cluster"]["total_size_mb"] < 1.1)
    del held


# ------------------------------------------------------------------------------------------- mray's own
def test_a_client_asks_by_kind(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    common = importlib.import_module(f"{state.__name__}.common")
    worker = worker_class(session).remote()
    session.get(worker.pid.remote())
    client, kinds = state.StateApiClient(), common.StateResource
    alive = common.ListApiOptions(filters=[("state", "=", "alive")], limit=5)
    eventually(lambda: len(client.list(kinds.ACTORS, alive, raise_on_missing_output=True)) == 1)
    (actor,) = client.list(kinds.ACTORS, alive, True)
    assert (actor.class_name, actor.death_cause) == ("Worker", None)
    assert client.get(kinds.ACTORS, actor.actor_id, common.GetApiOptions()).pid == session.get(worker.pid.remote())
    assert client.get(kinds.ACTORS, "0" * 32, common.GetApiOptions()) is None
    (node,) = client.list(kinds.NODES, common.ListApiOptions(detail=True), raise_on_missing_output=True)
    assert client.get(kinds.NODES, node.node_id, common.GetApiOptions()).node_id == node.node_id
    summary = client.summary(common.SummaryResource.ACTORS, options=common.SummaryApiOptions(), raise_on_missing_output=True)
    assert summary == state.summarize_actors()
    assert summary["cluster"]["summary"]["Worker"]["state_counts"] == {"ALIVE": 1}


def test_what_a_client_cannot_be_asked(session: ModuleType, state: ModuleType, engine: str) -> None:
    common = importlib.import_module(f"{state.__name__}.common")
    with pytest.raises(ValueError, match="Unsupported filter predicate <"):
        common.ListApiOptions(filters=[("state", "<", "ALIVE")])
    client = state.StateApiClient()
    with pytest.raises(ValueError, match="Can't get RUNTIME_ENVS by id"):
        client.get(common.StateResource.RUNTIME_ENVS, "0" * 32, common.GetApiOptions())
    if engine == "mray":
        with pytest.raises(NotImplementedError, match="mray lists no runtime envs"):
            client.list(common.StateResource.RUNTIME_ENVS, common.ListApiOptions(), raise_on_missing_output=True)


@pytest.mark.processes("what one process prints goes to no file")
def test_a_log_is_read_by_task_without_colours(session: ModuleType, state: ModuleType, engine: str, eventually: Eventually) -> None:
    common = importlib.import_module(f"{state.__name__}.common")

    @session.remote
    def colourful() -> str:
        print("10%\r20%\r\x1b[31mred\x1b[0m and plain")
        return str(session.get_runtime_context().get_task_id())

    task = session.get(colourful.remote())

    def lines(**options: Any) -> list[str]:
        try:
            return [line.rstrip("\n") for text in state.get_log(task_id=task, **options) for line in text.splitlines()]
        except (common_error, FileNotFoundError):  # it is not there yet
            return []

    common_error = importlib.import_module(f"{state.__name__}.exception").RayStateApiException
    eventually(lambda: "\x1b[31mred\x1b[0m and plain" in lines())
    assert {"10%", "red and plain"} <= set(lines(filter_ansi_code=True))
    assert common.remove_ansi_escape_codes("a\x1b[1;31mb\x1b[0mc") == "abc"
    with pytest.raises(common_error):
        list(state.get_log(task_id=task, attempt_number=7))
    if engine == "mray":
        assert b"10%\r20%\rred and plain\n" in list(state.get_log(task_id=task, filter_ansi_code=True, encoding=None))
        assert b"red and plain\n" in list(state.get_log(task_id=task, filter_ansi_code=True, encoding=None, tail=1))
        assert list(state.get_log(task_id=task, tail=0)) == []
        with pytest.raises(common_error, match="nothing is submitted"):
            list(state.get_log(submission_id="raysubmit_1"))
        with pytest.raises(NotImplementedError, match=r"get_log\(follow=True\): use `mray logs --follow`"):
            list(state.get_log(task_id=task, follow=True))


@pytest.mark.only("mray")
def test_graphs_and_their_channels_are_listed(session: ModuleType, state: ModuleType, eventually: Eventually, tmp_path: Any) -> None:
    @session.remote
    class Stage:
        def step(self, value: str) -> str:
            while value.startswith("/") and not os.path.exists(value):
                time.sleep(0.005)
            return value

    first, second = Stage.remote(), Stage.remote()
    with session.dag.InputNode() as value:
        dag = second.step.bind(first.step.bind(value))
    graph = dag.experimental_compile()
    for number in range(5):
        assert session.get(graph.execute(str(number))) == str(number)
    executions = {first._actor_id.hex(): 5, second._actor_id.hex(): 5}
    eventually(lambda: state.list_graphs(detail=True)[0].executions == executions)  # an actor counts after it has handed its value on
    (row,) = state.list_graphs(detail=True)
    assert (row.graph_id, row.state, row.submitted, row.finished, row.in_flight) == (graph.get_id(), "ALIVE", 5, 5, 0)
    assert set(row.actors.values()) == {"Stage"}
    assert row.executions == executions
    channels = state.list_channels()
    names = [f"Stage({actor._actor_id.hex()[:8]})" for actor in (first, second)]
    assert [(row.source, row.writer, row.readers) for row in channels] == [
        ("input", "driver", [names[0]]),
        ("step()", names[0], [names[1]]),
        ("step()", names[1], ["driver"]),
    ]
    assert [(row.written, row.waiting, row.transport) for row in channels] == [(5, 0, "shm")] * 3

    # The second actor waits for the first one, which computes.
    ref = graph.execute(str(tmp_path / "go"))
    eventually(lambda: "computes step()" in state.get_graph(graph.get_id()).waits)
    row = state.get_graph(graph.get_id())
    assert row.in_flight == 1
    assert f"{names[1]} for {names[0]} (READ)" in row.waits
    (tmp_path / "go").touch()
    session.get(ref)
    graph.teardown()
    assert state.list_graphs() == []


@pytest.mark.only("mray")
def test_a_task_may_ask_too(session: ModuleType, state: ModuleType) -> None:
    @session.remote
    def asks() -> tuple[list[str], list[str]]:
        from mray.util.state import list_tasks, list_workers

        kept = __import__("mray").put(1)
        running = [row.name for row in list_tasks(filters=[("state", "=", "RUNNING")])]
        return running, [row.worker_type for row in list_workers(filters=[("is_alive", "=", True)]) if kept]

    running, kinds = session.get(asks.remote())
    assert running == ["asks"]
    assert kinds.count("DRIVER") == 1
    assert "WORKER" in kinds


@pytest.mark.only("mray")
def test_a_node_that_does_not_answer_is_waited_for_no_longer_than_was_said(session: ModuleType, state: ModuleType) -> None:
    from mray._api.current import current_backend
    from mray.util.state.exception import RayStateApiException

    node = current_backend().client.info["node_pid"]
    os.kill(node, signals.SIGSTOP)
    try:
        with pytest.raises(RayStateApiException, match="did not answer within 1 s"):
            state.list_actors(timeout=1)
    finally:
        os.kill(node, signals.SIGCONT)
    assert state.list_actors() == []


@pytest.mark.only("mray")
def test_a_stopped_process_costs_its_own_rows_only(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    from mray.util.state.exception import RayStateApiException

    cls = worker_class(session)
    well, stopped = cls.remote(), cls.remote()
    pids = session.get([well.pid.remote(), stopped.pid.remote()])
    os.kill(pids[1], signals.SIGSTOP)
    try:
        # The node knows the actors by itself.
        assert [row.state for row in state.list_actors()] == ["ALIVE", "ALIVE"]
        with pytest.raises(RayStateApiException, match=f"worker of pid {pids[1]} does not answer within 1 s: it is stopped"):
            state.list_tasks(timeout=1)
        with pytest.warns(UserWarning, match="Not every process has answered"):
            rows = state.list_tasks(timeout=1, raise_on_missing_output=False)
        assert {row.worker_pid for row in rows if row.name == "Worker.pid"} <= {pids[0]}
    finally:
        os.kill(pids[1], signals.SIGCONT)
    assert session.get(stopped.pid.remote()) == pids[1]
    eventually(lambda: len([row for row in state.list_tasks() if row.name == "Worker.pid"]) == 3)


@pytest.mark.only("mray")
def test_a_process_that_computes_answers_all_the_same(
    session: ModuleType, state: ModuleType, eventually: Eventually, tmp_path: Any
) -> None:
    actor = worker_class(session).remote()
    ref = actor.wait_for.remote(str(tmp_path / "go"))
    eventually(lambda: state.get_actor(actor._actor_id.hex()).current_task == "Worker.wait_for")
    behind = [actor.pid.remote() for _ in range(3)]
    eventually(lambda: state.get_actor(actor._actor_id.hex()).num_queued == 3)
    (tmp_path / "go").touch()
    session.get([ref, *behind])
    eventually(lambda: state.get_actor(actor._actor_id.hex()).num_finished == 4)


@pytest.mark.only("mray")
def test_an_observer_may_only_look(session: ModuleType, state: ModuleType) -> None:
    """After any other message the node sends it the reason, hangs up, and goes on."""
    from mray._common import messages as m
    from mray._ipc.connection import connect, encode
    from mray._ipc.frames import decode_message

    actor = worker_class(session).remote()
    session.get(actor.pid.remote())
    directory = session._api.current.backend_if_started().info()["session_dir"]
    for message in ((m.SHUTDOWN,), (m.ACTOR_KILL, 0, actor._actor_id.binary(), True), (m.MAKE_ROOM, 1), ("nonsense",)):
        with connect(os.path.join(directory, "node.sock")) as sock:
            sock.sendall(encode((m.HELLO, m.ROLE_OBSERVER, "", os.getpid())) + encode(message))
            with sock.makefile("rb") as answer:
                told = answer.read()
        assert decode_message(told[4:])[0] == m.PROTOCOL_ERROR
    assert [row.state for row in state.list_actors()] == ["ALIVE"]
    assert session.get(actor.pid.remote())


@pytest.mark.only("mray")
def test_asking_leaves_no_trace_in_those_who_are_asked(session: ModuleType, state: ModuleType, eventually: Eventually) -> None:
    @session.remote
    class Curious:
        def traces(self) -> list[set[Any]]:
            from mray._api.current import backend_if_started

            backend = backend_if_started()
            client: Any = backend.client
            return [set(client.peers), set(client.reactor._callbacks), set(backend.host().service._gone)]

    actor = Curious.remote()
    before = session.get(actor.traces.remote())
    program = "from mray.util import state; [state.list_tasks() for _ in range(5)]; state.list_objects(); state.list_graphs()"
    subprocess.run([sys.executable, "-c", program], check=True)
    eventually(lambda: all(now <= then for now, then in zip(session.get(actor.traces.remote()), before, strict=True)))


@pytest.mark.only("mray")
def test_what_is_too_much_is_counted(session: ModuleType, state: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mray._runtime.connections.part.MOST_ROWS", 2)
    refs = [session.put(number) for number in range(5)]
    with pytest.warns(UserWarning, match=f"pid {os.getpid()} has 5 objects and tells of 2"):
        assert len(state.list_objects()) == 2
    assert len(refs) == 5


@pytest.mark.only("mray")
def test_the_largest_objects_and_the_first_by_id_are_found_among_more_than_are_told_of(
    session: ModuleType, state: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mray.util.state.api import look

    monkeypatch.setattr("mray._runtime.connections.part.MOST_ROWS", 3)
    refs = [session.put(b"x" * 1000 * (1 + number % 7)) for number in range(20)]
    found, total = look(session_directory()).largest_objects(3)
    assert total == 20
    assert [row.object_size // 1000 for row in found] == [7, 7, 6]
    assert [row.object_id for row in state.list_objects(limit=3)] == sorted(ref.hex() for ref in refs)[:3]


@pytest.mark.only("mray")
def test_another_process_finds_the_session_by_itself(session: ModuleType, state: ModuleType) -> None:
    actor = worker_class(session).options(name="joe").remote()
    session.get(actor.pid.remote())
    program = "from mray.util.state import list_actors; print([row.name for row in list_actors()])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "['joe']\n"
    session.shutdown()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ServerUnavailable: No session of this user is running." in done.stderr


@pytest.mark.only("mray")  # Ray lists tasks in no order
def test_what_is_over_is_listed_last_and_a_dead_actor_constructs_nothing(
    session: ModuleType, state: ModuleType, eventually: Eventually, kill_and_wait: Callable[[Any], None]
) -> None:
    ray = session

    @ray.remote
    class Sleeper:
        def sleep_on(self) -> None:
            time.sleep(1000)

    @ray.remote
    def over() -> None:
        return None

    ray.get([over.remote() for _ in range(150)])
    dead, living = Sleeper.remote(), Sleeper.remote()
    ray.get([dead.__ray_ready__.remote(), living.__ray_ready__.remote()])
    ref = living.sleep_on.remote()
    kill_and_wait(dead)
    eventually(lambda: [row.state for row in state.list_tasks(limit=20) if row.name == "Sleeper.sleep_on"] == ["RUNNING"])
    states = [row.state for row in state.list_tasks(limit=10_000)]
    first_over = next(place for place, word in enumerate(states) if word in ("FINISHED", "FAILED"))
    assert set(states[first_over:]) <= {"FINISHED", "FAILED"}
    constructors = state.list_tasks(filters=[("name", "=", "Sleeper.__init__")], limit=10_000)
    assert {row.state for row in constructors} == {"FINISHED"}
    del ref
    ray.kill(living)


@pytest.mark.only("mray")  # Ray lists tasks in no order
def test_the_newest_of_what_is_over_is_listed_first_and_failures_stay_for_longer(
    session: ModuleType, state: ModuleType, eventually: Eventually
) -> None:
    ray = session

    @ray.remote
    def fine(number: int) -> int:
        return number

    @ray.remote(max_retries=0)
    def fails(word: str) -> None:
        raise ValueError(word)

    def fail(word: str) -> None:
        with pytest.raises(ValueError, match=word):
            ray.get(fails.remote(word))

    def texts(limit: int) -> list[str]:
        rows = state.list_tasks(limit=limit, detail=True)
        return [word for row in rows for word in ("old", "new") if row.name == "fails" and word in (row.error_message or "")]

    fail("old")
    ray.get([fine.remote(number) for number in range(300)])
    fail("new")
    eventually(lambda: texts(100) == ["new", "old"])  # the old one has the place of a success
    ray.get([fine.remote(number) for number in range(300)])
    eventually(lambda: state.list_tasks(limit=1)[0].name == "fine")
    assert texts(100) == ["new", "old"] and len(state.list_tasks(limit=100)) == 100
    assert texts(2) == ["new"]
    over = [
        row.end_time_ms for row in state.list_tasks(limit=10_000, detail=True) if row.state in ("FINISHED", "FAILED") and row.end_time_ms
    ]
    assert over == sorted(over, reverse=True)


@pytest.mark.only("mray")  # the commands look from another process
def test_a_worker_is_shown_with_the_task_that_it_runs_and_not_with_the_first_of_its_lease(
    session: ModuleType, state: ModuleType, tmp_path: Path, eventually: Eventually
) -> None:
    from mray.cli.commands.stack import processes_of
    from mray.cli.samples import take
    from mray.util.state.api import look
    from mray.util.state.common import WorkerState

    # The same resources and environment: both run in what was leased for the first.
    @session.remote
    def earlier() -> bytes:
        return session.get_runtime_context().get_worker_id()

    @session.remote
    def later() -> bytes:
        (tmp_path / "begun").touch()
        while not (tmp_path / "end").exists():
            time.sleep(0.01)
        return session.get_runtime_context().get_worker_id()

    def shown() -> dict[str, list[str]]:
        view = look(session_directory(None), 30)
        return {
            "list workers, memory": [row.occupant for row in view.records(WorkerState) if row.occupant],
            "top": [process.occupant for process in take(view).processes if process.occupant],
            "stack": [row["occupant"] for row in processes_of(view) if row["occupant"]],
        }

    first = session.get(earlier.remote())
    ref = later.remote()
    eventually((tmp_path / "begun").exists)
    found = shown()
    (tmp_path / "end").touch()
    assert session.get(ref) == first
    assert found == {command: ["task later"] for command in found}
