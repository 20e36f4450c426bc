"""Slices of Arrow's tables, batches and arrays: only the rows that they show are stored.

A value that shows much less than its buffers hold is pickled as an Arrow IPC stream, whose writer truncates buffers, and which the
reader uses in place. All others are pickled by their own method, without a copy.

The reader need not know an extension type yet: such columns travel as their storage type beside the schema, whose pickle imports the
type's module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

Reduced = Any
#: Bytes beside the shown rows that do not justify a copy: padding, and a share of the size.
_PADDING = 1024
_SHARE = 4

_reducers: dict[type, Callable[[Any], Reduced]] = {}


def arrow_reducers() -> dict[type, Callable[[Any], Reduced]]:
    """Reducers by class; empty while pyarrow is not imported."""
    if not _reducers:
        arrow: Any = sys.modules.get("pyarrow")
        if getattr(arrow, "RecordBatchStreamReader", None) is None:  # not imported, or not completely yet
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
    if not (_shows_little(table) and _can_be_cut(table.schema)):
        return table.__reduce_ex__(5)
    return _table, _cut(table.schema, table.to_batches())


def _reduce_batch(batch: Any) -> Reduced:
    if not (_shows_little(batch) and _can_be_cut(batch.schema)):
        return batch.__reduce_ex__(5)
    return _batch, _cut(batch.schema, [batch])


def _reduce_chunked(column: Any) -> Reduced:
    schema = _one_column(column)
    if not (_shows_little(column) and _can_be_cut(schema)):
        return column.__reduce_ex__(5)
    return _column, _cut(schema, [_arrow().record_batch([chunk], schema) for chunk in column.chunks])


def _reduce_array(array: Any) -> Reduced:
    schema = _one_column(array)
    if not (_shows_little(array) and _can_be_cut(schema)):
        return array.__reduce_ex__(5)
    return _array, _cut(schema, [_arrow().record_batch([array], schema)])


def _one_column(column: Any) -> Any:
    return _arrow().schema([_arrow().field("", column.type)])


def _shows_little(value: Any) -> bool:
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


def _cut(schema: Any, batches: list[Any]) -> tuple[Any, Any]:
    """The schema and the stream. Batches without rows are included: some types have no other representation of an empty array."""
    arrow = _arrow()
    stored = arrow.schema([arrow.field(field.name, _storage(field.type), field.nullable) for field in schema])
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, stored) as writer:
        for batch in batches:
            columns = [column.storage if isinstance(column.type, arrow.BaseExtensionType) else column for column in batch.columns]
            if not len(batch):
                columns = [*map(_without_elements, columns)]
            writer.write_batch(arrow.record_batch(columns, stored))
    return schema, sink.getvalue()


def _without_elements(column: Any) -> Any:
    """An empty column with empty buffers. A dictionary keeps its values."""
    arrow = _arrow()
    kind = column.type
    if arrow.types.is_dictionary(kind):
        return arrow.DictionaryArray.from_arrays(arrow.nulls(0, kind.index_type), column.dictionary, ordered=kind.ordered)
    return column if _has_dictionary(kind) else arrow.nulls(0, kind)


def _has_dictionary(kind: Any) -> bool:
    return _arrow().types.is_dictionary(kind) or any(_has_dictionary(kind.field(number).type) for number in range(kind.num_fields))


def _batches(schema: Any, stream: Any) -> list[Any]:
    arrow = _arrow()
    return [
        arrow.RecordBatch.from_arrays(
            [
                field.type.wrap_array(column) if isinstance(field.type, arrow.BaseExtensionType) else column
                for field, column in zip(schema, batch.columns, strict=True)
            ],
            schema=schema,
        )
        for batch in arrow.ipc.open_stream(stream)
    ]


def _table(schema: Any, stream: Any) -> Any:
    return _arrow().Table.from_batches(_batches(schema, stream), schema)


def _batch(schema: Any, stream: Any) -> Any:
    return _batches(schema, stream)[0]


def _column(schema: Any, stream: Any) -> Any:
    return _arrow().chunked_array([batch.column(0) for batch in _batches(schema, stream)], type=schema.field(0).type)


def _array(schema: Any, stream: Any) -> Any:
    return _batches(schema, stream)[0].column(0)
