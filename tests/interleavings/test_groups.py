"""Groups: members that meet in collectives get what all have brought, whoever is ahead, leaves or dies, in every order of their steps.

Two members; three, and longer work, with MRAY_TEST_FULL=1 only (the states of three members in a barrier are more than a million).
"""

from __future__ import annotations

from typing import Any

import pytest

from mray._channel.group import Group
from mray._channel.shared_memory_group import MemberOfGroup
from tests.full import FULL, full
from tests.interleavings.explorer import SEQUENTIAL, TOTAL, WEAK, Violation
from tests.interleavings.meeting import Meeting
from tests.interleavings.stand_ins import mutated

WORK = [
    pytest.param(["barrier", "barrier"], id="barriers"),
    pytest.param(["all", "all"], id="allreduces"),
    pytest.param(["broadcast", "broadcast"], id="broadcasts"),
    pytest.param(["gather"], id="an allgather"),
]
LONG = [
    pytest.param(["parts"], id="an allreduce in parts"),
    pytest.param(["reduce", "broadcast"], id="there and back"),
    pytest.param(["broadcast"] * 3, id="three broadcasts"),
    pytest.param(["parts", "all"], id="in parts, then at once"),
]


@pytest.mark.parametrize("work", [*WORK, *(LONG if FULL else [])])
def test_members_get_what_all_have_brought_in_every_order_of_steps(work: list[str]) -> None:
    explored = Meeting(*work).explore()
    assert explored.states > explored.outcomes > 1


@pytest.mark.parametrize("members", [2, *([3] if FULL else [])])
def test_a_member_may_die_after_any_step(members: int) -> None:
    Meeting("all", members=members).explore(victim="member 0")


def test_a_member_may_leave_before_the_others() -> None:
    Meeting("all", "all", leaves={1: 1}).explore()


@pytest.mark.parametrize("order", [pytest.param(SEQUENTIAL, marks=full), TOTAL, WEAK])
def test_a_member_may_be_refused_what_the_others_wait_in(order: str) -> None:
    Meeting("all", "all", refuses={1: 1}).explore(order)


@pytest.mark.parametrize("order", [TOTAL, *([SEQUENTIAL, WEAK] if FULL else [])])
def test_a_member_that_was_refused_may_call_again(order: str) -> None:
    Meeting("barrier", "all", refuses={1: 1}, again=True).explore(order)


@pytest.mark.parametrize("work", ["barrier", "all"])
@pytest.mark.parametrize("order", [TOTAL, WEAK])
def test_accesses_to_boards_may_pass_each_other_between_fences(work: str, order: str) -> None:
    Meeting(work, leaves={1: 1}).explore(order)


@full
def test_three_members_meet() -> None:
    Meeting("barrier", members=3).explore()


MUTANTS = [
    pytest.param(Group._arrive, "step = self._step + 1", "step = self._step + 2", ["all"], SEQUENTIAL, id="counts twice"),
    pytest.param(Group._begin, "yield self._step, ALL", "yield 0, ALL", ["broadcast"] * 3, SEQUENTIAL, id="overwrites what is not read"),
    pytest.param(Group._met, "words[ARRIVED] < step", "words[ARRIVED] + 1 < step", ["all"], SEQUENTIAL, id="reads what is not there yet"),
    pytest.param(Group._wait, "words[NEED] = step << 16 | rank + 1", "pass", ["barrier"], SEQUENTIAL, id="waits in secret"),
    pytest.param(Group._arrive, "doorbell.ring()", "pass", ["barrier"], SEQUENTIAL, id="rings nobody"),
    pytest.param(Group._arrive, "<= (step if", "< (step if", ["barrier"], SEQUENTIAL, id="rings too late"),
    pytest.param(Group._leave, "doorbell.ring()", "pass", ["all", "all"], SEQUENTIAL, id="leaves in silence"),
    pytest.param(Group._lost, "words[LEFT]", "False", ["all", "all"], SEQUENTIAL, id="waits for who has left"),
    pytest.param(Group._lost, "self.is_refused_collective(peer)", "False", ["all", "all"], SEQUENTIAL, id="waits for who is refused"),
    pytest.param(Group.refuse, "doorbell.ring()", "pass", ["all", "all"], SEQUENTIAL, id="is refused in silence"),
    pytest.param(Group._on_death, "self._failure = self._broken(", "self._broken(", ["all"], SEQUENTIAL, id="waits for the dead"),
    pytest.param(Group._arrive, "    fence()", "    pass", ["barrier"], TOTAL, id="arrives, no fence, looks at who waits"),
    # As it was once: LEFT was seen before the ARRIVED that had been written before it.
    pytest.param(Group._lost, "trust_fence()", "pass", ["barrier"], WEAK, id="sees who left and not that it had arrived"),
    pytest.param(Group._arrive, "publish_fence()", "pass", ["all"], WEAK, id="arrives without a fence"),
    pytest.param(Group._run, "trust_fence()", "pass", ["all"], WEAK, id="reads halves without a fence"),
    pytest.param(MemberOfGroup._reduce_all, "self._step & 1", "0", ["all", "all"], SEQUENTIAL, id="has one half"),
]


@pytest.mark.parametrize(("function", "old", "new", "work", "order"), MUTANTS)
def test_a_group_with_one_fault_is_caught(function: Any, old: str, new: str, work: list[str], order: str) -> None:
    victim = "member 0" if function is Group._on_death else None
    leaves = {1: 1} if function in (Group._leave, Group._lost) and "refused" not in old else None
    refuses = {1: 1} if function is Group.refuse or "refused" in old else None
    with mutated(function, old, new), pytest.raises(Violation):
        Meeting(*work, leaves=leaves, refuses=refuses).explore(order, victim)
