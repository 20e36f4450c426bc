"""CALL and TASK, the two messages that request work of a worker, and the values in its answers, as records.

They travel as plain tuples; the worker that runs a call creates its record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from mray._common.record import Record


def short_name(qualified: str) -> str:
    """The name without its enclosing scopes."""
    return qualified.rpartition(".")[2]


def shown_name(name: str, function: str, class_name: str, shown: str) -> str:
    """A call's name in listings: a method's begins with the instance's repr, if its class defines one and the call has no own name."""
    if not class_name or name != function or shown in ("", class_name, f"<{class_name}>"):
        return name
    return shown + name.removeprefix(class_name)


class ArgumentValue(Record):
    """The value of a ref that is an argument."""

    #: Position, or keyword.
    place: int | str
    #: A form in `mray._common.messages`.
    form: int
    payload: Any
    #: The object and its owner, if the value lies elsewhere.
    object_id: bytes = b""
    owner: str = ""


#: A value that a call has returned or yielded, as it travels: form, payload, and the refs inside with their owners, or None.
#: A plain tuple, since a class would slow calls down.
Result = tuple[int, Any, list[tuple[bytes, str]] | None]


class MethodInvocation(Record):
    """CALL: a method of the actor."""

    task_id: bytes
    method: str
    num_returns: int
    #: Form of ``payload``: the positional and keyword arguments with None for refs, pickled, or their segment.
    form: int
    payload: Any
    #: Refs inside the arguments, with their owners.
    refs: list[tuple[bytes, str]] | None
    #: The values of refs that are arguments.
    arguments: list[ArgumentValue] | None
    options: dict[str, Any] | None


class TaskInvocation(Record):
    """TASK: a function; fields are as in `MethodInvocation`."""

    task_id: bytes
    function_id: bytes
    num_returns: int
    form: int
    payload: Any
    refs: list[tuple[bytes, str]] | None
    arguments: list[ArgumentValue] | None
    options: dict[str, Any] | None
    #: Qualified name.
    name: str


Invocation = MethodInvocation | TaskInvocation
_Record = TypeVar("_Record", MethodInvocation, TaskInvocation)


def read(record: type[_Record], fields: tuple[Any, ...]) -> _Record:
    """The record of a message's fields. Raises TypeError for a wrong number of fields."""
    if len(fields) != len(record._fields):
        raise TypeError(f"{record.__name__} has {len(record._fields)} fields, not {len(fields)}")
    invocation = tuple.__new__(record, fields)
    return invocation if invocation.arguments is None else invocation._replace(arguments=argument_values(invocation.arguments))


def argument_values(values: Iterable[tuple[Any, ...]] | None) -> list[ArgumentValue] | None:
    """Records of plain tuples."""
    return None if values is None else [ArgumentValue(*value) for value in values]
