"""`timeline`: what ran when, as events of a Chrome trace."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest


def slices(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


def found(ray: Any, wait_until: Any, *categories: str) -> list[dict[str, Any]]:
    """The events, once there are some of these categories: Ray brings them with some delay."""
    events: list[dict[str, Any]] = []

    def there() -> bool:
        events[:] = ray.timeline()
        return all(slices(events, category) for category in categories)

    wait_until(there)
    return events


@pytest.fixture
def ran(ray_session):
    """A task and a method that have run."""
    ray = ray_session

    @ray.remote
    def work(value):
        return value

    @ray.remote(num_cpus=0)
    class Actor:
        def method(self):
            return os.getpid()

    actor = Actor.remote()
    ray.get([work.remote(1), actor.method.remote()])
    return ray, actor


def test_tasks_and_methods_are_slices_with_their_names(ran, eventually) -> None:
    ray, _actor = ran
    events = found(ray, eventually, "task::work", "task::Actor.method")
    for event in slices(events, "task::work") + slices(events, "task::Actor.method"):
        assert {"ph", "cat", "name", "pid", "tid", "ts", "dur", "cname", "args"} <= event.keys()
        assert event["dur"] > 0
        assert len(event["args"]["task_id"]) == 48


def test_a_file_has_the_list_of_events(ran, eventually, tmp_path: Path) -> None:
    ray, _actor = ran
    found(ray, eventually, "task::work")
    assert ray.timeline(str(tmp_path / "trace.json")) is None
    events = json.loads((tmp_path / "trace.json").read_text())
    assert slices(events, "task::work")


def test_there_is_none_before_a_session(fresh) -> None:
    with pytest.raises(RuntimeError, match="Timeline requires Ray to be initialized first"):
        fresh.timeline()


@pytest.mark.only("mray")
def test_calls_of_one_worker_follow_each_other_in_the_order_of_submission(ran, eventually) -> None:
    ray, actor = ran
    refs = [actor.method.options(name=f"call {number}").remote() for number in range(20)]
    pid = ray.get(refs)[0]

    def ended() -> list[dict[str, Any]]:
        return [event for event in ray.timeline() if event["ph"] == "X" and event["pid"] == pid]

    # A call that is answered may not have ended yet.
    eventually(lambda: any(event["name"] == "call 19" for event in ended()))
    own = sorted(ended(), key=lambda event: event["ts"])
    assert [event["name"] for event in own if event["name"].startswith("call ")] == [f"call {number}" for number in range(20)]
    assert all(first["ts"] + first["dur"] <= second["ts"] + 0.001 for first, second in itertools.pairwise(own))
    assert [event["args"]["task_id"] for event in own][-20:] == [ref.task_id().hex() for ref in refs]


def test_tasks_of_workers_that_have_left_are_there(ran, eventually) -> None:
    ray, _actor = ran

    @ray.remote(max_calls=1)
    def once():
        return os.getpid()

    pids = ray.get([once.remote() for _ in range(3)])
    assert len(set(pids)) == 3
    eventually(lambda: len(slices(ray.timeline(), "task::once")) == 3)


@pytest.mark.processes("who computes holds up everybody")
@pytest.mark.only("mray")
def test_a_worker_that_has_died_is_said_to_be_missing(ran, eventually) -> None:
    ray, actor = ran
    ray.kill(actor)

    def told() -> bool:
        about = next(event for event in ray.timeline() if event["name"] == "mray")
        return "has ended" in about["args"]["lost"].values()

    eventually(told)


@pytest.mark.processes("who computes holds up everybody")
@pytest.mark.only("mray")
def test_the_timeline_answers_while_workers_compute(ray_session, tmp_path: Path) -> None:
    ray = ray_session
    gate = tmp_path / "gate"

    @ray.remote(num_cpus=0)
    class Busy:
        def ready(self):
            return True

        def wait(self):
            while not gate.exists():
                pass

    busy = Busy.remote()
    ray.get(busy.ready.remote())
    waiting = busy.wait.remote()
    try:
        assert slices(ray.timeline(), "task::Busy.ready")
    finally:
        gate.touch()
    ray.get(waiting)


@pytest.mark.only("mray")
@pytest.mark.usefixtures("ran")
def test_the_command_writes_the_trace_of_a_running_session(tmp_path: Path) -> None:
    output = tmp_path / "trace.json"
    command = [sys.executable, "-m", "mray", "timeline", "--output", str(output), "--session", str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    assert slices(document["traceEvents"], "task::work")
    assert document["otherData"]["clock"].startswith("CLOCK_MONOTONIC")


@pytest.mark.only("mray")
@pytest.mark.usefixtures("ran")
def test_the_command_writes_a_page(tmp_path: Path) -> None:
    written = tmp_path / "trace.html"
    command = [sys.executable, "-m", "mray", "timeline", "--html", str(written), "--session", str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"work"' in written.read_text()
    assert list(tmp_path.iterdir()) == [written]


@pytest.mark.only("mray")
def test_the_command_has_calls_that_still_run(ray_session, tmp_path: Path, eventually) -> None:
    ray = ray_session
    gate, began = tmp_path / "gate", tmp_path / "began"

    @ray.remote(num_cpus=0)
    class Waiter:
        def wait(self):
            began.touch()
            while not gate.exists():
                time.sleep(0.01)

    waiter = Waiter.remote()
    waiting = waiter.wait.remote()
    try:
        eventually(began.exists)
        output = tmp_path / "trace.json"
        command = [sys.executable, "-m", "mray", "timeline", "--output", str(output), "--session", str(os.getpid())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        (running,) = (each for each in json.loads(output.read_text())["traceEvents"] if "Waiter.wait" in each.get("name", ""))
        assert running["name"].endswith("(still running)")
        assert running["dur"] > 0
    finally:
        gate.touch()
    ray.get(waiting)


@pytest.mark.only("mray")
def test_a_named_actor_has_its_name_there_also_in_a_graph(ray_session) -> None:
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Stage:
        def step(self, value):
            return value

    joe, other = Stage.options(name="joe").remote(), Stage.remote()
    ray.get([joe.step.remote(1), other.step.remote(1)])
    with ray.dag.InputNode() as value:
        graph = other.step.bind(joe.step.bind(value)).experimental_compile()
    with graph.profile() as profile:
        ray.get(graph.execute(1))
    graph.teardown()
    known = {f"joe: Stage({joe._actor_id.hex()[:8]})", f"Stage({other._actor_id.hex()[:8]})"}
    for events in (profile.events(), ray.timeline()):
        names = {event["args"]["name"].partition(" pid ")[0] for event in events if event["name"] == "process_name"}
        assert known <= names


@pytest.mark.only("mray")
def test_processes_leave_out_what_was_over_and_say_which_functions_were_called_first(init, fresh) -> None:
    from mray._backends.session_trace import timeline

    directory = init(num_cpus=1, log_to_driver=False).address_info["session_dir"]

    @fresh.remote(num_cpus=0)
    class Actor:
        def early(self) -> None:
            pass

        def between(self) -> None:
            pass

        def late(self) -> None:
            pass

    actor = Actor.remote()
    fresh.get([actor.early.remote() for _ in range(100)])
    fresh.get(actor.between.remote())  # the end of a call is noted after its reply, and before the next call begins
    since = time.monotonic_ns()
    fresh.get(actor.late.remote())
    everything, recent = timeline(directory), timeline(directory, since=since)
    names = [[span.name for each in trace.recordings for span in each.spans] for trace in (everything, recent)]
    assert [each.count("Actor.early") for each in names] == [100, 0]
    assert [each.count("Actor.late") for each in names] == [1, 1]
    assert recent.functions == everything.functions
    assert recent.functions["Actor.early"] < since < recent.functions["Actor.late"]
