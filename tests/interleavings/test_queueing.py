"""Groups with work on streams: nobody waits for ever for a member that has left or died, and what all had queued before is done."""

from __future__ import annotations

from typing import Any

import pytest

from mray._gpu.nccl_member import NcclMember
from mray._gpu.stream_group import StreamGroup
from tests.full import full
from tests.interleavings.explorer import SEQUENTIAL, TOTAL, WEAK, Violation
from tests.interleavings.queueing import Queueing
from tests.interleavings.stand_ins import mutated

SHAPES = [
    pytest.param((1, 1), (), id="both leave at once"),
    pytest.param((1, 1), (0,), id="one waits"),
    pytest.param((1, 2), (1,), id="one has queued more"),
    pytest.param((2, 2), (0, 1), id="both wait for two", marks=full),
    pytest.param((2, 1), (0,), id="one has queued less", marks=full),
]


@full
@pytest.mark.parametrize(("work", "stays"), SHAPES)
def test_what_all_have_queued_is_done_in_every_order_of_steps(work: tuple[int, ...], stays: tuple[int, ...]) -> None:
    explored = Queueing(*work, stays=stays).explore()
    assert explored.states > explored.outcomes > 1


@pytest.mark.parametrize("order", [SEQUENTIAL, pytest.param(TOTAL, marks=full)])
@pytest.mark.parametrize(("work", "stays"), SHAPES)
def test_who_has_queued_may_die_after_any_step(work: tuple[int, ...], stays: tuple[int, ...], order: str) -> None:
    Queueing(*work, stays=stays).explore(order, "member 0")


@pytest.mark.parametrize("order", [TOTAL, pytest.param(WEAK, marks=full)])
@pytest.mark.parametrize(("work", "stays"), [((1, 1), (1,))])
def test_accesses_of_those_who_queue_may_pass_each_other(work: tuple[int, ...], stays: tuple[int, ...], order: str) -> None:
    Queueing(*work, stays=stays).explore(order)


ONE_WAITS = (1, 1), (0,)
NONE_WAITS: tuple[tuple[int, ...], tuple[int, ...]] = (1, 1), ()
MORE = (1, 2), (1,)
MUTANTS = [
    # As it was once: what another one queued after the look at who waits was taken for done, and its half was waited for.
    pytest.param(NcclMember.destroy, "if not is_done:", "if not self._tidy():", ONE_WAITS, SEQUENTIAL, id="looks too late at what is done"),
    pytest.param(StreamGroup.is_awaited, "if theirs[self._base", "if 0 and theirs[self._base", ONE_WAITS, SEQUENTIAL, id="goes"),
    pytest.param(StreamGroup.may_be_done, "self._failure is None", "False", NONE_WAITS, SEQUENTIAL, id="does not wait for its device"),
    pytest.param(StreamGroup.blocker, "self._who_left(gone) if gone", "None if gone", MORE, SEQUENTIAL, id="blames nobody"),
    pytest.param(
        StreamGroup.blocker, "not self._has_matched(rank, self.rank)", "True", ONE_WAITS, SEQUENTIAL, id="blames who will see it done"
    ),
    pytest.param(StreamGroup.give_up, "self._leave(", "(lambda _how: None)(", ONE_WAITS, SEQUENTIAL, id="gives up in silence"),
    pytest.param(
        StreamGroup.note, "words[self._base + at.COLLECTIVES] += 1", "pass", ONE_WAITS, SEQUENTIAL, id="does not say that it queues"
    ),
    pytest.param(StreamGroup.blocker, "trust_fence()", "pass", ((1, 1), (1,)), WEAK, id="looks who has left, no fence"),
]


@pytest.mark.parametrize(("function", "old", "new", "shape", "order"), MUTANTS)
def test_queuing_with_one_fault_is_caught(
    function: Any, old: str, new: str, shape: tuple[tuple[int, ...], tuple[int, ...]], order: str
) -> None:
    with mutated(function, old, new), pytest.raises(Violation):
        Queueing(*shape[0], stays=shape[1]).explore(order)
