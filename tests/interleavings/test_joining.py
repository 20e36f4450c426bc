"""Rings that processes join: nobody is forgotten, nothing is lost, and no two read in one place, whoever comes, closes or dies when."""

from __future__ import annotations

from typing import Any

import pytest

from mray._ipc.ring import RingWriter
from mray.experimental.channel import _shared_ring
from mray.experimental.channel._shared_ring import SharedRing, _Parts, _Reader, _Writer
from tests.full import full
from tests.interleavings.explorer import SEQUENTIAL, TOTAL, WEAK, Violation
from tests.interleavings.joining import Joining
from tests.interleavings.stand_ins import mutated

SHAPES = [
    pytest.param({"messages": 2}, id="two messages"),
    pytest.param({"messages": 2, "reads": 1}, id="a reader that reads one"),
    pytest.param({"messages": 2, "closes": {"w": 2}}, id="the writer closes"),
    pytest.param({"messages": 2, "closes": {"r0": 1}}, id="the reader closes"),
    pytest.param({"messages": 1, "readers": 2}, id="two readers"),
    pytest.param({"messages": 1, "readers": 2, "declared": ("", "")}, id="two readers for any place"),
]
LARGE = [
    pytest.param({"messages": 1, "readers": 2, "closes": {"r0": 1}}, id="one of two readers closes", marks=full),
    pytest.param({"messages": 3}, id="three messages", marks=full),
    pytest.param({"messages": 1, "readers": 3, "declared": ("", "", "r2")}, id="three readers", marks=full),
]


@full
@pytest.mark.parametrize("shape", [*SHAPES, *LARGE])
def test_who_joins_gets_every_message_in_every_order_of_steps(shape: dict[str, Any]) -> None:
    explored = Joining(**shape).explore()
    assert explored.states > explored.outcomes > 1


@pytest.mark.parametrize("victim", ["w", "r0"])
@pytest.mark.parametrize("shape", [*SHAPES, *LARGE])
def test_who_joins_or_is_joined_may_die_after_any_step(shape: dict[str, Any], victim: str) -> None:
    Joining(**shape).explore(victim=victim)


@pytest.mark.parametrize("shape", SHAPES)
def test_stores_of_those_who_join_may_be_held_back_in_a_queue(shape: dict[str, Any]) -> None:
    Joining(**shape).explore(TOTAL)


@pytest.mark.parametrize("shape", [{"messages": 1}, {"messages": 2, "reads": 1}, {"messages": 1, "closes": {"r0": 1}}])
def test_accesses_of_those_who_join_may_pass_each_other_between_fences(shape: dict[str, Any]) -> None:
    Joining(**shape).explore(WEAK)


TWO: dict[str, Any] = {"messages": 2}
ONE_READ: dict[str, Any] = {"messages": 2, "reads": 1}
MUTANTS = [
    pytest.param(
        SharedRing._reader,
        "parts.segment.memory[start : start + len(text)] = text",
        "parts.words[word] = len(text); parts.segment.memory[start : start + len(text)] = text",
        TWO,
        SEQUENTIAL,
        None,
        id="joins before it says who it is",
    ),
    pytest.param(_shared_ring._claim, "if not words[word]:", "if True:", SHAPES[5].values[0], SEQUENTIAL, None, id="two in one place"),
    pytest.param(_shared_ring._claim, "LOCK_EX | fcntl.LOCK_NB", "LOCK_UN", SHAPES[5].values[0], SEQUENTIAL, None, id="no lock"),
    pytest.param(
        _Parts.ring, "if place not in self.doorbells", "if not self.doorbells", SHAPES[4].values[0], SEQUENTIAL, None, id="knows one"
    ),
    pytest.param(_Parts.ring, "doorbell.ring()", "pass", TWO, SEQUENTIAL, None, id="rings nobody"),
    pytest.param(_Writer.free, "< self.capacity", "<= self.capacity", TWO, SEQUENTIAL, None, id="counts one too many"),
    pytest.param(_Writer.has_room, "self._ring.want_room(True)", "pass", ONE_READ, SEQUENTIAL, None, id="never asks for room"),
    pytest.param(_Reader.ring_back, "if self._ring.room_wanted():", "if False:", ONE_READ, SEQUENTIAL, None, id="never tells of room"),
    pytest.param(SharedRing.close, ".ring()", "", {"messages": 2, "closes": {"w": 1}}, SEQUENTIAL, None, id="closes in silence"),
    pytest.param(
        SharedRing.close,
        "parts.words[CLOSED] = 1",
        "pass",
        {"messages": 3, "closes": {"r0": 1}},
        SEQUENTIAL,
        None,
        id="does not say that it closes",
    ),
    pytest.param(_Parts.is_late, ">= self", "> self", TWO, SEQUENTIAL, "r0", id="does not know who is late"),
    pytest.param(SharedRing.write, " or bool(parts.deaths)", "", TWO, SEQUENTIAL, "r0", id="waits for a dead reader"),
    pytest.param(SharedRing.read, " or bool(parts.deaths)", "", TWO, SEQUENTIAL, "w", id="waits for a dead writer"),
    pytest.param(_Parts.ring, "fence()", "pass", TWO, TOTAL, None, id="looks who has joined, no fence"),
    pytest.param(_Reader.ring_back, "fence()", "pass", ONE_READ, TOTAL, None, id="rings back without a fence"),
    pytest.param(SharedRing._reader, "publish_fence()", "pass", {"messages": 1}, WEAK, None, id="joins without a fence"),
    pytest.param(_Parts.who_reads, "trust_fence()", "pass", {"messages": 1}, WEAK, None, id="reads who joined without a fence"),
    pytest.param(RingWriter.put, "publish_fence()", "pass", {"messages": 1}, WEAK, None, id="publishes without a fence"),
]


@pytest.mark.parametrize(("function", "old", "new", "shape", "order", "victim"), MUTANTS)
def test_joining_with_one_fault_is_caught(function: Any, old: str, new: str, shape: dict[str, Any], order: str, victim: str | None) -> None:
    with mutated(function, old, new), pytest.raises(Violation):
        Joining(**shape).explore(order, victim)
