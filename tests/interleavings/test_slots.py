"""Payload slots: no value is overwritten while somebody reads or holds it, whatever the order of steps; rings grow without losing one."""

from __future__ import annotations

from typing import Any

import pytest

from mray._channel.shm import ShmReader
from mray._ipc import slots
from mray._ipc.ring import RingWriter
from mray._ipc.slots import SlotWriter
from tests.full import FULL, full
from tests.interleavings.channel import Channel, array
from tests.interleavings.explorer import SEQUENTIAL, TOTAL, WEAK, Violation
from tests.interleavings.stand_ins import mutated

A, B, C = array(b"a", 2), array(b"b", 2), array(b"c", 2)
LARGER = array(b"L", 3)

SHAPES = [
    pytest.param({"values": [A, B, C], "entries": 4}, id="slots are used again"),
    pytest.param({"values": [A, B, C], "entries": 4, "slots": 1}, id="slots are given away"),
    pytest.param({"values": [A, B, C], "entries": 4, "hold": 2}, id="values are held"),
    pytest.param({"values": [A, LARGER], "slots": 1}, id="slots grow"),
    pytest.param({"values": [A, LARGER], "slots": 1, "hold": 1}, id="slots grow while values are held"),
    pytest.param({"values": [A, B], "entries": 1, "slots": 1}, id="the writer waits for room"),
    pytest.param({"values": [bytes(A), b"small"], "slots": 1, "entries": 1}, id="slots between small messages"),
    pytest.param({"values": [A, LARGER], "slots": 1, "closes": True}, id="the writer closes"),
]


@full
@pytest.mark.parametrize("shape", SHAPES)
def test_values_in_slots_stay_what_they_are_in_every_order_of_steps(shape: dict[str, Any]) -> None:
    Channel(**shape).explore()


@full
def test_a_slot_is_used_again_when_both_readers_have_released_it() -> None:
    Channel([array(b"a"), array(b"b")], readers=2, slots=1).explore()


#: One value lies in the slot from the beginning, and the next needs a larger one.
GROWTH = {"values": [array(b"a"), A], "slots": 1, "before": 1}
GROWTHS = [
    pytest.param({**GROWTH, "readers": 2}, id="two readers"),
    pytest.param({**GROWTH, "readers": 2, "hold": 1}, id="two readers that hold"),
    pytest.param({"values": [array(b"a"), array(b"b"), C], "entries": 4, "before": 2, "readers": 2}, id="two readers and slots"),
    pytest.param({**GROWTH, "readers": 2, "before": 0}, id="two readers, from the beginning", marks=full),
    pytest.param({**GROWTH, "readers": 3}, id="three readers", marks=full),
    pytest.param({**GROWTH, "readers": 3, "hold": 1}, id="three readers that hold"),
]


@pytest.mark.parametrize("shape", GROWTHS if FULL else GROWTHS[2:])
def test_slots_grow_while_some_have_read_and_some_have_not(shape: dict[str, Any]) -> None:
    Channel(**shape).explore()


@pytest.mark.parametrize("victim", ["writer", "reader 0"])
@pytest.mark.parametrize("shape", [GROWTHS[0], GROWTHS[1], *GROWTHS[3:5]])
def test_a_process_may_die_after_any_step_while_slots_grow(shape: dict[str, Any], victim: str) -> None:
    Channel(**shape).explore(victim=victim)


@pytest.mark.parametrize(("order", "readers"), [(TOTAL, 2), pytest.param(WEAK, 2, marks=full), (WEAK, 1)])
def test_stores_may_be_held_back_while_slots_grow(order: str, readers: int) -> None:
    Channel(**GROWTH, readers=readers).explore(order)


@pytest.mark.parametrize("victim", ["writer", "reader 0"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_process_that_uses_slots_may_die_after_any_step(shape: dict[str, Any], victim: str) -> None:
    Channel(**shape).explore(victim=victim)


@pytest.mark.parametrize("shape", SHAPES)
def test_stores_into_slots_may_be_held_back_in_a_queue(shape: dict[str, Any]) -> None:
    Channel(**shape).explore(TOTAL)


def test_accesses_to_slots_may_pass_each_other_between_fences() -> None:
    Channel([array(b"a"), array(b"b")], slots=1).explore(WEAK)


MUTANTS = [
    pytest.param(SlotWriter._choose, "not self._free(slot)", "False", {"values": [A, B]}, SEQUENTIAL, id="overwrites what is not released"),
    pytest.param(
        SlotWriter._free,
        "in self._released",
        "in self._released[:1]",
        {"values": [array(b"a"), array(b"b")], "readers": 2},
        SEQUENTIAL,
        id="asks one reader only",
    ),
    pytest.param(SlotWriter._tidy, "first < consumed", "first <= consumed", {"values": [A, B]}, SEQUENTIAL, id="unlinks too early"),
    pytest.param(SlotWriter.place, "slot.generation", "1", {"values": [A, LARGER], "slots": 1}, SEQUENTIAL, id="names the segment before"),
    pytest.param(SlotWriter._tidy, "first < consumed", "True", {**GROWTH, "readers": 2}, SEQUENTIAL, id="unlinks at once"),
    pytest.param(
        RingWriter.consumed,
        "least: int = min(",
        "least: int = max(",
        {"values": [array(b"a"), array(b"b"), C], "entries": 4, "before": 2, "readers": 2},
        SEQUENTIAL,
        id="unlinks when the first reader has mapped it",
    ),
    pytest.param(
        SlotWriter._free,
        "return False",
        "return first != self._released[-1]",
        {**GROWTH, "values": [array(b"a"), array(b"b")], "readers": 2},
        SEQUENTIAL,
        id="overwrites what the last reader holds",
    ),
    pytest.param(SlotWriter._choose, "held >= size", "held", {"values": [A, LARGER]}, SEQUENTIAL, id="does not grow"),
    pytest.param(
        ShmReader._decode,
        "pin, length = self._slots.open(payload)",
        "self._ring._words[self._ring._consumed] = self._ring.next + 1; pin, length = self._slots.open(payload)",
        {"values": [A, B]},
        SEQUENTIAL,
        id="consumes before it has mapped",
    ),
    pytest.param(
        ShmReader._decode_whole,
        "copied = bytes(view)",
        "release(); copied = bytes(view)",
        {"values": [bytes(A), bytes(B)], "slots": 1},
        SEQUENTIAL,
        id="releases before it has copied",
    ),
    pytest.param(slots._releaser, "publish_fence()", "pass", {"values": [array(b"a"), array(b"b")]}, WEAK, id="releases, no fence"),
    pytest.param(SlotWriter._choose, "trust_fence()", "pass", {"values": [array(b"a"), array(b"b")]}, WEAK, id="reuses without a fence"),
]


@pytest.mark.parametrize(("function", "old", "new", "shape", "order"), MUTANTS)
def test_slots_with_one_fault_are_caught(function: Any, old: str, new: str, shape: dict[str, Any], order: str) -> None:
    with mutated(function, old, new), pytest.raises(Violation):
        Channel(**shape).explore(order)
