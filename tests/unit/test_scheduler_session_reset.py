"""A session that begins anew: what of the scheduler's books goes, and which workers stay."""

from __future__ import annotations

import random

from mray._common import messages as m
from mray._decide.scheduler import events
from tests.unit.test_scheduler import Stage


def reset(stage: Stage, *owners: str, process: str = "driver") -> set[str]:
    """As the node does it; the workers that have to go, all of which die."""
    stage(events.DriverReset(process, frozenset(owners)))
    going = stage.scheduler.leaving()
    stage.killed += [each for each in going if each not in stage.killed]
    stage.join_all()
    assert not going & stage.scheduler.leaving()
    return going


def test_an_idle_worker_stays_and_is_used_again():
    stage = Stage()
    stage.ask(CPU=1)
    ((_request, lease, worker, *_rest),) = stage.grants()
    stage.give_back(lease)
    assert reset(stage) == set()
    stage(events.MemberJoined("driver again", 1))
    stage.ask("driver again", CPU=1)
    ((_request, _lease, again, *_rest),) = stage.grants("driver again")
    assert again == worker


def test_a_worker_that_owns_objects_goes():
    stage = Stage()
    stage.ask(CPU=1)
    ((_request, lease, worker, *_rest),) = stage.grants()
    stage.give_back(lease)
    assert reset(stage, worker) == {worker}


def test_what_runs_and_what_waits_ends_and_all_resources_are_free():
    stage = Stage({"CPU": 2, "x": 1})
    stage.ask(CPU=1)
    ((_request, _lease, busy, *_rest),) = stage.grants()
    stage.ask(busy, CPU=1)
    ((_request, _lease, nested, *_rest),) = stage.grants(busy)
    stage.ask(CPU=2)
    stage(events.ActorRequested("driver", 0, b"a", {"resources": {"x": 1}, "detached": True, "name": "n", "max_restarts": -1}))
    stage(events.GroupRequested("driver", 1, b"g", {"bundles": [{"CPU": 1}], "strategy": "PACK", "name": "g"}))
    stage.told.clear()
    assert {busy, nested} <= reset(stage)
    assert stage.available() == {"CPU": 2, "x": 1}
    assert not stage.scheduler.actors.records
    assert not stage.scheduler.groups.records
    assert not stage.scheduler.leases
    stage(events.MemberJoined("driver again", 1))
    stage(events.NameLookedUp("driver again", 7, "n", ""))
    assert [answer[:2] for answer in stage.heard(m.ANSWER, "driver again")] == [(7, False)]


def test_an_actor_of_before_is_dead_because_of_the_reset():
    stage = Stage()
    stage(events.ActorRequested("driver", 0, b"a", {"resources": {}}))
    stage.join_all()
    reset(stage)
    stage(events.MemberJoined("driver again", 1))
    stage(events.ActorWatched("driver again", b"a"))
    ((_actor, state, *_rest, cause),) = stage.heard(m.ACTOR_STATE, "driver again")
    assert state == "dead"
    assert "reset" in cause[1]


def test_workers_hear_that_the_driver_has_gone():
    stage = Stage()
    stage.ask(CPU=1)
    ((_request, lease, worker, *_rest),) = stage.grants()
    stage.give_back(lease)
    stage.heard(m.WORKER_GONE, worker)
    reset(stage)
    assert [process for process, *_rest in stage.heard(m.WORKER_GONE, worker)] == ["driver"]


def test_whatever_happened_before_everything_is_free_after_it():
    for seed in range(60):
        chance = random.Random(seed)
        stage = Stage({"CPU": 3, "x": 2})
        name = "driver"
        for round_ in range(6):
            members = [name]
            for step in range(chance.randrange(1, 25)):
                asker = chance.choice(members)
                what = chance.randrange(8)
                if what <= 2:
                    stage.ask(asker, **{chance.choice(["CPU", "x"]): chance.choice([1, 2])})
                elif what <= 4:
                    actor = f"{round_}-{step}".encode()
                    detached = chance.random() < 0.3
                    spec = {"resources": {"CPU": 1} if chance.random() < 0.5 else {}, "detached": detached, "max_restarts": 2}
                    stage(events.ActorRequested(asker, 0, actor, spec))
                elif what == 5:
                    spec = {"bundles": [{"CPU": chance.choice([1, 2])}], "strategy": "PACK"}
                    stage(events.GroupRequested(asker, step, f"g{round_}-{step}".encode(), spec))
                elif what == 6 and stage.spawned:
                    stage(events.MemberJoined(stage.spawned.pop(0), 7))
                else:
                    stage.join_all()
                    members = [name, *(each for each in stage.scheduler.workers.workers if each in stage.scheduler.members)]
            workers = [each for each in stage.scheduler.workers.workers if chance.random() < 0.3]
            reset(stage, *workers, process=name)
            assert stage.available() == {"CPU": 3, "x": 2}
            assert not stage.scheduler.actors.records
            assert not stage.scheduler.leases
            name = f"driver {round_}"
            stage(events.MemberJoined(name, 1))
