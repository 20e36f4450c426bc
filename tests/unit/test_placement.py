"""Placement groups without a process: reservations, who draws from them, and that the accounts balance whatever happens."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, precondition, rule

from mray._common import messages as m
from mray._common.placement_options import check_group
from mray._decide.scheduler import events
from mray._decide.scheduler.resources import UNIT, ResourcePool
from tests.unit.test_scheduler import Stage

_numbers = itertools.count(1000)


def group_id(number: int) -> bytes:
    return number.to_bytes(18, "big")


class GroupStage(Stage):
    """A stage with placement groups and actors."""

    def reserve(self, *bundles: dict[str, float], process: str = "driver", group: int | None = None, **spec: Any) -> bytes:
        made = group_id(next(_numbers) if group is None else group)
        self(events.GroupRequested(process, next(self.requests), made, {"bundles": list(bundles), "strategy": "PACK", **spec}))
        return made

    def remove(self, group: bytes) -> None:
        self(events.GroupDismissed("driver", next(self.requests), group))

    def await_(self, group: bytes, process: str = "driver") -> int:
        request = next(self.requests)
        self(events.GroupAwaited(process, request, group))
        return request

    def ask_in(self, group: bytes, index: int = -1, process: str = "driver", **resources: float) -> int:
        request = next(self.requests)
        demand = {"resources": resources, "env": None, "label": "task f", "group": (group, index)}
        self(events.LeaseRequested(process, request, demand))
        return request

    def create(self, actor: bytes, process: str = "driver", **spec: Any) -> None:
        self(events.ActorRequested(process, 0, actor, {"label": "actor A", "class_name": "A", **spec}))

    def listing(self, name: str) -> Any:
        self(events.Queried("driver", next(self.requests), name, ()))
        return self.heard(m.ANSWER)[-1][2]

    def state(self, group: bytes) -> str:
        return next(row["state"] for row in self.scheduler.groups.listing() if row["placement_group_id"] == group)

    def answers(self, process: str = "driver") -> dict[int, tuple[bool, Any]]:
        return {request: (ok, value) for request, ok, value in self.heard(m.ANSWER, process)}

    def worker_of(self, request: int) -> str:
        (grant,) = [grant for grant in self.grants() if grant[0] == request]
        return str(grant[2])


def test_a_group_takes_all_its_bundles_from_the_machine():
    stage = GroupStage({"CPU": 4, "r": 1})
    group = stage.reserve({"CPU": 1}, {"CPU": 2, "r": 1})
    assert stage.state(group) == "CREATED"
    assert stage.available() == {"CPU": 1}


def test_a_group_waits_for_all_its_bundles_and_holds_none_meanwhile():
    stage = GroupStage({"CPU": 2})
    stage.ask(CPU=1)
    (lease,) = stage.grants()
    group = stage.reserve({"CPU": 1}, {"CPU": 1})
    request = stage.await_(group)
    assert stage.state(group) == "PENDING"
    assert stage.available() == {"CPU": 1}
    assert stage.heard(m.LEASE_RECALL) == [(lease[1],)]  # a lease that its client only keeps is asked for
    stage.give_back(lease[1])
    assert stage.state(group) == "CREATED"
    assert stage.answers()[request] == (True, True)


def test_who_draws_from_a_group_takes_nothing_from_the_machine():
    stage = GroupStage({"CPU": 2})
    group = stage.reserve({"CPU": 2})
    first, second = stage.ask_in(group, CPU=1), stage.ask_in(group, CPU=1)
    third = stage.ask_in(group, CPU=1)
    outside = stage.ask(CPU=1)
    granted = {grant[0]: grant[1] for grant in stage.grants()}
    assert set(granted) == {first, second}
    stage.give_back(granted[first])
    assert [grant[0] for grant in stage.grants()] == [third]
    stage.remove(group)
    assert stage.killed
    stage.join_all()
    assert [grant[0] for grant in stage.grants()] == [outside]


def test_a_demand_of_one_bundle_waits_for_that_bundle():
    stage = GroupStage({"CPU": 2})
    group = stage.reserve({"CPU": 1}, {"CPU": 1})
    first, second = stage.ask_in(group, 0, CPU=1), stage.ask_in(group, 0, CPU=1)
    other = stage.ask_in(group, 1, CPU=1)
    assert {grant[0] for grant in stage.grants()} == {first, other}
    assert [claimant.label for claimant in stage.scheduler.queue.waiting()] == ["task f"]
    assert second


def test_a_worker_whose_grant_meets_a_cancelled_request_outlives_its_group():
    stage = GroupStage({"CPU": 1})
    group = stage.reserve({"CPU": 1})
    request = stage.ask_in(group, CPU=1)
    assert [grant[0] for grant in stage.grants()] == [request]
    stage(events.LeaseCancelled("driver", request))
    stage.remove(group)
    assert not stage.killed


def test_any_bundle_means_one_that_has_room_for_everything():
    stage = GroupStage({"CPU": 2, "r": 2})
    group = stage.reserve({"CPU": 1}, {"CPU": 1, "r": 2})
    assert stage.ask_in(group, -1, CPU=1, r=1) in {grant[0] for grant in stage.grants()}
    free = stage.scheduler.groups.listing()[-1]["free"]
    assert free == [{"CPU": 1}, {"CPU": 0, "r": 1}]


def test_an_actor_that_holds_nothing_runs_in_a_full_bundle_and_in_no_bundle_without_a_cpu():
    stage = GroupStage({"CPU": 2, "r": 1})
    stage.ask(CPU=1)
    group = stage.reserve({"r": 1}, {"CPU": 1})
    stage.create(b"f" * 16, group=(group, 1), resources={"CPU": 1})
    actors = [bytes([index + 1]) * 16 for index in (-1, 0, 1)]
    for index, actor in zip((-1, 0, 1), actors, strict=True):
        stage.create(actor, group=(group, index), resources={}, placement={"CPU": 1})
    stage.join_all()
    assert {told for _to, (code, told, *_) in stage.told if code == m.ACTOR_START} == {b"f" * 16, actors[0], actors[2]}
    users = [pool.users for pool in stage.scheduler.groups.records[group].pools]
    assert users == [0, 3]
    stage.scheduler.validate()


def test_an_actor_that_holds_nothing_waits_for_its_group():
    stage = GroupStage({"CPU": 1})
    stage.ask(CPU=1)
    ((_, lease, *_),) = stage.grants()
    group = stage.reserve({"CPU": 1})
    stage.create(b"a" * 16, group=(group, -1), resources={}, placement={"CPU": 1})
    stage.join_all()
    assert m.ACTOR_START not in {code for _to, (code, *_) in stage.told}
    stage.give_back(lease)
    stage.join_all()
    assert m.ACTOR_START in {code for _to, (code, *_) in stage.told}


#: Ends of a worker that are told of a task that waits in it.
ENDS = ["returned", "broken", "died", "left", "memory", "owner", "reset", "blocked twice"]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_a_task_that_ends_while_it_waits_gives_back_its_cpu_once(end: str, inside: bool) -> None:
    stage = GroupStage({"CPU": 2})
    group = stage.reserve({"CPU": 1})
    request = stage.ask_in(group, CPU=1) if inside else stage.ask(CPU=1)
    ((_, lease, worker, *_),) = stage.grants()
    stage(events.TaskBlocked(worker))
    if end == "returned":
        stage.give_back(lease)
    elif end == "broken":
        stage(events.LeaseBroken("driver", lease, "no answer"))
    elif end == "left":
        stage(events.WorkerLeft(worker, m.CAUSE_EXIT, "it exits"))
        stage(events.TaskUnblocked(worker))
    elif end == "memory":
        stage(events.MemoryRanLow([worker], "memory ran low"))
    elif end == "owner":
        stage.die("driver")
    elif end == "reset":
        stage(events.DriverReset("driver", frozenset()))
    elif end == "blocked twice":
        stage(events.TaskBlocked(worker))
        stage(events.TaskUnblocked(worker))
        stage(events.TaskUnblocked(worker))
    stage.join_all()
    if worker in stage.scheduler.workers.workers:
        stage.die(worker)
    assert request
    if end not in ("owner", "reset"):
        stage.remove(group)
    stage.join_all()
    assert stage.available() == {"CPU": 2}
    assert stage.scheduler.groups.free() == {}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("end", ["killed", "restarted", "died", "failed", "left", "memory", "handles", "group"])
def test_an_actor_that_ends_while_its_constructor_waits_gives_back_its_cpu_once(end: str, inside: bool) -> None:
    stage = GroupStage({"CPU": 2})
    group = stage.reserve({"CPU": 1})
    actor = b"a" * 16
    stage.create(actor, resources={"CPU": 1}, max_restarts=end == "restarted", **({"group": (group, 0)} if inside else {}))
    stage.join_all()
    worker = stage.scheduler.actors.records[actor].worker
    assert worker is not None
    stage(events.TaskBlocked(worker.process))  # of a worker that had a task before
    if end in ("killed", "restarted"):
        stage(events.ActorKilled(actor, end == "killed"))
    elif end == "failed":
        stage(events.ActorFailed(worker.process, actor, b"error"))
    elif end == "left":
        stage(events.WorkerLeft(worker.process, m.CAUSE_CRASH, "it exits"))
    elif end == "memory":
        stage(events.MemoryRanLow([worker.process], "memory ran low"))
    elif end == "handles":
        stage(events.HandlesDropped("driver", [actor]))
    elif end == "group":
        stage.remove(group)
    stage(events.TaskUnblocked(worker.process))
    stage.join_all()
    if worker.process in stage.scheduler.workers.workers:
        stage.die(worker.process)
    stage.join_all()
    if end == "restarted":
        again = stage.scheduler.actors.records[actor].worker
        assert again is not None
        assert again is not worker
        assert stage.available() == ({"CPU": 1} if inside else {})
        stage(events.ActorKilled(actor, True))
        stage.join_all()
    if end != "group":
        stage.remove(group)
    assert stage.available() == {"CPU": 2}


def test_demands_of_a_pending_group_wait_for_it():
    stage = GroupStage({"CPU": 1})
    stage.ask(CPU=1)
    (lease,) = stage.grants()
    group = stage.reserve({"CPU": 1})
    inside, nothing = stage.ask_in(group, CPU=1), stage.ask_in(group)
    stage.create(b"a" * 16, group=(group, -1))
    assert not stage.grants()
    stage.give_back(lease[1])
    assert {grant[0] for grant in stage.grants()} == {inside, nothing}


def test_the_cpus_of_a_blocked_task_are_free_in_its_group_only():
    stage = GroupStage({"CPU": 1})
    group = stage.reserve({"CPU": 1})
    worker = stage.worker_of(stage.ask_in(group, CPU=1))
    inside = stage.ask_in(group, CPU=1)
    outside = stage.ask(CPU=1)
    stage(events.TaskBlocked(worker))
    assert [grant[0] for grant in stage.grants()] == [inside]
    stage(events.TaskUnblocked(worker))
    assert stage.available() == {}
    assert outside not in {grant[0] for grant in stage.grants()}


def test_gpus_are_unique_across_bundles_and_fractions_share_one():
    stage = GroupStage({"CPU": 8}, gpus=[0, 1, 2])
    group = stage.reserve({"GPU": 2, "CPU": 2}, {"GPU": 0.5, "CPU": 2}, {"GPU": 0.5, "CPU": 1})
    stage.ask_in(group, 0, GPU=1), stage.ask_in(group, 0, GPU=1)
    stage.ask_in(group, 1, GPU=0.25), stage.ask_in(group, 1, GPU=0.25), stage.ask_in(group, 2, GPU=0.5)
    ids = [grant[4] for grant in stage.grants()]
    whole, fractions = [each for each in ids if len(each) == 1][:2], ids[2:]
    assert sorted(map(tuple, ids[:2])) == sorted(set(map(tuple, whole)))
    assert len({each[0] for each in fractions}) == 1
    assert {each[0] for each in fractions}.isdisjoint(each[0] for each in ids[:2])


def test_a_bundle_with_a_share_of_a_gpu_gives_no_more_than_that():
    stage = GroupStage({"CPU": 2}, gpus=[0])
    group = stage.reserve({"GPU": 0.5})
    request = stage.ask_in(group, GPU=0.75)
    ((refused, text),) = stage.heard(m.LEASE_REFUSED)
    assert refused == request
    assert "does not fit" in text


@pytest.mark.parametrize("fractions", [[0.6, 0.6], [0.4, 0.6, 0.5], [1.5]])
def test_gpu_shares_that_no_packing_gives_are_impossible(fractions):
    assert ResourcePool({}, [0]).shortage_of_all([{"GPU": round(each * UNIT)} for each in fractions]) is not None


@pytest.mark.parametrize("fractions", [[0.5, 0.5, 1], [1, 0.4, 0.6], [0.3, 0.7, 0.3, 0.7]])
def test_gpu_shares_are_packed(fractions):
    assert ResourcePool({}, [0, 1]).shortage_of_all([{"GPU": round(each * UNIT)} for each in fractions]) is None


@pytest.mark.parametrize(
    ("bundles", "spec", "reason"),
    [
        ([{"CPU": 3}], {}, "CPU"),
        ([{"CPU": 1}] * 3, {}, "for all of them"),
        ([{"unheard": 1}], {}, "unheard"),
        ([{"CPU": 1}, {"CPU": 1}], {"strategy": "STRICT_SPREAD"}, "2 machines"),
        ([{"CPU": 1}], {"impossible": "the labels"}, "the labels"),
    ],
)
def test_what_can_never_be_reserved_stays_pending_and_says_so(bundles, spec, reason):
    stage = GroupStage({"CPU": 2})
    group = stage.reserve(*bundles, **spec)
    assert stage.state(group) == "PENDING"
    request = stage.await_(group)
    ok, text = stage.answers()[request]
    assert not ok
    assert reason in text
    stage.ask_in(group, CPU=1)
    stage.create(b"a" * 16, group=(group, -1))
    assert reason in stage.heard(m.LEASE_REFUSED)[0][1]
    assert not stage.scheduler.actors.records
    stage.remove(group)
    assert stage.state(group) == "REMOVED"


def test_strict_spread_of_one_bundle_is_possible():
    stage = GroupStage({"CPU": 2})
    assert stage.state(stage.reserve({"CPU": 1}, strategy="STRICT_SPREAD")) == "CREATED"


def test_removal_ends_everybody_inside_and_returns_everything_when_they_are_dead():
    stage = GroupStage({"CPU": 4})
    group = stage.reserve({"CPU": 2}, {"CPU": 1})
    running = stage.worker_of(stage.ask_in(group, 0, CPU=2))
    queued = stage.ask_in(group, 0, CPU=1)
    actor, waiting = b"a" * 16, b"b" * 16
    stage.create(actor, group=(group, 1), resources={"CPU": 1})
    stage.create(waiting, group=(group, 1), resources={"CPU": 1}, max_restarts=-1)
    stage(events.ActorWatched("driver", actor))
    stage(events.ActorWatched("driver", waiting))
    stage.join_all()
    stage.remove(group)
    (refusal,) = stage.heard(m.LEASE_REFUSED)
    assert refusal[0] == queued
    assert m.GROUP_REMOVED in refusal[1]
    assert running in stage.killed
    assert stage.available() == {"CPU": 1}  # the bundles are in use until their processes are dead
    stage.join_all()
    assert stage.available() == {"CPU": 4}
    assert [gone[2][0] for gone in stage.heard(m.WORKER_GONE) if gone[0] == running] == [m.CAUSE_GROUP]
    dead = {state[0]: state[4][0] for state in stage.heard(m.ACTOR_STATE) if state[1] == "dead"}
    assert dead == {actor: m.CAUSE_GROUP, waiting: m.CAUSE_GROUP}
    stage.ask_in(group, CPU=1)
    assert m.GROUP_REMOVED in stage.heard(m.LEASE_REFUSED)[0][1]


def test_a_name_is_unique_and_free_again_after_removal():
    stage = GroupStage({"CPU": 4})
    first = stage.reserve({"CPU": 1}, name="n", namespace="s")
    assert stage.scheduler.groups.find("n", "s") == first
    stage.answers()
    stage.reserve({"CPU": 1}, name="n", namespace="s")
    ((_request, (ok, text)),) = stage.answers().items()
    assert not ok
    assert "already exists" in text
    stage.reserve({"CPU": 1}, name="n", namespace="other")
    stage.remove(first)
    assert stage.scheduler.groups.find("n", "s") is None
    again = stage.reserve({"CPU": 1}, name="n", namespace="s")
    assert stage.scheduler.groups.find("n", "s") == again


def test_a_group_dies_with_the_actor_that_made_it_and_not_before_its_last_life():
    stage = GroupStage({"CPU": 4})
    actor = b"a" * 16
    stage.create(actor, resources={"CPU": 1}, max_restarts=1)
    stage.join_all()
    process = stage.scheduler.actors.records[actor].worker.process
    stage(events.ActorConstructed(process, actor))
    mine = stage.reserve({"CPU": 1}, process=process)
    kept = stage.reserve({"CPU": 1}, process=process, detached=True)
    stage.die(process)
    assert stage.state(mine) == "CREATED"
    stage.join_all()
    stage(events.ActorKilled(actor, True))
    stage.join_all()
    assert (stage.state(mine), stage.state(kept)) == ("REMOVED", "CREATED")


def test_a_group_of_a_task_outlives_it_and_ends_with_the_driver():
    stage = GroupStage({"CPU": 4})
    (grant,) = [grant for request in [stage.ask(CPU=1)] for grant in stage.grants() if grant[0] == request]
    group = stage.reserve({"CPU": 1}, process=grant[2])
    stage.die(grant[2])
    assert stage.state(group) == "CREATED"
    stage.die("driver")
    assert stage.state(group) == "REMOVED"


def test_a_group_of_tasks_that_work_for_each_other_ends_with_the_driver():
    stage = GroupStage({"CPU": 4})
    stage.ask(CPU=1)
    [(_, lease, one, _, _)] = stage.grants()
    stage.ask(process=one, CPU=1)
    [(_, _, other, _, _)] = stage.grants(one)
    stage.give_back(lease)  # what it has submitted goes on, and submits something itself
    stage.ask(process=other, CPU=1)
    [(_, _, again, _, _)] = stage.grants(other)
    assert again == one
    stage.reserve({"CPU": 1}, process=one)
    stage.reserve({"CPU": 1}, process=other)
    assert {group.owner for group in stage.scheduler.groups.records.values()} == {"driver"}


def test_a_group_of_a_worker_without_a_task_ends_with_the_driver():
    stage = GroupStage({"CPU": 4})
    stage.ask(CPU=1)
    [(_, lease, worker, _, _)] = stage.grants()
    stage.give_back(lease)  # it has left a thread behind
    stage.reserve({"CPU": 1}, process=worker)
    stage.die(worker)
    assert stage.available() == {"CPU": 3.0}


def test_no_group_is_made_for_a_driver_that_is_dead():
    stage = GroupStage({"CPU": 4})
    stage.ask(CPU=1)
    [(_, _, worker, _, _)] = stage.grants()
    stage.die("driver")
    stage.reserve({"CPU": 1}, process=worker)
    stage.join_all()
    assert stage.available() == {"CPU": 4.0}


@pytest.mark.parametrize("amount", [float("inf"), float("nan")])
def test_a_bundle_wants_finite_amounts(amount):
    with pytest.raises(ValueError, match="finite"):
        check_group([{"CPU": amount}], None, None, None, None, None)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"strategy": "STRICT_PACK", "soft_node": "ff" * 28}, "Invalid hex ID of _soft_target_node_id, got ffff"),
        ({"topology": {"x": "LOOSE"}}, "Invalid topology strategy 'LOOSE' for label 'x'. Supported strategies are: {"),
        ({"label_selectors": [{"a": 1}]}, "Bundle label selector must be a list of string dictionary label selectors"),
    ],
    ids=str,
)
def test_a_wrong_argument_of_a_group_is_refused_in_rays_words(arguments, text):
    given = {"strategy": None, "lifetime": None, "label_selectors": None, "soft_node": None, "topology": None, **arguments}
    with pytest.raises(ValueError, match=text):
        check_group([{"CPU": 1}], **given)


def test_who_waits_is_told_of_the_removal():
    stage = GroupStage({"CPU": 1})
    stage.ask(CPU=1)
    stage.grants()
    group = stage.reserve({"CPU": 1})
    request = stage.await_(group)
    stage.remove(group)
    ok, text = stage.answers()[request]
    assert not ok
    assert m.GROUP_REMOVED in text


def test_listings_name_bundles_as_ray_does_and_forget_them_after_removal():
    stage = GroupStage({"CPU": 3})
    group = stage.reserve({"CPU": 1}, {"CPU": 1})
    total = stage.listing("cluster_resources")
    assert total[f"CPU_group_{group.hex()}"] == 2
    assert total[f"CPU_group_1_{group.hex()}"] == 1
    stage.worker_of(stage.ask_in(group, 1, CPU=1))
    free = stage.listing("available_resources")
    assert free[f"CPU_group_0_{group.hex()}"] == 1
    assert f"CPU_group_1_{group.hex()}" not in free
    stage.remove(group)
    assert not [name for name in stage.listing("cluster_resources") if "group" in name]


# ------------------------------------------------------------------------------------ any sequence
AMOUNTS = st.fixed_dictionaries({}, optional={"CPU": st.sampled_from([0.5, 1, 2]), "GPU": st.sampled_from([0.5, 1, 2]), "r": st.just(1)})


class Accounts(RuleBasedStateMachine):
    """Groups, tasks and actors come and go, workers die: at every step `Stage` validates all accounts."""

    groups: Bundle[bytes] = Bundle("groups")
    leases: Bundle[int] = Bundle("leases")
    actors: Bundle[bytes] = Bundle("actors")

    @initialize()
    def begin(self) -> None:
        self.stage = GroupStage({"CPU": 4, "r": 2}, gpus=[0, 1])
        self.numbers = itertools.count(1)

    @rule(target=groups, bundles=st.lists(AMOUNTS.filter(bool), min_size=1, max_size=3))
    def reserve(self, bundles: list[dict[str, float]]) -> bytes:
        return self.stage.reserve(*bundles, group=next(self.numbers))

    @rule(group=groups)
    def remove(self, group: bytes) -> None:
        self.stage.remove(group)

    @rule(group=groups)
    def wait(self, group: bytes) -> None:
        self.stage.await_(group)

    @rule(target=leases, group=groups, index=st.integers(-1, 1), wanted=AMOUNTS, starts=st.booleans())
    def ask_in(self, group: bytes, index: int, wanted: dict[str, float], starts: bool) -> Any:
        self.stage.ask_in(group, index, **wanted)
        return self.started() if starts else multiple()

    @rule(target=leases, wanted=AMOUNTS, starts=st.booleans())
    def ask(self, wanted: dict[str, float], starts: bool) -> Any:
        self.stage.ask(**wanted)
        return self.started() if starts else multiple()

    @rule(target=leases)
    def start(self) -> Any:
        """Workers start, those whose end was ordered end."""
        return self.started()

    def started(self) -> Any:
        return multiple(*(grant[1] for grant in self.stage.grants()))

    @rule(lease=consumes(leases))
    def give_back(self, lease: int) -> None:
        self.stage.give_back(lease)

    @rule(target=actors, group=groups, wanted=AMOUNTS, restarts=st.sampled_from([0, 1, -1]))
    def create(self, group: bytes, wanted: dict[str, float], restarts: int) -> bytes:
        actor = next(self.numbers).to_bytes(16, "big")
        self.stage.create(actor, group=(group, -1), resources=wanted, placement={"CPU": 1, **wanted}, max_restarts=restarts)
        return actor

    @rule(actor=consumes(actors), no_restart=st.booleans())
    def kill(self, actor: bytes, no_restart: bool) -> None:
        self.stage(events.ActorKilled(actor, no_restart))

    @precondition(lambda self: self.busy())
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.stage.die(data.draw(st.sampled_from(self.busy())))

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), blocked=st.booleans())
    def block(self, data: st.DataObject, blocked: bool) -> None:
        worker = data.draw(st.sampled_from(self.busy()))
        self.stage(events.TaskBlocked(worker) if blocked else events.TaskUnblocked(worker))

    def busy(self) -> list[str]:
        workers = self.stage.scheduler.workers.workers.values()
        return sorted(worker.process for worker in workers if worker.claimant is not None and worker.process not in self.stage.killed)

    @invariant()
    def gpus_have_one_holder(self) -> None:
        """Nobody shares a GPU beyond its whole."""
        shares: dict[Any, int] = {}
        for worker in self.stage.scheduler.workers.workers.values():
            holding = worker.claimant.holding if worker.claimant is not None else None
            if holding is not None:
                for device, (_index, units) in zip(holding.pool.ids_of(holding), holding.devices.get("GPU", ()), strict=True):
                    shares[device] = shares.get(device, 0) + units
        assert all(units <= UNIT for units in shares.values()), shares

    def teardown(self) -> None:
        """Everything is removed and dies: the machine is whole again."""
        stage = self.stage
        for group in list(stage.scheduler.groups.records):
            stage.remove(group)
        for actor in list(stage.scheduler.actors.records):
            stage(events.ActorKilled(actor, True))
        for lease in list(stage.scheduler.leases.values()):
            if lease.worker is None:
                stage(events.LeaseCancelled("driver", lease.request))
        stage.join_all()
        for worker in list(stage.scheduler.workers.workers):
            stage.die(worker)
        for lease in list(stage.scheduler.leases.values()):
            stage(events.LeaseCancelled("driver", lease.request))
        assert stage.scheduler.pool.free == stage.scheduler.pool.total
        assert stage.scheduler.pool.devices["GPU"].free == [UNIT, UNIT]


Accounts.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
TestAccounts = Accounts.TestCase


def test_the_death_of_an_owner_ends_actors_that_the_end_of_another_ends_as_well():
    stage = GroupStage({"CPU": 1})
    host = b"host"
    stage.create(host, resources={"CPU": 1}, max_restarts=-1)
    stage.join_all()
    process = stage.scheduler.actors.records[host].worker.process
    stage(events.ActorConstructed(process, host))
    group = stage.reserve({"CPU": 1}, process=process)
    guests = [b"guest" + bytes([number]) for number in range(20)]
    for guest in guests:
        stage.create(guest, group=(group, 0))
    stage.ask(CPU=1)
    stage.die(process)
    assert stage.scheduler.actors.records[host].worker is None
    stage.die("driver")
    assert not stage.scheduler.actors.records
