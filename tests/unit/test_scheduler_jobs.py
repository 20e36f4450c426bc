"""The resources that the scheduler frees when a driver or a detached actor ends, without a process."""

from __future__ import annotations

from typing import Any

import pytest

from mray._common import messages as m
from mray._common.causes import Cause
from mray._decide.scheduler import events
from mray._decide.scheduler.instructions import RemoveObjects, SpawnWorker
from mray._decide.scheduler.root_names import ROOT_VARIABLE, detached_root, job_of, root_of, stamped
from tests.unit.test_scheduler import CRASH
from tests.unit.test_scheduler_actors import Actors

A, B = "01000000", "02000000"


class Drivers(Actors):
    """A stage with drivers "a" and "b" of two jobs."""

    def __init__(self, **resources: float) -> None:
        super().__init__(resources or {"CPU": 4})
        self(events.MemberJoined("a", 1, A))
        self(events.MemberJoined("b", 2, B))

    def roots(self) -> dict[str, str]:
        """The work of each worker."""
        return {process: root_of(worker.environment) for process, worker in self.scheduler.workers.workers.items()}

    def leave(self, process: str) -> list[str]:
        """The process is gone; who is killed for it."""
        before = list(self.killed)
        self(events.MemberDied(process, CRASH))
        return [each for each in self.killed if each not in before]


def test_variables_carry_the_work_they_are_for():
    plain = (("A", "1"),)
    assert stamped(plain, "") == plain
    assert root_of(stamped(stamped(plain, A), B)) == B
    assert dict(stamped(plain, A)) == {"A": "1", ROOT_VARIABLE: A}
    assert root_of(plain) == ""
    assert job_of(detached_root(A, b"\x01")) == A
    assert detached_root(detached_root(A, b"\x01"), b"\x02") == f"{A}/02"


def test_a_worker_that_is_idle_serves_its_own_job_only():
    stage = Drivers()
    stage.ask("a", CPU=1)
    [(_, lease, worker, _, _)] = stage.grants("a")
    stage.give_back(lease, "a")
    stage.ask("b", CPU=1)
    [(_, _, other, _, _)] = stage.grants("b")
    assert other != worker
    assert stage.roots() == {worker: A, other: B}


def test_a_driver_that_ends_takes_its_workers_idle_busy_and_starting_and_no_others():
    stage = Drivers()
    for client in ("a", "a", "b"):
        stage.ask(client, CPU=1)
    grants = {client: stage.grants(client) for client in ("a", "b")}
    stage.give_back(grants["a"][0][1], "a")
    stage(events.PrestartAllowed(A))
    stage.ask("a", CPU=2)
    stage.scheduler.workers.validate()
    mine = {process for process, root in stage.roots().items() if root == A}
    stage.leave("a")
    stage.join_all()
    assert set(stage.roots().values()) == {B}
    assert not mine & stage.roots().keys()
    assert stage.available() == {"CPU": 3.0}


def test_a_worker_that_starts_when_its_job_has_ended_is_ended():
    stage = Drivers()
    stage(events.PrestartAllowed(A))
    starting = list(stage.spawned)
    assert starting and stage.leave("a") == starting
    stage.killed.clear()  # there was no process yet
    for process in starting:
        stage.spawned.remove(process)
        stage(events.MemberJoined(process, 9))
    assert stage.killed == starting


def test_nothing_is_remembered_of_the_environments_of_jobs_that_have_ended():
    stage = Drivers()
    for client in ("a", "b"):
        stage.ask(client, env={"X": client}, CPU=1)
        stage.grants(client)
    stage(events.PrestartAllowed(A, {"Y": "1"}))
    stage.leave("a")
    stage.join_all()
    pool = stage.scheduler.workers
    books: tuple[Any, ...] = (pool._starting, pool._failures, pool._waiting, pool._waiting_count)
    assert {root_of(environment) for book in books for environment in book} <= {B}


def test_a_detached_actor_and_what_it_does_stay_when_its_driver_ends():
    stage = Drivers()
    detached = stage.start(b"\x0a", "a", detached=True, name="d")
    own = stage.start(b"\x0b", detached)
    stage.ask(detached, CPU=1)
    [(_, _, worker, _, _)] = stage.grants(detached)
    root = f"{A}/0a"
    assert {stage.roots()[process] for process in (detached, own, worker)} == {root}
    assert stage.leave("a") == []
    stage.ask(detached, CPU=1)
    assert len(stage.grants(detached)) == 1


@pytest.mark.parametrize("manner", ["kill", "crash", "exit"])
def test_what_a_detached_actor_did_ends_with_it(manner: str):
    stage = Drivers()
    detached = stage.start(b"\x0a", "a", detached=True)
    stage.start(b"\x0b", detached)
    stage.ask(detached, CPU=1)
    [(_, lease, _, _, _)] = stage.grants(detached)
    stage.give_back(lease, detached)
    instructions: list[Any] = []
    if manner == "kill":
        instructions += stage(events.ActorKilled(b"\x0a", True))
    elif manner == "exit":
        # It runs its exit handlers in peace.
        instructions += stage(events.WorkerLeft(detached, m.CAUSE_EXIT, "exit_actor() was called."))
        assert detached not in stage.killed
    if detached in stage.killed:
        stage.killed.remove(detached)
    instructions += stage(events.MemberDied(detached, CRASH))
    stage.join_all()
    assert stage.roots() == {}
    assert [each.owner for each in instructions if isinstance(each, RemoveObjects)] == ["0a"]


def test_a_detached_actor_is_restarted_in_its_own_work_without_its_driver():
    stage = Drivers()
    first = stage.start(b"\x0a", "a", detached=True, max_restarts=1)
    stage.leave("a")
    spawned = [each for each in stage(events.MemberDied(first, CRASH)) if isinstance(each, SpawnWorker)]
    assert [root_of(each.environment) for each in spawned] == [f"{A}/0a"]
    assert stage.construct(b"\x0a") != first


def test_a_worker_that_was_to_end_before_it_has_started_is_still_starting_when_the_session_is_reset():
    stage = Drivers()
    detached = stage.start(b"\x0a", "a", detached=True)
    stage.ask(detached, CPU=1)
    starting = stage.spawned.pop()
    stage(events.ActorKilled(b"\x0a", True))
    stage.die(detached)
    stage(events.DriverReset("a", frozenset()))
    stage.killed.clear()
    stage(events.MemberJoined(starting, 9))
    assert stage.killed == [starting]


def test_everybody_is_told_who_has_gone_and_how():
    stage = Drivers()
    cause = Cause(m.CAUSE_CRASH, "", 1, -9)
    stage(events.MemberDied("a", cause, role="the driver of job 01000000"))
    assert stage.heard(m.WORKER_GONE, "b") == [("a", "the driver of job 01000000", cause)]
