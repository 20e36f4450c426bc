"""Filters and limits of listings. Pure."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from mray._common import settings
from mray.util.state.common import StateSchema, check_predicate
from mray.util.state.exception import RayStateApiException

Filter = tuple[str, str, Any]

_FALSE, _TRUE = ("false", "0"), ("true", "1")


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
    """Whether all filters hold. Strings are compared case-insensitively; a string equals the number or boolean that it spells.
    A task that did not fail has no error type, so no ``!=`` on the error type matches it.
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
                raise RayStateApiException(f"Failed to convert a value {wanted} of type {str} to {bool}")
            return found == (wanted.lower() in _TRUE)
        if isinstance(found, (int, float)):
            try:
                return found == type(found)(wanted)
            except ValueError:
                raise RayStateApiException(f"Failed to convert a value {wanted} of type {str} to {type(found)}") from None
    return bool(found == wanted)
