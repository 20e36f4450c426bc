"""`get`, `wait` and callbacks of one process, and the tasks that compute the values, with a scripted node, workers and owners."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from mray._api.object_ref import ObjectRef
from mray._common import messages as m
from mray._objects.remote_error import pickle_error
from mray._runtime.client.calls import Call
from mray.exceptions import GetTimeoutError, TaskCancelledError, WorkerCrashedError
from tests.unit.stage import Peer, Stage, call_of, ref_of, reply, result, staged

DEMAND = {"resources": {"CPU": 1.0}}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged() as stage:
        yield stage


def completed(stage: Stage, call: Call, value: object) -> None:
    assert call.entry is not None
    with stage.client.lock:
        if isinstance(value, BaseException):
            call.entry.complete(m.FAILED, pickle_error(value))
        else:
            call.entry.complete(m.PICKLED, pickle.dumps(value, 5))


@pytest.fixture
def calls(stage: Stage) -> list[Call]:
    return [call_of(stage, "f") for _ in range(4)]


# ------------------------------------------------------------------------------------------ get and wait
def test_values_are_returned_in_the_order_of_the_refs(stage: Stage, calls: list[Call]) -> None:
    for place in (2, 0, 3, 1):
        stage.client.reactor.call_later(4.0 - place, lambda place=place: completed(stage, calls[place], place))  # type: ignore[misc]
    assert stage.client.objects.get([ref_of(call) for call in calls], None) == [0, 1, 2, 3]


def test_the_first_error_is_raised_while_other_values_are_pending(stage: Stage, calls: list[Call]) -> None:
    stage.client.reactor.call_later(1.0, lambda: completed(stage, calls[2], KeyError("no")))
    with pytest.raises(KeyError, match="no"):
        stage.client.objects.get([ref_of(call) for call in calls], None)


def test_of_several_errors_the_first_in_the_order_of_the_refs_is_raised(stage: Stage, calls: list[Call]) -> None:
    for place, value in ((3, ValueError("last")), (1, KeyError("first")), (0, 0), (2, 2)):
        completed(stage, calls[place], value)
    with pytest.raises(KeyError, match="first"):
        stage.client.objects.get([ref_of(call) for call in calls], None)


def test_a_get_whose_time_is_over_says_so_and_a_later_one_has_the_value(stage: Stage, calls: list[Call]) -> None:
    ref = ref_of(calls[0])
    with pytest.raises(GetTimeoutError, match="not ready after 0.05 s"):
        stage.client.objects.get([ref], 0.05)
    completed(stage, calls[0], "late")
    assert stage.client.objects.get([ref], 0) == ["late"]


def test_wait_returns_the_ready_refs_in_their_order_and_no_more_than_asked_for(stage: Stage, calls: list[Call]) -> None:
    refs = [ref_of(call) for call in calls]
    for place in (3, 1, 0):
        completed(stage, calls[place], place)
    assert stage.client.objects.wait(refs, 2, None) == ([refs[0], refs[1]], [refs[2], refs[3]])


def test_wait_ends_with_the_last_value_that_it_needs_an_error_or_not(stage: Stage, calls: list[Call]) -> None:
    refs = [ref_of(call) for call in calls]
    completed(stage, calls[3], 3)
    stage.client.reactor.call_later(1.0, lambda: completed(stage, calls[1], KeyError("no")))
    assert stage.client.objects.wait(refs, 2, 5.0) == ([refs[1], refs[3]], [refs[0], refs[2]])
    assert stage.run_token.clock < 2.0


def test_wait_returns_fewer_refs_at_its_timeout(stage: Stage, calls: list[Call]) -> None:
    refs = [ref_of(call) for call in calls]
    completed(stage, calls[2], 2)
    assert stage.client.objects.wait(refs, 3, 1.0) == ([refs[2]], [refs[0], refs[1], refs[3]])


def test_a_callback_is_called_once_unless_it_is_cancelled(stage: Stage, calls: list[Call]) -> None:
    called: list[str] = []
    stage.client.objects.then(ref_of(calls[0]), lambda: called.append("first"))
    cancel = stage.client.objects.then(ref_of(calls[0]), lambda: called.append("cancelled"))
    cancel()
    completed(stage, calls[0], 1)
    stage.deliver()
    assert called == ["first"]
    stage.client.objects.then(ref_of(calls[0]), lambda: called.append("ready"))
    stage.deliver()
    assert called == ["first", "ready"]


def test_a_borrowed_value_is_requested_once_from_its_owner(stage: Stage) -> None:
    owner = stage.peer("owner")
    object_id = b"o" * 28
    with stage.client.lock:
        ref = ObjectRef(object_id, stage.client.borrowing.entry_of(object_id, "owner"))
    called: list[object] = []
    for _ in range(2):
        stage.client.objects.then(ref, lambda: called.append(stage.client.objects.get_one(ref, 0)))
    stage.deliver()
    assert [message[:2] for message in owner.take(m.FETCH)] == [(m.FETCH, object_id)]
    owner.link.send((m.OBJECT, object_id, m.PICKLED, pickle.dumps("value", 5), None))
    stage.deliver()
    assert called == ["value", "value"]


# ------------------------------------------------------------------------------------------ tasks
def submit(stage: Stage, retries: int = 0) -> Call:
    call = call_of(stage, (b"f" * 16, b"code", "tests.f", None), retries)
    with stage.client.lock:
        stage.client.leases.pool("key", DEMAND, False).submit(call)
    stage.deliver()
    return call


def grant(stage: Stage, lease_id: int, process: str) -> Peer:
    """Grant the oldest request."""
    worker = stage.peer(process)
    number = stage.node.take(m.LEASE_REQUEST)[0][1]
    stage.tell(m.LEASE_GRANT, number, lease_id, process, {"CPU": 1.0}, [])
    return worker


def tasks(worker: Peer) -> list[bytes]:
    return [message[1] for message in worker.take(m.TASK)]


def test_a_task_runs_on_a_granted_lease_that_is_returned_when_it_is_idle(stage: Stage) -> None:
    call = submit(stage)
    worker = grant(stage, 1, "worker")
    assert [message[0] for message in worker.received if message[0] in (m.LEASED, m.FUNCTION, m.TASK)] == [m.LEASED, m.FUNCTION, m.TASK]
    assert stage.node.take(m.LEASE_RETURN) == []
    reply(worker, call.task_id, 5)
    assert stage.client.objects.get_one(ref_of(call), None) == 5
    stage.pass_time(1.0)
    assert stage.node.take(m.LEASE_RETURN) == [(m.LEASE_RETURN, 1)]


@pytest.mark.parametrize("retries", [0, 1])
def test_a_task_whose_worker_crashes_runs_again_as_often_as_it_may(stage: Stage, retries: int) -> None:
    call = submit(stage, retries)
    assert tasks(grant(stage, 1, "first")) == [call.task_id]
    stage.end("first", text="it crashed")
    if retries:
        assert result(call) is ...
        second = grant(stage, 2, "second")
        assert tasks(second) == [call.task_id]
        stage.end("second", text="it crashed again")
    error = result(call)
    assert isinstance(error, WorkerCrashedError) and ("again" in str(error)) == bool(retries)
    assert stage.node.take(m.LEASE_REQUEST) == []


def test_a_task_that_waits_for_a_lease_and_is_cancelled_is_never_sent(stage: Stage) -> None:
    call = submit(stage)
    stage.client.cancelling.cancel(ref_of(call), False, False)
    assert isinstance(result(call), TaskCancelledError)
    assert tasks(grant(stage, 1, "worker")) == []
    stage.pass_time(1.0)
    assert stage.node.take(m.LEASE_RETURN) == [(m.LEASE_RETURN, 1)]


def test_a_task_that_its_worker_gives_back_runs_elsewhere_without_using_a_retry(stage: Stage) -> None:
    call = submit(stage, 1)
    worker = grant(stage, 1, "worker")
    assert tasks(worker) == [call.task_id]
    worker.link.send((m.LEAVING,))
    worker.link.send((m.GIVEN_BACK, [call.task_id]))
    stage.deliver()
    assert tasks(grant(stage, 2, "second")) == [call.task_id]
    assert call.retries == 1
