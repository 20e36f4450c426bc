"""Waits of one process that last for long: when it reports them, what it answers, and how they end, with a scripted node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mray._common import messages as m
from mray._common.long_waits import WaitLink
from mray._runtime.client import late
from mray._runtime.client.calls import Call
from mray.exceptions import DeadlockError, GetTimeoutError
from tests.unit.stage import Stage, call_of, ref_of, staged
from tests.unit.test_objects import completed

LINK = tuple(WaitLink("A.go", 1, "A.other", "", "A.go", "", 1, "f.py", 3, "go", "get(x)"))


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged(patience=10.0) as stage:
        yield stage


@pytest.fixture
def calls(stage: Stage) -> list[Call]:
    return [call_of(stage, "f") for _ in range(3)]


def at(stage: Stage, seconds: float, *message: object) -> None:
    """The node sends a message then."""
    stage.client.reactor.call_later(seconds, lambda: stage.node.link.send(message))


def reports(stage: Stage) -> int:
    stage.deliver()
    return len(stage.node.take(m.LONG_WAIT))


@pytest.mark.parametrize(("seconds", "count"), [(9.0, 0), (11.0, 1), (21.0, 2), (39.0, 2), (41.0, 3), (2000.0, 11)])
def test_a_wait_is_reported_after_the_patience_and_ever_more_seldom(stage: Stage, calls: list[Call], seconds: float, count: int) -> None:
    stage.client.reactor.call_later(seconds, lambda: completed(stage, calls[0], 1))
    assert stage.client.objects.get([ref_of(calls[0])], None) == [1]
    assert reports(stage) == count


def test_a_wait_with_a_limit_ends_with_it(stage: Stage, calls: list[Call]) -> None:
    began = stage.run_token.clock
    with pytest.raises(GetTimeoutError, match="not ready after 25 s"):
        stage.client.objects.get([ref_of(calls[0])], 25)
    assert stage.run_token.clock - began == pytest.approx(25 + late.PATIENCE, abs=0.1)  # the node does not say why the call is late
    assert reports(stage) == 2
    assert stage.client.objects.wait([ref_of(call) for call in calls], 1, 5)[0] == []
    assert reports(stage) == 0


def test_without_patience_nothing_is_reported() -> None:
    with staged() as stage:
        call = call_of(stage, "f")
        with pytest.raises(GetTimeoutError):
            stage.client.objects.get([ref_of(call)], 100)
        assert reports(stage) == 0


def test_the_node_is_told_which_calls_a_wait_can_spare(stage: Stage, calls: list[Call]) -> None:
    refs = [ref_of(call) for call in calls]
    at(stage, 11, m.WAITS_ASKED, 5, [])
    stage.client.objects.wait(refs, 2, 12)
    ((_code, number, [wait], told, main),) = stage.node.take(m.WAITS_TOLD)
    assert (number, told, main) == (5, [], 0)
    _wait_number, task_id, name, place, targets, spare = wait
    assert (task_id, name, spare) == (b"", "The driver", 1)
    assert targets == [(call.task_id, "me") for call in calls]
    assert place[0] == __file__
    assert place[3] == "stage.client.objects.wait(refs, 2, 12)"
    completed(stage, calls[0], 0)
    at(stage, 11, m.WAITS_ASKED, 6, [])
    with pytest.raises(GetTimeoutError):
        stage.client.objects.get(refs, 12)
    ((_code, _number, [wait], _told, _main),) = stage.node.take(m.WAITS_TOLD)
    assert wait[4:] == ([(call.task_id, "me") for call in calls[1:]], 1)  # the other one may fail


def test_a_wait_that_has_ended_is_told_no_more(stage: Stage, calls: list[Call]) -> None:
    stage.client.reactor.call_later(11, lambda: completed(stage, calls[0], 1))
    stage.client.objects.get([ref_of(calls[0])], None)
    stage.tell(m.WAITS_ASKED, 5, [])
    assert stage.node.take(m.WAITS_TOLD) == [(m.WAITS_TOLD, 5, [], [], 0)]


def test_a_wait_that_is_stuck_raises_if_the_node_says_so(stage: Stage, calls: list[Call]) -> None:
    at(stage, 11, m.STUCK, 1, True, [calls[0].task_id], [LINK])
    with pytest.raises(DeadlockError, match=r"A.go \(pid 1\) waits for A.other, which is queued behind A.go") as raised:
        stage.client.objects.get([ref_of(calls[0])], None)
    assert raised.value.chain == (LINK,)


def test_a_value_that_has_come_is_returned_though_the_node_says_that_it_cannot(stage: Stage, calls: list[Call]) -> None:
    stage.client.reactor.call_later(11, lambda: completed(stage, calls[0], "value"))
    at(stage, 11, m.STUCK, 1, True, [calls[0].task_id], [LINK])
    assert stage.client.objects.get([ref_of(calls[0])], None) == ["value"]


def test_a_wait_that_is_known_to_be_stuck_is_reported_no_more_and_its_timeout_has_the_chain(stage: Stage, calls: list[Call]) -> None:
    at(stage, 11, m.STUCK, 1, False, [calls[0].task_id], [LINK])
    with pytest.raises(GetTimeoutError, match="not ready after 100 s. It cannot end, because calls wait for each other:\nA.go"):
        stage.client.objects.get([ref_of(calls[0])], 100)
    assert reports(stage) == 1
    with pytest.raises(GetTimeoutError, match="because calls wait for each other"):  # a short one, too
        stage.client.objects.get([ref_of(calls[0])], 0.2)
    with pytest.raises(GetTimeoutError, match="not ready after 0.2 s. f is queued.$"):
        stage.client.objects.get([ref_of(calls[1])], 0.2)


def test_what_the_node_says_of_a_wait_that_has_ended_changes_nothing(stage: Stage, calls: list[Call]) -> None:
    stage.tell(m.STUCK, 7, True, [calls[0].task_id], [LINK])
    completed(stage, calls[0], 1)
    assert stage.client.objects.get([ref_of(calls[0])], None) == [1]
