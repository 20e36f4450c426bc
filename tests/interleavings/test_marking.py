"""Timelines: who finds that a point is reached finds all that was done before it, in every order of the steps."""

from __future__ import annotations

from typing import Any

import pytest

from mray._device.mappings import PeerTimelines
from mray._device.timelines import Timeline
from mray.testing.null import NullDevice
from tests.interleavings.explorer import SEQUENTIAL, TOTAL, WEAK, Violation
from tests.interleavings.marking import Marking
from tests.interleavings.stand_ins import mutated


@pytest.mark.parametrize("order", [SEQUENTIAL, TOTAL, WEAK])
@pytest.mark.parametrize("victim", [None, "writer", "reader"])
@pytest.mark.parametrize("is_own", [False, True])
def test_all_that_was_done_before_a_point_is_there_when_it_is_reached(order: str, victim: str | None, is_own: bool) -> None:
    explored = Marking(is_own=is_own).explore(order, victim)
    assert explored.states > explored.outcomes > 1


MUTANTS = [
    pytest.param(NullDevice._set, "publish_fence()", "pass", False, WEAK, id="sets a word without a fence"),
    pytest.param(PeerTimelines.reached, "trust_fence()", "pass", False, WEAK, id="trusts a word without a fence"),
    pytest.param(PeerTimelines.reached, "< number", "< number - 1", False, SEQUENTIAL, id="takes an earlier point for it"),
    pytest.param(Timeline.reached, "trust_fence()", "pass", True, WEAK, id="trusts an own word without a fence"),
    pytest.param(Timeline.reached, "< number", "< number - 1", True, SEQUENTIAL, id="takes an earlier own point for it"),
]


@pytest.mark.parametrize(("function", "old", "new", "is_own", "order"), MUTANTS)
def test_timelines_with_one_fault_are_caught(function: Any, old: str, new: str, is_own: bool, order: str) -> None:
    with mutated(function, old, new), pytest.raises(Violation):
        Marking(is_own=is_own).explore(order)
