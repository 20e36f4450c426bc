"""Leases: what is lent beside a ring stays what it is until every reader has let go and its device is done, in every order of the steps."""

from __future__ import annotations

from typing import Any

import pytest

from mray._gpu.channel_leases import LeaseHolder, Lender
from mray._gpu.remembered import RememberedLeases
from mray._ipc.ring_loans import RingLoans, has_died
from tests.full import FULL, full
from tests.interleavings.explorer import SEQUENTIAL, TOTAL, WEAK, Violation
from tests.interleavings.lending import Lending, Remembering
from tests.interleavings.stand_ins import mutated

TWO = {"readers": 2, "before": 1}
SHAPES = [
    pytest.param([b"one", b"two"], {}, id="two values, an event for each"),
    pytest.param([b"=one", b"=one"], {}, id="two values, one event"),
    pytest.param([b"one"], {"readers": 2, "before": 1}, id="two readers"),
    pytest.param([b"=one", b"=two"], {"readers": 2, "before": 1}, id="two readers, two values", marks=full),
    pytest.param([b"=one"], {"readers": 3, "before": 1}, id="three readers", marks=full),
]


@pytest.mark.parametrize(("notes", "more"), SHAPES if FULL else SHAPES[2:])
def test_what_is_lent_stays_what_it_is_in_every_order_of_steps(notes: list[bytes], more: dict[str, Any]) -> None:
    explored = Lending(*notes, **more).explore()
    assert explored.states > explored.outcomes > 1


@pytest.mark.parametrize("victim", ["writer", "reader 0"])
@pytest.mark.parametrize(("notes", "more"), [*SHAPES[0 if FULL else 1 : 2], pytest.param([b"=one"], TWO, id="two readers")])
def test_who_lends_or_borrows_may_die_after_any_step(notes: list[bytes], more: dict[str, Any], victim: str) -> None:
    Lending(*notes, **more).explore(victim=victim)


@pytest.mark.parametrize("victim", [pytest.param(None, marks=full), "writer", "reader 0"])
def test_stores_to_leases_may_be_held_back_in_a_queue(victim: str | None) -> None:
    Lending(b"one", b"two").explore(TOTAL, victim)


@pytest.mark.parametrize("notes", [[b"one"], [b"=one", b"=two"]])
def test_accesses_to_leases_may_pass_each_other_between_fences(notes: list[bytes]) -> None:
    Lending(*notes).explore(WEAK)


MUTANTS = [
    pytest.param(
        LeaseHolder.end,
        "if self._notes",
        "words[start + at.ENDED] = use\n    if self._notes",
        [b"one"],
        {},
        SEQUENTIAL,
        None,
        id="ends, then says how",
    ),
    pytest.param(
        LeaseHolder.end, "use << 8 | len(note)", "len(note)", [b"one", b"two"], {}, SEQUENTIAL, None, id="a new note, the old mark"
    ),
    pytest.param(LeaseHolder.end, "!= note:", "is None:", [b"one", b"two"], {}, SEQUENTIAL, None, id="says only once how"),
    pytest.param(
        LeaseHolder.end,
        "words[start + at.NUMBER] = number",
        "pass",
        [b"=one", b"=one"],
        {},
        SEQUENTIAL,
        None,
        id="says how, and not how far",
    ),
    pytest.param(RingLoans.sweep, "(self._firsts)", "(self._firsts[:1])", [b"=one", b"=two"], TWO, SEQUENTIAL, None, id="asks one only"),
    pytest.param(Lender.lend_again, "self._uses + 1", "1", [b"=one", b"=two"], {}, SEQUENTIAL, None, id="uses do not differ"),
    pytest.param(Lender.note, "known[0] != mark", "False", [b"one", b"two"], {}, SEQUENTIAL, None, id="reads a note only once"),
    pytest.param(RingLoans.close, "_closed.append(self)", "then()", [b"one"], {}, SEQUENTIAL, None, id="takes it back at its close"),
    pytest.param(RingLoans.is_settled, "if self.out or", "if False and", [b"one"], {}, SEQUENTIAL, None, id="forgets what is lent"),
    pytest.param(
        RingLoans.is_settled, "_end(holders,", "_end(self._firsts,", [b"one"], {}, SEQUENTIAL, "reader 0", id="waits for the dead"
    ),
    pytest.param(has_died, "return is_dead(", "return None is is_dead(", [b"one"], {}, SEQUENTIAL, "reader 0", id="takes nobody for dead"),
    pytest.param(LeaseHolder.end, "publish_fence()", "pass", [b"one"], {}, WEAK, None, id="ends without a fence"),
    pytest.param(RingLoans._end, "trust_fence()", "pass", [b"one"], {}, WEAK, None, id="trusts a note without a fence"),
    pytest.param(LeaseHolder.gone, "publish_fence()", "pass", [b"=one"], {}, WEAK, None, id="goes without a fence"),
]


@pytest.mark.parametrize(("function", "old", "new", "notes", "more", "order", "victim"), MUTANTS)
def test_leases_with_one_fault_are_caught(
    function: Any, old: str, new: str, notes: list[bytes], more: dict[str, Any], order: str, victim: str | None
) -> None:
    with mutated(function, old, new), pytest.raises(Violation):
        Lending(*notes, **more).explore(order, victim)


# ------------------------------------------------------------------------------------ leases that both ends remember
@pytest.mark.parametrize("victim", [None, "writer", "reader 0"])
def test_a_remembered_lease_stays_what_it_is_in_every_order_of_steps(victim: str | None) -> None:
    Remembering(3).explore(victim=victim)


def test_accesses_to_a_remembered_lease_may_pass_each_other_between_fences() -> None:
    Remembering(2).explore(WEAK)


@pytest.mark.parametrize(
    ("function", "old", "new", "order"),
    [
        pytest.param(RememberedLeases._free, "words[start] == found.use", "True", SEQUENTIAL, id="takes what is looked at"),
        pytest.param(
            RememberedLeases._free, "found.theirs[found.index] >= number", "True", SEQUENTIAL, id="takes what the device looks at"
        ),
        pytest.param(RememberedLeases._free, "found.point.reached()", "True", SEQUENTIAL, id="takes the first so"),
        pytest.param(RememberedLeases._send, "found.use = use = ", "use = ", SEQUENTIAL, id="takes an old end for a new one"),
        pytest.param(LeaseHolder.end, "publish_fence()", "pass", WEAK, id="ends without a fence"),
        pytest.param(RememberedLeases._free, "trust_fence()\n            number", "number", WEAK, id="trusts a number without a fence"),
    ],
)
def test_remembered_leases_with_one_fault_are_caught(function: Any, old: str, new: str, order: str) -> None:
    with mutated(function, old, new), pytest.raises(Violation):
        Remembering(3 if order == SEQUENTIAL else 2).explore(order)
