"""The scheduler's decisions about actors, without a process."""

from __future__ import annotations

from typing import Any

import pytest

from mray._common import messages as m
from mray._common.causes import Cause
from mray._decide.scheduler import events
from mray._decide.scheduler.instructions import KillWorker, Tell
from tests.unit.test_scheduler import CRASH, Stage


class Actors(Stage):
    """A stage with words for actors."""

    def create(self, actor: bytes = b"a", owner: str = "driver", request: int = 0, **spec: Any) -> None:
        self(events.ActorRequested(owner, request, actor, {"label": "A", "resources": {}, "placement": {"CPU": 1}, **spec}))
        self(events.ActorWatched("driver", actor))

    def start(self, actor: bytes = b"a", owner: str = "driver", **spec: Any) -> str:
        """Create an actor whose constructor returns; the process it lives in."""
        self.create(actor, owner, **spec)
        return self.construct(actor)

    def construct(self, actor: bytes = b"a") -> str:
        self.join_all()
        [process] = [to for to, message in self.told if message[0] == m.ACTOR_START and message[1] == actor]
        self.heard(m.ACTOR_START, process)
        self(events.ActorConstructed(process, actor))
        return process

    def states(self, actor: bytes = b"a") -> list[str]:
        return [state for told, state, *_ in self.heard(m.ACTOR_STATE) if told == actor]

    def last_cause(self) -> Any:
        return self.heard(m.ACTOR_STATE)[-1][4]


@pytest.mark.parametrize("holder", ["lease", "actor"])
def test_an_actor_that_holds_no_cpu_is_placed_where_all_cpus_are_held(holder: str) -> None:
    stage = Actors({"CPU": 1})
    if holder == "lease":
        stage.ask(CPU=1)
        stage.grants()
    else:
        stage.start(b"holder", resources={"CPU": 1})
    assert stage.available() == {}
    stage.create(max_restarts=1)
    process = stage.construct()
    assert stage.heard(m.LEASE_RECALL) == []
    stage.heard(m.ACTOR_STATE)
    stage.die(process)
    assert stage.construct() != process
    assert stage.states() == ["restarting", "alive"]
    assert stage.available() == {}


def test_an_actor_that_holds_no_cpu_waits_for_what_it_holds():
    stage = Actors({"CPU": 1, "memory": 10})
    stage.start(b"holder", resources={"CPU": 1, "memory": 6})
    stage.create(resources={"memory": 5}, placement={"CPU": 1, "memory": 5})
    stage.join_all()
    assert stage.states() == ["pending"]
    [wait] = stage.scheduler.waits()
    assert "it asks for {'memory': 5 B}, 4 B of 10 B memory are free" in wait
    stage(events.ActorKilled(b"holder", True))
    stage.die(stage.killed[-1])
    stage.construct()
    assert stage.available() == {"CPU": 1.0, "memory": 5.0}


def test_many_actors_that_hold_no_cpu_are_placed_at_once_before_tasks_that_wait():
    stage = Actors({"CPU": 1})
    stage.start(b"holder", resources={"CPU": 1})
    for _ in range(5):
        stage.ask(CPU=1)
    actors = [bytes([number]) for number in range(20)]
    for actor in actors:
        stage.create(actor)
    for actor in actors:
        stage.construct(actor)
    assert stage.grants() == []


@pytest.mark.parametrize("comes_back", [True, False])
def test_who_does_not_wait_is_refused_unless_what_lay_idle_comes_back(comes_back: bool) -> None:
    stage = Actors({"CPU": 1})
    stage.ask(CPU=1)
    [(_, lease, *_)] = stage.grants()
    stage.create(placement={"CPU": 1}, fail_fast=True)
    stage(events.LeaseRequested("driver", 7, {"resources": {"CPU": 1}, "env": None, "label": "task f", "fail_fast": True}))
    assert stage.heard(m.LEASE_RECALL) == [(lease,)]
    if comes_back:
        stage.give_back(lease)
        stage.construct()
    stage(events.PlaceExpired(b"a"))
    for number in list(stage.scheduler.leases):
        stage(events.PlaceExpired(number))
    stage.join_all()
    assert (stage.states()[-1] == "alive") is comes_back
    assert [request for request, *_ in stage.heard(m.LEASE_GRANT)] == [7] * comes_back
    refused = stage.heard(m.LEASE_REFUSED)
    assert [request for request, _text in refused] == [7] * (not comes_back)
    assert all("is full, and _fail_on_unavailable=True was specified" in text for _request, text in refused)


def test_explicit_resources_are_held_for_life():
    stage = Actors({"CPU": 2}, [0, 1])
    stage.create(resources={"CPU": 1, "GPU": 1}, placement={"CPU": 1, "GPU": 1})
    stage.join_all()
    [(_, spec, _)] = stage.heard(m.ACTOR_START, "w0")
    assert spec["gpu_ids"] == [0]
    assert spec["restarted"] is False
    stage(events.ActorConstructed("w0", b"a"))
    stage(events.TaskBlocked("w0"))
    assert stage.available() == {"CPU": 1.0, "GPU": 1.0}
    stage.die("w0")
    assert stage.available() == {"CPU": 2.0, "GPU": 2.0}


def test_an_impossible_actor_is_dead_at_once():
    stage = Actors()
    stage.create(placement={"CPU": 3})
    cause = stage.last_cause()
    assert cause[0] == m.CAUSE_REFUSED
    assert "'CPU': 3.0" in cause[1]


def test_a_crash_without_restarts_is_final_and_says_how():
    stage = Actors()
    process = stage.start()
    stage.die(process)
    cause = Cause(*stage.last_cause())
    assert cause == CRASH
    assert cause.reason() == "The actor is dead because its worker process has died."


def test_a_crashed_actor_restarts_as_often_as_allowed():
    stage = Actors()
    process = stage.start(max_restarts=2)
    for incarnation in (1, 2):
        stage.heard(m.ACTOR_STATE)
        stage.die(process)
        assert stage.heard(m.ACTOR_STATE)[0][1:4] == ("restarting", "", incarnation)
        process = stage.construct()
        assert stage.heard(m.ACTOR_STATE) == [(b"a", "alive", process, incarnation, CRASH)]
    stage.die(process)
    assert stage.states() == ["dead"]


def test_an_actor_that_has_run_is_restarted_at_once_and_one_that_died_in_its_constructor_after_a_rest():
    stage = Actors()
    stage.die(stage.start(max_restarts=3))
    assert stage.resting == []
    for incarnation in (2, 3):
        while stage.spawned:
            stage(events.MemberJoined(stage.spawned.pop(0), 100))
        [worker] = [worker for worker in stage.scheduler.workers.workers.values() if worker.claimant is not None]
        stage.die(worker.process)
        assert stage.spawned == []
        assert stage.resting == [events.ActorRested(b"a", incarnation)]
        stage(events.ActorRested(b"a", incarnation - 1))  # one that is out of date says nothing
        assert stage.spawned == []
        stage.heard(m.ACTOR_START, worker.process)
        stage(stage.resting.pop())
    stage.construct()
    assert stage.states()[-1] == "alive"


@pytest.mark.parametrize("end", ["kill", "owner", "handles", "reset"])
def test_an_actor_that_rests_can_end(end: str) -> None:
    stage = Actors()
    stage.create(max_restarts=-1)
    while stage.spawned:
        stage(events.MemberJoined(stage.spawned.pop(0), 100))
    stage.die("w0")
    [rested] = stage.resting
    if end == "kill":
        stage(events.ActorKilled(b"a", True))
    elif end == "owner":
        stage(events.MemberJoined("watcher", 2))
        stage(events.ActorWatched("watcher", b"a"))
        stage.die("driver")
    elif end == "handles":
        stage(events.HandlesDropped("driver", [b"a"]))
    else:
        stage(events.DriverReset("driver", frozenset()))
    assert stage.scheduler.actors.records == {}
    stage(rested)
    assert stage.spawned == []


def test_a_crash_in_the_constructor_restarts_and_a_raising_one_does_not():
    stage = Actors()
    stage.create(max_restarts=-1)
    stage.join_all()
    stage.die("w0")
    assert stage.states() == ["pending", "restarting"]
    stage.join_all()
    [process] = [to for to, message in stage.told if message[0] == m.ACTOR_START and message[3] == 1]
    stage(events.ActorFailed(process, b"a", b"pickle"))
    assert stage.last_cause() == (m.CAUSE_INIT, "The actor died because of an error raised in its creation task.", 101, None, b"pickle")
    assert stage.heard(m.EXIT, process)
    stage.die(process)
    assert stage.states() == []
    assert stage.available() == {"CPU": 2.0}


@pytest.mark.parametrize("no_restart", [True, False])
def test_kill_restarts_unless_told_otherwise(no_restart: bool):
    stage = Actors()
    process = stage.start(max_restarts=1)
    stage.heard(m.ACTOR_STATE)
    stage(events.ActorKilled(b"a", no_restart))
    assert stage.killed == [process]
    stage.join_all()
    message = stage.heard(m.ACTOR_STATE)[-1]
    assert message[1] == ("dead" if no_restart else "restarting")
    assert message[4][:2] == (m.CAUSE_KILL, "The actor is dead because it was killed by `ray.kill`.")


def test_who_kills_is_answered_behind_the_signal():
    stage = Actors()
    process = stage.start()
    kill, answer = stage(events.ActorKilled(b"a", True, "driver", 7))
    assert isinstance(kill, KillWorker) and kill.process == process
    assert isinstance(answer, Tell) and (answer.process, answer.message) == ("driver", (m.ANSWER, 7, True, None))
    stage.heard(m.ANSWER)
    stage(events.ActorKilled(b"unknown", True, "driver", 8))
    assert stage.heard(m.ANSWER) == [(8, True, None)]


def test_an_actor_that_is_killed_before_its_creation_is_heard_of_never_starts():
    stage = Actors()
    stage(events.ActorKilled(b"a", True))
    stage.create()
    stage.join_all()
    assert stage.last_cause()[:2] == (m.CAUSE_KILL, "The actor is dead because it was killed by `ray.kill`.")
    assert not any(message[0] == m.ACTOR_START for _to, message in stage.told)


def test_a_pending_actor_can_be_killed():
    stage = Actors({"CPU": 1})
    stage.ask(CPU=1)
    stage.grants()
    stage.create()
    stage(events.ActorKilled(b"a", True))
    assert stage.states() == ["pending", "dead"]


def test_an_actor_that_exits_on_purpose_is_not_restarted():
    stage = Actors()
    process = stage.start(max_restarts=-1)
    stage(events.WorkerLeft(process, m.CAUSE_EXIT, "exit_actor()"))
    stage.die(process, Cause(m.CAUSE_CRASH, "", 7, 0, None))
    assert stage.last_cause() == (m.CAUSE_EXIT, "exit_actor()", 100, None, None)
    assert stage.states() == []


def test_the_last_handle_ends_the_actor_after_its_queued_calls():
    stage = Actors()
    process = stage.start(max_restarts=-1)
    stage.ask(CPU=1)
    [(_, _, borrower, _, _)] = stage.grants()
    stage(events.HandlesHeld(borrower, 4, [b"a"]))
    assert stage.heard(m.HELD, borrower) == [(4,)]
    stage(events.HandlesDropped("driver", [b"a"]))
    assert stage.heard(m.EXIT, process) == []
    stage.die(borrower)
    assert stage.heard(m.EXIT, process)[0][0] == m.CAUSE_SCOPE
    assert not stage.killed
    stage.die(process)
    assert stage.last_cause()[0] == m.CAUSE_SCOPE


def test_an_actor_whose_handle_went_while_its_constructor_ran_ends_after_it():
    stage = Actors()
    stage.create()
    stage.join_all()
    stage(events.HandlesDropped("driver", [b"a"]))
    assert stage.states() == ["pending"]
    process = stage.construct()
    assert stage.heard(m.EXIT, process)


def test_a_detached_actor_outlives_handles_and_owner():
    stage = Actors()
    stage.ask(CPU=1)
    [(_, _, owner, _, _)] = stage.grants()
    process = stage.start(owner=owner, detached=True, name="d")
    stage(events.HandlesDropped(owner, [b"a"]))
    stage.die(owner)
    assert not stage.killed
    assert stage.heard(m.EXIT, process) == []
    assert stage.scheduler.actors.records[b"a"].state == "alive"


@pytest.mark.parametrize("first", ["idle", "waiting"])
def test_an_actor_lives_in_no_process_that_owns_another(first):
    stage = Actors({"CPU": 2})
    stage.ask(CPU=2)
    [(_, lease, owner, _, _)] = stage.grants()
    stage(events.TaskBlocked(owner))
    process = stage.start(b"a", owner)
    stage(events.TaskUnblocked(owner))
    if first == "idle":
        stage.give_back(lease)
    stage.create(b"b", placement={"CPU": 0} if first == "waiting" else {"CPU": 1})
    if first == "waiting":
        stage.give_back(lease)
    stage.join_all()
    other = stage.scheduler.actors.records[b"b"].worker
    assert other is not None
    assert other.process not in (owner, process)
    assert stage.ask(CPU=1) == stage.grants()[0][0]


def test_the_owners_death_ends_its_actors_placed_or_not():
    stage = Actors({"CPU": 1})
    stage.ask(CPU=1)
    [(_, _, owner, _, _)] = stage.grants()
    stage(events.TaskBlocked(owner))
    process = stage.start(b"a", owner, max_restarts=-1)
    stage(events.TaskUnblocked(owner))
    stage.create(b"b", owner)
    stage(events.HandlesHeld("driver", 0, [b"a", b"b"]))
    stage.heard(m.ACTOR_STATE)
    stage.die(owner)
    assert stage.killed == [process]
    stage.join_all()
    causes = {told: cause for told, state, _, _, cause in stage.heard(m.ACTOR_STATE) if state == "dead"}
    assert {told: cause[0] for told, cause in causes.items()} == {b"a": m.CAUSE_OWNER, b"b": m.CAUSE_OWNER}
    for cause in causes.values():
        assert f"its owner has died. Its owner (pid {100 + int(owner[1:])}) was killed by SIGKILL (signal 9)." in cause[1]


def test_names_are_unique_per_namespace_and_free_after_death():
    stage = Actors()
    process = stage.start(b"a", name="n", namespace="one", public=b"handle")
    stage.create(b"b", request=1, name="n", namespace="one")
    [(request, ok, text)] = stage.heard(m.ANSWER)
    assert (request, ok) == (1, False)
    assert text.startswith("The name n (namespace=one) is already taken")
    stage.create(b"c", request=2, name="n", namespace="two")
    assert stage.heard(m.ANSWER) == [(2, True, None)]
    stage.create(b"d", request=3, name="n", namespace="one", get_if_exists=True)
    known = {"actor_id": b"a", "name": "n", "namespace": "one", "public": b"handle"}
    assert stage.heard(m.ANSWER) == [(3, True, known)]
    stage(events.NameLookedUp("driver", 4, "n", "one"))
    assert stage.heard(m.ANSWER) == [(4, True, known)]
    stage(events.Queried("driver", 5, "named_actors", (True, "")))
    assert stage.heard(m.ANSWER) == [(5, True, [{"name": "n", "namespace": "one"}, {"name": "n", "namespace": "two"}])]
    stage.die(process)
    stage(events.NameLookedUp("driver", 6, "n", "one"))
    [(_, ok, text)] = stage.heard(m.ANSWER)
    assert not ok
    assert "Failed to look up actor with name" in text


def test_an_actor_that_nobody_holds_while_its_constructor_runs_is_found_by_nobody():
    stage = Actors()
    stage.create(b"a", name="n")
    stage.join_all()
    stage(events.HandlesDropped("driver", [b"a"]))
    stage(events.NameLookedUp("driver", 4, "n", ""))
    assert [ok for _, ok, _ in stage.heard(m.ANSWER)] == [False]
    stage.create(b"b", request=5, name="n", get_if_exists=True)
    assert stage.heard(m.ANSWER) == [(5, True, None)]
    process = stage.construct(b"a")
    assert stage.heard(m.EXIT, process)
    stage(events.NameLookedUp("driver", 6, "n", ""))
    assert [(ok, public["actor_id"]) for _, ok, public in stage.heard(m.ANSWER)] == [(True, b"b")]


@pytest.mark.parametrize("how", ["its last handle has gone", "it was killed", "it leaves", "its owner has died", "its group was removed"])
def test_the_name_of_an_actor_that_is_ending_is_free(how: str):
    stage = Actors()
    owner = stage.start(b"owner")
    stage(events.TaskUnblocked(owner))
    process = stage.start(b"a", owner, name="n", get_if_exists=True)
    if how == "its last handle has gone":
        stage(events.HandlesDropped(owner, [b"a"]))
        assert stage.heard(m.EXIT, process)
    elif how == "it was killed":
        stage(events.ActorKilled(b"a", True))
    elif how == "it leaves":
        stage(events.WorkerLeft(process, m.CAUSE_EXIT, "exit_actor"))
    elif how == "its owner has died":
        stage.die(owner)
    else:
        stage.scheduler.actors.evict(stage.scheduler.actors.records[b"a"], m.CAUSE_GROUP, "")
    stage(events.NameLookedUp("driver", 4, "n", ""))
    [(_, ok, _text)] = stage.heard(m.ANSWER)
    assert not ok
    stage.create(b"b", request=5, name="n", get_if_exists=True)
    assert stage.heard(m.ANSWER) == [(5, True, None)]
    stage.join_all()
    stage(events.NameLookedUp("driver", 6, "n", ""))
    [(_, ok, public)] = stage.heard(m.ANSWER)
    assert (ok, public["actor_id"]) == (True, b"b")


def test_the_state_of_the_dead_is_remembered():
    stage = Actors()
    process = stage.start()
    stage.die(process)
    stage.heard(m.ACTOR_STATE)
    stage(events.ActorWatched("driver", b"a"))
    assert stage.states() == ["dead"]


def test_handles_may_arrive_before_the_news_of_the_creation():
    stage = Actors()
    stage.ask(CPU=1)
    [(_, _, worker, _, _)] = stage.grants()
    stage(events.HandlesHeld(worker, 1, [b"a"]))
    stage(events.ActorWatched(worker, b"a"))
    assert stage.heard(m.HELD, worker) == [(1,)]
    stage.start()
    stage(events.HandlesDropped("driver", [b"a"]))
    assert [state for _, state, *_ in stage.heard(m.ACTOR_STATE, worker)] == ["pending", "alive"]
    assert not any(message[0] == m.EXIT for _, message in stage.told)


def test_an_actor_that_nobody_creates_is_dead_after_a_while():
    stage = Actors()
    stage(events.ActorWatched("driver", b"never"))
    assert stage.states(b"never") == []
    stage(events.WatchExpired(b"never"))
    assert stage.states(b"never") == ["dead"]


def announce(stage: Actors, actor: bytes = b"a", announced: bool = True) -> None:
    spec = {"label": "A", "resources": {}, "placement": {"CPU": 1}, **({"announced": True} if announced else {})}
    stage(events.ActorRequested("driver", 0, actor, spec))


def test_an_announced_actor_is_known_and_starts_when_the_rest_comes():
    stage = Actors()
    announce(stage)
    stage(events.ActorWatched("driver", b"a"))
    stage.join_all()
    assert stage.states() == ["pending"]
    announce(stage, announced=False)
    stage.construct()
    assert stage.states() == ["alive"]


@pytest.mark.parametrize("end", [events.ActorKilled(b"a", True), events.HandlesDropped("driver", [b"a"])])
def test_an_announced_actor_that_has_ended_is_not_started(end: events.Event):
    stage = Actors()
    announce(stage)
    stage(events.ActorWatched("driver", b"a"))
    stage(end)
    announce(stage, announced=False)
    stage.join_all()
    assert stage.states() == ["pending", "dead"]
    assert not stage.scheduler.actors.records
