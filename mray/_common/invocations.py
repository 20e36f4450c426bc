"""CALL and TASK, the two messages that ask a worker to run something, and the values in its answers, as records.

They travel as plain tuples (see `mray._common.messages`); the worker that runs a call creates its record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from mray._common.record import Record


def short_name(qualified: str) -> str:
    """The name of a class or function without its enclosing scopes, as in titles and output."""
    return qualified.rpartition(".")[2]


class ArgumentValue(Record):
    """The value of a ref that is an argument itself."""

    #: The number of a positional argument, or the name of a keyword.
    place: int | str
    #: The format of the payload: see the forms in `mray._common.messages`.
    form: int
    payload: Any
    #: The object and its owner, where the value lies elsewhere.
    object_id: bytes = b""
    owner: str = ""


#: A value that a call has returned or yielded, as it travels (REPLY, REPLIES, STREAM_ITEMS): form, payload, and the refs inside with their
#: owners, or None. A plain tuple, since a class would slow calls down.
Result = tuple[int, Any, list[tuple[bytes, str]] | None]


class MethodInvocation(Record):
    """CALL: a method of the actor."""

    task_id: bytes
    method: str
    num_returns: int
    #: The form of ``payload``, the positional and keyword arguments with None for refs: pickled, or the segment that they lie in.
    form: int
    payload: Any
    #: Refs inside of the arguments, with their owners.
    refs: list[tuple[bytes, str]] | None
    #: The values of refs that are arguments themselves.
    arguments: list[ArgumentValue] | None
    options: dict[str, Any] | None


class TaskInvocation(Record):
    """TASK: a function; fields of the same name are as in `MethodInvocation`."""

    task_id: bytes
    function_id: bytes
    num_returns: int
    form: int
    payload: Any
    refs: list[tuple[bytes, str]] | None
    arguments: list[ArgumentValue] | None
    options: dict[str, Any] | None
    #: The function's qualified name.
    name: str


Invocation = MethodInvocation | TaskInvocation
_Record = TypeVar("_Record", MethodInvocation, TaskInvocation)


def read(record: type[_Record], fields: tuple[Any, ...]) -> _Record:
    """The record of a message, from the fields behind its code. Raises TypeError for a wrong number of fields."""
    if len(fields) != len(record._fields):
        raise TypeError(f"{record.__name__} has {len(record._fields)} fields, not {len(fields)}")
    invocation = tuple.__new__(record, fields)
    return invocation if invocation.arguments is None else invocation._replace(arguments=argument_values(invocation.arguments))


def argument_values(values: Iterable[tuple[Any, ...]] | None) -> list[ArgumentValue] | None:
    """The records of values that travelled as plain tuples."""
    return None if values is None else [ArgumentValue(*value) for value in values]
