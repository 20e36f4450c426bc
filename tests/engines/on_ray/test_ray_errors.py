"""Ray's exceptions become mray's: every class, its facts, its text. No cluster."""

from __future__ import annotations

import builtins
import inspect
import pickle
from typing import Any

import pytest

ray = pytest.importorskip("ray")

from mray import exceptions  # noqa: E402  (where there is no Ray, there is nothing to test)
from mray._backends.ray.errors import WITHOUT_COUNTERPART, plain, translated  # noqa: E402

CLASSES = sorted(
    (kind for kind in vars(ray.exceptions).values() if inspect.isclass(kind) and issubclass(kind, ray.exceptions.RayError)),
    key=lambda kind: kind.__name__,
)
TASK = "ab" * 24
OBJECT = "cd" * 28
ACTOR = "ef" * 16
GROUP: Any = getattr(builtins, "ExceptionGroup", None)  # of Python 3.11


TEXT = 'Traceback (most recent call last):\n  File "user.py", line 1, in f\nValueError: no'


def task_error(cause: BaseException, text: str = TEXT) -> Any:
    return ray.exceptions.RayTaskError("f", text, cause, "ray::f", 77, "1.2.3.4")


#: Classes whose constructors want more than a text.
MADE: dict[str, Any] = {
    "RayError": lambda kind: kind("text"),
    "RayTaskError": lambda kind: task_error(ValueError("no")),
    "TaskCancelledError": lambda kind: kind(ray.TaskID(bytes.fromhex(TASK)), "by hand"),
    "RayActorError": lambda kind: kind(ACTOR, "it failed", True, True),
    "ActorDiedError": lambda kind: kind(task_error(ValueError("no"))),
    "ActorUnavailableError": lambda kind: kind("busy", bytes.fromhex(ACTOR)),
    "LocalRayletDiedError": lambda kind: kind(),
    "WorkerCrashedError": lambda kind: kind(),
    "TaskPlacementGroupRemoved": lambda kind: kind(),
    "ActorPlacementGroupRemoved": lambda kind: kind(),
    "ObjectLostError": lambda kind: kind(OBJECT, b"owner", "here"),
    "ObjectFetchTimedOutError": lambda kind: kind(OBJECT, b"owner", "here"),
    "ReferenceCountingAssertionError": lambda kind: kind(OBJECT, b"owner", "here"),
    "ObjectFreedError": lambda kind: kind(OBJECT, b"owner", "here"),
    "OwnerDiedError": lambda kind: kind(OBJECT, b"owner", "here"),
    "ObjectReconstructionFailedError": lambda kind: kind(OBJECT, None, "no more retries"),
    "CrossLanguageError": lambda kind: kind(ray.core.generated.common_pb2.RayException(formatted_exception_string="text")),
}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_exception_of_ray_has_its_counterpart(kind: type[Exception]) -> None:
    assert hasattr(exceptions, kind.__name__) != (kind.__name__ in WITHOUT_COUNTERPART)


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind.__name__ not in WITHOUT_COUNTERPART], ids=lambda kind: kind.__name__)
def test_an_exception_is_translated_with_its_text_and_pickles(kind: type[Exception]) -> None:
    error = MADE.get(kind.__name__, lambda kind: kind("text"))(kind)
    made = translated(error)
    assert isinstance(made, getattr(exceptions, kind.__name__))
    assert str(made)
    if kind.__name__ not in MADE:
        assert "text" in str(made)
    again = pickle.loads(pickle.dumps(made))
    assert type(again).__name__ == type(made).__name__
    assert str(again) == str(made)


def test_classes_derived_from_an_exception_of_ray_become_their_base() -> None:
    class Own(ray.exceptions.GetTimeoutError):
        """A user's."""

    made = translated(Own("late"))
    assert type(made) is exceptions.GetTimeoutError
    assert isinstance(made, TimeoutError)


def test_other_exceptions_stay_as_they_are() -> None:
    error = ValueError("no")
    assert translated(error) is error


@pytest.mark.parametrize("raised", [False, True], ids=["as stored", "as raised by get"])
def test_the_error_of_a_task_keeps_its_attributes_and_is_an_instance_of_its_cause(raised: bool) -> None:
    error = task_error(ValueError("no"))
    made = translated(error.as_instanceof_cause() if raised else error)
    assert isinstance(made, exceptions.RayTaskError)
    assert isinstance(made, ValueError)
    assert isinstance(made.cause, ValueError)
    assert (made.pid, made.ip, made.proctitle, made.function_name) == (77, "1.2.3.4", "ray::f", "f")
    assert str(made) == 'ray::f() (pid=77, ip=1.2.3.4)\n  File "user.py", line 1, in f\nValueError: no'


def test_the_error_of_a_method_names_its_actor() -> None:
    text = "Traceback (most recent call last):\nValueError: no"
    error = ray.exceptions.RayTaskError("m", text, ValueError("no"), "ray::A.m", 77, "1.2.3.4", "A(x, y)", ACTOR)
    made: Any = translated(error.as_instanceof_cause())
    assert (made.actor_id, made.actor_repr, made.function_name) == (ACTOR, "A(x, y)", "A.m")


def test_an_error_that_get_raised_inside_of_a_task_is_one_error() -> None:
    inner = exceptions.RayTaskError("f", "Traceback (most recent call last):\nValueError: no", ValueError("no"), "ray::f", 1, "::1")
    made: Any = translated(task_error(inner.as_instanceof_cause()).as_instanceof_cause())
    assert isinstance(made, ValueError)
    assert type(made.cause) is ValueError


def test_an_exception_of_mray_that_a_task_raised_comes_back_as_one() -> None:
    made = translated(task_error(exceptions.GetTimeoutError("late")).as_instanceof_cause())
    assert isinstance(made, exceptions.GetTimeoutError)
    assert isinstance(made, exceptions.RayTaskError)


def test_an_exception_of_ray_that_a_task_raised_comes_back_as_mrays() -> None:
    made = translated(task_error(ray.exceptions.GetTimeoutError("late")).as_instanceof_cause())
    assert isinstance(made, exceptions.GetTimeoutError)
    assert isinstance(made, exceptions.RayTaskError)


def test_the_death_of_an_actor_tells_the_error_of_its_constructor() -> None:
    made: Any = translated(ray.exceptions.ActorDiedError(task_error(ValueError("no"))))
    assert isinstance(made.cause, ValueError)
    assert made.actor_init_failed
    assert "its creation task" in str(made)


def test_the_death_of_an_actor_tells_who_it_was() -> None:
    context = ray.core.generated.common_pb2.ActorDiedErrorContext(
        class_name="A", pid=77, actor_id=bytes.fromhex(ACTOR), error_message="It was killed."
    )
    made: Any = translated(ray.exceptions.ActorDiedError(context))
    assert (made.actor_id, made.class_name, made.pid, made.cause) == (ACTOR, "A", 77, None)
    assert "It was killed." in str(made)


def test_texts_lose_colours_and_the_frames_between_user_and_ray() -> None:
    text = "\n".join(
        (
            "\x1b[36mray::f()\x1b[39m (pid=1, ip=::1)",
            '  File "/x/mray/_backends/ray/shells.py", line 9, in task',
            "    return code.target()",
            "           ^^^^^^^^^^^^^",
            '  File "user.py", line 1, in f',
            "    raise ValueError",
            "          ^^^^^",
            "      ^^^^",
            "ValueError",
        )
    )
    assert plain(text).split("\n") == [
        "ray::f() (pid=1, ip=::1)", '  File "user.py", line 1, in f', "    raise ValueError", "          ^^^^^", "      ^^^^", "ValueError",
    ]  # fmt: skip


@pytest.mark.skipif(GROUP is None, reason="needs exception groups")
def test_an_exception_group_keeps_its_text_and_the_name_of_whose_it_is() -> None:
    text = "\n".join(
        (
            "  + Exception Group Traceback (most recent call last):",
            '  |   File "python/ray/_raylet.pyx", line 2205, in ray._raylet.execute_task',
            '  |   File "/x/ray/_private/function_manager.py", line 740, in actor_method_executor',
            "  |     return method(__ray_actor, *args, **kwargs)",
            '  |   File "/x/mray/_backends/ray/shells.py", line 9, in method',
            "  |     return getattr(self.mray_instance, name)()",
            "  |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            '  |   File "user.py", line 1, in f',
            "  |     raise ExceptionGroup",
            "  | ExceptionGroup: g (1 sub-exception)",
            "  +-+---------------- 1 ----------------",
            "    | ValueError: no",
            "    +------------------------------------",
        )
    )
    made: Any = translated(task_error(GROUP("g", [ValueError("no")]), text).as_instanceof_cause())
    assert isinstance(made, GROUP)
    assert made.function_name == "f"
    assert str(made).split("\n")[1:] == [text.split("\n")[0].lstrip(), *text.split("\n")[7:]]


def test_code_whose_file_ray_has_taken_away_is_no_frame() -> None:
    text = 'ray::f() (pid=1, ip=::1)\n    for item in items:\n  File "user.py", line 1, in f\n    yield\nValueError: first\n    second'
    assert plain(text).split("\n") == [
        "ray::f() (pid=1, ip=::1)", '  File "user.py", line 1, in f', "    yield", "ValueError: first", "    second",
    ]  # fmt: skip
