"""Errors on their way: tracebacks with the user's frames only, pickles that always arrive, paths to what cannot be pickled."""

from __future__ import annotations

import functools
import io
import pickle
import re
import sys
import threading
import types
from typing import Any

import pytest

import mray.util
from mray._api.signature import CallSignature
from mray._common.serializability import explain, find_unpicklable
from mray._objects.remote_error import (
    DependencyError,
    argument_error,
    import_error,
    pickle_error,
    serialization_error,
    task_error,
    unpickle_error,
)
from mray._runtime.client.failed_calls import info_of_answer
from mray.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    TaskCancelledError,
    UnserializableException,
)
from mray.proxy._errors import Failure, RemoteError
from tests.faults.interrupts.steps import as_own

CARETS = re.compile(r"^\s+[\^~]+$\n?", re.MULTILINE)


def raised(function: Any, *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def text_of(error: BaseException) -> str:
    """The traceback without the marks under the source, and with line numbers and paths scrubbed."""
    text = CARETS.sub("", str(error))
    return re.sub(r'File ".*?", line \d+', 'File "F", line N', text)


def plain() -> None:
    raise ValueError("bad", 3)


def chained() -> None:
    try:
        plain()
    except ValueError as error:
        raise KeyError("k") from error


def during() -> None:
    try:
        plain()
    except ValueError:
        raise KeyError("k")  # noqa: B904


def call(function: Any, *args: Any) -> Any:
    return function(*args)


#: A part of mray's inside.
executor = as_own(call)


def test_text_of_a_task() -> None:
    error = task_error("f", raised(executor, plain), pid=5, ip="::1")
    assert text_of(error) == (
        'ray::f() (pid=5, ip=::1)\n  File "F", line N, in raised\n    function(*args)\n'
        '  File "F", line N, in plain\n    raise ValueError("bad", 3)\nValueError: (\'bad\', 3)'
    )
    assert (error.pid, error.ip, error.function_name, error.proctitle) == (5, "::1", "f", "ray::f")


def test_text_of_a_method_names_the_actor() -> None:
    error = task_error("A.f", raised(plain), pid=5, ip="::1", actor_id=b"\x01" * 16, actor_repr="A(1)")
    assert str(error).startswith(f"ray::A.f() (pid=5, ip=::1, actor_id={'01' * 16}, repr=A(1))\n  File ")
    assert error.actor_id == "01" * 16


@pytest.mark.parametrize(
    ("function", "between"),
    [
        (chained, "The above exception was the direct cause of the following exception:"),
        (during, "During handling of the above exception, another exception occurred:"),
    ],
)
def test_each_part_of_a_chain_has_the_tasks_name(function: Any, between: str) -> None:
    text = str(task_error("f", raised(executor, function), pid=5, ip="::1"))
    first, rest = text.split(f"\n\n{between}\n\n")
    assert first.startswith("ray::f() (pid=5, ip=::1)\n  File ")
    assert rest.startswith("ray::f() (pid=5, ip=::1)\n  File ")
    assert first.endswith("ValueError: ('bad', 3)")
    assert rest.endswith("KeyError: 'k'")
    assert "pretended" not in text


def test_a_nested_failure_shows_both_tasks() -> None:
    inner = unpickle_error(pickle_error(task_error("bar", raised(lambda: 1 / 0), pid=1, ip="::1")))

    def get() -> None:
        executor(raise_it, inner)

    error = task_error("nest", raised(get), pid=2, ip="::1")
    lines = str(error).split("\n")
    assert lines[0] == "ray::nest() (pid=2, ip=::1)"
    assert "ray.exceptions.RayTaskError(ZeroDivisionError): ray::bar() (pid=1, ip=::1)" in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert isinstance(error.cause, ZeroDivisionError)


def raise_it(error: BaseException) -> None:
    raise error


def test_a_failed_argument_is_told_as_one() -> None:
    inner = task_error("a", raised(lambda: 1 / 0), pid=1, ip="::1").as_instanceof_cause()
    error = task_error("b", raised(raise_it, DependencyError(inner)), pid=2, ip="::1")
    lines = str(error).split("\n")
    assert lines[:3] == [
        "ray::b() (pid=2, ip=::1)",
        "  At least one of the input arguments for this task could not be computed:",
        "ray.exceptions.RayTaskError: ray::a() (pid=1, ip=::1)",
    ]
    assert isinstance(error.cause, ZeroDivisionError)
    outer = task_error("c", DependencyError(error), pid=3, ip="::1")
    assert str(outer).count("At least one of the input arguments") == 2


def test_an_argument_that_failed_otherwise() -> None:
    error = task_error("b", DependencyError(ActorDiedError()), pid=2, ip="::1")
    assert "ray.exceptions.ActorDiedError: The actor died unexpectedly" in str(error)
    assert isinstance(error.as_instanceof_cause(), ActorDiedError)


def test_an_error_without_frames_of_the_user() -> None:
    error = task_error("two", ValueError("Task returned 3 objects, but num_returns=2."), pid=1, ip="::1")
    assert str(error) == "ray::two() (pid=1, ip=::1)\nValueError: Task returned 3 objects, but num_returns=2."


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups came with Python 3.11")
def test_a_group_arrives_as_one() -> None:
    group = ExceptionGroup("eg", [ValueError(1), TypeError(2)])  # type: ignore[name-defined,unused-ignore]  # noqa: F821
    error: Any = unpickle_error(pickle_error(task_error("f", group, pid=1, ip="::1")))
    assert [type(member) for member in error.exceptions] == [ValueError, TypeError]
    assert "ValueError: 1" in str(error)


# ------------------------------------------------------------------------------------------ pickling
def test_an_error_arrives_as_both_classes() -> None:
    error = unpickle_error(pickle_error(task_error("f", raised(plain), pid=5, ip="::1")))
    assert isinstance(error, RayTaskError)
    assert isinstance(error, ValueError)
    assert error.args[0].args == ("bad", 3)


def test_each_reading_is_a_new_error() -> None:
    data = pickle_error(task_error("f", raised(plain)))
    assert unpickle_error(data) is not unpickle_error(data)


@pytest.mark.parametrize("error", [GetTimeoutError("t"), ActorDiedError(), TaskCancelledError(), KeyError("k")])
def test_other_errors_arrive_as_they_are(error: BaseException) -> None:
    again = unpickle_error(pickle_error(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


class NoPickle(Exception):
    def __init__(self) -> None:
        super().__init__("np")
        self.lock = threading.Lock()


class NoUnpickle(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("nu")


class BadText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_cause_that_cannot_be_pickled() -> None:
    error = unpickle_error(pickle_error(task_error("f", NoPickle(), pid=5, ip="::1")))
    assert type(error) is RayTaskError
    assert type(error.cause) is RayError
    assert "isn't serializable" in str(error.cause)
    assert "lock" in str(error.cause)
    assert str(error).endswith("NoPickle: np")


def test_a_cause_that_cannot_be_unpickled() -> None:
    error = unpickle_error(pickle_error(task_error("f", NoUnpickle(1, 2), pid=5, ip="::1")))
    assert type(error) is UnserializableException
    assert str(error).startswith("Failed to deserialize exception. Its class cannot be recreated")
    assert "Original exception:\nray.exceptions.RayTaskError: ray::f() (pid=5" in str(error)
    assert str(error).endswith("NoUnpickle: nu")


def test_an_error_whose_text_raises_arrives() -> None:
    error = unpickle_error(pickle_error(task_error("f", BadText())))
    assert isinstance(error, BadText)


def test_an_exception_that_cannot_be_pickled_and_is_no_task_error() -> None:
    error = unpickle_error(pickle_error(NoPickle()))
    assert type(error) is RayError
    assert "isn't serializable" in str(error)


def test_import_errors_have_the_original() -> None:
    error = import_error(raised(__import__, "no_such_module"), "Foo", actor=True)
    assert str(error).startswith("The actor with name Foo failed to import on the worker.")
    assert "ModuleNotFoundError: No module named 'no_such_module'" in str(error)
    text = str(task_error("f", import_error(ValueError("v"), "f", actor=False), pid=1, ip="::1"))
    assert text.startswith("ray::f() (pid=1, ip=::1)\nRuntimeError: The remote function failed to import on the worker.")


# ---------------------------------------------------------------------------------- what cannot be pickled
class Holder:
    def __init__(self) -> None:
        self.name = "fine"
        self.inner = {"a": [threading.Lock()]}


LOCK = threading.Lock()
HOLDER = Holder()


def uses_global() -> Any:
    return HOLDER


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Holder(), "inner -> ['a'] -> [0]"),
        ({"k": (1, threading.Lock())}, "['k'] -> [1]"),
        ([[[threading.Lock()]]], "[0] -> [0] -> [0]"),
        (threading.Lock(), ""),
    ],
    ids=["attribute", "dict", "lists", "itself"],
)
def test_the_path_to_what_cannot_be_pickled(value: Any, path: str) -> None:
    (failure,) = find_unpicklable(value)
    assert failure.path == path
    assert "lock" in failure.reason
    assert isinstance(failure.obj, type(threading.Lock()))
    assert path in explain(value)


def test_the_path_through_a_closure() -> None:
    lock = threading.Lock()
    (failure,) = find_unpicklable(lambda: lock, "f")
    assert failure.path == "f -> lock"
    assert failure.name == "lock"


def test_the_path_ends_in_a_value_that_contains_itself() -> None:
    value: list[Any] = [threading.Lock()]
    value.append(value)
    (failure,) = find_unpicklable(value)
    assert failure.path == "[0]"


def test_what_can_be_pickled_is_not_reported() -> None:
    assert find_unpicklable({"a": [1, "b", Exception()]}) == []


def test_inspect_serializability_reports() -> None:
    out = io.StringIO()
    fine, failures = mray.util.inspect_serializability(Holder(), name="holder", print_file=out)
    assert not fine
    assert {failure.path for failure in failures} == {"holder -> inner -> ['a'] -> [0]"}
    assert "Checking Serializability of" in out.getvalue()
    assert "!!! FAIL serialization: cannot pickle '_thread.lock' object" in out.getvalue()
    assert mray.util.inspect_serializability(1, print_file=out) == (True, set())


def in_main(name: str, body: str) -> Any:
    """A class of a program: it is pickled by value."""
    scope = {"__name__": "__main__", "LOCK": LOCK, "functools": functools}
    exec(f"class {name}:\n    {body}", scope)
    return scope[name]


LOCKED = in_main("Locked", "attribute = LOCK")
CACHED = in_main("Cached", "@functools.cached_property\n    def x(self): return LOCK")
COMPUTED = in_main("Computed", "@property\n    def x(self): return LOCK")


@pytest.mark.parametrize(
    ("value", "what", "start", "line"),
    [
        (
            [LOCK],
            "the put value {}",
            "Could not serialize the put value [<unlocked _thread.lock object at ",
            "`value[0]`, a `_thread.lock`, ",
        ),
        (lambda: LOCK, "the function m.f", "Could not serialize the function m.f:\n", "`LOCK` that <lambda> uses, a `_thread.lock`, "),
        (LOCKED, "the actor class m.Locked.__init__", "Could not ", "`Locked.attribute`, a `_thread.lock`, "),
        (CACHED, "the actor class m.Cached.__init__", "Could not ", "`Cached.x.func.LOCK`, a `_thread.lock`, "),
        (COMPUTED, "the actor class m.Computed.__init__", "Could not ", "`Computed.x.fget.LOCK`, a `_thread.lock`, "),
        (functools.partial(print, LOCK), "the return value of f", "Could not ", "`value.args[0]`, a `_thread.lock`, "),
    ],
)
def test_errors_of_serialization_name_in_one_line_what_cannot_be_pickled(value: Any, what: str, start: str, line: str) -> None:
    error = serialization_error(TypeError("cannot pickle"), value, what)
    assert isinstance(error, TypeError)
    assert str(error).startswith(start)
    (said,) = str(error).splitlines()[1:]
    assert said.startswith(f"{line}cannot be pickled: ")
    assert "cannot pickle" in said


def test_a_class_with_a_cached_property_can_be_pickled() -> None:
    assert find_unpicklable(in_main("Fine", "@functools.cached_property\n    def x(self): return 5")) == []


@pytest.mark.parametrize(
    ("args", "kwargs", "name"),
    [((1, LOCK), {}, "b"), ((1,), {"b": {"x": LOCK}}, "b['x']"), ((1, 2, 3, LOCK), {}, "args[3]"), ((), {"more": LOCK}, "more")],
)
def test_the_argument_that_cannot_be_pickled_is_named(args: Any, kwargs: Any, name: str) -> None:
    def f(a: Any, b: Any, *rest: Any, c: Any = None, **more: Any) -> None: ...

    called = types.SimpleNamespace(module="m", name="outer.<locals>.f", signature=CallSignature.of(f))
    text = str(argument_error(TypeError("cannot pickle"), args, kwargs, called))
    assert re.match(r"Could not serialize the argument .*lock object at .* for a task or actor m\.outer\.<locals>\.f:\n", text)
    assert f"\nargument `{name}` of f, a `_thread.lock`, cannot be pickled: make it inside the task (" in text


def test_the_text_of_an_error_tells_its_kind():
    cancelled = TaskCancelledError()
    assert info_of_answer(pickle_error(OutOfMemoryError("no room"))) == ("OUT_OF_MEMORY", "no room")
    assert info_of_answer(pickle_error(cancelled)) == ("TASK_CANCELLED", "")
    assert info_of_answer(pickle_error(task_error("f", cancelled))) == ("TASK_CANCELLED", "")
    assert info_of_answer(pickle_error(task_error("f", ValueError("on purpose"))))[0] == "TASK_EXECUTION_EXCEPTION"


def test_an_error_of_an_interpreter_is_asked_for_its_state_once() -> None:
    class Drained(ValueError):
        def __init__(self, items: list[int]) -> None:
            super().__init__("failed")
            self.items = items

        def __reduce__(self) -> Any:
            items, self.items = self.items, []
            return Drained, (items,)

    class Refuses(ValueError):
        def __reduce__(self) -> Any:
            raise RuntimeError("will not")

    arrived = pickle.loads(pickle.dumps(Failure(Drained([1, 2]), "a step", "its traceback")))
    assert type(arrived.error) is Drained
    assert arrived.error.items == [1, 2]
    refused = pickle.loads(pickle.dumps(Failure(Refuses("no"), "a step", "its traceback"))).error
    assert (type(refused), str(refused)) == (RemoteError, f"{Refuses.__qualname__}: no")
