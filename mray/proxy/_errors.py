"""Errors at an interpreter. `Failure` crosses processes, as the outcome of a step and of all steps that depend on it."""

from __future__ import annotations

import pickle
import traceback
from typing import Any, NoReturn

from mray.cloudpickle import dumps


class StepFailed(Exception):
    """The cause of an error that a remote step raised: the step, its interpreter, and the traceback there.

    Attributes: `step` (what was done), `remote_traceback` (text).
    """

    def __init__(self, step: str, remote_traceback: str) -> None:
        super().__init__(step, remote_traceback)
        self.step = step
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        return f"{self.step}\n\n{self.remote_traceback.rstrip()}"


class RemoteError(RuntimeError):
    """Stands for a remote exception that cannot be pickled. `type_name` is the name of its class."""

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(f"{type_name}: {text}")
        self.type_name = type_name

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteError, (self.type_name, str(self).removeprefix(f"{self.type_name}: "))


class VarReleasedError(ReferenceError):
    """The target of a `Var` was released, by `delete_unnamed_vars` or with the process that was to create it."""


class InterpreterDiedError(RuntimeError):
    """The interpreter of a `Var` has ended; the engine's own error is the cause. Attributes: `interpreter_id`, `name` (or ``None``)."""

    def __init__(self, interpreter_id: str, name: str | None, how: str) -> None:
        super().__init__(interpreter_id, name, how)
        self.interpreter_id = interpreter_id
        self.name = name
        self.how = how

    def __str__(self) -> str:
        called = f"{self.name!r} " if self.name else ""
        return f"the interpreter {called}[{self.interpreter_id[:5]}] and all its variables are lost: {self.how}"


class Failure:
    """`seen`: it was reported to a user."""

    __slots__ = ("error", "is_question", "pending", "remote_traceback", "seen", "step")

    def __init__(self, error: BaseException, step: str, remote_traceback: str) -> None:
        self.error = error
        self.step = step
        self.remote_traceback = remote_traceback
        self.seen = False
        #: whether it is of an attribute lookup on which nothing depends yet
        self.is_question = False
        #: targets with this outcome; without any it cannot be seen
        self.pending = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Failure, (portable(self.error), self.step, self.remote_traceback)

    def throw(self) -> NoReturn:
        self.seen = True
        error = self.error.with_traceback(None)
        if error.__cause__ is None or isinstance(error.__cause__, StepFailed):
            raise error from StepFailed(self.step, self.remote_traceback)
        raise error

    @classmethod
    def of(cls, error: BaseException, step: str) -> Failure:
        """Of the error that is being handled; the traceback omits the interpreter's own lines."""
        shown = error.__traceback__
        while shown is not None and shown.tb_next is not None and shown.tb_frame.f_globals.get("__package__") == __package__:
            shown = shown.tb_next
        return cls(error, step, "".join(traceback.format_exception(type(error), error, shown)))


class Portable:
    """An error in transit, known to be restorable. It arrives as the error."""

    __slots__ = ("_pickled",)

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._pickled,)


def portable(error: BaseException) -> Portable | RemoteError:
    """The error in a form that arrives as itself, or a `RemoteError`."""
    try:
        pickled = dumps(error)
        pickle.loads(pickled)
    except Exception:  # raised by the user's `__reduce__`
        return RemoteError(type(error).__qualname__, str(error))
    return Portable(pickled)
