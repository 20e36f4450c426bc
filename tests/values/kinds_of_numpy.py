"""Arrays and numbers of numpy, by family and name."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from tests.values.kinds_of_python import Kinds


class Field(np.ndarray[Any, Any]):
    """An array with an attribute."""

    def __array_finalize__(self, source: Any) -> None:
        self.unit = getattr(source, "unit", None)


class Stateful(Field):
    """An array that takes its attributes along."""

    def __reduce__(self) -> Any:
        function, arguments, state = super().__reduce__()  # type: ignore[misc]
        return function, arguments, (state, self.unit)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state[0])
        self.unit = state[1]


def mapped() -> Any:
    with tempfile.NamedTemporaryFile() as file:
        array = np.memmap(file.name, dtype="i4", mode="w+", shape=(5,))
        array[:] = range(5)
        return array


def with_unit(kind: Any, unit: str) -> Any:
    array = np.arange(6.0).reshape(2, 3).view(kind)
    array.unit = unit
    return array


def some(dtype: Any, shape: Any = (3,)) -> Any:
    dtype = np.dtype(dtype)
    if dtype.kind in "biufcmM?":
        return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    if dtype.kind in "SU":
        return np.array(["a", "bc", ""]).astype(dtype)
    return np.zeros(shape, dtype)


STRUCTURED: dict[str, Any] = {
    "structure": [("a", "i1"), ("b", "f8"), ("c", "U3")],
    "structure of long longs": [("a", "q"), ("b", "l"), ("c", "Q", (2,))],
    "aligned": np.dtype([("a", "i1"), ("b", "i8")], align=True),
    "with offsets": np.dtype({"names": ["a", "b"], "formats": ["i4", "u8"], "offsets": [8, 20], "itemsize": 40}),
    "with titles": np.dtype([(("the title", "a"), "i4")]),
    "nested": [("a", [("b", ">i8"), ("c", "M8[ms]")], (2, 2))],
    "of objects": [("a", "O"), ("b", "i4")],
    "packed and overlapping": np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]}),
    "void": "V5",
    "with metadata": np.dtype("f8", metadata={"unit": "m"}),
    "integers with metadata": np.dtype("i8", metadata={"unit": ["m"]}),
    "structure with metadata": np.dtype([("a", np.dtype("i4", metadata={"x": 1}))]),
}
NAMES = ["?", *"bBhHiIlLqQpPefdgFDG", "S3", "U3", "S0", "U0"]
NAMES += [f">{name}" for name in ("i2", "i4", "i8", "u8", "f2", "f4", "f8", "g", "c8", "c16", "U3", "M8[s]")]
NAMES += [f"{kind}8[{unit}]" for kind in "mM" for unit in ("Y", "M", "D", "h", "s", "ms", "us", "ns", "25s", "as")] + ["m8", "M8"]
STRINGS = []
if hasattr(getattr(np, "dtypes", None), "StringDType"):
    STRINGS = [np.dtypes.StringDType(), np.dtypes.StringDType(na_object=None, coerce=False)]

DTYPES: Kinds = {
    **{f"array of {name}": lambda name=name: some(name) for name in NAMES},
    **{f"array of {kind}": lambda kind=kind: some(kind) for kind in sorted(set(np.sctypeDict.values()), key=repr) if kind is not np.void},
    **{name: lambda kind=kind: some(kind) for name, kind in STRUCTURED.items()},
    **{f"array of {kind!r}": lambda kind=kind: np.array(["a", "ä" * 50, ""], dtype=kind) for kind in STRINGS},
    **{f"large array of {name}": lambda name=name: np.zeros(40_000, name) for name in ("i8", "u8", "q", "f4", ">i8", "M8[ns]", "g")},
    "dtypes": lambda: [*map(np.dtype, NAMES), *map(np.dtype, STRUCTURED.values()), *STRINGS],
    "types": lambda: [np.int64, np.float32, np.datetime64, np.ndarray, np.longdouble, np.dtype],
    "numbers": lambda: [some(name)[1] for name in NAMES],
    "numbers of structures": lambda: [some(kind)[1] for kind in STRUCTURED.values()],
    "dict by number": lambda: {np.int64(1): "a", np.float32(2): "b", np.str_("c"): np.bool_(True)},
    "objects": lambda: np.array([1, "a", None, [1], np.int64(3)], dtype=object),
    "arrays in an array": lambda: filled_objects(np.arange(3), np.zeros((2, 2), ">i8")),
}


def filled_objects(*items: Any) -> Any:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def twice(array: Any) -> Any:
    return [array, {"again": array}, array[1:], array.T]


SHAPES: Kinds = {
    "matrix": lambda: np.arange(24.0).reshape(4, 6),
    "Fortran": lambda: np.asfortranarray(np.arange(24).reshape(2, 3, 4)),
    "Fortran of texts": lambda: np.asfortranarray(np.array([["a", "b"], ["cc", "d"]])),
    "Fortran of moments": lambda: np.asfortranarray(np.zeros((2, 3), "M8[s]")),
    "Fortran of objects": lambda: np.asfortranarray(np.array([[1, "a"], [None, 2]], object)),
    "transposed": lambda: np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
    "steps": lambda: np.arange(24)[::3],
    "backwards": lambda: np.arange(24)[::-1],
    "columns": lambda: np.arange(24).reshape(4, 6)[:, 1:3],
    "repeated": lambda: np.broadcast_to(np.arange(3), (4, 3)),
    "window": lambda: np.lib.stride_tricks.sliding_window_view(np.arange(10), 3),
    "one element": lambda: np.array([[7]]),
    "no dimension": lambda: np.array(2.5),
    "no dimension of an int": lambda: np.array(7),
    "no dimension of objects": lambda: np.array({"a": 1}, dtype=object),
    "no dimension of a structure": lambda: np.zeros((), [("a", "i8")]),
    "empty": lambda: np.zeros(0),
    "empty of ints": lambda: np.zeros(0, np.int64),
    "empty in two dimensions": lambda: [np.zeros((0, 3), "u8"), np.zeros((3, 0), "q", order="F")],
    "empty slice": lambda: np.arange(10)[5:5],
    "many dimensions": lambda: np.zeros((1,) * 32),
    "read-only": lambda: np.frombuffer(b"12345678", "i8"),
    "part of a large one": lambda: np.arange(100_000)[10:20],
    "unaligned": lambda: np.frombuffer(bytes(33), "u1")[1:].view("f8"),
    "the same twice": lambda: twice(np.arange(20).reshape(4, 5)),
    "the same large one twice": lambda: twice(np.arange(40_000).reshape(200, 200)),
    "many": lambda: {str(number): np.full(number, number) for number in range(40)},
    "list of numbers": lambda: list(np.arange(5)),
    "masked": lambda: np.ma.masked_array([1, 2, 3], mask=[0, 1, 0], fill_value=9),
    "masked without a mask": lambda: np.ma.masked_array(np.arange(4, dtype="u8")),
    "hard mask": lambda: np.ma.masked_array([[1.0, 2.0]], mask=[[True, False]], hard_mask=True),
    "masked structure": lambda: np.ma.masked_array(np.zeros(2, [("a", "i8")]), mask=[(True,), (False,)]),
    "the masked value": lambda: [np.ma.masked],
    "records": lambda: np.rec.array([(1, 2.0)], dtype=[("a", "i8"), ("b", "f8")]),
    "a record": lambda: np.rec.array([(1, 2.0)], dtype=[("a", "i8"), ("b", "f8")])[0],
    "characters": lambda: np.char.array(["a", "bc"]),
    "matrix class": lambda: np.arange(4).reshape(2, 2).view(np.matrix),
    "mapped": mapped,
    "derived": lambda: with_unit(Field, "m"),
    "derived with state": lambda: with_unit(Stateful, "m"),
    "polynomial": lambda: np.polynomial.Polynomial([1, 2, 3]),
    "generator": lambda: np.random.default_rng(5),
    "state of random numbers": lambda: np.random.RandomState(5),
    "functions": lambda: [np.sin, np.add, np.linalg.norm, np.arange],
    "vectorized": lambda: np.vectorize(lambda value: value + 1),
    "iterable of shapes": lambda: [np.s_[1:2, ...], np.nan, np.newaxis],
    "error": lambda: np.linalg.LinAlgError("singular"),
    "in an exception": lambda: ValueError(np.arange(3), np.int64(5)),
}

FAMILIES: dict[str, Kinds] = {"numpy dtypes": DTYPES, "numpy arrays": SHAPES}
