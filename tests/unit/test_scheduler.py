"""The scheduler's decisions about leases and workers, without a process."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from mray._common import messages as m
from mray._common.causes import Cause
from mray._decide.scheduler import events, policy
from mray._decide.scheduler.instructions import AwaitRest, Instruction, KillWorker, SpawnWorker, Tell
from mray._decide.scheduler.records import Claimant, environment_of
from mray._decide.scheduler.scheduler import Scheduler

CRASH = Cause(m.CAUSE_CRASH, "", 7, -9, None)


class Stage:
    """A scheduler, a driver called "driver", and a kernel that does what it is told when it is told to."""

    def __init__(
        self, resources: dict[str, float] | None = None, gpus: Any = (), env: dict[str, str] | None = None, *, mps: bool = False
    ) -> None:
        numbers = itertools.count()
        self.scheduler = Scheduler(resources or {"CPU": 2}, gpus, environment_of(env or {}, ()), lambda: f"w{next(numbers)}", mps=mps)
        self.spawned: list[str] = []
        self.killed: list[str] = []
        self.told: list[tuple[str, tuple[Any, ...]]] = []
        #: Actors that are to be told that they have rested.
        self.resting: list[events.ActorRested] = []
        self.requests = itertools.count(1)
        self(events.MemberJoined("driver", 1))

    def __call__(self, event: events.Event) -> list[Instruction]:
        instructions = self.scheduler.handle(event)
        for instruction in instructions:
            if isinstance(instruction, SpawnWorker):
                self.spawned.append(instruction.process)
            elif isinstance(instruction, KillWorker):
                self.killed.append(instruction.process)
            elif isinstance(instruction, Tell):
                self.told.append((instruction.process, instruction.message))
            elif isinstance(instruction, AwaitRest):
                self.resting.append(events.ActorRested(*instruction))
        self.scheduler.validate()
        return instructions

    def join_all(self) -> None:
        """Every worker that was spawned starts; those whose end was ordered end; actors have rested."""
        while self.spawned or self.killed or self.resting:
            if self.resting:
                self(self.resting.pop(0))
            elif self.spawned:
                process = self.spawned.pop(0)
                self(events.MemberJoined(process, 100 + int(process[1:])))
            else:
                self.die(self.killed.pop(0))

    def die(self, process: str, cause: Any = CRASH) -> None:
        self(events.MemberDied(process, cause))

    def ask(self, process: str = "driver", env: dict[str, str] | None = None, **resources: float) -> int:
        request = next(self.requests)
        self(events.LeaseRequested(process, request, {"resources": resources, "env": env, "label": "task f"}))
        return request

    def heard(self, code: int, process: str = "driver") -> list[tuple[Any, ...]]:
        """The messages of one kind that a process has got, without the code; they are forgotten."""
        found = [message[1:] for to, message in self.told if to == process and message[0] == code]
        self.told = [(to, message) for to, message in self.told if to != process or message[0] != code]
        return found

    def grants(self, process: str = "driver") -> list[tuple[Any, ...]]:
        self.join_all()
        return self.heard(m.LEASE_GRANT, process)

    def give_back(self, lease: int, process: str = "driver") -> None:
        self(events.LeaseReturned(process, lease))

    def available(self) -> dict[str, float]:
        return self.scheduler.pool.available()


def test_a_lease_waits_for_its_worker_and_then_names_it():
    stage = Stage()
    request = stage.ask(CPU=1)
    assert stage.heard(m.LEASE_GRANT) == []
    assert stage.grants() == [(request, 1, "w0", {"CPU": 1.0}, [])]
    assert stage.available() == {"CPU": 1.0}


def test_a_returned_worker_is_used_again():
    stage = Stage()
    stage.ask(CPU=1)
    [(_, lease, worker, _, _)] = stage.grants()
    stage.give_back(lease)
    assert stage.available() == {"CPU": 2.0}
    stage.ask(CPU=1)
    assert stage.heard(m.LEASE_GRANT)[0][2] == worker
    assert not stage.spawned


def test_what_does_not_fit_waits_in_order():
    stage = Stage()
    requests = [stage.ask(CPU=1) for _ in range(4)]
    first = stage.grants()
    assert [grant[0] for grant in first] == requests[:2]
    stage.give_back(first[1][1])
    assert [grant[0] for grant in stage.grants()] == requests[2:3]


def test_an_impossible_request_is_refused_and_says_what_was_asked_and_what_there_is():
    stage = Stage({"CPU": 2, "x": 1})
    request = stage.ask(CPU=1, x=3)
    [(refused, text)] = stage.heard(m.LEASE_REFUSED)
    assert refused == request
    assert "'x': 3.0" in text
    assert "'x': 1.0" in text
    assert "task f" in text


def test_a_cancelled_request_leaves_no_trace():
    stage = Stage()
    requests = [stage.ask(CPU=1) for _ in range(3)]
    stage(events.LeaseCancelled("driver", requests[2]))
    stage(events.LeaseCancelled("driver", requests[0]))
    stage.join_all()
    assert [grant[0] for grant in stage.heard(m.LEASE_GRANT)] == [requests[1]]
    assert stage.scheduler.workers.idle_count == 1
    assert stage.available() == {"CPU": 1.0}


def test_a_request_that_is_cancelled_while_its_grant_is_under_way_gives_the_worker_back_once():
    stage = Stage({"CPU": 1})
    request = stage.ask(CPU=1)
    stage.join_all()
    (grant,) = stage.heard(m.LEASE_GRANT)
    assert grant[0] == request
    stage(events.LeaseCancelled("driver", request))
    assert stage.scheduler.workers.idle_count == 1
    assert stage.available() == {"CPU": 1.0}
    again = stage.ask(CPU=1)
    stage(events.LeaseReturned("driver", grant[1]))  # what the client says when the grant arrives
    assert stage.heard(m.LEASE_GRANT)[-1][0] == again
    assert stage.available() == {}


def test_leases_of_one_client_and_class_are_not_recalled_for_its_own_requests():
    stage = Stage()
    for _ in range(10):
        stage.ask(CPU=1)
    assert len(stage.grants()) == 2
    assert stage.heard(m.LEASE_RECALL) == []


def test_leases_are_recalled_once_when_somebody_else_waits():
    stage = Stage()
    stage.ask(CPU=1)
    stage.ask(CPU=1)
    (_, one, worker, _, _), (_, two, _, _, _) = stage.grants()
    stage.ask(worker, CPU=1)
    assert sorted(stage.heard(m.LEASE_RECALL)) == [(one,), (two,)]
    stage.ask(worker, CPU=1)
    assert stage.heard(m.LEASE_RECALL) == []
    stage.give_back(two)
    assert len(stage.grants(worker)) == 1


def test_a_lease_is_recalled_for_another_class_of_the_same_client():
    stage = Stage({"CPU": 1})
    stage.ask(CPU=1)
    [(_, lease, *_)] = stage.grants()
    stage.ask(CPU=0.5)
    assert stage.heard(m.LEASE_RECALL) == [(lease,)]


def test_a_blocked_task_frees_its_cpu_for_its_child():
    stage = Stage({"CPU": 1})
    stage.ask(CPU=1)
    [(_, lease, worker, _, _)] = stage.grants()
    child = stage.ask(worker, CPU=1)
    assert stage.grants(worker) == []
    stage(events.TaskBlocked(worker))
    [(granted, child_lease, *_)] = stage.grants(worker)
    assert granted == child
    stage(events.TaskUnblocked(worker))
    assert stage.available() == {}
    stage.give_back(child_lease, worker)
    stage.give_back(lease)
    assert stage.available() == {"CPU": 1.0}


def test_deep_recursion_on_one_cpu_comes_to_its_end():
    stage = Stage({"CPU": 1})
    callers = ["driver"]
    leases = []
    for _ in range(20):
        stage.ask(callers[-1], CPU=1)
        [(_, lease, worker, _, _)] = stage.grants(callers[-1])
        leases.append(lease)
        stage(events.TaskBlocked(worker))
        callers.append(worker)
    for caller, lease in zip(reversed(callers[:-1]), reversed(leases), strict=True):
        stage.give_back(lease, caller)
    assert stage.available() == {"CPU": 1.0}


def test_a_lost_worker_is_reported_with_its_cause_and_its_resources_come_back():
    stage = Stage()
    stage.ask(CPU=2)
    [(_, _lease, worker, _, _)] = stage.grants()
    stage.die(worker)
    assert stage.heard(m.WORKER_GONE) == [(worker, "", CRASH)]
    assert stage.available() == {"CPU": 2.0}


def test_an_owner_hears_which_segments_the_dead_has_made_for_it():
    stage = Stage()
    stage.ask(CPU=1)
    [(_, _, worker, _, _)] = stage.grants()
    stage.ask(CPU=1)
    [(_, _, other, _, _)] = stage.grants()
    stage(events.MemberDied(worker, CRASH, {"driver": ["/a"], "gone before": ["/b"]}))
    assert stage.heard(m.WORKER_GONE) == [(worker, "", CRASH, ["/a"])]
    assert stage.heard(m.WORKER_GONE, other) == [(worker, "", CRASH)]


def test_a_worker_that_announced_its_end_is_not_a_crash():
    stage = Stage()
    stage.ask(CPU=1)
    [(_, _lease, worker, _, _)] = stage.grants()
    stage(events.WorkerLeft(worker, m.CAUSE_EXIT, "max_calls"))
    assert stage.available() == {"CPU": 2.0}
    stage.die(worker, Cause(m.CAUSE_CRASH, "", 7, 0, None))
    assert stage.heard(m.WORKER_GONE) == [(worker, "", (m.CAUSE_EXIT, "max_calls", 7, 0, None))]


def test_the_death_of_a_client_ends_the_workers_it_leased_and_forgets_its_requests():
    stage = Stage()
    stage.ask(CPU=1)
    [(_, _, parent, _, _)] = stage.grants()
    stage.ask(parent, CPU=1)
    [(_, _, child, _, _)] = stage.grants(parent)
    stage.ask(parent, CPU=1)
    stage.die(parent)
    assert stage.killed == [child]
    stage.join_all()
    assert stage.available() == {"CPU": 2.0}
    assert not stage.scheduler.leases


def test_a_lease_whose_conversation_is_broken_ends_its_worker_and_is_free_again():
    stage = Stage()
    stage.ask(CPU=1)
    [(_, lease, worker, _, _)] = stage.grants()
    stage(events.LeaseBroken("somebody else", lease, "why"))
    assert not stage.killed
    stage(events.LeaseBroken("driver", lease, "why"))
    assert stage.killed == [worker]
    stage(events.LeaseBroken("driver", lease, "why"))
    stage.join_all()
    stage.die(worker)
    assert stage.available() == {"CPU": 2.0}
    assert not stage.scheduler.leases


def test_workers_belong_to_their_environment():
    stage = Stage(env={"A": "1"})
    stage.ask(CPU=1)
    [(_, lease, plain, _, _)] = stage.grants()
    stage.give_back(lease)
    instructions = stage.scheduler.handle(events.LeaseRequested("driver", 50, {"resources": {"CPU": 1}, "env": {"A": "2"}}))
    [spawn] = [one for one in instructions if isinstance(one, SpawnWorker)]
    assert spawn.environment == (("A", "2"),)
    stage(events.MemberJoined(spawn.process, 9))
    stage.ask(CPU=1, env={"A": "1"})
    assert stage.grants()[-1][2] == plain


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        ("2,3", [[2], [3], [2, 3]]),
        ("5, 2,3", [[5], [2], [5, 2]]),
        ("GPU-11111111,7", [["GPU-11111111"], [7], ["GPU-11111111", 7]]),
        ("2", [[2], [2], [2]]),
        ("2,-1,3", [[2], [2], [2]]),
        ("", [[], [], []]),
    ],
)
def test_the_gpus_of_a_runtime_environment_are_counted_among_those_that_it_lists(listed: str, shown: Any):
    stage = Stage({"CPU": 4}, [0, 1])
    env = {"CUDA_VISIBLE_DEVICES": listed}
    stage.ask(GPU=1, env=env)
    stage.ask(GPU=1, env=env)
    grants = stage.grants()
    for grant in grants:
        stage.give_back(grant[1])
    stage.ask(GPU=2, env=env)
    grants += stage.grants()
    assert [grant[4] for grant in grants] == shown


def test_the_gpus_of_a_runtime_environment_are_counted_where_the_session_has_a_list_of_its_own():
    stage = Stage({"CPU": 4}, [4, 6, 7])
    stage.ask(GPU=1)
    stage.ask(GPU=1, env={"CUDA_VISIBLE_DEVICES": "6,7"})
    stage.ask(GPU=1, env={"CUDA_VISIBLE_DEVICES": "7,6,4"})
    assert [grant[4] for grant in stage.grants()] == [[4], [7], [4]]


def test_a_worker_with_a_gpu_past_is_used_for_the_same_gpus_only():
    stage = Stage({"CPU": 4}, [0, 1])
    stage.ask(GPU=1)
    [(_, lease, with_gpu, _, ids)] = stage.grants()
    assert ids == [0]
    stage.give_back(lease)
    stage.ask(CPU=1)
    [(_, _, without, _, _)] = stage.grants()
    assert without != with_gpu
    stage.ask(GPU=1)
    [(_, lease, again, _, _)] = stage.grants()
    assert again == with_gpu
    stage.give_back(lease)
    stage.ask(GPU=2)
    [(_, _, both, _, ids)] = stage.grants()
    assert ids == [0, 1]
    assert both not in (with_gpu, without)
    # The idle one may still hold memory of GPU 0.
    assert stage.heard(m.EXIT, with_gpu)


def test_idle_workers_above_the_limit_are_told_to_end_unless_actors_depend_on_them():
    stage = Stage({"CPU": 64, "GPU": 0})
    stage.scheduler._cpus = 1
    for _ in range(20):
        stage.ask(CPU=1)
    grants = stage.grants()
    owner = grants[0][2]
    stage(events.ActorRequested(owner, 0, b"a", {"label": "A", "detached": True, "resources": {}}))
    for grant in grants:
        stage.give_back(grant[1])
    assert stage.scheduler.workers.idle_count == policy.idle_limit(1)
    ended = [process for process, message in stage.told if message[0] == m.EXIT]
    assert len(ended) == 20 - 1 - policy.idle_limit(1)
    assert owner not in ended


@pytest.mark.parametrize(("env", "words"), [({"LD_PRELOAD": "/nonsense"}, " with the env_vars ['LD_PRELOAD']"), ({}, "")])
def test_an_environment_that_cannot_start_workers_refuses_who_waits(env, words):
    stage = Stage()
    request = stage.ask(CPU=1, env=env)
    for pid in range(1, policy.SPAWN_ATTEMPTS + 1):
        stage.die(stage.spawned.pop(), Cause(m.CAUSE_CRASH, "", pid, -9, None))
    [(refused, text)] = stage.heard(m.LEASE_REFUSED)
    assert refused == request
    assert text.endswith(f"{m.NO_PROCESS}{words}: it (pid 3) was killed by SIGKILL (signal 9) as it started")
    assert stage.available() == {"CPU": 2.0}
    assert not stage.spawned


AROUND = {"PATH": "/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "2"}
LATE: list[tuple[dict[str, str], dict[str, str], str]] = [
    ({"MINE": "1", "PATH": "/other"}, {}, "never"),
    ({"LANG": "C.UTF-8", "OMP_NUM_THREADS": "2"}, {}, "never"),
    ({"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}, {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}, "never"),
    ({"TZ": "America/Lima"}, {}, "always"),
    ({}, {"LD_LIBRARY_PATH": "/lib"}, "always"),
    ({"PYTHONHASHSEED": "2"}, {"PYTHONHASHSEED": "1"}, "always"),
    ({policy.WRAPPER_VARIABLE: ""}, {}, "always"),
    ({"OMP_NUM_THREADS": "1"}, {}, "preloaded"),
    ({}, {"OMP_NUM_THREADS": "1"}, "preloaded"),
    ({"OMP_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "1"}, "preloaded"),
    ({"RAY_SERVE_LOG_TO_STDERR": "0"}, {}, "preloaded"),
    ({"RAY_SERVE_INTERNAL_DEPLOYMENT_NAME": "d"}, {}, "never"),
]


@pytest.mark.parametrize(("workers", "zygotes", "when"), LATE)
def test_a_worker_is_forked_where_all_that_is_read_before_the_fork_is_as_its_zygote_has_it(workers, zygotes, when):
    assert policy.needs_fresh_interpreter(workers, zygotes, AROUND, False) == (when == "always")
    assert policy.needs_fresh_interpreter(workers, zygotes, AROUND, True) == (when != "never")


def test_an_environment_that_could_not_be_set_up_is_not_tried_again():
    stage = Stage()
    requests = {stage.ask(CPU=1, env={"A": "1"}) for _ in range(2)}
    first, *others = stage.spawned
    stage.die(first, Cause(m.CAUSE_REFUSED, "pip failed", 0, None, None))
    for other in others:
        stage.die(other, Cause(m.CAUSE_REFUSED, "pip failed", 0, None, None))
    refused = dict(stage.heard(m.LEASE_REFUSED))
    assert refused.keys() == requests
    assert all(text.endswith(f"{m.NO_PROCESS}: pip failed") for text in refused.values())
    assert stage.spawned == [first, *others]
    assert stage.available() == {"CPU": 2.0}


def test_a_worker_that_dies_as_it_starts_is_started_again():
    stage = Stage()
    stage.ask(CPU=1)
    stage.die(stage.spawned.pop())
    assert len(stage.grants()) == 1


def test_leases_that_hold_nothing_are_many_but_not_endless():
    stage = Stage()
    for _ in range(policy.FREE_LEASES + 5):
        stage.scheduler.handle(events.LeaseRequested("driver", next(stage.requests), {"resources": {}}))
    assert len(stage.scheduler.queue) == 5
    assert stage.available() == {"CPU": 2.0}


def test_unknown_listings_are_answered_with_an_error():
    stage = Stage()
    stage(events.Queried("driver", 5, "nonsense", ()))
    [(request, ok, text)] = stage.heard(m.ANSWER)
    assert (request, ok) == (5, False)
    assert "nonsense" in text


def test_listings_of_resources():
    stage = Stage({"CPU": 2, "x": 1}, [0])
    stage.ask(CPU=2)
    stage(events.Queried("driver", 1, "cluster_resources", ()))
    stage(events.Queried("driver", 2, "available_resources", ()))
    assert stage.heard(m.ANSWER) == [(1, True, {"CPU": 2.0, "x": 1.0, "GPU": 1.0}), (2, True, {"x": 1.0, "GPU": 1.0})]


def test_workers_start_ahead_of_need():
    stage = Stage()
    stage(events.PrestartAllowed())
    assert len(stage.spawned) == 2
    stage.join_all()
    stage.ask(CPU=1)
    assert len(stage.heard(m.LEASE_GRANT)) == 1


def test_a_hundred_thousand_queued_demands_cost_no_more_than_one():
    stage = Stage({"CPU": 1})
    handle = stage.scheduler.handle
    for number in range(100_000):
        handle(events.LeaseRequested("driver", 1000 + number, {"resources": {"CPU": 1}}))
    process = next(iter(stage.scheduler.workers.workers))
    touched = handle(events.MemberJoined(process, 3))
    for number in range(1000):
        grants = [one for one in touched if isinstance(one, Tell)]
        assert [one.message[:2] for one in grants] == [(m.LEASE_GRANT, 1000 + number)]
        touched = handle(events.LeaseReturned("driver", number + 1))
    for number in range(50_000, 101_000):
        handle(events.LeaseCancelled("driver", number))
    assert len(stage.scheduler.queue) == 50_000 - 1000 - 1001
    stage.scheduler.validate()


@pytest.mark.parametrize("seed", range(3))
def test_invariants_hold_in_a_storm(seed: int):
    chance = random.Random(seed)
    stage = Stage({"CPU": 3, "x": 2}, [0, 1])
    live: list[tuple[str, int]] = []
    actors = [bytes([number]) for number in range(6)]
    for _ in range(300):
        members = list(stage.scheduler.members)
        who = chance.choice(members)
        what = chance.randrange(13)
        if what < 3:
            stage.ask(who, CPU=chance.choice([0, 0.5, 1, 2]), GPU=chance.choice([0, 0, 0.5, 1]), env=chance.choice([None, {"E": "1"}]))
        elif what == 3 and live:
            owner, lease = live.pop(chance.randrange(len(live)))
            stage.give_back(lease, owner)
        elif what == 4 and who != "driver":
            stage.die(who)
        elif what == 5 and who != "driver":
            stage(events.TaskBlocked(who))
        elif what == 6 and who != "driver":
            stage(events.TaskUnblocked(who))
        elif what == 7:
            actor = bytes([chance.randrange(6)]) + bytes([chance.randrange(256)])
            actors.append(actor)
            spec = {
                "label": "A",
                "resources": {"CPU": chance.choice([0, 1])},
                "placement": {"CPU": 1},
                "max_restarts": chance.choice([0, 1, -1]),
                "name": chance.choice([None, "a", "b"]),
                "detached": chance.random() < 0.2,
            }
            if actor not in stage.scheduler.actors.records and actor not in stage.scheduler.actors._tombstones:
                stage(events.ActorRequested(who, 1, actor, spec))
        elif what == 8:
            stage(events.ActorKilled(chance.choice(actors), chance.random() < 0.5))
        elif what == 9:
            stage(events.HandlesHeld(who, 0, [chance.choice(actors)]))
            stage(events.ActorWatched(who, chance.choice(actors)))
        elif what == 10:
            stage(events.HandlesDropped(who, [chance.choice(actors)]))
        elif what == 11:
            for process, message in stage.told:
                if message[0] == m.ACTOR_START:
                    done = events.ActorConstructed(process, message[1])
                    stage(done if chance.random() < 0.8 else events.ActorFailed(process, message[1], b"error"))
            stage.told = [item for item in stage.told if item[1][0] != m.ACTOR_START]
        else:
            stage(events.LeaseCancelled(who, chance.randrange(50)))
        if chance.random() < 0.4:
            stage.join_all()
        for member in members:
            live += [(member, grant[1]) for grant in stage.heard(m.LEASE_GRANT, member)]


def test_the_lease_of_a_worker_that_ends_on_purpose_is_recalled():
    stage = Stage()
    stage.ask(CPU=1)
    [(_, lease, worker, _, _)] = stage.grants()
    stage(events.WorkerLeft(worker, m.CAUSE_EXIT, "max_calls"))
    assert stage.heard(m.LEASE_RECALL) == [(lease,)]
    stage.give_back(lease)
    stage.die(worker)
    assert stage.available() == {"CPU": 2.0}


def test_a_worker_that_ends_and_stays_for_others_has_nothing_of_its_task():
    stage = Stage({"CPU": 1}, [0])
    stage.ask(CPU=1, GPU=1)
    [(_, lease, worker, _, _)] = stage.grants()
    stage(events.WorkerLeft(worker, m.CAUSE_EXIT, "max_calls"))
    assert stage.available() == {"CPU": 1.0}, "its memory on the GPU goes with it"
    stage(events.TaskBlocked(worker))
    assert stage.available() == {"CPU": 1.0, "GPU": 1.0}
    stage.give_back(lease)
    stage.ask(CPU=1, GPU=1)
    [(_, _, other, _, _)] = stage.grants()
    assert other != worker
    stage.die(worker)
    assert stage.available() == {}


def test_the_event_log_has_the_last_events_and_their_fields() -> None:
    stage = Stage()
    request = stage.ask(CPU=1)
    stage.scheduler.handle(events.LeaseCancelled("driver", request))
    lines = str(stage.scheduler.event_log).splitlines()
    assert lines[0] == "The last events of the scheduler:"
    assert lines[-1] == f"  LeaseCancelled(process='driver', request={request})"
    assert "MemberJoined(process='driver', pid=1, job='')" in lines[1]
    for _ in range(100):
        stage.ask(CPU=1)
    assert len(str(stage.scheduler.event_log).splitlines()) == 41


@pytest.mark.parametrize(
    "change",
    [{"amounts": {"CPU": 2}}, {"placement": {"CPU": 2}}, {"environment": (("A", "2"),)}, {"affinity": "auto"}, {"fail_fast": True}],
    ids=lambda change: next(iter(change)),
)
def test_claimants_that_differ_are_not_interchangeable(change: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"amounts": {"CPU": 1}, "placement": {"CPU": 1}, "environment": (("A", "1"),), "label": "f"}
    assert Claimant(**usual).key == Claimant(**usual).key
    assert Claimant(**usual).key == Claimant(**{**usual, "label": "g"}).key
    assert Claimant(**{**usual, **change}).key != Claimant(**usual).key
