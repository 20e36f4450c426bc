"""Exceptions: Ray's hierarchy, pickling, and the class that is both a RayTaskError and the cause's."""

from __future__ import annotations

import copy
import logging
import pickle
import signal
from typing import Any

import pytest

from mray import exceptions as x
from mray._common.ids import TaskID

HIERARCHY = {
    "RayError": "Exception",
    "RayTaskError": "RayError",
    "TaskCancelledError": "RayError",
    "RayActorError": "RayError",
    "ActorDiedError": "RayActorError",
    "ActorUnavailableError": "RayActorError",
    "WorkerCrashedError": "RayError",
    "GetTimeoutError": "RayError TimeoutError",
    "DeadlockError": "RayError",
    "ActorAlreadyExistsError": "ValueError RayError",
    "ActorHandleNotFoundError": "ValueError RayError",
    "ObjectLostError": "RayError",
    "OwnerDiedError": "ObjectLostError",
    "ObjectFreedError": "ObjectLostError",
    "ObjectFetchTimedOutError": "ObjectLostError",
    "ObjectReconstructionFailedError": "ObjectLostError",
    "ReferenceCountingAssertionError": "ObjectLostError AssertionError",
    "RaySystemError": "RayError",
    "RayChannelError": "RaySystemError",
    "RayChannelTimeoutError": "RayChannelError TimeoutError",
    "RayCgraphCapacityExceeded": "RaySystemError",
    "RayDirectTransportError": "RaySystemError",
    "StreamingGeneratorReplayInconsistentError": "RaySystemError",
    "ObjectStoreFullError": "RayError",
    "UnserializableException": "RayError",
}


@pytest.mark.parametrize(("name", "bases"), HIERARCHY.items())
def test_inherits_as_in_ray(name: str, bases: str) -> None:
    assert [base.__name__ for base in getattr(x, name).__bases__] == bases.split()


def cause_of(error: BaseException) -> x.RayTaskError:
    return x.RayTaskError("f", "Traceback (most recent call last):\n  File ...\nValueError: v\n", error, "ray::f", 7, "::1")


SAMPLES: list[BaseException] = [
    cause_of(ValueError("v")),
    cause_of(ValueError("v")).as_instanceof_cause(),
    x.TaskCancelledError(TaskID.nil()),
    x.TaskCancelledError(),
    x.WorkerCrashedError("f", 12, -11, "more"),
    x.RayActorError("ab", "text"),
    x.ActorDiedError(),
    x.ActorDiedError(cause_of(ValueError("v"))),
    x.ActorDiedError.because("The actor is dead.", actor_id="ab", class_name="A", pid=3, status=-9),
    x.ActorUnavailableError("restarting", b"\x01" * 16),
    x.ActorUnschedulableError("t"),
    x.TaskUnschedulableError("t"),
    x.PlacementGroupUnschedulableError("t"),
    x.ActorAlreadyExistsError("t"),
    x.GetTimeoutError("t"),
    x.ObjectStoreFullError("t"),
    x.OutOfDiskError("t"),
    x.OutOfMemoryError("t"),
    x.UnserializableException("t"),
    x.ObjectLostError("ab"),
    x.OwnerDiedError("ab", detail="It was killed."),
    x.ObjectReconstructionFailedError("ab", None, "because"),
    x.RaySystemError("t"),
    x.RayChannelTimeoutError("t"),
    x.NodeDiedError("t"),
    x.RpcError("t", 3),
    x.AuthenticationError("t"),
    x.RuntimeEnvSetupError("t"),
    x.RuntimeEnvSetupError(),
    x.TaskPlacementGroupRemoved(),
]
SAMPLES += [kind("t") for kind in x.RAY_EXCEPTION_TYPES if kind not in {type(error) for error in SAMPLES}]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_pickles_with_its_text_and_attributes(error: BaseException) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__.keys() == error.__dict__.keys()
    plain = {key: value for key, value in error.__dict__.items() if not isinstance(value, BaseException)}
    assert {key: again.__dict__[key] for key in plain} == plain


def test_every_class_is_exported() -> None:
    kinds = {kind for kind in vars(x).values() if isinstance(kind, type) and issubclass(kind, x.RayError)}
    assert set(x.RAY_EXCEPTION_TYPES) == kinds - {x.RayError}


def test_every_class_can_be_made_with_a_text() -> None:
    for kind in x.RAY_EXCEPTION_TYPES:
        if kind not in (x.RayTaskError, x.ActorUnavailableError, x.ActorDiedError):
            error = kind("text")
            assert pickle.loads(pickle.dumps(error)).args == error.args
            assert str(error)


class TestDualClass:
    def test_is_both(self) -> None:
        error = cause_of(ValueError("v", 3)).as_instanceof_cause()
        assert isinstance(error, x.RayTaskError)
        assert isinstance(error, ValueError)
        assert type(error).__name__ == "RayTaskError(ValueError)"
        assert repr(error) == "RayTaskError(ValueError)(ValueError('v', 3))"
        assert error.args == (error.cause,)
        assert error.pid == 7

    def test_text_is_the_remote_traceback_under_the_tasks_name(self) -> None:
        assert str(cause_of(ValueError("v")).as_instanceof_cause()) == "ray::f() (pid=7, ip=::1)\n  File ...\nValueError: v"

    def test_has_the_attributes_of_the_cause(self) -> None:
        cause = Odd(1, b=2)
        error: Any = cause_of(cause).as_instanceof_cause()
        assert (error.a, error.b, error.both) == (1, 2, 3)
        assert error.cause is cause
        with pytest.raises(AttributeError):
            error.nothing  # noqa: B018

    def test_has_what_lives_in_the_c_structure(self) -> None:
        error: Any = cause_of(FileNotFoundError(2, "gone", "file")).as_instanceof_cause()
        assert isinstance(error, FileNotFoundError)
        assert (error.errno, error.strerror, error.filename) == (2, "gone", "file")
        error = cause_of(UnicodeDecodeError("utf8", b"x", 0, 1, "bad")).as_instanceof_cause()
        assert (error.encoding, error.reason) == ("utf8", "bad")

    def test_the_causes_constructor_does_not_run(self) -> None:
        Counting.made = 0
        cause = Counting()
        cause_of(cause).as_instanceof_cause()
        assert Counting.made == 1

    def test_what_is_one_already_stays(self) -> None:
        once = cause_of(ValueError("v")).as_instanceof_cause()
        assert once.as_instanceof_cause() is once

    def test_copies_and_pickles(self) -> None:
        error = cause_of(KeyError("k")).as_instanceof_cause()
        for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert type(again) is type(error)
            assert str(again) == str(error)

    def test_the_class_is_made_once(self) -> None:
        assert type(cause_of(KeyError()).as_instanceof_cause()) is type(cause_of(KeyError()).as_instanceof_cause())

    def test_a_ray_error_as_cause(self) -> None:
        error = cause_of(x.TaskCancelledError(TaskID.nil())).as_instanceof_cause()
        assert isinstance(error, x.TaskCancelledError)
        assert type(error).__name__ == "RayTaskError(TaskCancelledError)"

    def test_a_base_exception_of_the_user_arrives_as_itself(self) -> None:
        error = cause_of(Unusual("u")).as_instanceof_cause()
        assert isinstance(error, Unusual)

    def test_base_exception_itself_stays_plain(self) -> None:
        error = cause_of(BaseException("b"))
        assert error.as_instanceof_cause() is error

    def test_a_final_class_stays_plain_with_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        error = cause_of(Final("x"))
        with caplog.at_level(logging.WARNING, "ray.exceptions"):
            assert error.as_instanceof_cause() is error
        assert (
            "This exception is raised as RayTaskError only. You can use `ray_task_error.cause` to access the user exception." in caplog.text
        )

    def test_a_group_keeps_its_members(self) -> None:
        group = pytest.importorskip("builtins")
        if not hasattr(group, "ExceptionGroup"):
            pytest.skip("groups came with Python 3.11")
        cause = group.ExceptionGroup("g", [ValueError(1), TypeError(2)])
        error: Any = cause_of(cause).as_instanceof_cause()
        assert error.exceptions == cause.exceptions
        matched, rest = error.split(ValueError)
        assert [type(member) for member in matched.exceptions] == [ValueError]
        assert [type(member) for member in rest.exceptions] == [TypeError]
        assert pickle.loads(pickle.dumps(error)).message == "g"


class Odd(Exception):
    __slots__ = ("b",)

    def __init__(self, a: int, *, b: int) -> None:
        super().__init__("odd")
        self.a = a
        self.b = b

    @property
    def both(self) -> int:
        return self.a + self.b


class Counting(Exception):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Counting.made += 1


class Unusual(BaseException):
    pass


class Final(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("final")


class TestTexts:
    def test_of_an_actor_that_failed_to_start(self) -> None:
        cause = x.RayTaskError(
            "A.__init__", "Traceback (most recent call last):\nValueError: v", ValueError("v"), None, 7, "::1", "<A>", "abcd"
        )
        error = x.ActorDiedError(cause)
        assert str(error).startswith(
            "The actor died because of an error raised in its creation task, ray::A.__init__() (pid=7, ip=::1, actor_id=abcd, repr=<A>)"
        )
        assert (error.actor_id, error.actor_init_failed, error.cause) == ("abcd", True, cause)

    def test_of_an_actor_that_was_killed(self) -> None:
        reason = "The actor is dead because it was killed by `ray.kill`."
        error = x.ActorDiedError.because(reason, actor_id="abcd", class_name="A", pid=7, status=-signal.SIGKILL)
        assert str(error).startswith(
            "The actor died unexpectedly before finishing this task.\n\tclass_name: A\n\tactor_id: abcd\n\tpid: 7\n"
        )
        assert str(error).endswith(reason)
        assert (error.signal, error.exit_code, error.pid) == (9, None, 7)

    def test_of_a_crashed_worker(self) -> None:
        error = x.WorkerCrashedError("f", 12, -11)
        assert str(error).startswith("The worker died unexpectedly while executing this task.")
        assert "SIGSEGV" in str(error)
        assert "12" in str(error)
        assert (error.signal, error.exit_code) == (11, None)
        assert "exit code 27" in str(x.WorkerCrashedError("f", 12, 27))
        assert "(pid 12) was killed by signal 63." in str(x.WorkerCrashedError("f", 12, -63))
        assert "(pid 12) has ended." in str(x.WorkerCrashedError("f", 12))

    def test_of_a_cancelled_task(self) -> None:
        task = TaskID.from_random()
        assert task.hex() in str(x.TaskCancelledError(task))
        assert "was cancelled" in str(x.TaskCancelledError(task))

    def test_of_an_unavailable_actor(self) -> None:
        error = x.ActorUnavailableError("restarting", b"\x30" * 16)
        assert str(error) == f"The actor {'30' * 16} is unavailable: restarting. The task may or may not have been executed on the actor."
        assert error.actor_id == "30" * 16

    def test_of_a_system_error(self) -> None:
        assert str(x.RaySystemError("x")) == "System error: x"
