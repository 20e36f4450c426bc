"""The decisions about the tasks of one scheduling class and the leased workers that they flow through, without a process."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from mray._common import messages as m
from mray._common.causes import Cause
from mray._common.event_log import InvalidTransitionError
from mray._decide.caller.call_records import CANCELLED
from mray._decide.caller.caller_instructions import (
    AwaitPause,
    AwaitTurn,
    Begin,
    Cancel,
    CancelRequests,
    Decline,
    Fail,
    FailLost,
    FailRefused,
    FailUnreachable,
    Push,
    Reclaim,
    Request,
    Rest,
    Return,
    WatchIdle,
    WatchPipelines,
)
from mray._decide.caller.lease_pool import (
    AHEAD_SECONDS,
    AHEAD_TASKS,
    CAUTION,
    KEEP_SECONDS,
    LONGEST_REST,
    MOST_REQUESTS,
    MOST_UNREACHABLE,
    PAUSE_SECONDS,
    STUCK_SECONDS,
    TURN_SECONDS,
    Lease,
    LeasePool,
)
from tests.unit.pending import Link, Pending

CRASH = Cause(m.CAUSE_CRASH, "", 7, -9)
EXIT = Cause(m.CAUSE_EXIT, "", 7, 0)
MEMORY = Cause(m.CAUSE_MEMORY, "", 7, -9)
REFUSED = Cause(m.CAUSE_REFUSED, "no such environment", 7, 1)


class Task(Pending):
    """A task whose arguments are there."""

    def __init__(self, number: int, retries: int = 3) -> None:
        super().__init__(number, 0, retries)
        self.lease: Any = None
        self.memory_kills = 0


class Stage:
    """A pool whose instructions are carried out at once, and a clock that the test turns."""

    def __init__(self, memory: tuple[int, float] = (2, 1.0), **options: Any) -> None:
        self.pool: LeasePool[Task] = LeasePool("a class", count(1), **options)
        self.now = 100.0
        self.memory = memory
        self.tasks: list[Task] = []
        #: Requests at the node, leases that this process has, and those that it has returned.
        self.requests: dict[int, str] = {}
        self.held: dict[int, Lease] = {}
        self.returned: list[int] = []
        self.declined: list[int] = []
        #: (lease, tasks) of each message that asks tasks back, and the tasks pushed over each lease.
        self.reclaims: list[tuple[int, int]] = []
        self.pushed: dict[int, list[int]] = {}
        #: Times that are to pass: (when, event).
        self.later: list[tuple[float, Any]] = []
        self.resting: list[tuple[Task, float]] = []
        #: Tasks that messages cannot carry.
        self.unsendable: set[Task] = set()
        self.under_way: list[Any] = []

    def follow(self, instructions: list[Any]) -> None:
        self.pool.validate()
        self.under_way += instructions
        if len(self.under_way) > len(instructions):
            return  # the outer one carries them out
        for each in self.under_way:
            if isinstance(each, Push):
                assert each.tasks
                for task in each.tasks:
                    self.send(each.lease, task)
            elif isinstance(each, Request):
                assert each.task.end is None
                self.requests[each.number] = f"task {each.task.number}"
            elif isinstance(each, CancelRequests):
                for number in each.numbers:
                    del self.requests[number]
            elif isinstance(each, Decline):
                self.declined.append(each.lease_id)
            elif isinstance(each, Begin):
                assert each.lease.lease_id not in self.held
                self.held[each.lease.lease_id] = each.lease
            elif isinstance(each, Return):
                del self.held[each.lease.lease_id]
                assert not each.lease.pipeline
                self.returned.append(each.lease.lease_id)
            elif isinstance(each, Reclaim):
                assert 0 < each.tasks < len(each.lease.pipeline)
                self.reclaims.append((each.lease.lease_id, each.tasks))
            elif isinstance(each, Rest):
                self.resting.append((each.task, each.seconds))
            elif isinstance(each, Cancel):
                each.call.finish("cancelled")
            elif isinstance(each, Fail):
                each.call.finish(str(each.error))
            elif isinstance(each, FailLost):
                each.task.finish(f"lost {each.cause.kind} {each.process}")
            elif isinstance(each, FailRefused):
                each.task.finish(f"refused {each.text}")
            elif isinstance(each, FailUnreachable):
                each.task.finish(f"unreachable {each.process}")
            else:
                self.watch(each)
        self.under_way = []

    def send(self, lease: Lease, task: Task) -> None:
        assert self.held[lease.lease_id] is lease, "it has the lease while it uses it"
        assert task.end is None
        if task in self.unsendable:
            del lease.pipeline[task.task_id]
            task.finish("unsendable")
            self.follow(self.pool.unsent(lease, self.now))
        else:
            self.pushed.setdefault(lease.lease_id, []).append(task.number)

    def watch(self, each: Any) -> None:
        pool = self.pool
        if isinstance(each, WatchPipelines):
            self.later.append((self.now + STUCK_SECONDS, lambda: pool.stuck_time_passed(self.now)))
        elif isinstance(each, WatchIdle):
            self.later.append((self.now + KEEP_SECONDS, lambda: pool.keep_time_passed(self.now)))
        elif isinstance(each, AwaitTurn):
            self.later.append((self.now + each.seconds, lambda: pool.turn_passed(each.lease)))
        else:
            assert isinstance(each, AwaitPause)
            self.later.append((self.now + PAUSE_SECONDS, lambda: pool.pause_passed(each.lease, each.since)))

    # ------------------------------------------------------------------------------------ events
    def submit(self, retries: int = 3, sendable: bool = True) -> Task:
        task = Task(len(self.tasks), retries)
        self.tasks.append(task)
        if not sendable:
            self.unsendable.add(task)
        self.submit_again(task)
        return task

    def submit_again(self, task: Task) -> None:
        lease = self.pool.immediate_lease(task)
        if lease is None:
            self.follow(self.pool.submitted(task, self.now))
        else:
            self.pool.pushed(lease, task, self.now)
            self.send(lease, task)

    def grant(self, lease_id: int, link: Link | None = None) -> Lease:
        number = min(self.requests)
        del self.requests[number]
        lease = Lease(lease_id, f"w{lease_id}", link or Link(), self.now)
        self.follow(self.pool.granted(number, lease, self.now))
        return lease

    def reply(self, lease: Lease, task: Task | None = None) -> None:
        task = task or next(iter(lease.pipeline.values()))
        del lease.pipeline[task.task_id]
        task.finish("answered")
        self.follow(self.pool.replied(lease, self.now))

    def give_back(self, lease: Lease, *tasks: Task) -> None:
        for task in tasks:
            del lease.pipeline[task.task_id]
        self.follow(self.pool.given_back(lease, tasks, self.now))

    def lose(self, lease: Lease, cause: Cause) -> None:
        self.pool.worker_ended(lease)
        self.follow(self.pool.lost(lease, cause, self.now, self.memory))
        self.held.pop(lease.lease_id, None)

    def recall(self, lease: Lease) -> None:
        self.follow(self.pool.recalled(lease, self.now))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [event for when, event in self.later if when <= self.now]
        self.later = [(when, event) for when, event in self.later if when > self.now]
        for event in due:
            self.follow(event())
        self.pool.validate()

    def pipeline(self, lease: Lease) -> list[int]:
        return [task.number for task in lease.pipeline.values()]

    def queued(self) -> list[int]:
        return [task.number for task in self.pool.queue]

    # ------------------------------------------------------------------------------------ scenes
    def with_pace(self, pace: float = 1e-4) -> Stage:
        self.pool.pace = pace
        return self


def leased(*, tasks: int = 1, leases: int = 1, **options: Any) -> tuple[Stage, list[Lease]]:
    """So many leases, each with a task of unknown length, and the other tasks queued."""
    stage = Stage(**options)
    for _ in range(tasks):
        stage.submit()
    return stage, [stage.grant(number) for number in range(1, leases + 1)]


# ------------------------------------------------------------------------------------------ requests and grants
def test_each_waiting_task_asks_for_a_lease_up_to_a_number_by_the_name_of_the_first() -> None:
    stage = Stage()
    for _ in range(MOST_REQUESTS + 5):
        stage.submit()
    assert list(stage.requests.values()) == ["task 0"] * MOST_REQUESTS
    assert stage.pool.full
    stage.grant(1)
    assert list(stage.requests.values()) == ["task 0"] * (MOST_REQUESTS - 1) + ["task 1"]


def test_a_grant_that_no_task_waits_for_is_declined() -> None:
    stage = Stage()
    task = stage.submit()
    assert stage.pool.cancelled(task)
    stage.grant(1)
    assert (stage.declined, stage.held) == ([1], {})
    assert not stage.pool.cancelled(task)


def test_requests_are_cancelled_once_the_last_task_has_found_an_idle_worker() -> None:
    stage, (lease,) = leased(tasks=2)
    assert len(stage.requests) == 1
    stage.reply(lease)
    assert stage.pipeline(lease) == [1] and len(stage.requests) == 1
    stage.reply(lease)
    assert stage.requests == {}


def test_a_pool_whose_requests_are_refused_fails_its_tasks() -> None:
    stage = Stage()
    tasks = [stage.submit(), stage.submit()]
    number = min(stage.requests)
    stage.follow(stage.pool.refused(number, "too big"))
    assert [task.end for task in tasks] == ["refused too big"] * 2
    assert not stage.pool.queue


def test_workers_that_cannot_be_connected_to_are_replaced_and_not_for_ever() -> None:
    stage = Stage()
    task = stage.submit()
    for lease in range(MOST_UNREACHABLE):
        assert task.end is None
        (number,) = stage.requests
        del stage.requests[number]
        stage.follow(stage.pool.unreachable(number, lease, f"w{lease}", None, stage.now))
    assert task.end == f"unreachable w{MOST_UNREACHABLE - 1}"
    assert stage.declined == list(range(MOST_UNREACHABLE)) and not stage.requests


def test_a_grant_that_is_reached_forgives_those_that_were_not() -> None:
    stage = Stage()
    stage.submit()
    for lease in range(MOST_UNREACHABLE - 1):
        stage.follow(stage.pool.unreachable(stage.requests.popitem()[0], lease, "w", None, stage.now))
    stage.grant(50)
    task = stage.submit()
    stage.follow(stage.pool.unreachable(stage.requests.popitem()[0], 51, "w", None, stage.now))
    assert task.end is None


def test_without_descriptors_the_tasks_fail_with_that() -> None:
    stage = Stage()
    task = stage.submit()
    stage.follow(stage.pool.unreachable(stage.requests.popitem()[0], 1, "w", OSError("no descriptor is left"), stage.now))
    assert task.end == "no descriptor is left" and not stage.requests


# ------------------------------------------------------------------------------------------ depth
@pytest.mark.parametrize(
    ("pace", "options", "cautious", "depth"),
    [
        (None, {}, 0, 1),
        (1e-3, {}, 0, 1),
        (1e-4, {}, 0, 19),
        (0.0, {}, 0, AHEAD_TASKS),
        (1e-4, {"single": True}, 0, 1),
        (1e-4, {}, 1, 1),
    ],
)
def test_the_depth_follows_from_the_length_of_tasks(pace: float | None, options: dict[str, Any], cautious: int, depth: int) -> None:
    pool = Stage(**options).pool
    pool.pace, pool.cautious = pace, cautious
    assert pool.depth() == depth


def test_short_tasks_are_pushed_ahead_and_the_pipeline_is_filled_when_it_is_half_empty() -> None:
    stage, (lease,) = leased(tasks=100)
    stage.now += 1e-4
    stage.reply(lease)
    assert 10 < len(lease.pipeline) == stage.pool.depth()
    before = len(lease.pipeline)
    for _ in range(before - before // 2 - 1):
        stage.now += 1e-4
        stage.reply(lease)
    assert len(lease.pipeline) == before // 2 + 1
    stage.now += 1e-4
    stage.reply(lease)
    assert len(lease.pipeline) == stage.pool.depth()


def test_one_long_task_makes_the_pool_push_one_at_a_time() -> None:
    stage, (lease,) = leased(tasks=100)
    stage.with_pace()
    stage.now += AHEAD_SECONDS * 5
    stage.reply(lease)
    assert (stage.pool.depth(), len(lease.pipeline)) == (1, 1)


def test_an_idle_worker_is_fed_before_a_busy_one() -> None:
    stage, (first, second) = leased(tasks=2, leases=2)
    stage.with_pace()
    stage.reply(second)
    stage.submit()
    assert (stage.pipeline(first), stage.pipeline(second)) == ([0], [2])
    stage.submit()
    assert (stage.pipeline(first), stage.pipeline(second)) == ([0, 3], [2])


def test_a_task_without_retries_waits_for_an_idle_worker_and_those_behind_it_wait_too() -> None:
    stage, (lease,) = leased()
    stage.with_pace()
    stage.submit()
    once = stage.submit(retries=0)
    stage.submit()
    assert (stage.pipeline(lease), stage.queued()) == ([0, 1], [2, 3])
    stage.reply(lease)
    assert stage.pipeline(lease) == [1]
    stage.reply(lease)
    assert stage.pipeline(lease) == [2, 3]
    assert once.lease is lease


def test_a_task_may_follow_once_one_without_retries_was_cancelled() -> None:
    stage, (lease,) = leased()
    stage.with_pace()
    once = [stage.submit(retries=0) for _ in range(MOST_REQUESTS)]
    assert stage.pool.full
    for task in once:
        assert stage.pool.cancelled(task)
    last = stage.submit()
    assert stage.pipeline(lease) == [0, last.number]


def test_without_times_one_task_is_pushed_at_a_time() -> None:
    stage, (lease,) = leased(tasks=3, timed=False)
    for _ in range(3):
        stage.reply(lease)
    assert stage.pushed == {1: [0, 1, 2]} and stage.pool.pace is None


def test_a_worker_for_one_task_gets_one_and_another_is_asked_for() -> None:
    stage, (lease,) = leased(tasks=2, single=True)
    stage.with_pace()
    stage.reply(lease)
    assert (lease.pipeline, stage.queued(), len(stage.requests)) == ({}, [1], 1)
    stage.lose(lease, EXIT)
    assert stage.grant(2).pipeline.keys() == {stage.tasks[1].task_id}


def end_idle(stage: Stage) -> None:
    stage.pass_time(KEEP_SECONDS)


@pytest.mark.parametrize(
    "wanted_back",
    [lambda stage: stage.follow(stage.pool.called_in()), lambda stage: stage.recall(stage.held[1]), end_idle],
    ids=["called in", "recalled", "idle"],
)
@pytest.mark.parametrize("single", [True, False])
def test_a_worker_that_ends_after_its_task_is_not_given_to_others(wanted_back: Callable[[Stage], None], single: bool) -> None:
    stage, (lease,) = leased(single=single)
    if not single:
        stage.with_pace()
        stage.submit()
        stage.submit()
        stage.pool.worker_leaves(lease)
    stage.submit()
    assert not lease.takes()
    stage.reply(lease)
    if not single:
        stage.give_back(lease, *lease.pipeline.values())
    wanted_back(stage)
    assert (stage.returned, stage.pipeline(lease)) == ([], [])
    assert len(stage.requests) == len(stage.queued()) == len(stage.tasks) - 1
    stage.lose(lease, EXIT)
    stage.pool.validate()
    other = stage.grant(2)
    assert stage.pipeline(other)


def test_a_task_that_cannot_be_sent_leaves_its_worker_to_the_next_one() -> None:
    stage, (lease,) = leased()
    stage.reply(lease)
    stage.submit(sendable=False)
    assert lease.takes() and not lease.pipeline
    stage.submit()
    assert stage.pipeline(lease) == [2]
    stage.submit(sendable=False)
    stage.submit()
    stage.reply(lease)
    assert stage.pipeline(lease) == [4] and not stage.pool.queue


def test_a_worker_for_one_task_is_not_spent_by_one_that_cannot_be_sent() -> None:
    stage = Stage(single=True)
    stage.submit(sendable=False)
    lease = stage.grant(1)
    stage.submit()
    assert stage.pipeline(lease) == [1]


# ------------------------------------------------------------------------------------------ taking back
def test_an_idle_worker_takes_over_half_of_what_waits_behind_another() -> None:
    stage, (first, second) = leased(tasks=2, leases=2)
    stage.with_pace()
    for _ in range(30):
        stage.submit()
    for _ in range(len(second.pipeline)):
        stage.reply(second)
    waiting = len(first.pipeline) - 1
    assert stage.reclaims == [(1, (waiting + 1) // 2)]
    back = list(first.pipeline.values())[-((waiting + 1) // 2) :]
    stage.give_back(first, *back)
    assert stage.pipeline(second) == [task.number for task in back]
    assert first.stalled
    stage.submit()
    assert len(first.pipeline) == waiting + 1 - len(back)
    stage.reply(first)
    assert not first.stalled


def test_tasks_behind_a_long_one_are_taken_back_once() -> None:
    stage, (lease,) = leased(tasks=1)
    stage.with_pace()
    stage.submit()
    stage.submit()
    stage.pass_time(STUCK_SECONDS)
    stage.pass_time(STUCK_SECONDS)
    stage.pass_time(STUCK_SECONDS)
    assert stage.reclaims == [(1, 2)]
    stage.give_back(lease, stage.tasks[1], stage.tasks[2])
    assert (stage.queued(), len(stage.requests), stage.pipeline(lease)) == ([1, 2], 2, [0])


def test_tasks_are_taken_back_again_from_a_worker_that_has_answered() -> None:
    stage, (lease,) = leased()
    stage.with_pace()
    stage.submit()
    stage.submit()
    stage.pass_time(2 * STUCK_SECONDS)
    stage.give_back(lease)  # the reading thread was late: they had begun
    stage.reply(lease)
    stage.pass_time(2 * STUCK_SECONDS)
    assert stage.reclaims == [(1, 2), (1, 1)]


def test_a_worker_that_has_ended_is_not_asked_for_its_tasks() -> None:
    stage, (first, second) = leased(tasks=2, leases=2)
    stage.with_pace()
    stage.submit()
    stage.submit()
    stage.pool.worker_ended(first)
    stage.reply(second)
    stage.pass_time(2 * STUCK_SECONDS)
    assert len(first.pipeline) > 1 and stage.reclaims == []


def test_tasks_that_move_are_not_taken_back() -> None:
    stage, (lease,) = leased(tasks=1)
    stage.with_pace()
    for _ in range(5):
        stage.submit()
    while len(lease.pipeline) > 1:
        stage.pass_time(STUCK_SECONDS / 2)
        stage.reply(lease)
    assert stage.reclaims == []


def test_a_worker_that_was_asked_may_answer_when_its_lease_is_over_and_gets_no_task_then() -> None:
    stage, (first, second) = leased(tasks=2, leases=2)
    stage.with_pace()
    stage.submit()
    stage.reply(second)
    assert stage.reclaims == [(1, 1)]
    stage.reply(first)
    stage.reply(first)
    stage.recall(first)
    stage.recall(second)
    assert stage.returned == [1, 2]
    waits = stage.submit()
    stage.give_back(first)
    assert waits.lease is None and stage.queued() == [3]


def test_an_attempt_that_fails_after_it_has_blocked_leaves_the_requests_of_others() -> None:
    stage, (lease,) = leased(tasks=3)
    stage.give_back(lease)
    before = set(stage.requests)
    task = stage.tasks[0]
    del lease.pipeline[task.task_id]
    stage.follow(stage.pool.attempt_failed(lease, task, stage.now))
    assert before < set(stage.requests) and stage.queued() == [0, 1, 2]


def test_a_task_that_blocks_gives_back_those_behind_it_and_one_that_was_cancelled_ends() -> None:
    stage, (lease,) = leased()
    stage.with_pace()
    stage.submit()
    cancelled = stage.submit()
    cancelled.retries = CANCELLED
    stage.give_back(lease, stage.tasks[1], cancelled)
    assert (cancelled.end, stage.queued(), lease.stalled) == ("cancelled", [1], True)
    stage.submit()
    assert stage.pipeline(lease) == [0]
    stage.grant(2)
    assert stage.pushed[2] == [1, 3]


# ------------------------------------------------------------------------------------------ idle and wanted leases
def test_an_idle_lease_is_kept_a_while() -> None:
    stage, (lease,) = leased()
    stage.reply(lease)
    stage.pass_time(KEEP_SECONDS / 2)
    stage.submit()
    stage.reply(lease)
    stage.pass_time(KEEP_SECONDS / 2)
    assert stage.returned == []
    stage.pass_time(KEEP_SECONDS)
    assert stage.returned == [1] and stage.pool.is_idle() and stage.later == []


def test_idle_leases_and_requests_are_called_in() -> None:
    stage, (first, second) = leased(tasks=3, leases=2)
    stage.reply(first)
    stage.reply(first)
    stage.follow(stage.pool.called_in())
    assert (stage.returned, stage.requests, stage.pipeline(second)) == ([1], {}, [1])


def test_an_idle_lease_that_is_wanted_is_returned_at_once() -> None:
    stage, (lease,) = leased()
    stage.reply(lease)
    stage.recall(lease)
    assert stage.returned == [1] and not lease.takes()
    stage.recall(lease)
    assert stage.returned == [1]


@pytest.mark.parametrize(("queued", "pace"), [(0, 1e-4), (30, None), (30, 1.0)], ids=["no backlog", "unknown tasks", "long tasks"])
def test_a_wanted_lease_without_a_flow_of_short_tasks_takes_no_more(queued: int, pace: float | None) -> None:
    stage, (lease,) = leased()
    stage.pool.pace = pace
    for _ in range(queued):
        stage.submit()
    stage.recall(lease)
    assert not lease.takes()
    stage.reply(lease)
    assert stage.returned == [1]


def test_short_tasks_flow_until_the_turn_is_over() -> None:
    stage, (lease,) = leased(tasks=1)
    stage.with_pace()
    for _ in range(60):
        stage.submit()
    assert stage.pool.queue
    watched = len(stage.later)
    stage.recall(lease)
    stage.recall(lease)
    assert lease.takes() and len(stage.later) == watched + 1
    stage.pass_time(TURN_SECONDS)
    assert not lease.takes() and stage.reclaims == [(1, len(lease.pipeline) - 1)]
    stage.give_back(lease, *list(lease.pipeline.values())[1:])
    stage.reply(lease)
    assert stage.returned == [1]


def test_a_pause_in_a_turn_is_short() -> None:
    stage, (lease,) = leased(tasks=1)
    stage.with_pace()
    for _ in range(60):
        stage.submit()
    stage.recall(lease)
    while stage.pool.queue or lease.pipeline:
        stage.reply(lease)
    stage.pass_time(PAUSE_SECONDS / 2)
    stage.submit()
    stage.reply(lease)
    stage.pass_time(PAUSE_SECONDS / 2)
    assert stage.returned == []
    stage.submit()
    stage.pass_time(PAUSE_SECONDS)
    assert stage.returned == [] and lease.takes()
    stage.reply(lease)
    stage.pass_time(PAUSE_SECONDS)
    assert stage.returned == [1]


def test_the_end_of_a_turn_does_not_concern_the_next_lease_of_the_same_worker() -> None:
    stage, (lease,) = leased(tasks=1)
    stage.with_pace()
    for _ in range(60):
        stage.submit()
    stage.recall(lease)
    while stage.pool.queue or lease.pipeline:
        stage.reply(lease)
    stage.pass_time(PAUSE_SECONDS)
    assert stage.returned == [1]
    stage.pass_time(TURN_SECONDS / 2)
    stage.submit()
    again = stage.grant(2, lease.link)
    stage.submit()
    stage.pass_time(TURN_SECONDS / 2)
    assert again.takes() and stage.reclaims == []


def test_without_times_a_wanted_lease_has_neither_turn_nor_pause() -> None:
    stage, (lease,) = leased(tasks=3, timed=False)
    stage.recall(lease)
    assert stage.later == [] and not lease.takes()
    stage.reply(lease)
    assert stage.returned == [1]


# ------------------------------------------------------------------------------------------ deaths
def test_the_task_at_the_head_is_charged_for_a_death_and_then_one_is_pushed_at_a_time() -> None:
    stage, (lease,) = leased()
    stage.with_pace()
    stage.submit()
    stage.submit()
    stage.lose(lease, CRASH)
    assert [task.charged for task in stage.tasks] == [1, 0, 0]
    assert (stage.queued(), stage.pool.cautious, stage.pool.depth()) == ([0, 1, 2], CAUTION, 1)
    again = stage.grant(2)
    for _ in range(3):
        assert len(again.pipeline) == 1
        stage.reply(again)
    assert stage.pool.cautious == CAUTION - 3


def test_a_worker_that_exits_by_itself_charges_no_task_behind_another() -> None:
    stage, (lease,) = leased()
    stage.lose(lease, EXIT)
    assert (stage.tasks[0].charged, stage.queued()) == (0, [0])


@pytest.mark.parametrize("cause", [CRASH, EXIT])
def test_a_worker_for_one_task_that_ends_in_it_charges_it(cause: Cause) -> None:
    stage = Stage(single=True)
    task = stage.submit(retries=0)
    stage.lose(stage.grant(1), cause)
    assert task.end == f"lost {cause.kind} w1"


def test_a_cancelled_task_whose_worker_has_died_ends_as_cancelled() -> None:
    for cause in (CRASH, MEMORY):
        stage, (lease,) = leased(retriable=True)
        stage.tasks[0].retries = CANCELLED
        stage.lose(lease, cause)
        assert stage.tasks[0].end == "cancelled"


def test_replies_that_a_dead_worker_had_sent_push_nothing_to_it() -> None:
    stage, (lease,) = leased()
    stage.with_pace()
    stage.submit()
    stage.submit(retries=0)
    stage.pool.worker_ended(lease)
    stage.reply(lease)
    stage.submit()
    stage.give_back(lease)
    assert stage.pipeline(lease) == [1]
    stage.lose(lease, CRASH)
    assert [task.charged for task in stage.tasks] == [0, 1, 0, 0]
    assert stage.queued() == [1, 2, 3]


def test_a_task_rests_for_want_of_memory_longer_each_time() -> None:
    stage = Stage((2, 50.0), retriable=True)
    task = stage.submit()
    rests = []
    for number in (1, 2):
        stage.lose(stage.grant(number), MEMORY)
        rests.append(stage.resting.pop()[1])
        stage.submit_again(task)
    assert (rests, task.charged, task.end) == ([50.0, LONGEST_REST], 0, None)
    stage.lose(stage.grant(3), MEMORY)
    assert task.end == f"lost {m.CAUSE_MEMORY} w3"


def test_a_task_that_is_not_retried_does_not_rest() -> None:
    stage, (lease,) = leased()
    stage.lose(lease, MEMORY)
    assert stage.tasks[0].end == f"lost {m.CAUSE_MEMORY} w1"


def test_a_worker_that_could_not_set_up_its_environment_fails_all() -> None:
    stage, (lease,) = leased(tasks=3)
    stage.lose(lease, REFUSED)
    assert [task.end for task in stage.tasks] == ["refused no such environment"] * 3


def test_an_attempt_that_failed_goes_first_and_is_charged() -> None:
    stage, (lease,) = leased(tasks=3)
    task = stage.tasks[0]
    del lease.pipeline[task.task_id]
    stage.follow(stage.pool.attempt_failed(lease, task, stage.now))
    assert (task.charged, stage.pipeline(lease), stage.queued()) == (1, [0], [1, 2])


@pytest.mark.parametrize("dies", [False, True])
def test_a_task_that_has_failed_rests_and_others_go_on(dies: bool) -> None:
    stage = Stage(rest=(2.0,))
    first, second = stage.submit(retries=1), stage.submit()
    lease = stage.grant(1)
    if dies:
        stage.lose(lease, CRASH)
        stage.grant(2)
    else:
        del lease.pipeline[first.task_id]
        stage.follow(stage.pool.attempt_failed(lease, first, stage.now))
    assert stage.resting == [(first, 2.0)]
    assert (first.charged, second.lease.lease_id, stage.queued()) == (1, 1 + dies, [])
    stage.submit_again(first)
    assert stage.queued() == [0]


def test_each_retry_has_its_own_rest_and_the_last_one_holds_for_all_further_ones() -> None:
    stage = Stage(rest=(0.0, 3.0, 5.0))
    task = stage.submit(retries=-1)
    lease, rests = stage.grant(1), []
    for _ in range(4):
        del lease.pipeline[task.task_id]
        stage.follow(stage.pool.attempt_failed(lease, task, stage.now))
        rests.append([seconds for _task, seconds in stage.resting])
        if stage.resting:
            stage.resting.clear()
            stage.submit_again(task)
    assert rests == [[], [3.0], [5.0], [5.0]]


def test_a_cancelled_task_does_not_rest() -> None:
    stage = Stage(rest=(2.0,))
    tasks = [stage.submit(), stage.submit()]
    lease = stage.grant(1)
    tasks[0].retries = CANCELLED
    del lease.pipeline[tasks[0].task_id]
    stage.follow(stage.pool.attempt_failed(lease, tasks[0], stage.now))
    tasks[1].retries = CANCELLED
    stage.lose(lease, CRASH)
    assert [task.end for task in tasks] == ["cancelled", "cancelled"]
    assert stage.resting == []


def test_a_connection_that_was_not_read_returns_its_lease_and_what_was_pushed_meanwhile_goes_elsewhere() -> None:
    stage, (lease,) = leased()
    lease.pipeline.clear()
    stage.tasks[0].finish("broken")
    stage.submit()  # it has waited for the one that has failed
    assert stage.pipeline(lease) == [1]
    stage.follow(stage.pool.unread(lease, stage.now))
    assert (stage.returned, stage.queued(), len(stage.requests)) == ([1], [1], 1)


def test_a_link_that_breaks_when_its_lease_is_over_takes_nothing_with_it() -> None:
    stage, (first, second) = leased(tasks=2, leases=2)
    stage.reply(first)
    stage.recall(first)
    stage.lose(first, CRASH)
    assert (stage.pipeline(second), stage.pool.cautious) == ([1], 0)


def test_the_loss_of_the_node_ends_everything() -> None:
    stage, _leases = leased(tasks=5, leases=2)
    stage.follow(stage.pool.all_lost(OSError("the node is lost")))
    assert {task.end for task in stage.tasks} == {"the node is lost"} and stage.pool.is_idle()


def test_a_reply_over_an_ended_lease_raises_with_the_event_log() -> None:
    stage, (lease,) = leased()
    stage.reply(lease)
    stage.recall(lease)
    with pytest.raises(InvalidTransitionError) as caught:
        stage.pool.replied(lease, stage.now)
    assert "A reply over lease 1 came while the tasks of a class was without it." in str(caught.value)
    assert "granted 1 1 w1" in str(caught.value) and "returned 1" in str(caught.value)


# ------------------------------------------------------------------------------------------ walks
def check_flow(stage: Stage) -> None:
    """A task with an immediate lease is pushed to the lease that a submission would have chosen, and nothing else is decided then."""
    pool = stage.pool
    task = Task(10_000_000, 1)
    lease = pool.immediate_lease(task)
    if lease is None:
        return
    before = {each.lease_id: dict(each.pipeline) for each in pool.leases.values()}
    kept = lease.busy_since, lease.spent
    assert pool.submitted(task, stage.now) == [Push(lease, [task])]
    lease.busy_since, lease.spent = kept
    for lease_id, pipeline in before.items():
        pool.leases[lease_id].pipeline.clear()
        pool.leases[lease_id].pipeline.update(pipeline)


def one_event(stage: Stage, chance: random.Random, leases: count[int], answers: dict[int, int], waves: bool) -> None:
    pool = stage.pool
    busy = [lease for lease in stage.held.values() if lease.pipeline]
    event = chance.random()
    if event < (0.25 if waves else 0.4):
        for _ in range(chance.choice([1, 1, 1, 40])):
            stage.submit(chance.choice([0, 1, 3, 3, -1]), sendable=chance.random() < 0.95)
    elif event < 0.5 and stage.requests:
        stage.grant(next(leases))
    elif event < 0.7 and busy:
        lease = chance.choice(busy)
        for _ in range(chance.randint(1, len(lease.pipeline))):
            stage.now += chance.choice([1e-5, 1e-4, 1e-4, 1e-2])
            if lease.pipeline:
                stage.reply(lease)
    elif event < 0.73 and busy:
        lease = chance.choice(busy)
        task = next(iter(lease.pipeline.values()))
        if task.retries > 0:
            del lease.pipeline[task.task_id]
            stage.follow(pool.attempt_failed(lease, task, stage.now))
    elif event < 0.78:
        answers.update(stage.reclaims)
        stage.reclaims.clear()
        for lease_id, asked in answers.items():
            if (held := stage.held.get(lease_id)) is not None:
                stage.give_back(held, *list(held.pipeline.values())[1:][-asked:])
        answers.clear()
    elif event < 0.8 and busy:  # it blocks
        lease = chance.choice(busy)
        stage.give_back(lease, *list(lease.pipeline.values())[1:])
    elif event < 0.81 and busy and not pool.single:
        lease = chance.choice(busy)
        pool.worker_leaves(lease)
        stage.give_back(lease, *list(lease.pipeline.values())[1:])
        stage.reply(lease)
    elif event < 0.84 and stage.held:
        lease = chance.choice(list(stage.held.values()))
        stage.lose(lease, chance.choice([CRASH, CRASH, EXIT, MEMORY]))
    elif event < 0.88 and stage.held:
        stage.recall(chance.choice(list(stage.held.values())))
    elif event < 0.9 and stage.requests:
        stage.follow(pool.unreachable(stage.requests.popitem()[0], next(leases), "w", None, stage.now))
    elif event < 0.91 and pool.queue:
        task = chance.choice(list(pool.queue))
        assert pool.cancelled(task)
        task.finish("cancelled")
    elif event < 0.92 and busy:
        chance.choice(list(chance.choice(busy).pipeline.values())).retries = CANCELLED
    elif event < 0.93:
        stage.follow(pool.called_in())
    elif event < 0.95:
        for task, _seconds in stage.resting:
            stage.submit_again(task)
        stage.resting.clear()
    else:
        stage.pass_time(chance.choice([PAUSE_SECONDS, STUCK_SECONDS, STUCK_SECONDS, KEEP_SECONDS]))


@pytest.mark.parametrize("options", [{}, {"retriable": True}, {"single": True}, {"timed": False}, {"rest": (1.0,)}], ids=str)
def test_whatever_comes_every_task_ends_once_and_every_lease_is_returned_once(options: dict[str, Any]) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        stage = Stage((2, 1.0), **options)
        leases = count(1)
        answers: dict[int, int] = {}
        for _ in range(100):
            one_event(stage, chance, leases, answers, waves=seed % 2 == 0)
            stage.pool.validate()
            check_flow(stage)
            assert set(stage.requests) == stage.pool.requests, (seed, str(stage.pool.event_log))
            assert stage.held.keys() == stage.pool.leases.keys(), (seed, str(stage.pool.event_log))
        # Nothing hangs: with workers that answer, and nobody who dies, every task ends.
        for _ in range(10_000):
            for task, _seconds in stage.resting:
                stage.submit_again(task)
            stage.resting.clear()
            busy = [lease for lease in stage.held.values() if lease.pipeline]
            for lease in busy:
                stage.reply(lease)
                if stage.pool.single:
                    stage.lose(lease, EXIT)
            if not busy and not stage.pool.queue:
                break
            if stage.requests:
                stage.grant(next(leases))
        for lease in [lease for lease in stage.held.values() if lease.spent and not stage.pool.single]:
            stage.lose(lease, EXIT)
        for _ in range(3):
            stage.pass_time(KEEP_SECONDS)
        if not stage.pool.single:
            assert stage.held == {}, (seed, str(stage.pool.event_log))
        assert max(Counter(stage.returned).values(), default=1) == 1
        for task in stage.tasks:
            assert task.end is not None, (seed, task, str(stage.pool.event_log))
            assert task.most < 0 or task.charged <= task.most + 1, (seed, task)
