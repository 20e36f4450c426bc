"""Frames and series of polars, pickled as Arrow tables, whose buffers go out of band.

polars' own pickle copies all data twice; a pyarrow table shares the memory with the frame. polars' method remains for columns that
Arrow cannot represent, for values that use little of their buffers, are small or have small chunks, and without pyarrow.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

Reduced = Any
#: Bytes, of a value and of its average chunk, from which Arrow pays; and bytes of a value if pyarrow is not imported yet.
_LEAST, _LEAST_ALONE = 1 << 16, 1 << 23
#: A value uses little of its buffers if what lies beside it exceeds its size divided by this.
_SHARE = 4

_reducers: dict[type, Callable[[Any], Reduced]] = {}


def frame_reducers() -> dict[type, Callable[[Any], Reduced]]:
    """Reducers by class; empty while polars is not imported."""
    if not _reducers:
        polars: Any = sys.modules.get("polars")
        if getattr(polars, "CompatLevel", None) is None or not _has_arrow():  # not imported, or not completely yet
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
    reduced = _reduce_frame(series.to_frame())  # only a frame's schema has all of a column's type
    return (_series, reduced[1]) if reduced[0] is _frame else series.__reduce_ex__(5)


def _least() -> int:
    return _LEAST if "pyarrow" in sys.modules else _LEAST_ALONE


def _is_restored(column: Any) -> bool:
    """Whether Arrow's pickle preserves a column: it does not preserve objects or fixed-width arrays."""
    kind = str(column.dtype)
    return "Object" not in kind and "Array" not in kind


def _order(column: Any) -> bool | None:
    """True: known to be sorted descending; False: ascending; None: neither is known."""
    flags = column.flags
    return True if flags["SORTED_DESC"] else False if flags["SORTED_ASC"] else None


def _frame(table: Any, names: list[str], orders: list[bool | None]) -> Any:
    frame = importlib.import_module("polars").from_arrow(table, rechunk=False)
    frame.columns = names  # Arrow replaces an empty name
    known = [column.set_sorted(descending=order) for column, order in zip(frame.get_columns(), orders, strict=True) if order is not None]
    return frame.with_columns(known) if known else frame


def _series(table: Any, names: list[str], orders: list[bool | None]) -> Any:
    return _frame(table, names, orders).to_series()
