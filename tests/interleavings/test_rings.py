"""Rings and doorbells: one writer, its readers, and whoever of them sleeps, in every order of their steps.

A fault put into any step must be found: see the mutants.
"""

from __future__ import annotations

from typing import Any

import pytest

from mray._channel.shm import ShmReader, ShmWriter
from mray._ipc.doorbell import Doorbell, GroupDoorbell
from mray._ipc.reactor import Reactor
from mray._ipc.ring import RingReader, RingWriter
from mray._ipc.semaphore import Relay, SemaphoreDoorbell
from tests.full import FULL, full
from tests.interleavings.channel import Channel
from tests.interleavings.explorer import SEQUENTIAL, TOTAL, WEAK, Violation
from tests.interleavings.stand_ins import mutated

FULL_RING = {"readers": 2, "entries": 1, "messages": 2, "before": 1}
SMALL = [
    pytest.param({"entries": 1, "messages": 3}, id="one entry, three messages"),
    pytest.param({"entries": 2, "messages": 3}, id="two entries, three messages"),
    pytest.param({"readers": 2, "entries": 1, "messages": 1}, id="two readers"),
    pytest.param({"readers": 2, "messages": 1, "grouped": True}, id="two readers with one doorbell"),
    pytest.param(FULL_RING, id="a full ring with two readers"),
    pytest.param({"entries": 1, "semaphores": True}, id="one entry, semaphores"),
]
VICTIMS = [pytest.param(None, marks=full), "writer", "reader 0"]
LARGE = [
    pytest.param({"readers": 2, "messages": 1, "grouped": True, "semaphores": True}, id="two readers, semaphores"),
    pytest.param({"readers": 2}, id="two readers, two messages"),
    pytest.param({"readers": 3, "messages": 1}, id="three readers"),
    pytest.param({"readers": 3, "messages": 1, "grouped": True}, id="three readers with one doorbell"),
    pytest.param({"readers": 2, "entries": 1, "messages": 2}, id="two readers, one entry, two messages", marks=full),
    pytest.param({**FULL_RING, "readers": 3}, id="a full ring with three readers", marks=full),
]


@pytest.mark.parametrize("shape", [*(SMALL if FULL else []), *LARGE])
def test_every_reader_gets_every_message_in_every_order_of_steps(shape: dict[str, Any]) -> None:
    explored = Channel(**shape).explore()
    assert explored.states > explored.outcomes > 1


@full
@pytest.mark.parametrize("victim", ["writer", "reader 0"])
@pytest.mark.parametrize("shape", SMALL)
def test_a_process_may_die_after_any_step(shape: dict[str, Any], victim: str) -> None:
    Channel(**shape).explore(victim=victim)


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("shape", SMALL)
def test_stores_may_be_held_back_in_a_queue(shape: dict[str, Any], victim: str | None) -> None:
    Channel(**shape).explore(TOTAL, victim)


def test_stores_and_loads_may_pass_each_other_between_fences() -> None:
    Channel(entries=1, messages=1).explore(WEAK)
    Channel(entries=2, messages=2).explore(WEAK)


SPINS: dict[str, Any] = {"entries": 1, "spins": True}


@pytest.mark.parametrize("order", [pytest.param(SEQUENTIAL, marks=full), TOTAL])
@pytest.mark.parametrize("victim", VICTIMS)
def test_who_waits_may_spin_for_any_time_before_it_sleeps(order: str, victim: str | None) -> None:
    Channel(**SPINS).explore(order, victim)


@full
def test_two_readers_of_a_full_ring_may_spin() -> None:
    Channel(**FULL_RING, spins=True).explore()


@full
@pytest.mark.parametrize("victim", ["writer", "reader 0"])
def test_a_process_may_die_after_any_step_while_three_wait_for_each_other(victim: str) -> None:
    Channel(readers=3, entries=1, messages=2, before=1).explore(victim=victim)


@full
def test_stores_and_loads_may_pass_each_other_between_the_fences_of_a_full_ring_with_two_readers() -> None:
    Channel(readers=2, entries=1, messages=2, before=1).explore(WEAK)


# --------------------------------------------------------------------------------------- what must be found
MUTANTS = [
    pytest.param(
        RingWriter.put,
        "memory[start : start + length] = payload",
        "self._words[self._published] = number + 1; memory[start : start + length] = payload",
        {"entries": 1, "messages": 1},
        SEQUENTIAL,
        id="publishes before it writes",
    ),
    pytest.param(
        RingReader.take,
        "payload = memory[offset : offset + length]",
        "words[self._consumed] = number + 1; payload = memory[offset : offset + length]",
        {"entries": 1},
        SEQUENTIAL,
        id="consumes before it copies out",
    ),
    pytest.param(RingWriter._refresh, "min(", "max(", {"readers": 2, "entries": 1}, SEQUENTIAL, id="waits for the quickest reader only"),
    pytest.param(RingWriter._refresh, "layout.entries", "layout.entries + 1", {"entries": 1}, SEQUENTIAL, id="counts one entry too many"),
    pytest.param(RingReader.take, "<= number", "< number", {"messages": 1}, SEQUENTIAL, id="reads what is not there yet"),
    pytest.param(
        Reactor._look_for,
        "self._run_once_and_notify(0)",
        "self._run_once_and_notify(None)",
        SPINS,
        SEQUENTIAL,
        id="sleeps where it is to spin",
    ),
    pytest.param(
        Reactor.wait_until, "self._park(predicate, remaining)", "self.run_once(remaining)", SPINS, SEQUENTIAL, id="sleeps in secret"
    ),
    pytest.param(Reactor._park, "or predicate()\n", "", {"messages": 1}, SEQUENTIAL, id="parks without a second look"),
    pytest.param(
        Reactor._park,
        "self._words[self._state_index] = PARKED",
        "ready = predicate(); predicate = lambda: ready; self._words[self._state_index] = PARKED",
        {"messages": 1},
        SEQUENTIAL,
        id="looks, then announces that it parks",
    ),
    pytest.param(
        ShmWriter.try_write,
        "if len(payload) <= self._inline:",
        "self._only_doorbell(); self._only_doorbell = lambda: None\n    if len(payload) <= self._inline:",
        {"messages": 1},
        SEQUENTIAL,
        id="rings, then publishes",
    ),
    pytest.param(
        RingWriter.__init__,
        "for reader in range(layout.readers)",
        "for reader in range(1)",
        FULL_RING,
        SEQUENTIAL,
        id="asks one reader only for room",
    ),
    pytest.param(ShmWriter._ring_all, "self._doorbells", "self._doorbells[:1]", FULL_RING, SEQUENTIAL, id="rings one reader only"),
    pytest.param(ShmWriter.has_room, "want_room(True)", "want_room(not self._wanting)", FULL_RING, SEQUENTIAL, id="asks for room once"),
    pytest.param(
        ShmReader.ready,
        "if ring.words[ring.wanted]:",
        "if ring.words[ring.wanted] and ring.reader == 0:",
        FULL_RING,
        SEQUENTIAL,
        id="has another reader tell of room",
    ),
    pytest.param(ShmReader.ready, "if ring.words[ring.wanted]:", "if False:", {"entries": 1}, SEQUENTIAL, id="never tells of room"),
    pytest.param(ShmWriter.has_room, "ring.want_room(True)", "pass", {"entries": 1}, SEQUENTIAL, id="never asks for room"),
    pytest.param(
        SemaphoreDoorbell.wake, "self._semaphore.release()", "pass", {"semaphores": True, "messages": 1}, SEQUENTIAL, id="posts nothing"
    ),
    pytest.param(Relay._run, "self._wake()", "pass", {"semaphores": True, "messages": 1}, SEQUENTIAL, id="passes nothing on"),
    pytest.param(
        GroupDoorbell.ring,
        "for doorbell in self._doorbells:",
        "for doorbell in self._doorbells[:1]:",
        {"readers": 2, "messages": 1, "grouped": True, "semaphores": True},
        SEQUENTIAL,
        id="rings the first one only",
    ),
    pytest.param(Doorbell.ring, "fence()", "pass", {"messages": 1}, TOTAL, id="rings without a fence"),
    pytest.param(Reactor._park, "fence()", "pass", {"messages": 1}, TOTAL, id="parks without a fence"),
    pytest.param(
        RingWriter.put,
        "publish_fence()",
        "pass",
        {"messages": 1},
        WEAK,
        id="publishes without a fence",
    ),
    pytest.param(RingReader.take, "trust_fence()", "pass", {"messages": 1}, WEAK, id="trusts without a fence"),
    pytest.param(RingReader.take, "publish_fence()", "pass", {"entries": 1}, WEAK, id="consumes without a fence"),
    pytest.param(RingWriter._refresh, "trust_fence()", "pass", {"entries": 1}, WEAK, id="overwrites without a fence"),
]


@pytest.mark.parametrize(("function", "old", "new", "shape", "order"), MUTANTS)
def test_a_protocol_with_one_fault_is_caught(function: Any, old: str, new: str, shape: dict[str, Any], order: str) -> None:
    with mutated(function, old, new), pytest.raises(Violation):
        Channel(**shape).explore(order)
