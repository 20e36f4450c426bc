"""Deaths, interrupts and large messages between processes that talk through the ring pair of their connection."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

import mray
from mray._api.current import started_backend
from mray._common.messages import OFFER_RING
from mray._ipc.connection import SocketConnection
from mray.exceptions import ActorDiedError, TaskCancelledError, WorkerCrashedError
from tests.faults.interrupts.steps import as_own

#: Calls after which a pair of processes certainly talks through its rings.
MANY = 300


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    mray.init(num_cpus=2, logging_level="ERROR", log_to_driver=False)
    yield
    mray.shutdown()


@mray.remote(num_cpus=0)
class Talker:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def pid(self) -> int:
        return os.getpid()

    def hear(self, what: Any) -> Any:
        self.heard.append(what)
        return what

    def all_heard(self) -> list[Any]:
        return self.heard

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @mray.method(num_returns="streaming", _generator_backpressure_num_objects=1)
    def count(self, most: int, die: bool = False) -> Iterator[Any]:
        yield from range(most)
        if die:
            self.die()

    def talk_to(self, other: Any, count: int) -> int:
        return sum(mray.get(other.hear.remote(1)) for _ in range(count))


def rings() -> list[Any]:
    """The connections of this process that have ring pairs."""
    return [peer for peer in started_backend().client.peers.values() if peer.has_ring]  # type: ignore[attr-defined]


def talked(actor: Any) -> Any:
    """The actor, after this process and it have opened a ring pair."""
    for number in range(MANY):
        assert mray.get(actor.hear.remote(number)) == number
    assert rings(), "no pair of processes talks through rings"
    return actor


def test_calls_of_every_size_keep_their_order() -> None:
    actor = talked(Talker.remote())
    sent = [bytes(size) for size in (1, 300, 50, 5_000, 10, 70_000, 1, 1, 400, 90_000, 3)] * 5
    refs = []
    for number, value in enumerate(sent):
        refs.append(actor.hear.remote(value))
        if number % 7 == 0:
            assert mray.get(refs[-1]) == value
    assert mray.get(refs) == sent
    assert mray.get(actor.all_heard.remote())[-len(sent) :] == sent


def test_a_generator_whose_items_are_waited_for_talks_through_rings() -> None:
    actor = Talker.remote()
    mray.get(actor.hear.remote(0))
    assert not rings()
    items = actor.count.remote(MANY, True)
    assert [mray.get(next(items)) for _ in range(MANY)] == list(range(MANY))
    assert rings(), "no pair of processes talks through rings"
    with pytest.raises(ActorDiedError):
        mray.get(next(items))


def test_an_event_loop_that_awaits_talks_through_rings_and_is_woken_when_it_sleeps() -> None:
    actor = Talker.remote()

    async def ask() -> list[Any]:
        quick = [await actor.hear.remote(number) for number in range(MANY)]
        await actor.sleep.remote(0.05)  # longer than a loop looks
        many = await asyncio.gather(*(actor.hear.remote(number) for number in range(20)))
        ticks = 0
        slow = asyncio.ensure_future(asyncio.wrap_future(actor.sleep.remote(0.05).future()))
        while not slow.done():
            await asyncio.sleep(0.005)
            ticks += 1
        return [quick, many, ticks > 2, await actor.hear.remote("last")]

    for _loop in range(3):
        assert asyncio.run(ask()) == [list(range(MANY)), list(range(20)), True, "last"]
        assert rings(), "no pair of processes talks through rings"
    # So do calls that the thread waits for itself, between two loops and after them.
    talked(actor)


def test_an_interrupt_while_a_pair_is_offered_loses_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = Talker.remote()
    mray.get(actor.hear.remote(0))
    last = SocketConnection._last_by_socket
    interrupts: list[Any] = []

    def interrupted(connection: SocketConnection, message: Any) -> int:
        if message[0] != OFFER_RING:
            return last(connection, message)
        interrupts.append(message)
        signal.raise_signal(signal.SIGINT)
        return last(connection, message)

    monkeypatch.setattr(SocketConnection, "_last_by_socket", as_own(interrupted))
    with pytest.raises(KeyboardInterrupt):
        for number in range(MANY):
            mray.get(actor.hear.remote(number))
    assert len(interrupts) == 1
    for number in range(MANY):
        assert mray.get(actor.hear.remote(number), timeout=30) == number
    assert rings()


@pytest.mark.parametrize("how", ["by itself", "from outside", "while it sleeps"])
def test_an_actor_that_dies_fails_the_call_at_once(how: str) -> None:
    actor = talked(Talker.remote())
    pid = mray.get(actor.pid.remote())
    if how == "by itself":
        ref = actor.die.remote()
    elif how == "from outside":
        ref = actor.sleep.remote(600)
        os.kill(pid, signal.SIGKILL)
    else:
        ref = actor.sleep.remote(600)
        with pytest.raises(mray.exceptions.GetTimeoutError):
            mray.get(ref, timeout=0.1)
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(ActorDiedError, match=str(pid)):
        mray.get(ref, timeout=30)


def test_an_actor_that_is_started_again_opens_a_ring_pair_again() -> None:
    actor = talked(Talker.options(max_restarts=1, max_task_retries=1).remote())
    before = mray.get(actor.pid.remote())
    os.kill(before, signal.SIGKILL)
    after = mray.get(actor.pid.remote(), timeout=30)
    assert after != before
    talked(actor)


def test_a_caller_that_dies_leaves_the_actor_to_others() -> None:
    callee = Talker.remote()
    caller = Talker.remote()
    assert mray.get(caller.talk_to.remote(callee, MANY)) == MANY
    ref = caller.talk_to.remote(callee, 10**9)
    mray.get(callee.hear.remote(0))
    mray.kill(caller)
    with pytest.raises(ActorDiedError):
        mray.get(ref, timeout=30)
    talked(callee)


def test_tasks_of_a_worker_that_talks_through_rings_are_cancelled_and_crash_as_others_do() -> None:
    @mray.remote(max_retries=0)
    def task(what: str) -> int:
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "sleep":
            time.sleep(600)
        return os.getpid()

    for _ in range(MANY):
        mray.get(task.remote("return"))
    ref = task.remote("sleep")
    with pytest.raises(mray.exceptions.GetTimeoutError):
        mray.get(ref, timeout=0.05)
    mray.cancel(ref)
    with pytest.raises(TaskCancelledError):
        mray.get(ref, timeout=30)
    for _ in range(MANY):
        mray.get(task.remote("return"))
    with pytest.raises(WorkerCrashedError):
        mray.get(task.remote("die"), timeout=30)


def test_more_actors_than_rings_all_answer_and_idle_pairs_make_way() -> None:
    actors = [Talker.remote() for _ in range(24)]
    for _ in range(100):
        for number, actor in enumerate(actors):
            assert mray.get(actor.hear.remote(number)) == number
    assert 0 < len(rings()) <= 16
    # Half of them fall silent, among them some with a pair: all others get one.
    backend: Any = started_backend()
    busy = actors[12:]
    links = [backend.client.actors[actor._actor_id.binary()].actor.link for actor in busy]
    for _ in range(2_000):
        if all(link.has_ring for link in links):
            break
        for number, actor in enumerate(busy):
            assert mray.get(actor.hear.remote(number)) == number
    assert all(link.has_ring for link in links), "idle pairs keep their places"
    assert len(rings()) <= 16
    # And the silent ones are heard again.
    assert mray.get([actor.hear.remote(1) for actor in actors]) == [1] * 24
