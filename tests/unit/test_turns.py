"""How long a client keeps a lease that others wait for: at once when idle, a turn when short tasks flow through it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mray._common import messages as m
from mray._runtime.client import leases
from mray._runtime.client.leases import Lease, LeasePools, Pool


class Wire:
    """One end of a connection: what was said on it."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.calls: dict[bytes, Any] = {}
        self.facts: dict[str, Any] = {}
        self.closed = False

    def send(self, message: tuple[Any, ...]) -> None:
        self.said.append(message)

    post = send

    def flush(self) -> None:
        pass


class Desk:
    """A client with one pool and one lease, and a clock that the test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, queued: int, running: int, pace: float | None) -> None:
        self.now = 100.0
        self.later: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(leases, "monotonic", lambda: self.now)
        reactor = SimpleNamespace(call_later=lambda seconds, call: self.later.append((self.now + seconds, call)))
        self.node, self.worker = Wire(), Wire()
        client: Any = SimpleNamespace(reactor=reactor, node=self.node, lock=threading.RLock(), fatal=None)
        self.pools = LeasePools(client, client, client, str)
        self.pool: Pool = self.pools.pool("key", {}, False)
        self.pool.pace = pace
        self.lease = Lease(self.pool, 1, "w", self.worker)  # type: ignore[arg-type]
        self.pools._leases[1] = self.pool.leases[1] = self.lease
        self.worker.calls = {bytes([number]): SimpleNamespace(retries=0) for number in range(running)}
        self.pool.queue.extend(SimpleNamespace(retries=0) for _ in range(queued))  # type: ignore[misc]

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


def test_an_idle_lease_is_returned_at_once(monkeypatch):
    desk = Desk(monkeypatch, queued=0, running=0, pace=1e-4)
    desk.recall()
    assert desk.returned


@pytest.mark.parametrize(("queued", "pace"), [(0, 1e-4), (5, None), (5, 1.0)], ids=["no backlog", "unknown tasks", "long tasks"])
def test_a_lease_without_a_flow_of_short_tasks_takes_no_more_at_once(monkeypatch, queued, pace):
    desk = Desk(monkeypatch, queued=queued, running=2, pace=pace)
    desk.recall()
    assert not desk.lease.takes()
    assert desk.worker.said == [(m.RECLAIM, 1)]


def test_short_tasks_flow_until_the_turn_is_over(monkeypatch):
    desk = Desk(monkeypatch, queued=5, running=2, pace=1e-4)
    desk.recall()
    desk.recall()
    assert desk.lease.takes() and len(desk.later) == 1
    desk.pass_time(leases.SLICE_SECONDS / 2)
    assert desk.lease.takes()
    desk.pass_time(leases.SLICE_SECONDS)
    assert not desk.lease.takes()
    assert desk.worker.said == [(m.RECLAIM, 1)]


def test_a_lease_that_was_held_for_longer_than_a_turn_is_given_up_at_once(monkeypatch):
    desk = Desk(monkeypatch, queued=5, running=2, pace=1e-4)
    desk.pass_time(leases.SLICE_SECONDS)
    desk.recall()
    assert not desk.lease.takes()


def idle_in_its_turn(monkeypatch) -> Desk:
    desk = Desk(monkeypatch, queued=5, running=1, pace=1e-4)
    desk.recall()
    desk.worker.calls.clear()
    desk.pool.queue.clear()
    desk.pool.note_idle(desk.lease, desk.now)
    return desk


def test_who_has_nothing_left_to_do_does_not_wait_for_the_end_of_the_turn(monkeypatch):
    desk = idle_in_its_turn(monkeypatch)
    assert not desk.returned
    desk.pass_time(leases.PAUSE_SECONDS)
    assert desk.returned
    desk.pass_time(1.0)
    assert desk.node.said.count((m.LEASE_RETURN, 1)) == 1


def test_the_next_wave_of_tasks_finds_the_lease_in_its_turn_and_not_after_it(monkeypatch):
    desk = idle_in_its_turn(monkeypatch)
    desk.worker.calls[b"next"] = SimpleNamespace(retries=0)
    desk.pass_time(leases.PAUSE_SECONDS)
    assert not desk.returned and desk.lease.takes()
    desk.worker.calls.clear()
    desk.pass_time(leases.SLICE_SECONDS)
    assert desk.returned
