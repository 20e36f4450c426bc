"""Values that are passed on without a copy: nobody overwrites what somebody down the line still holds, whoever has closed or died."""

from __future__ import annotations

from typing import Any

import pytest

from mray._ipc import ring_loans, slots
from mray._ipc.ring_loans import RingLoans
from mray._ipc.slots import SlotReader, SlotWriter
from tests.full import full
from tests.interleavings.explorer import SEQUENTIAL, TOTAL, WEAK, Violation
from tests.interleavings.passing_on import PassingOn
from tests.interleavings.stand_ins import mutated

SHAPES = [
    pytest.param({"closes": True}, id="the relay closes"),
    pytest.param({"closes": False}, id="the relay goes on"),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_passed_on_stays_what_it_is_in_every_order_of_steps(shape: dict[str, Any]) -> None:
    explored = PassingOn(**shape).explore()
    assert explored.states > explored.outcomes > 1


@full
@pytest.mark.parametrize("victim", ["writer", "relay", "reader"])
def test_who_passes_on_may_die_after_any_step(victim: str) -> None:
    PassingOn(values=2).explore(victim=victim)


@pytest.mark.parametrize("closes", [True, False])
def test_stores_of_those_who_pass_on_may_be_held_back_in_a_queue(closes: bool) -> None:
    PassingOn(closes=closes, leaves=True).explore(TOTAL)


@pytest.mark.parametrize("victim", ["writer", "relay", "reader"])
def test_who_passes_on_may_die_while_stores_are_held_back(victim: str) -> None:
    PassingOn(values=1).explore(TOTAL, victim)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param({"values": 1, "closes": False}, id="one value"),
        pytest.param({"values": 1}, id="one value, the relay closes", marks=full),
        pytest.param({"closes": False, "leaves": True}, id="the slot is used again", marks=full),
        pytest.param({"leaves": True}, id="the slot is used again, the relay closes", marks=full),
    ],
)
def test_accesses_of_those_who_pass_on_may_pass_each_other_between_fences(shape: dict[str, Any]) -> None:
    PassingOn(**shape).explore(WEAK)


@full
@pytest.mark.parametrize("victim", ["writer", "relay", "reader"])
def test_who_passes_on_may_die_while_accesses_pass_each_other(victim: str) -> None:
    PassingOn(values=1).explore(WEAK, victim)


MUTANTS = [
    # As it was once: what a writer had passed on was let go when it closed, whoever held it.
    pytest.param(SlotWriter.close, "self._loans.close()", "self._loans.out.clear()", {}, id="forgets its loans when it closes"),
    pytest.param(SlotWriter.lend, "slot.keep = keep", "slot.keep = True", {"closes": False}, id="keeps nothing alive"),
    pytest.param(SlotReader.borrow, "pins = []", "pins = []; loan._release()", {"closes": False}, id="releases what it has just mapped"),
    pytest.param(
        SlotReader.close, "self._holder = None", "self._holder.__del__()", {"leaves": True}, id="says at its close that it holds nothing"
    ),
    pytest.param(slots._loan_releaser, "holder.words[index] = use", "pass", {"closes": False}, id="never releases"),
    pytest.param(RingLoans._end, "!= use", "> use", {}, id="ends what is held"),
    pytest.param(
        RingLoans.is_settled, "if words[first - at.LINE_WORDS + at.HOLDS]", "if False", {"leaves": True}, id="takes every reader for gone"
    ),
]


@pytest.mark.parametrize(("function", "old", "new", "shape"), MUTANTS)
def test_passing_on_with_one_fault_is_caught(function: Any, old: str, new: str, shape: dict[str, Any]) -> None:
    with mutated(function, old, new), pytest.raises(Violation):
        PassingOn(**shape).explore(SEQUENTIAL)


def test_a_loan_that_is_released_without_a_fence_is_caught() -> None:
    """The other fences of loans stand beside those of a pin's release, which happens with them."""
    with mutated(slots._loan_releaser, "publish_fence()", "pass"), pytest.raises(Violation):
        PassingOn(closes=False, leaves=True).explore(WEAK)


def test_who_waits_for_the_dead_to_release_is_caught() -> None:
    """The relay keeps for ever what a reader has held that died."""
    with mutated(ring_loans.has_died, "return is_dead", "return None is is_dead"), pytest.raises(Violation):
        PassingOn(values=1).explore(victim="reader")
