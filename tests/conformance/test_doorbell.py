"""The contract of doorbells (`mray._ipc.doorbell`), for eventfds and for POSIX semaphores; and of those that readers of a ring share."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._ipc.doorbell import Doorbell, GroupDoorbell, new_wakeup_fd
from mray._ipc.reactor import Reactor
from mray._ipc.semaphore import Relay, SemaphoreDoorbell
from mray._ipc.table import AWAKE, DOZING, PARKED, ROW_WORDS, SessionTable

ROW = 1
PREFIX = f"/mray-test-{os.getpid()}-"


@pytest.fixture
def table() -> Iterator[SessionTable]:
    table = SessionTable.create(f"{PREFIX}table")
    table.set_rows_in_use(2)
    yield table
    table.close()


class Sleeper:
    """A process that sleeps, and doorbells of it as processes have them that ring."""

    def __init__(self, table: SessionTable, open_doorbell: Callable[[Sleeper], Doorbell]) -> None:
        self.table = table
        self.reactor = Reactor()
        self.reactor.join_table(table, ROW)
        self.relays: list[Relay] = []
        self._open = open_doorbell
        self.doorbell = self.open()

    def open(self) -> Doorbell:
        return self._open(self)

    def be_rung_by(self, name: str) -> int:
        self.relays.append(Relay(name, self.reactor.wake))
        return ROW

    @property
    def state(self) -> int:
        return self.table.words[ROW * ROW_WORDS]

    @state.setter
    def state(self, state: int) -> None:
        self.table.words[ROW * ROW_WORDS] = state

    def is_told(self) -> bool:
        """Whether the process is told to look again, be it in a moment."""
        return bool(select.select([self.reactor.wakeup_fd], [], [], 10)[0])

    def leave(self) -> None:
        for relay in self.relays:
            relay.end()
            relay.join()
        self.relays.clear()

    def close(self) -> None:
        self.leave()
        self.doorbell.close()
        self.reactor.close()


def by_eventfd(sleeper: Sleeper) -> Doorbell:
    return Doorbell(os.dup(sleeper.reactor.wakeup_fd), sleeper.table, ROW)


def by_semaphore(sleeper: Sleeper) -> Doorbell:
    return SemaphoreDoorbell(PREFIX, sleeper.table, sleeper.be_rung_by)


@pytest.fixture(params=[by_eventfd, by_semaphore])
def sleeper(request: Any, table: SessionTable) -> Iterator[Sleeper]:
    sleeper = Sleeper(table, request.param)
    yield sleeper
    sleeper.close()


def names() -> list[str]:
    return [name for name in os.listdir("/dev/shm") if PREFIX[1:] in name and "table" not in name]


def test_a_reader_says_in_the_table_that_it_sleeps_and_a_ring_wakes_it(sleeper: Sleeper) -> None:
    flag: list[int] = []

    def ring() -> None:
        while sleeper.state != PARKED:
            time.sleep(0.001)
        flag.append(1)
        sleeper.doorbell.ring()

    ringer = threading.Thread(target=ring)
    ringer.start()
    assert sleeper.reactor.wait_until(lambda: bool(flag), 10)
    assert sleeper.state == AWAKE
    ringer.join()


@pytest.mark.parametrize(("state", "rings"), [(AWAKE, False), (DOZING, False), (PARKED, True), (77, True)])
def test_only_one_that_sleeps_or_says_what_cannot_be_is_told(sleeper: Sleeper, monkeypatch: Any, state: int, rings: bool) -> None:
    sleeper.state = state
    with monkeypatch.context() as patch:
        if not rings:
            patch.setattr(type(sleeper.doorbell), "wake", None)
        sleeper.doorbell.ring()
    assert not rings or sleeper.is_told()


def test_a_ring_before_the_process_waits_for_it_is_not_lost(sleeper: Sleeper) -> None:
    sleeper.state = PARKED
    for _ in range(1000):
        sleeper.doorbell.ring()
    assert sleeper.is_told()


def test_several_processes_ring_and_one_that_has_gone_takes_nothing_from_the_others(sleeper: Sleeper) -> None:
    other = sleeper.open()
    sleeper.doorbell.close()
    sleeper.state = PARKED
    other.ring()
    assert sleeper.is_told()
    other.close()
    other.close()


def test_a_ring_after_the_process_has_gone_is_harmless(sleeper: Sleeper) -> None:
    sleeper.state = PARKED
    sleeper.leave()
    sleeper.doorbell.ring()
    assert sleeper.state == PARKED


def test_no_name_is_left_once_both_have_it_open(sleeper: Sleeper) -> None:
    assert names() == []


def test_a_process_is_rung_for_as_long_as_a_callback_waits_and_whoever_reads_calls_back_once(sleeper: Sleeper) -> None:
    reactor = sleeper.reactor
    published: list[int] = []
    calls: list[str] = []
    reactor.then(lambda: bool(published), lambda: calls.append("first"))
    cancel = reactor.then(lambda: len(published) > 1, lambda: calls.append("second"))
    assert sleeper.state == PARKED
    published.append(1)
    sleeper.doorbell.ring()
    assert reactor.wait_until(lambda: bool(calls), 10)
    assert calls == ["first"]
    assert sleeper.state == PARKED, "another one waits"
    cancel()
    assert sleeper.state == AWAKE
    published.append(2)
    reactor.run_once(0)
    cancel()
    assert calls == ["first"]


def test_the_background_reader_calls_back(sleeper: Sleeper) -> None:
    published, called = threading.Event(), threading.Event()
    sleeper.reactor.start_background_reader()
    sleeper.reactor.then(published.is_set, called.set)
    published.set()
    sleeper.doorbell.ring()
    assert called.wait(10)


# ------------------------------------------------------------------------------------------- doorbells that readers share
def test_of_readers_that_share_a_doorbell_one_ring_tells_all(table: SessionTable) -> None:
    doorbells = [Doorbell(new_wakeup_fd(), table, row) for row in (1, 2)]
    group = GroupDoorbell(new_wakeup_fd(), doorbells)
    group.ring()
    with pytest.raises(BlockingIOError):
        os.eventfd_read(group.fd)
    table.words[2 * ROW_WORDS] = PARKED
    group.ring()
    assert os.eventfd_read(group.fd) == 1
    for each in (group, *doorbells):
        each.close()


@pytest.mark.parametrize("has_descriptor", [True, False])
def test_readers_that_cannot_share_one_are_rung_one_by_one(table: SessionTable, has_descriptor: bool) -> None:
    doorbells = [Doorbell(new_wakeup_fd(), table, row) for row in (1, 2, 3)]
    group = GroupDoorbell(new_wakeup_fd() if has_descriptor else -1, doorbells)
    group.is_shared = False
    table.words[ROW_WORDS] = table.words[3 * ROW_WORDS] = PARKED
    group.ring()
    assert [os.eventfd_read(doorbells[number].fd) for number in (0, 2)] == [1, 1]
    with pytest.raises(BlockingIOError):
        os.eventfd_read(doorbells[1].fd)
    for each in (group, *doorbells):
        each.close()


# --------------------------------------------------------------------------------------------------------- semaphores alone
def test_a_semaphore_that_its_process_cannot_open_leaves_no_name(table: SessionTable) -> None:
    def refuse(name: str) -> int:
        assert len(names()) == 1
        raise ConnectionResetError(name)

    with pytest.raises(ConnectionResetError):
        SemaphoreDoorbell(PREFIX, table, refuse)
    assert names() == []
    with pytest.raises(FileNotFoundError):
        Relay(f"{PREFIX}bell-1", lambda: None)


def test_a_relay_whose_process_ends_ends_without_a_ring(table: SessionTable) -> None:
    told: list[str] = []
    relays: list[Relay] = []

    def take(name: str) -> int:
        relays.append(Relay(name, lambda: told.append(name)))
        return ROW

    doorbell = SemaphoreDoorbell(PREFIX, table, take)
    relays[0].end()
    relays[0].join()
    assert told == []
    doorbell.close()
