"""Errors on their way from the process where they happened to the one that gets the result.

    exception --task_error--> RayTaskError --pickle_error--> bytes ~~~~> unpickle_error --> RayTaskError(ValueError)

The bytes are a pickle of builtin values: the text of the error, with only the user's frames, and the pickle of the error, which may
fail to load.
"""

from __future__ import annotations

import inspect
import pickle
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from mray._common.kept import os
from mray._common.serializability import blame, shorten, why_not
from mray._common.whose_code import OWN, kind_of, kind_of_file
from mray._objects.serializer import dumps
from mray.exceptions import OufOfBandObjectRefSerializationException, RayError, RayTaskError, UnserializableException

# From Python 3.15 on `traceback` imports lazily, which would fail without descriptors or memory.
traceback.format_exception_only(RuntimeError())

_HEAD = "Traceback (most recent call last):\n"
_MODULE = f"{RayTaskError.__module__}."
#: The prefix in texts: programs match Ray's module name.
OURS = "ray.exceptions."


# ------------------------------------------------------------------------------------------------ making
class DependencyError(BaseException):
    """Raised for a task whose argument is `error`. User code never sees it; a retry would not help."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def import_error(error: BaseException, name: str, *, actor: bool) -> RuntimeError:
    """The error of code that could not be unpickled in the worker, mostly because of a missing module."""
    what = f"The actor with name {name} failed to import on the worker." if actor else "The remote function failed to import on the worker."
    text = format_exception(error).replace(_HEAD, "")  # the failure's own header stands for both
    failure = RuntimeError(f"{what} The code of {name} was shipped, but what it imports could not be found or raised here:\n\n{text}")
    failure.__suppress_context__ = True
    return failure


def task_error(
    function_name: str,
    exception: BaseException,
    *,
    pid: int | None = None,
    ip: str | None = None,
    actor_id: bytes | str | None = None,
    actor_repr: str | None = None,
) -> RayTaskError:
    """The error that a task's caller gets for an exception of the task.

    `function_name` as in ``ray::f()``: ``f`` or ``A.m``, or the option ``name``. `actor_id` is hexadecimal if it is text.
    """
    if isinstance(exception, DependencyError):
        exception = exception.error
        own = str(exception) if not isinstance(exception, RayTaskError) else RayTaskError.__str__(exception)
        kind = RayTaskError if isinstance(exception, RayTaskError) else type(exception)
        text = f"{_HEAD}  At least one of the input arguments for this task could not be computed:\n{_named(kind)}: {own}"
    else:
        text = format_exception(exception)
    cause = exception.cause if isinstance(exception, RayTaskError) else exception
    return RayTaskError(
        function_name,
        text,
        cause,
        f"ray::{function_name}",
        os.getpid() if pid is None else pid,
        ip,
        actor_repr,
        actor_id.hex() if isinstance(actor_id, bytes) else actor_id,
    )


def _named(kind: type) -> str:
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return OURS + name.removeprefix(_MODULE) if name.startswith(_MODULE) else name


def format_exception(exception: BaseException) -> str:
    """The traceback of an exception and its causes, with only the user's frames."""
    report = traceback.TracebackException(type(exception), exception, from_user(exception.__traceback__), compact=True)
    _reduce(report, set())
    text = "".join(report.format())
    if _HEAD not in text and "Exception Group Traceback" not in text:
        # Without frames of user code the header is still expected.
        text = _HEAD + text
    # (The lines of a group's members begin with a bar.)
    lines = text.splitlines(keepends=True)
    return "".join(line.replace(_MODULE, OURS, 1) if line.lstrip(" |").startswith(_MODULE) else line for line in lines)


def from_user(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without the leading frames of mray; None if no user code ran."""
    while tb is not None and kind_of(tb.tb_frame) == OWN:
        tb = tb.tb_next
    return tb


def _reduce(report: traceback.TracebackException, seen: set[int]) -> None:
    if id(report) in seen:
        return
    seen.add(id(report))
    report.stack[:] = [frame for frame in report.stack if kind_of_file(frame.filename) != OWN]
    for other in (report.__cause__, report.__context__, *(getattr(report, "exceptions", None) or ())):
        if other is not None:
            _reduce(other, seen)


# ---------------------------------------------------------------------------------------------- pickling
def pickle_error(error: BaseException) -> bytes:
    """Bytes for `unpickle_error`; never raises because of the error's contents.

    The cause of a `RayTaskError` that cannot be pickled is replaced by a `RayError` that says so.
    """
    text = _text_of(error)
    try:
        inner = dumps(error)
    except Exception as reason:
        inner = dumps(_without_cause(error, reason))
    return pickle.dumps((text, inner), 5)


def _text_of(error: BaseException) -> str:
    kind = RayTaskError if isinstance(error, RayTaskError) else type(error)
    try:
        return f"{_named(kind)}: {error}"
    except Exception:  # a `__str__` of the user that raises
        return f"{_named(kind)}: <exception str() failed>"


def _without_cause(error: BaseException, reason: BaseException) -> BaseException:
    if not isinstance(error, RayTaskError):
        return RayError(f"Exception {_named(type(error))} isn't serializable: {reason}.\nOriginal exception details:\n{_text_of(error)}")
    cause = RayError(
        f"Exception {_named(type(error.cause))} isn't serializable: {reason}.\nOriginal exception details:\n{error.traceback_str}"
    )
    return RayTaskError(
        error.function_name, error.traceback_str, cause, error.proctitle, error.pid, error.ip, error.actor_repr, error.actor_id
    )


def unpickle_error(data: bytes) -> BaseException:
    """The exception to raise, a new one each time: a `RayTaskError` that is also an instance of its cause's class, or another error.

    `UnserializableException`, with the original's text, for an error that cannot be unpickled here.
    """
    text, inner = pickle.loads(data)
    try:
        error = pickle.loads(inner)
    except Exception as reason:
        unreadable = UnserializableException(text)
        unreadable.__cause__ = reason
        return unreadable
    if isinstance(error, RayTaskError):
        return error.as_instanceof_cause()
    if isinstance(error, BaseException):
        return error
    return UnserializableException(text)


TASK_ERROR = f"{OURS}RayTaskError: "


def text_of(data: bytes) -> str:
    """The class and text of a pickled error, which is not unpickled; empty if the bytes are no error."""
    try:
        return str(pickle.loads(data)[0])
    except Exception:
        return ""


def is_cancelled(text: str) -> bool:
    """Whether a text of `text_of` reports a cancelled call, perhaps within a task's error."""
    last = text.rstrip().rpartition("\n")[2] if text.startswith(TASK_ERROR) else text
    return last.startswith(f"{OURS}TaskCancelledError")


#: The errors that `serialization_error` explains. Others come from user code and are raised unchanged.
UNPICKLABLE = (TypeError, pickle.PicklingError, OufOfBandObjectRefSerializationException)


def serialization_error(error: BaseException, value: Any, what: str) -> Exception:
    """The error for a value that cannot be pickled, which names the value and the part at fault. A TypeError, or an
    OufOfBandObjectRefSerializationException if `error` is one.

    `what` describes what was pickled ("the put value {}"); ``{}`` stands for the value.
    """
    name, whose, remedy = "value", "", "pass on what it is made from"
    if what.startswith("the function "):
        name, whose, remedy = "", f" that {value.__name__} uses", "make it inside the function"
    elif isinstance(value, type):
        name, remedy = value.__name__, "make it in `__init__`"
    return _unpicklable(error, what.format(shorten(value)), blame(value, error, name, whose, remedy))


def argument_error(error: BaseException, args: Sequence[Any], kwargs: Mapping[str, Any] | None, of: Any, method: Any = None) -> Exception:
    """As `serialization_error`, for the first argument that cannot be pickled, of the function `of` or of `method` of that blueprint."""
    names = [name for name, kind, _default in (method or of).signature.parameters or () if kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
    given: dict[str, Any] = {names[place] if place < len(names) else f"args[{place}]": value for place, value in enumerate(args)}
    given.update(kwargs or {})
    name, value = next(((name, value) for name, value in given.items() if why_not(value) is not None), ("arguments", given))
    called, inside = (of.name, "task") if method is None else (f"{of.name}.{method.name}", "actor")
    whose = f" of {called.removesuffix('.__init__').rpartition('.')[2]}"
    text = f"argument {blame(value, error, name, whose, f'make it inside the {inside}')}"
    return _unpicklable(error, f"the argument {shorten(value)} for a task or actor {of.module}.{called}", text)


def _unpicklable(error: BaseException, what: str, why: str) -> Exception:
    kind = OufOfBandObjectRefSerializationException if isinstance(error, OufOfBandObjectRefSerializationException) else TypeError
    return kind(f"Could not serialize {what}:\n{why}")
