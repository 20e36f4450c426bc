"""Members of a group find each other, meet and part, whoever comes first or dies on the way, in every order of their steps."""

from __future__ import annotations

from typing import Any

import pytest

from mray._channel.group import Group
from tests.full import full
from tests.interleavings.explorer import SEQUENTIAL, TOTAL, WEAK, Violation
from tests.interleavings.finding import Finding
from tests.interleavings.stand_ins import mutated


@pytest.mark.parametrize(
    ("order", "victim", "times"),
    [
        pytest.param(SEQUENTIAL, None, 1, id="one after another", marks=full),
        pytest.param(SEQUENTIAL, "member 0", 1, id="one dies"),
        pytest.param(TOTAL, None, 1, id="stores are held back"),
        pytest.param(TOTAL, "member 0", 1, id="stores are held back, one dies", marks=full),
        pytest.param(WEAK, None, 1, id="accesses pass each other", marks=full),
        pytest.param(SEQUENTIAL, None, 2, id="twice", marks=full),
        pytest.param(SEQUENTIAL, "member 1", 2, id="twice, and one dies", marks=full),
    ],
)
def test_two_members_find_each_other_in_every_order_of_steps(order: str, victim: str | None, times: int) -> None:
    explored = Finding(times=times).explore(order, victim)
    assert explored.states > explored.outcomes > 1


MUTANTS = [
    pytest.param(
        Group._adopt,
        "self._members[rank] = member",
        "self._members[rank] = member; self._board.words[PARTNER + rank] = member.nonce",
        SEQUENTIAL,
        None,
        id="says that it knows a board before it has opened it",
    ),
    pytest.param(Group._adopt, "doorbell.ring()", "pass", SEQUENTIAL, None, id="finds others in silence"),
    pytest.param(Group._complete, "self._joined(rank)", "True", SEQUENTIAL, None, id="does not wait to be found"),
    pytest.param(
        Group._meet,
        "meeting.announce(self._own)",
        "seen = meeting.present(); meeting.present = lambda: seen; meeting.announce(self._own)",
        SEQUENTIAL,
        None,
        id="looks before it announces itself, and not after",
    ),
    pytest.param(Group._on_early_death, "self._failure = ", "failure = ", SEQUENTIAL, "member 0", id="waits for who died before it joined"),
    pytest.param(Group._on_death, "self._failure = ", "failure = ", SEQUENTIAL, "member 0", id="waits for who has died"),
    pytest.param(Group.join, "fence()", "pass", TOTAL, None, id="announces a board that others cannot read yet"),
]


@pytest.mark.parametrize(("function", "old", "new", "order", "victim"), MUTANTS)
def test_finding_with_one_fault_is_caught(function: Any, old: str, new: str, order: str, victim: str | None) -> None:
    with mutated(function, old, new), pytest.raises(Violation):
        Finding().explore(order, victim)
