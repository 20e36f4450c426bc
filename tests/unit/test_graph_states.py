"""A graph of this process while several threads end it, and the watches that it gives back."""

from __future__ import annotations

import threading
import traceback
from types import SimpleNamespace
from typing import Any

import pytest

from mray._graph.caller.allocation import Allocation
from mray._graph.caller.executions import TORN_DOWN, Executions
from mray.exceptions import RayChannelError


class Racing(Executions):
    """A graph that another thread tears down as soon as the lock is free."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._now: Any = 0
        self._made: Any = SimpleNamespace(stop=lambda _cause: [])
        self.completions: Any = SimpleNamespace(look=lambda: None)

    @property
    def state(self) -> Any:
        seen = self._now
        if not self._lock._is_owned():  # type: ignore[attr-defined]
            self._now = TORN_DOWN
        return seen

    @state.setter
    def state(self, state: Any) -> None:
        assert state >= self._now, "a later state was left for an earlier one"
        self._now = state


def test_a_graph_that_is_torn_down_as_its_actor_dies_stays_so() -> None:
    graph = Racing()
    graph._break(RayChannelError("an actor has died"))
    assert graph.state


def test_an_error_that_is_raised_again_and_again_keeps_the_frames_of_the_last_time_alone() -> None:
    graph = Racing()
    graph.cause = RayChannelError("an actor has died")
    frames = []
    for _ in range(3):
        with pytest.raises(RayChannelError) as caught:
            graph._raise_cause()
        frames.append(len(list(traceback.walk_tb(caught.value.__traceback__))))
    assert frames == [frames[0]] * 3


def test_a_graph_that_has_ended_watches_no_process_that_had_a_copy() -> None:
    watched: set[str] = set()

    def then(_actor: str, _callback: Any, process: str) -> Any:
        watched.add(process)
        return lambda: watched.discard(process)

    host: Any = SimpleNamespace(process="owner", prefix="/mray-test-", then=then)
    plan: Any = SimpleNamespace(graph_id="0" * 32, copy_of="", channels=())
    made = Allocation(host, plan, {}, {})
    made.note_copier("copier")
    assert watched == {"copier"}
    made.end()
    assert watched == set()
