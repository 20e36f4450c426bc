"""Calls on the main thread of a worker: their order, their answers, and the ends that they cause."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mray._common import messages as m
from mray._objects.remote_error import pickle_error, unpickle_error
from mray._runtime.worker.exits import EXITED, TERMINATED, ExitActor, Terminated, cause_of, exit_status
from mray.exceptions import RayTaskError, TaskCancelledError, WorkerCrashedError
from tests.unit.stage import WorkerStage


@pytest.fixture
def stage() -> Iterator[WorkerStage]:
    stage = WorkerStage()
    yield stage
    stage.close()


def failing(error: BaseException) -> Any:
    def fails() -> None:
        raise error

    return fails


class Counter:
    def __init__(self, first: int = 0) -> None:
        self.value = first

    def add(self, more: int = 1) -> int:
        self.value += more
        return self.value

    def fail(self) -> None:
        raise KeyError(self.value)

    def leave(self) -> None:
        raise ExitActor

    def exit(self, code: Any) -> None:
        raise SystemExit(code)

    def pair(self) -> tuple[int, int]:
        return self.value, -self.value

    def __repr__(self) -> str:
        return f"Counter({self.value})"


# ------------------------------------------------------------------------------------------ order and answers
def test_tasks_run_in_order_of_arrival_and_are_answered_in_it(stage: WorkerStage) -> None:
    ran: list[str] = []
    sent = [stage.task(ran.append, name) for name in "abc"]
    stage.step()
    assert ran == ["a", "b", "c"]
    assert [task_id for task_id, _value in stage.answers()] == sent


def test_calls_of_an_actor_see_the_state_that_earlier_ones_left(stage: WorkerStage) -> None:
    stage.start_actor(Counter, arguments=(m.PICKLED, pickle.dumps(((10,), {}))))
    assert stage.node.take() == [(m.ACTOR_READY, b"\1" * 16)]
    for more in (1, 2, 3):
        stage.call("add", more)
    stage.step()
    assert [value for _task_id, value in stage.answers()] == [11, 13, 16]


def test_the_error_of_a_method_names_the_actor_and_the_next_call_runs(stage: WorkerStage) -> None:
    stage.start_actor(Counter)
    stage.call("fail")
    stage.call("add")
    stage.step()
    (_, error), (_, value) = stage.answers()
    assert isinstance(error, RayTaskError) and isinstance(error, KeyError)
    assert "Counter.fail" in str(error) and "Counter(0)" in str(error)
    assert value == 1


def test_a_call_of_a_method_that_does_not_exist_fails_alone(stage: WorkerStage) -> None:
    stage.start_actor(Counter)
    stage.call("nothing")
    stage.call("add")
    stage.step()
    (_, error), (_, value) = stage.answers()
    assert isinstance(error, AttributeError) and value == 1


def test_a_function_is_unpickled_once_and_its_error_fails_each_call(stage: WorkerStage) -> None:
    stage.other.link.send((m.FUNCTION, b"x" * 16, b"no pickle"))
    for number in (1, 2):
        message = (m.TASK, bytes([number]) * 24, b"x" * 16, 1, m.PICKLED, pickle.dumps(((), {})), None, None, None, "module.f")
        stage.other.link.send(message)
    stage.step()
    errors = [str(error) for _task_id, error in stage.answers()]
    assert len(errors) == 2 and all("f" in text and "UnpicklingError" in text for text in errors)


@pytest.mark.parametrize(
    ("returned", "num_returns", "expected"),
    [((1, 2), 2, [1, 2]), ([1, 2, 3], 3, [1, 2, 3]), ("anything", 0, []), (iter("ab"), 2, ["a", "b"])],
)
def test_each_return_value_is_answered_apart(stage: WorkerStage, returned: Any, num_returns: int, expected: list[Any]) -> None:
    task_id = stage.task(lambda: returned, num_returns=num_returns)
    stage.step()
    assert stage.answers() == [(task_id, expected)]


@pytest.mark.parametrize(
    ("returned", "kind", "text"),
    [
        ((1, 2, 3), ValueError, "Task returned 3 objects, but num_returns=2"),
        (7, TypeError, "num_returns=2 asks for an iterable of that many values, not <class 'int'>"),
    ],
)
def test_a_wrong_number_of_values_is_the_error_of_every_one(stage: WorkerStage, returned: Any, kind: type, text: str) -> None:
    stage.task(lambda: returned, num_returns=2)
    stage.step()
    ((_, errors),) = stage.answers()
    assert [isinstance(error, kind) and text in str(error) for error in errors] == [True, True]


def test_a_result_that_cannot_be_pickled_fails_the_call(stage: WorkerStage) -> None:
    stage.task(threading.Lock)
    stage.task(lambda: 5)
    stage.step()
    (_, error), (_, value) = stage.answers()
    assert isinstance(error, TypeError) and "the return value of" in str(error)
    assert value == 5


def test_a_large_result_goes_into_a_segment_of_the_caller(stage: WorkerStage) -> None:
    task_id = stage.task(lambda: b"x" * 200_000)
    stage.step()
    ((answered, (name, size, producer)),) = stage.answers()
    assert (answered, producer) == (task_id, "me")
    assert size > 200_000 and bytes(name.data).count(b"x") >= 200_000


def test_arguments_that_were_refs_are_filled_in_at_their_places(stage: WorkerStage) -> None:
    values = [(1, m.PICKLED, pickle.dumps("b")), ("last", m.PICKLED, pickle.dumps("c"))]
    stage.task(lambda *args, **kwargs: (args, kwargs), "a", None, arguments=values)
    stage.step()
    assert [value for _task_id, value in stage.answers()] == [(("a", "b"), {"last": "c"})]


def test_a_failed_argument_is_the_error_of_the_call_and_the_function_does_not_run(stage: WorkerStage) -> None:
    ran: list[Any] = []
    stage.task(ran.append, None, arguments=[(0, m.FAILED, pickle_error(WorkerCrashedError("it died")))])
    stage.step()
    ((_, error),) = stage.answers()
    assert isinstance(error, WorkerCrashedError) and "it died" in str(error)
    assert ran == []


# ------------------------------------------------------------------------------------------ retries
@pytest.mark.parametrize(
    ("retry", "error", "is_retried"),
    [
        (True, ValueError("no"), True),
        (False, ValueError("no"), False),
        (pickle.dumps((ValueError,)), ValueError("no"), True),
        (pickle.dumps((ValueError,)), KeyError("no"), False),
    ],
)
def test_the_caller_is_asked_to_repeat_a_call_whose_error_it_wants_repeated(
    stage: WorkerStage, retry: Any, error: Exception, is_retried: bool
) -> None:
    task_id = stage.task(failing(error), options={"retry": retry})
    stage.step()
    attempts = stage.other.take(m.ATTEMPT)
    answers = stage.answers()
    assert attempts == ([(m.ATTEMPT, task_id)] if is_retried else [])
    assert [type(answer).__name__ for _task_id, answer in answers] == ([] if is_retried else [f"RayTaskError({type(error).__name__})"])


def test_a_result_that_cannot_be_pickled_is_not_repeated(stage: WorkerStage) -> None:
    task_id = stage.task(threading.Lock, options={"retry": True})
    stage.step()
    assert stage.other.take(m.ATTEMPT) == []
    assert [answered for answered, _error in stage.answers()] == [task_id]


# ------------------------------------------------------------------------------------------ cancelling
def test_a_queued_task_that_is_cancelled_is_answered_and_the_others_run(stage: WorkerStage) -> None:
    ran: list[str] = []
    first, second = stage.task(ran.append, "first"), stage.task(ran.append, "second")
    stage.other.link.send((m.CANCEL, first, False, False))
    stage.deliver()
    ((task_id, error),) = stage.answers()
    assert task_id == first and isinstance(error, TaskCancelledError)
    stage.step()
    assert ran == ["second"]
    assert stage.answers() == [(second, None)]


def test_queued_tasks_are_given_back_from_the_newest_on_and_only_those_of_the_caller(stage: WorkerStage) -> None:
    another = stage.caller("another")
    first, second, third = (stage.task(str) for _ in range(3))
    another.link.send((m.TASK, b"9" * 24, b"f", 1, m.PICKLED, b"", None, None, None, "f"))
    stage.other.link.send((m.RECLAIM, 2))
    stage.deliver()
    assert stage.other.take() == [(m.GIVEN_BACK, [second, third])]
    assert [call.task_id for _connection, code, call in stage.worker.inbox if code == m.TASK] == [first, b"9" * 24]
    assert another.take() == []


def test_a_task_that_was_cancelled_before_it_began_does_not_run(stage: WorkerStage) -> None:
    ran: list[int] = []
    task_id = stage.task(ran.append, 1)
    stage.deliver()
    stage.worker.interrupts.cancel(task_id, False, False)
    stage.step()
    ((_, error),) = stage.answers()
    assert isinstance(error, TaskCancelledError) and ran == []
    stage.task(ran.append, 2)
    stage.step()
    assert ran == [2] and stage.process.interrupts == 0


def test_a_method_that_was_cancelled_while_it_ran_is_answered_with_that(stage: WorkerStage) -> None:
    class Asked:
        def run(self) -> bool:
            stage.other.link.send((m.CANCEL, task_id, False, False))
            stage.deliver()
            return stage.worker.is_cancelled()

        def is_cancelled(self) -> bool:
            return stage.worker.is_cancelled()

    stage.start_actor(Asked)
    task_id = stage.call("run")
    stage.call("is_cancelled")
    stage.step()
    (_, error), (_, value) = stage.answers()
    assert isinstance(error, TaskCancelledError) and value is False


# ------------------------------------------------------------------------------------------ ends
def test_a_worker_that_reaches_max_calls_reports_it_before_the_last_one_runs(stage: WorkerStage) -> None:
    seen: list[list[int]] = []

    def look() -> None:
        stage.deliver()
        seen.append([message[0] for message in stage.other.take(m.LEAVING)])

    for _ in range(2):
        stage.task(look, options={"max_calls": 2})
    stage.step()
    assert seen == [[], [m.LEAVING]]
    assert stage.executor.end == (m.CAUSE_EXIT, "Exited because worker reached max_calls=2 for this method.")


@pytest.mark.parametrize(
    ("error", "status", "cause"),
    [
        (SystemExit(0), 0, (m.CAUSE_EXIT, "A.f raised SystemExit(0).")),
        (SystemExit(3), 3, (m.CAUSE_CRASH, "A.f raised SystemExit(3).")),
        (SystemExit(-1), 255, (m.CAUSE_CRASH, "A.f raised SystemExit(-1).")),
        (SystemExit(256), 0, (m.CAUSE_CRASH, "A.f raised SystemExit(256).")),
        (SystemExit("text"), 1, (m.CAUSE_CRASH, "A.f raised SystemExit('text').")),
        (SystemExit(), 0, (m.CAUSE_CRASH, "A.f raised SystemExit().")),
        (ExitActor(), 0, EXITED),
        (Terminated(), 1, TERMINATED),
    ],
    ids=repr,
)
def test_the_status_and_the_cause_of_an_exit_are_those_of_python_and_ray(error: SystemExit, status: int, cause: Any) -> None:
    assert exit_status(error) == status
    assert cause_of(error, "A.f") == cause


def test_exit_actor_ends_the_actor_without_an_answer(stage: WorkerStage) -> None:
    stage.start_actor(Counter)
    stage.call("leave")
    stage.step()
    assert stage.answers() == []
    assert (stage.executor.end, stage.executor.status) == (EXITED, 0)


def test_a_worker_ends_in_order_and_reports_its_cause_before_its_hooks_run(stage: WorkerStage) -> None:
    class Hooked(Counter):
        def __ray_shutdown__(self) -> None:
            stage.process.done.append(("hook",))

    stage.start_actor(Hooked)
    stage.process.done.clear()
    stage.node.take()
    stage.serve()
    first, _second = stage.call("add"), stage.call("exit", 4)
    stage.until(lambda: stage.process.status is not None)
    assert [task_id for task_id, _value in stage.answers()] == [first]
    ((_code, kind, text, _name, calls),) = stage.node.take(m.EXITING)
    assert (kind, text) == (m.CAUSE_CRASH, "Hooked.exit raised SystemExit(4).")
    assert len(calls) == 2
    assert [each for each in stage.process.done if each[0] in ("hook", "finalize")] == [("hook",), ("finalize", False)]
    assert stage.process.status == 4


def test_a_constructor_that_raises_is_reported_with_its_error(stage: WorkerStage) -> None:
    class Broken:
        def __init__(self) -> None:
            raise ValueError("no such thing")

    stage.start_actor(Broken)
    ((_code, actor_id, payload),) = stage.node.take()
    error = unpickle_error(payload)
    assert actor_id == b"\1" * 16
    assert isinstance(error, RayTaskError) and isinstance(error, ValueError) and "Broken.__init__" in str(error)
    assert stage.executor.end == (m.CAUSE_INIT, "its constructor raised")
