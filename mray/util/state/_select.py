"""Filters, order and limits of listings. Pure."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, TypeVar

from mray._common import settings
from mray._common.filters import Row
from mray._common.filters import matches as filters_match
from mray.util.state.common import StateSchema, TaskState, check_predicate
from mray.util.state.exception import RayStateApiException

Filter = tuple[str, str, Any]
#: A record, or what will be one.
_Row = TypeVar("_Row", bound=Row)


def check_limit(limit: int) -> None:
    most = settings.MOST_ROWS.get()  # on Ray a program may set it until `init` starts the answering process
    if limit < 0:
        raise RayStateApiException(f"Given limit {limit} is no number of rows. Use 0 to {most}.")
    if limit > most:
        raise RayStateApiException(f"Given limit {limit} exceeds the supported limit {most}. Use a lower limit.")


def check_filters(record: type[StateSchema], filters: Sequence[Filter] | None) -> tuple[Filter, ...]:
    """The filters, with columns in lower case; raises ValueError for a predicate that is neither = nor !=, RayStateApiException for a
    column or value that the record does not have.
    """
    checked = []
    for column, predicate, value in filters or ():
        check_predicate(predicate)
        column = column.lower()
        if column not in record.filterable_columns():
            raise RayStateApiException(
                f"The given filter column {column} is not supported. Enter filters with --filter key=value or --filter key!=value "
                f"Supported filter columns: {sorted(record.filterable_columns())}"
            )
        words = next(field.metadata["words"] for field in record.fields() if field.name == column)
        if words and str(value).upper() not in words:
            raise RayStateApiException(f"Invalid {record.WORDS[0]} {column} for filtering: {value}. It is one of {', '.join(words)}.")
        checked.append((column, predicate, value))
    return tuple(checked)


def contradict(filters: Sequence[Filter]) -> bool:
    """Whether filters require one column to equal two values; warns."""
    equal: dict[str, Any] = {}
    for column, predicate, value in filters:
        if predicate == "=" and equal.setdefault(column, value) != value:
            warnings.warn(
                f"There are multiple '=' filters with the same key '{column}' but different values '{equal[column]}' & '{value}'. "
                "Empty result set will be returned",
                stacklevel=4,
            )
            return True
    return False


def matches(row: StateSchema, filters: Sequence[Filter]) -> bool:
    """Whether all filters hold; RayStateApiException for a text that spells no number."""
    try:
        return filters_match(row, filters)
    except ValueError as error:
        raise RayStateApiException(str(error)) from None


_OVER = frozenset({"FINISHED", "FAILED", "DEAD", "REMOVED"})


def in_order(record: type[StateSchema], found: Iterable[_Row]) -> list[_Row]:
    """Unfinished work: calls that run, the longest first, and others in the order in which they wait; other records by id. Then finished
    work, the newest first.
    """

    def place(each: _Row) -> tuple[Any, ...]:
        end = _end(each)
        begin = (each.get("start_time_ms") or inf) if each.get("state") == "RUNNING" else inf
        among = (each.get("state") != "RUNNING", begin) if record is TaskState else (str(each.get(record.KEY)),)
        return (False, 0, *among) if end is None else (True, -end)

    return sorted(found, key=place)


def _end(each: Row) -> int | None:
    """When it was over, in milliseconds (0: unknown); None if it is not."""
    return (each.get("end_time_ms") or each.get("end_time") or 0) if each.get("state") in _OVER else None


def newest(record: type[StateSchema], found: Iterable[_Row], limit: int) -> list[_Row]:
    """At most `limit` records `in_order`. Of those that are over up to a half are failures, however many have succeeded since."""
    ordered = in_order(record, found)
    shown, cut = ordered[:limit], ordered[limit:]
    over = [each for each in shown if _end(each) is not None]
    room = len(over) // 2 - sum(map(_has_failed, over))
    older = [each for each in cut if _has_failed(each)][: max(room, 0)]
    if older:
        successes = [number for number, each in enumerate(shown) if _end(each) is not None and not _has_failed(each)]
        way = frozenset(successes[-len(older) :])
        shown = [each for number, each in enumerate(shown) if number not in way] + older
    return shown


def _has_failed(each: Row) -> bool:
    return bool(each.get("state") == "FAILED")
