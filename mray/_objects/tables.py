"""Slices of Arrow's tables, batches and arrays: what is stored of them is what they show.

Any process that has imported pyarrow. Arrow pickles a slice with the whole of the buffers that it looks into, so that the parts of a table
would take as much memory each as all of it. A value that shows much less than its buffers hold is pickled as a stream of Arrow's own
format, whose writer cuts; a reader looks into that stream in place. Every other value is pickled by its own method, without a copy.

An extension type need not be known yet to who reads: such columns travel as what they are stored as, beside the schema, whose pickle
imports what the type is from.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

Reduced = Any
#: Bytes beside what a value shows that are not worth a copy: padding, and a share of it.
_PADDING = 1024
_SHARE = 4

_reducers: dict[type, Callable[[Any], Reduced]] = {}


def arrow_reducers() -> dict[type, Callable[[Any], Reduced]]:
    """Class to reducer; none while pyarrow is not imported."""
    if not _reducers:
        arrow: Any = sys.modules.get("pyarrow")
        if getattr(arrow, "RecordBatchStreamReader", None) is None:  # not imported, or not whole yet
            return _reducers
        found: dict[type, Callable[[Any], Reduced]] = {arrow.Table: _reduce_table, arrow.RecordBatch: _reduce_batch}
        found[arrow.ChunkedArray] = _reduce_chunked
        kinds = [arrow.Array]
        while kinds:
            kind = kinds.pop()
            found[kind] = _reduce_array
            kinds += kind.__subclasses__()
        _reducers.update(found)
    return _reducers


def _arrow() -> Any:
    return importlib.import_module("pyarrow")


def _reduce_table(table: Any) -> Reduced:
    return (_table, _cut(table)) if _shows_little(table) and _can_be_cut(table.schema) else table.__reduce_ex__(5)


def _reduce_batch(batch: Any) -> Reduced:
    if not (_shows_little(batch) and _can_be_cut(batch.schema)):
        return batch.__reduce_ex__(5)
    return _batch, _cut(_arrow().Table.from_batches([batch]))


def _reduce_chunked(column: Any) -> Reduced:
    table = _one_column(column)
    return (_column, _cut(table)) if _shows_little(column) and _can_be_cut(table.schema) else column.__reduce_ex__(5)


def _reduce_array(array: Any) -> Reduced:
    if not _shows_little(array):
        return array.__reduce_ex__(5)
    table = _one_column(array)
    return (_array, _cut(table)) if _can_be_cut(table.schema) else array.__reduce_ex__(5)


def _one_column(column: Any) -> Any:
    return _arrow().table([column], names=[""])


def _shows_little(value: Any) -> bool:
    """Whether much of the buffers is outside of what the value shows."""
    try:
        shown = value.nbytes
        return bool(value.get_total_buffer_size() - shown > shown // _SHARE + _PADDING)
    except Exception:  # a type that Arrow cannot measure
        return False


def _can_be_cut(schema: Any) -> bool:
    return not any(_has_extension(_storage(field.type)) for field in schema)


def _storage(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, _arrow().BaseExtensionType) else kind


def _has_extension(kind: Any) -> bool:
    arrow = _arrow()
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    if arrow.types.is_dictionary(kind):
        inner.append(kind.value_type)
    return isinstance(kind, arrow.BaseExtensionType) or any(map(_has_extension, inner))


def _cut(table: Any) -> tuple[Any, Any]:
    """The schema, and the stream."""
    arrow = _arrow()
    stored = table
    for number, field in enumerate(table.schema):
        if isinstance(field.type, arrow.BaseExtensionType):
            kind = field.type.storage_type
            column = arrow.chunked_array([chunk.storage for chunk in table.column(number).chunks], type=kind)
            stored = stored.set_column(number, arrow.field(field.name, kind, field.nullable), column)
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, stored.schema) as writer:
        writer.write_table(stored)
    return table.schema, sink.getvalue()


def _table(schema: Any, stream: Any) -> Any:
    arrow = _arrow()
    stored = arrow.ipc.open_stream(stream).read_all()
    columns = [
        arrow.chunked_array(map(field.type.wrap_array, column.chunks), type=field.type)
        if isinstance(field.type, arrow.BaseExtensionType)
        else column
        for field, column in zip(schema, stored.columns, strict=True)
    ]
    return arrow.Table.from_arrays(columns, schema=schema)


def _batch(schema: Any, stream: Any) -> Any:
    arrow = _arrow()
    batches = _table(schema, stream).to_batches()
    return batches[0] if batches else arrow.RecordBatch.from_pylist([], schema=schema)


def _column(schema: Any, stream: Any) -> Any:
    return _table(schema, stream).column(0)


def _array(schema: Any, stream: Any) -> Any:
    arrow = _arrow()
    column = _column(schema, stream)
    return column.chunk(0) if column.num_chunks else arrow.array([], type=schema.field(0).type)
