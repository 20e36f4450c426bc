"""How a client keeps a lease that others wait for: messages and timers of a turn, in which short tasks flow through it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from mray._common import messages as m
from mray._common.clock import Clock
from mray._decide.caller.caller_instructions import Begin
from mray._decide.caller.lease_pool import PAUSE_SECONDS, TURN_SECONDS, Lease
from mray._ipc.connection import PeerState
from mray._runtime.client.leases import LeasePools, TaskPool
from mray._runtime.connections.ends import Ends


class Wire:
    """One end of a connection: what was said on it."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.calls: dict[bytes, Any] = {}
        self.peer = PeerState()
        self.closed = False

    def send(self, message: tuple[Any, ...]) -> None:
        self.said.append(message)

    post = send

    def flush(self) -> None:
        pass


class Desk:
    """A client with one pool and one lease, and a clock that the test turns."""

    def __init__(self, *, queued: int, running: int, pace: float | None) -> None:
        self.now = 100.0
        self.later: list[tuple[float, Callable[[], None]]] = []
        reactor = SimpleNamespace(call_later=lambda seconds, call: self.later.append((self.now + seconds, call)))
        self.node, self.worker = Wire(), Wire()
        tables = SimpleNamespace(on=lambda _handlers: None)
        client: Any = SimpleNamespace(reactor=reactor, node=self.node, lock=threading.RLock(), fatal=None, ends=Ends())
        client.info = {"retry_delay": 0.0}
        client.from_node = client.from_peers = tables
        self.pools = LeasePools(client, client, client, str, Clock(lambda: self.now))
        self.pool: TaskPool = self.pools.pool("key", {}, False)
        self.tasks = self.pool.tasks
        self.tasks.pace = pace
        self.lease = self.tasks.leases[1] = Lease(1, "w", self.worker, self.now, ({}, [], None, None))
        self.pool.follow([Begin(self.lease)])
        self.worker.said.clear()
        self.worker.calls.update((bytes([number]), self.task()) for number in range(running))
        self.tasks.queue.extend(self.task() for _ in range(queued))

    def task(self) -> Any:
        return SimpleNamespace(retries=0, entry=SimpleNamespace(form=m.PICKLED), lease=self.lease)

    def recall(self) -> None:
        self.pools.on_recall(self.node, 1)  # type: ignore[arg-type]

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [call for when, call in self.later if when <= self.now]
        self.later = [(when, call) for when, call in self.later if when > self.now]
        for call in due:
            call()

    @property
    def returned(self) -> bool:
        return (m.LEASE_RETURN, 1) in self.node.said


def test_short_tasks_flow_until_the_turn_is_over():
    desk = Desk(queued=5, running=2, pace=1e-4)
    desk.recall()
    desk.recall()
    assert desk.lease.takes() and len(desk.later) == 1
    desk.pass_time(TURN_SECONDS / 2)
    assert desk.lease.takes()
    desk.pass_time(TURN_SECONDS)
    assert not desk.lease.takes()
    assert desk.worker.said == [(m.RECLAIM, 1)]


def test_a_lease_that_was_held_for_longer_than_a_turn_is_given_up_at_once():
    desk = Desk(queued=5, running=2, pace=1e-4)
    desk.pass_time(TURN_SECONDS)
    desk.recall()
    assert not desk.lease.takes()


def idle_in_its_turn() -> Desk:
    desk = Desk(queued=5, running=1, pace=1e-4)
    desk.recall()
    desk.tasks.queue.clear()
    desk.pool.replied(desk.worker.calls.popitem()[1])
    return desk


def test_who_has_nothing_left_to_do_does_not_wait_for_the_end_of_the_turn():
    desk = idle_in_its_turn()
    assert not desk.returned
    desk.pass_time(PAUSE_SECONDS)
    assert desk.returned
    desk.pass_time(1.0)
    assert desk.node.said.count((m.LEASE_RETURN, 1)) == 1


def test_the_next_wave_of_tasks_finds_the_lease_in_its_turn_and_not_after_it():
    desk = idle_in_its_turn()
    desk.worker.calls[b"next"] = desk.task()
    desk.pass_time(PAUSE_SECONDS)
    assert not desk.returned and desk.lease.takes()
    desk.worker.calls.clear()
    desk.pass_time(TURN_SECONDS)
    assert desk.returned
