"""Slices of Arrow's tables, in the object store and in messages: they are equal, and take the room of what they show."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from mray._objects.serializer import deserialize, serialize

pytest.importorskip("ray")
pa = pytest.importorskip("pyarrow")

MAKERS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda rows: pa.array(range(rows)),
    "numbers with nulls": lambda rows: pa.array([None if row % 7 == 0 else row for row in range(rows)]),
    "truths": lambda rows: pa.array([row % 3 == 0 for row in range(rows)] * 64),
    "texts": lambda rows: pa.array([f"text {row}" for row in range(rows)]),
    "large texts": lambda rows: pa.array([f"text {row}" for row in range(rows)], pa.large_string()),
    "lists": lambda rows: pa.array([[row] * (row % 4) for row in range(rows)]),
    "fixed lists": lambda rows: pa.array([[row, row] for row in range(rows)], pa.list_(pa.int64(), 2)),
    "structures": lambda rows: pa.array([{"a": row, "b": str(row)} for row in range(rows)]),
    "maps": lambda rows: pa.array([[(str(row), row)] for row in range(rows)], pa.map_(pa.string(), pa.int64())),
    "words": lambda rows: pa.array([f"word {row % 5}" for row in range(rows)]).dictionary_encode(),
    "tensors": lambda rows: pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int64(), (2,)), pa.array([[row, row] for row in range(rows)], pa.list_(pa.int64(), 2))
    ),
    "tensors in lists": lambda rows: pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), MAKERS["tensors"](rows)),
    "nothing": lambda rows: pa.nulls(rows),
    "either": lambda rows: pa.UnionArray.from_sparse(
        pa.array([row % 2 for row in range(rows)], pa.int8()), [pa.array(range(rows)), pa.array(map(str, range(rows)))]
    ),
    "either, dense": lambda rows: pa.UnionArray.from_dense(
        pa.array([row % 2 for row in range(rows)], pa.int8()),
        pa.array([row // 2 for row in range(rows)], pa.int32()),
        [pa.array(range(rows)), pa.array(map(str, range(rows)))],
    ),
    "permuted tensors": lambda rows: pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int64(), (2, 1), permutation=[1, 0]),
        pa.array([[row, row] for row in range(rows)], pa.list_(pa.int64(), 2)),
    ),
    "runs": lambda rows: pa.RunEndEncodedArray.from_arrays(pa.array([rows // 2, rows], pa.int32()), pa.array(["a", "b"])),
    "instants": lambda rows: pa.array(range(rows), pa.timestamp("us", "Europe/Berlin")),
    "decimals": lambda rows: pa.array(range(rows), pa.int64()).cast(pa.decimal128(30, 2)),
    "pieces": lambda rows: pa.array([b"12345"] * rows, pa.binary(5)),
    "intervals": lambda rows: pa.array([(row, 2, 3) for row in range(rows)], pa.month_day_nano_interval()),
    "views": lambda rows: pa.array([f"a text that is not short, {row}" for row in range(rows)], pa.string_view()),
    "views of lists": lambda rows: pa.ListViewArray.from_arrays(
        pa.array(range(rows), pa.int32()), pa.array([1] * rows, pa.int32()), pa.array(range(rows))
    ),
    "either in structures": lambda rows: pa.StructArray.from_arrays([MAKERS["either"](rows), MAKERS["words"](rows)], names=["a", "b"]),
}
#: Kinds of which Arrow carries a slice with all that it is a slice of.
WHOLE = ["tensors in lists", "views", "either in structures"]


def there_and_back(value: Any) -> tuple[Any, int]:
    """The value as a reader gets it, and its size on the way."""
    packed = serialize(value)
    return deserialize(packed.form, packed.to_bytes()), packed.size


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("span", [(0, 2000), (5, 3), (1990, 10), (7, 0), (2000, 0), (100, 1000)])
def test_a_slice_arrives_equal(kind: str, span: tuple[int, int]) -> None:
    column = MAKERS[kind](2000)
    table = pa.table({"it": column, "number": range(len(column))}).slice(*span).replace_schema_metadata({"of": "the schema"})
    batch = pa.record_batch({"it": column}).slice(*span)
    for value in (column.slice(*span), pa.chunked_array([column, column]).slice(*span), table, batch):
        arrived, size = there_and_back(value)
        assert type(arrived) is type(value)
        assert arrived.equals(value)
        if isinstance(value, pa.Table):
            assert arrived.schema.equals(value.schema, check_metadata=True)
        if span[1] <= 10 and kind not in WHOLE:
            assert size < 3000, (type(value), size)
        if isinstance(value, pa.DictionaryArray):
            assert arrived.dictionary.equals(value.dictionary)
        arrived.validate(full=True)


def test_a_whole_table_is_not_copied() -> None:
    table = pa.table({"it": range(100_000)})
    packed = serialize(table)
    assert packed.buffers[0].nbytes == 800_000
    assert pa.py_buffer(packed.buffers[0]).address == table["it"].chunk(0).buffers()[1].address


@pytest.mark.skipif(os.environ.get("MRAY_TEST_ENGINE") == "ray", reason="looks at names of mray's shared memory")
def test_parts_of_a_table_take_no_more_room_than_the_table(ray_session: Any) -> None:
    from mray._api.current import started_backend

    prefix = f"mray-{started_backend().info()['session']}-"
    table = pa.table({"it": range(1_000_000)})
    parts = [ray_session.put(table.slice(start, 20_000)) for start in range(0, 1_000_000, 20_000)]
    held = sum(os.stat(f"/dev/shm/{name}").st_size for name in os.listdir("/dev/shm") if name.startswith(prefix))
    assert held < 3 * table.nbytes
    assert pa.concat_tables(ray_session.get(parts)).equals(table)
