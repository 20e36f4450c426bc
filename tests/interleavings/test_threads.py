"""The threads of one process that dozes: whoever waits in it is woken, whichever thread reads, in every order of their steps."""

from __future__ import annotations

from typing import Any

import pytest

from mray._ipc.reactor import Reactor
from mray._ipc.ring_pair import RingPair
from tests.full import full
from tests.interleavings.dozing import Threads
from tests.interleavings.explorer import Violation
from tests.interleavings.stand_ins import mutated

SHAPES = [
    pytest.param({"waiter": True}, id="a thread begins to wait"),
    pytest.param({"loop": True}, id="an event loop attends"),
    pytest.param({"waiter": True, "loop": True}, id="both", marks=full),
    pytest.param({"ring": True}, id="what comes through a connection's ring is handed on"),
    pytest.param({"waiter": True, "ring": True}, id="a thread begins to wait for what comes through a connection's ring"),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_whoever_waits_in_a_process_that_dozes_is_woken(shape: dict[str, bool]) -> None:
    explored = Threads(**shape).explore()
    assert explored.outcomes > 1


MUTANTS = [
    # As it was once: the event loop says PARKED, the background reader says DOZING after it, and no peer rings any more.
    pytest.param(
        Reactor._read_in_background,
        "self._set_state(DOZING)",
        "self._words[self._state_index] = DOZING",
        {"loop": True},
        id="dozes without a second look at the pollers",
    ),
    pytest.param(Reactor._set_state, "if self._polled:", "if False:", {"loop": True}, id="takes back what another thread has announced"),
    pytest.param(Reactor._set_state, "self._poll()", "pass", {"loop": True}, id="announces again without a look"),
    pytest.param(Reactor.then, "self._words[self._state_index] = PARKED", "pass", {"loop": True}, id="attends in secret"),
    pytest.param(
        Reactor._become_reader,
        "self.closed_descriptors.ring(self.wakeup_fd)",
        "True",
        {"waiter": True},
        id="waits and does not wake the background reader",
    ),
    pytest.param(
        Reactor._become_reader,
        "if self._reader == BACKGROUND and self.asleep and",
        "if self._reader == BACKGROUND and self.asleep and not self._waiters and",
        {"waiter": True},
        id="wakes it only if it was alone",
    ),
    pytest.param(Reactor._read_in_background, "or self._waiters else", "else", {"waiter": True}, id="dozes though somebody waits"),
    pytest.param(
        Reactor._read_in_background,
        "self._rings_have_entries() or",
        "",
        {"ring": True},
        id="dozes without a look into its rings",
    ),
    pytest.param(
        Reactor._park,
        "or (self._rings and self._rings_have_entries())",
        "",
        {"waiter": True, "ring": True},
        id="sleeps without a look into its rings",
    ),
    pytest.param(
        RingPair.try_put, "PUBLISHED if words[asleep] == AWAKE else NEEDS_NUDGE", "PUBLISHED", {"ring": True}, id="lets the sleeper sleep"
    ),
    pytest.param(Reactor._release_reading, "self._offer_reading()", "pass", {"waiter": True}, id="leaves reading to nobody"),
    pytest.param(Reactor._release_reading, "self._reading.release()", "pass", {"waiter": True}, id="keeps the reading lock"),
]


@pytest.mark.parametrize(("function", "old", "new", "shape"), MUTANTS)
def test_threads_with_one_fault_are_caught(function: Any, old: str, new: str, shape: dict[str, bool]) -> None:
    with mutated(function, old, new), pytest.raises(Violation):
        Threads(**shape).explore()
