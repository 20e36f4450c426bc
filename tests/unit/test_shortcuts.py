"""The shortcuts past "decide, then act" that `mray._decide` lists: each does what the decider's instructions say, in every state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, product
from types import SimpleNamespace
from typing import Any

import pytest

import mray._decide
from mray._common.event_log import InvalidTransitionError
from mray._common.messages import ALIVE, DEAD, PENDING, RESTARTING
from mray._decide.caller import caller_instructions as do
from mray._decide.caller.actor_queue import ASKED, UNKNOWN, ActorQueue
from mray._decide.caller.lease_pool import Lease, LeasePool
from mray._decide.caller.stream import Stream
from mray._runtime.client.actor_calls import ActorCaller
from mray._runtime.client.leases import TaskPool
from mray._runtime.client.streams import StreamReader
from tests.unit.pending import Link, Pending

#: Instructions that were carried out, and the state afterwards.
Outcome = tuple[list[Any], Any]


def test_every_shortcut_is_listed_and_compared() -> None:
    for shell, question in (
        (ActorCaller.submit, "ActorQueue.sends_directly"),
        (TaskPool.submit, "LeasePool.immediate_lease"),
        (StreamReader.arrived, "Stream.stores_directly"),
    ):
        assert f"{shell.__qualname__}" in mray._decide.__doc__ and question in mray._decide.__doc__


# ------------------------------------------------------------------------------------------ actors
class Caller(ActorCaller):
    """Lists what it does instead of doing it."""

    def __init__(self, actor: ActorQueue[Any]) -> None:
        client = SimpleNamespace(info={"retry_delay": actor.rest})
        super().__init__(SimpleNamespace(client=client), b"\1" * 4)  # type: ignore[arg-type]
        self.actor = actor
        self.done: list[Any] = []

    def push(self, call: Any) -> None:
        self.done.append(do.Send(call))

    def _follow(self, instructions: list[Any]) -> None:
        self.done += instructions


CALLS = [Pending(number, waiting, retries) for number, (waiting, retries) in enumerate(product((0, 1), (0, 3)))]
QUEUED = Pending(9, 1, 0)


def actors() -> Iterator[Callable[[], ActorQueue[Any]]]:
    """Makers of queues, one for each state."""
    states = UNKNOWN, ASKED, PENDING, ALIVE, RESTARTING, DEAD
    for state, link, queue, unordered, rest in product(states, (None, False, True), ([], [QUEUED]), (False, True), (0.0, 1.0)):

        def make(state: str = state, link: bool | None = link, queue: Any = queue, unordered: bool = unordered, rest: float = rest) -> Any:
            actor: ActorQueue[Any] = ActorQueue(b"\1" * 4)
            actor.state, actor.unordered, actor.rest = state, unordered, rest
            actor.queue.extend(queue)
            if link is not None:
                actor.link = Link()
                actor.link.closed = link
            return actor

        yield make


def after(actor: ActorQueue[Any], done: list[Any]) -> Outcome:
    return done, (actor.state, list(actor.queue), list(actor.aside), set(actor.resting))


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_call_is_submitted_as_its_queue_decides(call: Any) -> None:
    call.was_sent = False
    sent = 0
    for make in actors():
        decider, caller = make(), Caller(make())
        caller.submit(call)
        assert after(caller.actor, caller.done) == after(decider, decider.submitted(call))
        sent += caller.done == [do.Send(call)]
    assert bool(sent) == (call.waiting == 0)


# ------------------------------------------------------------------------------------------ tasks
class Pool(TaskPool):
    """Lists what it does instead of doing it."""

    def __init__(self, tasks: LeasePool[Any]) -> None:
        self.client = SimpleNamespace(fatal=None)  # type: ignore[assignment]
        self.tasks = tasks
        self.done: list[Any] = []
        self._clock = lambda: 100.0
        self._under_way = None

    def _post(self, lease: Lease, call: Any) -> None:
        self.done.append(do.Push(lease, [call]))

    def follow(self, instructions: list[Any]) -> None:
        self.done += instructions


LEASES = {
    "idle": (0, ""),
    "one task": (1, ""),
    "two tasks": (2, ""),
    "recalled": (1, "recalled"),
    "stalled": (1, "stalled"),
    "spent": (1, "spent"),
    "lost": (1, "lost"),
}


def pool_of(kinds: tuple[str, ...], watched: bool, queued: bool, single: bool, pace: float | None) -> LeasePool[Any] | None:
    """A pool in this state; None where a pool is never in it."""
    pool: LeasePool[Any] = LeasePool("a class", count(1), single=single)
    pool._pipelines_watched = watched
    pool._idle_watched = True
    pool.pace = pace
    for number, kind in enumerate(kinds):
        tasks, field = LEASES[kind]
        lease = Lease(number, f"w{number}", Link(), 0.0)
        for each in range(tasks):
            task: Any = Pending(100 + 10 * number + each, 0, 3)
            lease.pipeline[task.task_id], task.lease = task, lease
        if field:
            setattr(lease, field, True)
        pool.leases[number] = lease
    if queued:
        pool.queue.append(Pending(50, 0, 3))
        pool.requests.add(1000)
    try:
        pool.validate()
    except AssertionError:
        return None
    return pool


def shown(pool: LeasePool[Any], done: list[Any]) -> Outcome:
    """With numbers in the place of leases and tasks: the two pools have their own."""
    leases = [(lease.lease_id, [*lease.pipeline], lease.spent, lease.busy_since) for lease in pool.leases.values()]
    pushes = [(each.lease.lease_id, [task.number for task in each.tasks]) if isinstance(each, do.Push) else each for each in done]
    return pushes, (leases, [task.number for task in pool.queue], sorted(pool.requests), pool.full)


@pytest.mark.parametrize("retries", [0, 3, -1])
def test_a_task_is_submitted_as_its_pool_decides(retries: int) -> None:
    pushed = 0
    kinds = [(), *((kind,) for kind in LEASES), *product(LEASES, LEASES)]
    for state in product(kinds, (False, True), (False, True), (False, True), (None, 1e-4)):
        decider, shell = pool_of(*state), pool_of(*state)
        if decider is None or shell is None:
            continue
        task: Any = Pending(7, 0, retries)
        again: Any = Pending(7, 0, retries)
        expected = [each for each in decider.submitted(task, 100.0) if not isinstance(each, do.Request)]
        pool = Pool(shell)
        pool.submit(again)
        assert shown(shell, [each for each in pool.done if not isinstance(each, do.Request)]) == shown(decider, expected), state
        pushed += again.task_id in {task_id for lease in shell.leases.values() for task_id in lease.pipeline}
        shell.validate()
    assert pushed > 50


# ------------------------------------------------------------------------------------------ streams
class Reader(StreamReader):
    """Lists what it does instead of doing it, but stores items."""

    __slots__ = ("acts",)

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.acts: list[Any] = []

    def store(self, _number: int, items: Any) -> None:
        self.acts += self.stream.stored(list(items))

    def _follow(self, instructions: list[Any]) -> None:
        for each in instructions:
            if isinstance(each, do.Store):
                self.store(each.number, each.items)
            else:
                self.acts.append(each)


def stream_of(link: Any, arrived: int, taken: int, told: int, promises: int, state: str, window: int) -> Stream | None:
    """A stream in this state; None where a stream is never in it."""
    call = SimpleNamespace(retries=0, waiting=0, was_sent=True)
    stream = Stream(call, b"\1" * 4, window)
    stream.state[:3] = taken, window, arrived
    stream.told, stream.link = told, link
    stream.state[3] = state == "dropped"
    stream.promises.extend(f"promise {number}" for number in range(promises))
    if state != "dropped":
        stream.items.extend(range(taken, arrived))
    if state == "over":
        stream.call = None
    try:
        stream.validate()
    except AssertionError:
        return None
    return stream


def outcome(stream: Stream, act: Callable[[], list[Any]]) -> Any:
    try:
        done = act()
    except InvalidTransitionError as error:
        return str(error).partition("\n")[0]
    return done, list(stream.items), list(stream.promises), stream.state, stream.told, stream.link


def test_items_arrive_as_their_stream_decides() -> None:
    link, another = Link(), Link()
    stored = 0
    states = product((None, link), (0, 2, 3), (0, 2), (0, 2), (0, 1), ("open", "dropped", "over"), (0, 1, 2))
    for state, comes, first, number in product(states, (link, another), (0, 2, 3, 4), (0, 1, 3)):
        decider, shell = stream_of(*state), stream_of(*state)
        if decider is None or shell is None:
            continue
        items: list[Any] = [f"item {first + each}" for each in range(number)]
        carried, reader = Reader(decider), Reader(shell)

        def decide(stream: Stream = decider, carried: Reader = carried, comes: Any = comes, first: int = first, items: Any = items) -> Any:
            carried._follow(stream.arrived(comes, first, items))
            return carried.acts

        def act(reader: Reader = reader, comes: Any = comes, first: int = first, items: Any = items) -> Any:
            reader.arrived(comes, first, items)
            return reader.acts

        stored += shell.stores_directly(comes, first)
        assert outcome(shell, act) == outcome(decider, decide), (state, first, number)
    assert stored > 10
