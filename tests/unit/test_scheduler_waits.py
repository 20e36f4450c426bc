"""Which requests wait in vain, and what is said of them, without a process."""

from __future__ import annotations

from mray._common import messages as m
from mray._decide.scheduler import events
from mray._decide.scheduler.waits import sentence, waits
from tests.unit.test_placement import GroupStage
from tests.unit.test_scheduler_actors import Actors


def said(stage: GroupStage | Actors) -> list[str]:
    return [sentence(stage.scheduler, wait) for wait in waits(stage.scheduler)]


def test_what_waits_for_what_actors_hold_is_told_with_who_they_are():
    stage = Actors({"CPU": 2})
    for actor in (b"a", b"b"):
        stage.start(actor, resources={"CPU": 1})
    assert said(stage) == []
    stage.create(b"c", resources={"CPU": 1}, label="actor C", name="late")
    stage.create(b"d", resources={"CPU": 1}, label="actor C")
    stage.ask(CPU=1)
    (text,) = said(stage)
    assert text == (
        "actor C cannot be scheduled right now (nor can, behind it, 1 x actor C, 1 x task f): it asks for {'CPU': 1.0}, "
        "0 of 2 CPU are free, and none is released until these end: A (pid 100) has 1, A (pid 101) has 1."
    )
    stage(events.ActorKilled(b"a", True))
    stage.join_all()
    assert "A (pid 100)" not in said(stage)[0]


def test_what_waits_for_a_task_that_runs_is_not_told_until_that_waits_itself():
    stage = Actors({"CPU": 1, "GPU": 1}, [0])
    stage.ask(CPU=1, GPU=1)
    [(_, lease, worker, *_)] = stage.grants()
    stage.ask(GPU=1)
    assert said(stage) == []
    stage(events.TaskBlocked(worker))
    (text,) = said(stage)
    assert text == (
        "task f cannot be scheduled right now: it asks for {'GPU': 1.0}, 0 of 1 GPU are free, and none is released until these end: "
        "a task that waits (pid 100) has 1."
    )
    stage(events.TaskUnblocked(worker))
    assert said(stage) == []
    stage.give_back(lease)
    assert stage.heard(m.LEASE_GRANT) or not stage.scheduler.queue.lacked()


def test_many_holders_are_counted():
    stage = Actors({"CPU": 8})
    for number in range(8):
        stage.start(bytes([number]), resources={"CPU": 1})
    stage.ask(CPU=1)
    assert said(stage)[0].endswith("A (pid 104) has 1, 3 more.")


def test_what_placement_groups_hold_is_told_too():
    stage = GroupStage({"CPU": 2})
    group = stage.reserve({"CPU": 2}, name="whole")
    stage.reserve({"CPU": 1}, name="other")
    stage.ask(CPU=1)
    told = said(stage)
    assert sorted(text.split(" cannot")[0] for text in told) == ["placement group other", "task f"]
    assert all("until these end: placement group whole has 2." in text for text in told)
    stage.remove(group)
    assert said(stage) == []
