"""Frames and series of polars: by way of Arrow, whose buffers are taken out of band.

Any process that has imported polars. Its own pickle writes all data into one stream, twice copied; as a table of pyarrow the same memory is
looked at, here and where it is read. A value with columns that Arrow has no type for, that shows little of its memory, is small or is of
small chunks, is pickled by its own method, and so is any where pyarrow is not installed.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

Reduced = Any
#: Bytes from which Arrow pays, of each chunk too: where pyarrow is imported already, and where that is still to be done.
_LEAST, _LEAST_ALONE = 1 << 16, 1 << 23
#: A value shows little of its memory if there is more beside it than this share.
_SHARE = 4

_reducers: dict[type, Callable[[Any], Reduced]] = {}


def frame_reducers() -> dict[type, Callable[[Any], Reduced]]:
    """Class to reducer; none while polars is not imported."""
    if not _reducers:
        polars: Any = sys.modules.get("polars")
        if getattr(polars, "CompatLevel", None) is None or not _has_arrow():  # not imported, or not whole yet
            return _reducers
        _reducers.update({polars.DataFrame: _reduce_frame, polars.Series: _reduce_series})
    return _reducers


@functools.cache
def _has_arrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def _reduce_frame(frame: Any) -> Reduced:
    size = frame.estimated_size()
    columns = frame.get_columns()
    if size < _least() or size < _LEAST * sum(column.n_chunks() for column in columns) or not all(map(_is_restored, columns)):
        return frame.__reduce_ex__(5)
    polars: Any = sys.modules["polars"]
    try:
        table = frame.to_arrow(compat_level=polars.CompatLevel.newest())
        beside = table.get_total_buffer_size() - size
    except Exception:  # Arrow has no such type
        return frame.__reduce_ex__(5)
    if beside > size // _SHARE:
        return frame.__reduce_ex__(5)
    return _frame, (table, frame.columns, [_order(column) for column in columns])


def _reduce_series(series: Any) -> Reduced:
    reduced = _reduce_frame(series.to_frame())  # only a frame's schema says all of a column's type
    return (_series, reduced[1]) if reduced[0] is _frame else series.__reduce_ex__(5)


def _least() -> int:
    return _LEAST if "pyarrow" in sys.modules else _LEAST_ALONE


def _is_restored(column: Any) -> bool:
    """Whether Arrow's pickle says all of a column: not of objects, nor of what arrays of a fixed width are made of."""
    kind = str(column.dtype)
    return "Object" not in kind and "Array" not in kind


def _order(column: Any) -> bool | None:
    """Whether a column is known to be sorted downwards, or upwards (False)."""
    flags = column.flags
    return True if flags["SORTED_DESC"] else False if flags["SORTED_ASC"] else None


def _frame(table: Any, names: list[str], orders: list[bool | None]) -> Any:
    frame = importlib.import_module("polars").from_arrow(table, rechunk=False)
    frame.columns = names  # an empty one is replaced on the way
    known = [column.set_sorted(descending=order) for column, order in zip(frame.get_columns(), orders, strict=True) if order is not None]
    return frame.with_columns(known) if known else frame


def _series(table: Any, names: list[str], orders: list[bool | None]) -> Any:
    return _frame(table, names, orders).to_series()
