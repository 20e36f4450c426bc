"""Frames and series of polars, in the object store and in messages: they are equal, and their memory is not copied into a pickle."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mray._objects import data_frames
from mray._objects.serializer import deserialize, serialize

pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
pl.select(pl.lit(1) + 1)  # polars keeps descriptors from its first query on

DAY = datetime.date(2026, 1, 1)
MAKERS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda rows: pl.Series(np.arange(rows, dtype=np.float32)),
    "numbers with nulls": lambda rows: pl.Series([None if row % 7 == 0 else row for row in range(rows)], dtype=pl.UInt64),
    "truths": lambda rows: pl.Series([row % 3 == 0 for row in range(rows)] * 64),
    "texts": lambda rows: pl.Series([f"a text that is long enough to lie elsewhere, {row}" for row in range(rows)]),
    "bytes": lambda rows: pl.Series([bytes(row % 40) for row in range(rows)]),
    "days": lambda rows: pl.Series([DAY] * rows),
    "moments": lambda rows: pl.Series([datetime.datetime(2026, 1, 1)] * rows, dtype=pl.Datetime("ms", "Europe/Berlin")),
    "durations": lambda rows: pl.Series([datetime.timedelta(row) for row in range(rows)], dtype=pl.Duration("ns")),
    "words": lambda rows: pl.Series([f"word {row % 5}" for row in range(rows)], dtype=pl.Categorical),
    "names": lambda rows: pl.Series(["b", "a"] * (rows // 2), dtype=pl.Enum(["b", "a"])),
    "lists": lambda rows: pl.Series([[row] * (row % 4) for row in range(rows)]),
    "fixed lists": lambda rows: pl.Series([[row, row] for row in range(rows)], dtype=pl.Array(pl.Int64, 2)),
    "structures": lambda rows: pl.Series([{"a": row, "b": str(row)} for row in range(rows)]),
    "decimals": lambda rows: pl.Series([f"{row}.25" for row in range(rows)]).cast(pl.Decimal(20, 2)),
    "wide numbers": lambda rows: pl.Series(range(rows), dtype=pl.Int128),
    "nothing": lambda rows: pl.Series([None] * rows),
}


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow pays for the smallest value."""
    monkeypatch.setattr(data_frames, "_LEAST", 0)


def there_and_back(value: Any) -> tuple[Any, int]:
    """The value as a reader gets it, and the bytes that are in the pickle itself."""
    packed = serialize(value)
    return deserialize(packed.form, packed.to_bytes()), len(packed.pickled)


@pytest.mark.parametrize("rows", [0, 10_000])
@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_read_equals_what_was_sent(kind: str, rows: int) -> None:
    series = MAKERS[kind](rows).alias("its name")
    frame = series.to_frame().with_columns(other=pl.int_range(pl.len()))
    for value in (series, frame, [frame, {"a": series}]):
        found, _size = there_and_back(value)
        first, expected = (found[1]["a"], series) if isinstance(value, list) else (found, value)
        assert type(first) is type(expected)
        assert first.equals(expected, null_equal=True)
        if isinstance(value, pl.DataFrame):
            assert found.schema == value.schema
        else:
            assert (first.dtype, first.name) == (series.dtype, "its name")


def test_memory_is_out_of_band() -> None:
    frame = pl.DataFrame({f"column {number}": np.arange(100_000) for number in range(3)})
    for value in (frame, frame["column 1"], pl.concat([frame, frame], rechunk=False)):
        found, size = there_and_back(value)
        assert size < 10_000 < value.estimated_size()
        assert found.equals(value)
    assert there_and_back(pl.concat([frame, frame], rechunk=False))[0].n_chunks() == 2


def test_names_that_arrow_would_replace_are_kept() -> None:
    series = pl.Series(np.arange(100_000))
    assert series.name == ""
    assert there_and_back(series)[0].name == ""
    assert there_and_back(series.to_frame())[0].columns == [""]


def test_types_inside_of_arrays_are_kept() -> None:
    names = pl.Enum(["b", "a"])
    series = pl.Series([["a", "b"]] * 10_000, dtype=pl.Array(names, 2))
    assert there_and_back(series)[0].dtype == series.dtype


def test_many_small_chunks_are_pickled_by_polars() -> None:
    frame = pl.concat([pl.DataFrame({"a": np.arange(10)})] * 100, rechunk=False)
    data_frames._LEAST = 1000  # restored by the fixture
    packed = serialize(frame)
    assert not packed.buffers
    assert deserialize(packed.form, packed.to_bytes()).equals(frame)


def test_polars_is_noticed_whenever_it_is_imported() -> None:
    program = """
import numpy as np
from mray._objects.serializer import serialize
serialize(np.arange(3))
import polars, pyarrow
serialize(polars.DataFrame({"a": np.arange(3)}))
print(len(serialize(polars.DataFrame({"a": np.arange(1 << 20)})).buffers))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_an_order_that_is_known_stays_known() -> None:
    frame = pl.DataFrame({"up": range(100), "none": range(100), "down": range(100)})
    frame = frame.with_columns(pl.col("up").set_sorted(), pl.col("down").reverse().set_sorted(descending=True))
    found, _size = there_and_back(frame)
    assert found.flags == frame.flags
    assert there_and_back(frame["down"])[0].flags == frame["down"].flags


def test_objects_and_small_parts_of_large_values_are_pickled_by_polars() -> None:
    texts = pl.DataFrame({"texts": [f"a text that is long enough to lie elsewhere, {row}" for row in range(100_000)]})
    packed = serialize(texts.slice(70_000, 2))
    assert packed.size < 10_000
    assert deserialize(packed.form, packed.to_bytes()).equals(texts.slice(70_000, 2))
    with pytest.raises(pl.exceptions.ComputeError, match="serializing data of type Object"):
        serialize(pl.DataFrame({"objects": pl.Series([{1}, {2}], dtype=pl.Object)}))


def test_a_frame_without_columns_and_one_that_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    assert there_and_back(pl.DataFrame())[0].equals(pl.DataFrame())
    monkeypatch.undo()
    small = pl.DataFrame({"a": [1, 2]})
    packed = serialize(small)
    assert not packed.buffers
    assert deserialize(packed.form, packed.to_bytes()).equals(small)


def test_a_reader_changes_its_own_copy_alone(ray_session):
    ray = ray_session
    frame = pl.DataFrame({"a": np.arange(1 << 17), "b": np.ones(1 << 17)})

    @ray.remote
    def change(found):
        was = found.equals(pl.DataFrame({"a": np.arange(1 << 17), "b": np.ones(1 << 17)}))
        found[0, "a"] = 7
        found = found.with_columns(pl.col("b") * 2)
        return was, int(found["a"][0])

    ref = ray.put(frame)
    assert ray.get([change.remote(ref) for _ in range(2)]) == [(True, 7)] * 2
    assert ray.get(ref).equals(frame)
    assert ray.get(ref)["a"].dtype == pl.Int64
