"""Filters of listings, for the observer and for the processes that it asks: each leaves out the records that it need not tell. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from mray._common.ids import JOB_SIZE, NO_ACTOR

#: A column, = or !=, and a value.
Filter = Sequence[Any]

_FALSE, _TRUE = ("false", "0"), ("true", "1")


class Row(Protocol):
    def get(self, key: str, default: Any = None, /) -> Any: ...


def matches(row: Row, filters: Sequence[Filter]) -> bool:
    """Whether all filters hold. Strings are compared case-insensitively; a string equals the number or boolean that it spells.
    A task that did not fail has no error type, so no ``!=`` on the error type matches it.

    ValueError for a text that spells no number or boolean.
    """
    for column, predicate, value in filters:
        found = row.get(column)
        if (found is None and column == "error_type") or _equal(found, value) != (predicate == "="):
            return False
    return True


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        if isinstance(found, str):
            return found.lower() == wanted.lower()
        if isinstance(found, bool):
            if wanted.lower() not in (*_TRUE, *_FALSE):
                raise ValueError(f"Failed to convert a value {wanted} of type {str} to {bool}")
            return found == (wanted.lower() in _TRUE)
        if isinstance(found, (int, float)):
            try:
                return found == type(found)(wanted)
            except ValueError:
                raise ValueError(f"Failed to convert a value {wanted} of type {str} to {type(found)}") from None
    return bool(found == wanted)


def columns_of(task_id: bytes) -> dict[str, Any]:
    """The columns of a call that its id says."""
    is_task = task_id[8:-JOB_SIZE] == NO_ACTOR
    return {
        "task_id": task_id.hex(),
        "attempt_number": 0,
        "job_id": task_id[-JOB_SIZE:].hex(),
        "actor_id": None if is_task else task_id[8:].hex(),
        "type": "NORMAL_TASK" if is_task else "ACTOR_TASK",
    }
