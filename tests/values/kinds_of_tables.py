"""Frames, columns and indices of pandas, Arrow, polars and SciPy, by family and name: of those packages that are installed."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.values.kinds_of_python import Kinds, Plain, Word

UTC = datetime.timezone.utc


# ---------------------------------------------------------------------------------------------------- pandas
def of_pandas(pd: Any) -> Kinds:
    def series(values: Any, **options: Any) -> Any:
        return pd.Series(values, **options)

    def attributed() -> Any:
        frame = pd.DataFrame({"a": [1]}).set_flags(allows_duplicate_labels=False)
        frame.attrs["source"] = [1]
        return frame

    def twice() -> Any:
        column = series([1, 2], name="a")
        return [column, {"again": column}, column.index]

    moments = pd.date_range("2024-03-30", periods=4, freq="D")
    dtypes: dict[str, tuple[Any, Any]] = {
        **{name: ([1, 0, 1], name) for name in ("int8", "int64", "uint8", "uint64", "float32", "float64", "bool", "complex128")},
        **{name: ([1, None, 3], name) for name in ("Int8", "Int64", "UInt16", "UInt64", "Float32", "Float64", "object")},
        "boolean": ([True, None], "boolean"),
        "string": (["a", None, "ä"], "string"),
        "python string": (["a", None], "string[python]"),
        "category": (["b", "a", None], "category"),
        "ordered category": (["b", "a"], pd.CategoricalDtype(["b", "a", "c"], ordered=True)),
        "category of numbers": ([3, 1, 3], "category"),
        "moments": (moments, None),
        "moments with zone": (moments.tz_localize("Europe/Berlin"), None),
        "moments with offset": (moments.tz_localize(datetime.timezone(datetime.timedelta(hours=2))), None),
        "moments in utc": (moments.tz_localize(UTC), None),
        "moments in seconds": (moments, "datetime64[s]"),
        "spans": (pd.to_timedelta([1, None, 3], unit="h"), None),
        "periods": (pd.period_range("2024", periods=3, freq="M"), None),
        "intervals": (pd.interval_range(0, 3, closed="left"), None),
        "sparse": (pd.arrays.SparseArray([0, 1, 0]), None),
        "sparse floats": (pd.arrays.SparseArray([np.nan, 1.0]), None),
        "mixed": ([1, "a", None, [1], Plain(1), decimal.Decimal(1), datetime.date(2024, 1, 1), np.int64(5)], object),
        "none": ([], "float64"),
    }
    with contextlib.suppress(ImportError):
        importlib.import_module("pyarrow")
        for name, kept in (("int64", [1, None]), ("string", ["a", None]), ("timestamp[us, UTC]", [None]), ("bool", [True])):
            dtypes[f"arrow {name}"] = (kept, f"{name}[pyarrow]")
        dtypes["arrow strings"] = (["a", None], "string[pyarrow]")
    kinds: Kinds = {f"series of {name}": lambda of=of: series(of[0], dtype=of[1]) for name, of in dtypes.items()}
    kinds |= {f"array of {name}": lambda of=of: series(of[0], dtype=of[1]).array for name, of in dtypes.items() if " " in name}
    kinds |= {f"index of {name}": lambda of=of: pd.Index(of[0], dtype=of[1], name="n") for name, of in dtypes.items() if name != "mixed"}
    return kinds | {
        "frame of all": lambda: pd.DataFrame({name: series(of[0], dtype=of[1])[:2] for name, of in dtypes.items()}),
        "frame of one type": lambda: pd.DataFrame(np.arange(12).reshape(3, 4), columns=list("abcd")),
        "large frame": lambda: pd.DataFrame({"a": np.arange(20_000), "b": np.arange(20_000.0), "c": np.arange(20_000, dtype="u1")}),
        "frame without columns": lambda: pd.DataFrame(index=[1, 2]),
        "frame without rows": lambda: pd.DataFrame({"a": np.zeros(0, np.int64), "b": []}),
        "nothing": pd.DataFrame,
        "the same names": lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]),
        "part of a frame": lambda: pd.DataFrame({"a": range(100), "b": range(100)}).iloc[3:5],
        "every other row": lambda: pd.DataFrame({"a": range(10)})[::2],
        "transposed": lambda: pd.DataFrame({"a": [1, 2], "b": [3.0, 4]}).T,
        "rows of several levels": lambda: pd.DataFrame(
            {"a": [1, 2]}, index=pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["p", "q"])
        ),
        "columns of several levels": lambda: pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_product([["a"], [1, 2]])),
        "attributes": attributed,
        "range index": lambda: [pd.RangeIndex(0, 10, 3, name="r"), pd.RangeIndex(0)],
        "several levels": lambda: pd.MultiIndex.from_product([["a", "b"], pd.date_range("2024", periods=2), [True, False]]),
        "moments with a frequency": lambda: pd.date_range("2024", periods=3, freq="B", tz="Asia/Tokyo"),
        "series with a name": lambda: series([1], name=("a", 1), index=["x"]),
        "twice": twice,
        "moment": lambda: [pd.Timestamp("2024", tz="Europe/Berlin"), pd.Timestamp(5), pd.Timedelta(5), pd.Period("2024-01", "M")],
        "singletons": lambda: [pd.NaT, pd.NA, {"a": pd.NA}],
        "interval": lambda: pd.Interval(0, 1, closed="both"),
        "offsets": lambda: [pd.offsets.BusinessDay(2), pd.offsets.MonthEnd()],
        "dtypes": lambda: [
            pd.CategoricalDtype(["a"]),
            pd.Int64Dtype(),
            pd.DatetimeTZDtype("ns", "UTC"),
            pd.StringDtype(),
            pd.SparseDtype("f8"),
        ],
        "frames in a dict": lambda: {"a": pd.DataFrame({"x": [1]}), "b": [pd.Series([1.5])]},
        "values of a frame": lambda: pd.DataFrame({"a": [1, 2]})["a"].to_numpy(),
        "enums": lambda: series([Word.A, Word.A]),
    }


# ----------------------------------------------------------------------------------------------------- Arrow
def of_arrow(pa: Any) -> Kinds:
    def union(dense: bool) -> Any:
        parts = [pa.array([1, 2]), pa.array(["a", "b"])]
        if dense:
            return pa.UnionArray.from_dense(pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), parts)
        return pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), parts)

    arrays: Kinds = {
        **{
            f"{kind}": lambda kind=kind: pa.array([1, None, 3], kind)
            for kind in (
                *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
                *(pa.date32(), pa.time32("s"), pa.time64("ns"), pa.timestamp("ms"), pa.timestamp("ns", "Europe/Berlin")),
                pa.duration("us"),
            )
        },
        "decimals": lambda: pa.array([decimal.Decimal("1.50"), None], pa.decimal128(10, 2)),
        "large decimals": lambda: pa.array([decimal.Decimal("1.50"), None], pa.decimal256(50, 2)),
        "truths": lambda: pa.array([True, None, False]),
        "texts": lambda: pa.array(["a", None, "ä"]),
        "large texts": lambda: pa.array(["a", None], pa.large_string()),
        "bytes": lambda: [pa.array([b"a", None]), pa.array([b"ab", None], pa.binary(2)), pa.array([b"a"], pa.large_binary())],
        "nulls": lambda: pa.nulls(3),
        "lists": lambda: [pa.array([[1], None, []]), pa.array([[1]], pa.large_list(pa.int8())), pa.array([[1, 2]], pa.list_(pa.int8(), 2))],
        "structures": lambda: pa.array([{"a": 1, "b": "x"}, None]),
        "maps": lambda: pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        "words": lambda: pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "ordered words": lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["x", "y"], ordered=True),
        "sparse union": lambda: union(dense=False),
        "dense union": lambda: union(dense=True),
        "runs": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None])),
        "intervals": lambda: pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
        "tensors": lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12.0).reshape(3, 2, 2)),
        "many": lambda: pa.array(range(20_000)),
        "many texts": lambda: pa.array(map(str, range(5000))),
        "of numpy": lambda: pa.array(np.arange(5, dtype="u8")),
    }
    if hasattr(pa, "string_view"):
        arrays["views"] = lambda: pa.array(["a", None, "a text that is not short"], pa.string_view())

    def cut(make: Callable[[], Any], *span: int) -> Any:
        made = make()
        return [each.slice(*span) for each in made] if isinstance(made, list) else made.slice(*span)

    def nested(make: Callable[[], Any]) -> Any:
        made = make()
        return pa.chunked_array([made, made[:1], made[:0]])

    many = ("many", "many texts")
    kinds = {f"array of {name}": make for name, make in arrays.items()}
    kinds |= {f"slice of {name}": lambda make=make: cut(make, 1, 1) for name, make in arrays.items()}
    kinds |= {f"empty slice of {name}": lambda make=make: cut(make, 1, 0) for name, make in arrays.items()}
    kinds |= {f"chunks of {name}": lambda make=make: nested(make) for name, make in arrays.items() if name not in ("bytes", "lists", *many)}
    return kinds | {
        "no chunks": lambda: pa.chunked_array([], pa.int64()),
        "table": lambda: pa.table({"a": [1, 2], "b": ["x", None]}).replace_schema_metadata({"k": "v"}),
        "large table": lambda: pa.table({"a": range(20_000), "b": map(str, range(20_000))}),
        "slice of a table": lambda: pa.table({"a": range(20_000), "b": map(str, range(20_000))}).slice(5, 10),
        "empty slice of a table": lambda: pa.table({"a": range(20_000), "b": map(str, range(20_000))}).slice(5, 0),
        "table without columns": lambda: pa.table({"a": range(3)}).select([]),
        "table without rows": lambda: pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))]).empty_table(),
        "the same names": lambda: pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
        "batch": lambda: pa.record_batch({"a": [1, 2], "b": ["x", None]}, metadata={"k": "v"}),
        "slice of a batch": lambda: pa.record_batch({"a": range(20_000)}).slice(5, 10),
        "batch without columns": lambda: pa.record_batch({"a": range(3)}).select([]),
        "batch of unions": lambda: pa.record_batch({"a": union(dense=False)[:0], "b": union(dense=False)[:0]}),
        "schema": lambda: pa.schema([pa.field("a", pa.int8(), nullable=False, metadata={"k": "v"})], metadata={"m": "w"}),
        "types": lambda: [
            pa.int64(),
            pa.list_(pa.string()),
            pa.dictionary(pa.int8(), pa.string(), ordered=True),
            pa.timestamp("us", "UTC"),
        ],
        "scalars": lambda: [pa.scalar(1), pa.scalar(None, pa.string()), pa.scalar([1])],
        "buffer": lambda: pa.py_buffer(b"abc"),
        "large buffer": lambda: pa.py_buffer(bytes(70_000)),
        "twice": lambda: [*([pa.array([1, 2])] * 2)],
        "in a dict": lambda: {"a": pa.array([1]), "b": [pa.table({"x": [1.5]})]},
    }


# ------------------------------------------------------------------------------------------- polars and SciPy
def of_polars(pl: Any) -> Kinds:
    columns: dict[str, tuple[Any, Any]] = {
        **{str(kind): ([1, None, 0], kind) for kind in (pl.Int8, pl.Int64, pl.UInt64, pl.Float32, pl.Float64, pl.Date, pl.Time)},
        "texts": (["a", None, "ä"], pl.String),
        "bytes": ([b"a", None], pl.Binary),
        "truths": ([True, None], pl.Boolean),
        "moments": ([datetime.datetime(2024, 1, 1), None], pl.Datetime("ms")),
        "moments with zone": ([datetime.datetime(2024, 1, 1, tzinfo=UTC)], pl.Datetime("us", "UTC")),
        "spans": ([datetime.timedelta(1)], pl.Duration("ns")),
        "decimals": ([decimal.Decimal("1.5")], pl.Decimal(10, 2)),
        "lists": ([[1], None, []], pl.List(pl.Int8)),
        "arrays": ([[1, 2], None], pl.Array(pl.Int64, 2)),
        "structures": ([{"a": 1, "b": "x"}, None], pl.Struct({"a": pl.Int64, "b": pl.String})),
        "categories": (["a", "b", "a"], pl.Categorical),
        "enumeration": (["x", "y"], pl.Enum(["y", "x"])),
        "nulls": ([None, None], pl.Null),
        "none": ([], pl.Int64),
    }
    kinds: Kinds = {f"series of {name}": lambda of=of: pl.Series("n", of[0], of[1]) for name, of in columns.items()}
    kinds |= {
        f"long series of {name}": lambda of=of: pl.Series("", of[0] * 4000, of[1])
        for name, of in columns.items()
        if name in ("Int64", "texts", "moments with zone", "decimals", "lists", "arrays", "structures", "categories", "enumeration")
    }
    return kinds | {
        "frame": lambda: pl.DataFrame({name: pl.Series(of[0][:1], dtype=of[1]) for name, of in columns.items() if of[0]}),
        "large frame": lambda: pl.DataFrame({"": range(20_000), "b": map(str, range(20_000))}),
        "part of a frame": lambda: pl.DataFrame({"a": range(20_000)})[5:10],
        "sorted": lambda: pl.DataFrame({"a": range(20_000), "b": range(20_000)}).sort("a", descending=True),
        "chunks": lambda: pl.concat([pl.DataFrame({"a": range(9000)})] * 2, rechunk=False),
        "frame without rows": lambda: pl.DataFrame(schema={"a": pl.Int8, "b": pl.List(pl.String)}),
        "nothing": pl.DataFrame,
        "types": lambda: [pl.Int64, pl.Datetime("ms", "UTC"), pl.List(pl.Int8), pl.Enum(["a"])],
    }


def of_scipy(sparse: Any) -> Kinds:
    def dense() -> Any:
        return np.array([[0, 1, 0], [2, 0, 3]])

    forms = [f"{form}_{kind}" for form in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok") for kind in ("matrix", "array")]
    kinds: Kinds = {form: lambda form=form: getattr(sparse, form)(dense()) for form in forms if hasattr(sparse, form)}
    return kinds | {
        "large": lambda: sparse.identity(20_000, dtype="i8", format="csr"),
        "without elements": lambda: sparse.csr_matrix((3, 4), dtype="f4"),
        "transposed": lambda: sparse.csr_matrix(dense()).T,
        "twice": lambda: [*([sparse.csr_matrix(dense())] * 2)],
    }


FAMILIES: dict[str, Kinds] = {}
for _name, _package, _kinds in (
    *(("pandas", "pandas", of_pandas), ("Arrow", "pyarrow", of_arrow), ("polars", "polars", of_polars)),
    ("SciPy", "scipy.sparse", of_scipy),
):
    with contextlib.suppress(ImportError):
        FAMILIES[_name] = _kinds(importlib.import_module(_package))
