"""A value in words that two processes can compare: type, contents, dtype, strides, and which of its parts are one object.

`describe` walks through a value. Of types of the standard library and of packages that it knows nothing about, it looks at what they
pickle as. Differences on purpose are left out of the words: arrays are read-only where they are read, and tensors with gaps
arrive dense.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle

#: Nested tuples of texts.
Words = Any

#: Elements that a digest stands for.
_MANY = 1000
#: Types whose values are known by their repr, and whose identity nobody promises.
_ATOMS = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range, slice)
_BUILTIN = (list, tuple, dict, set, frozenset, bytearray, str, bytes, int, float, complex)


def describe(value: Any) -> Words:
    """The words for a value."""
    return _Walk().of(value)


def difference(wanted: Words, found: Words, where: str = "") -> str:
    """The first place at which two descriptions are not the same; empty if they are."""
    if type(wanted) is tuple and type(found) is tuple and len(wanted) == len(found):
        for number, (left, right) in enumerate(zip(wanted, found, strict=True)):
            inner = difference(left, right, f"{where}.{number}")
            if inner:
                return inner
        return ""
    return "" if wanted == found else f"at {where or 'the top'}: {found!r:.300} instead of {wanted!r:.300}"


def name_of(kind: Any) -> str:
    """The name of a class or function. (Cloudpickle gives a local class that it makes anew no other name than its last.)"""
    return f"{kind.__module__}.{kind.__qualname__.rpartition('<locals>.')[2]}"


class _Walk:
    """Through one value."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        #: No identity is used twice.
        self._kept: list[Any] = []

    def of(self, value: Any) -> Words:
        if type(value) in _ATOMS:
            return type(value).__name__, repr(value)
        if type(value) is tuple and not value:
            return ("tuple",)
        number = self._numbers.get(id(value))
        if number is not None:
            return "the same as", number
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        return (name_of(type(value)), *self._inside(value))

    def all_of(self, values: Any) -> Words:
        return tuple([self.of(value) for value in values])

    def _inside(self, value: Any) -> Words:
        for kind, look in _looks().items():
            if isinstance(value, kind):
                return look(self, value)
        if type(value).__module__.startswith(__name__.rpartition(".")[0]):
            return self._own(value)
        return self._reduced(value)

    def _own(self, value: Any) -> Words:
        """An object of a class of the tests: its contents and attributes, however it pickles."""
        content: Words = ()
        for kind in _BUILTIN:
            if isinstance(value, kind):
                content = self.builtin(value, kind)
                break
        else:
            if isinstance(value, (BaseException, *_reduced_types())):
                content = self._reduced(value)
        slots = [name for each in type(value).__mro__ for name in _slots(each) if name not in ("__dict__", "__weakref__")]
        held = [(name, self.of(getattr(value, name))) for name in slots if hasattr(value, name)]
        return content, tuple(held), tuple([(name, self.of(each)) for name, each in getattr(value, "__dict__", {}).items()])

    def _reduced(self, value: Any) -> Words:
        reducer = cloudpickle.Pickler.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(4) if reducer is None else reducer(value)
        if isinstance(reduced, str):
            return (reduced,)
        self._kept.append(reduced)
        return tuple([tuple([self.of(item) for item in part]) if isinstance(part, Iterator) else self.of(part) for part in reduced])

    def builtin(self, value: Any, kind: Any) -> Words:
        if kind in (set, frozenset):
            return tuple(sorted([self.of(item) for item in kind.__iter__(value)], key=repr))
        if kind is dict:
            return tuple([(self.of(key), self.of(dict.__getitem__(value, key))) for key in dict.__iter__(value)])
        if kind in (list, tuple):
            return self.all_of(kind.__iter__(value))
        return (kind.__repr__(value),)

    # -------------------------------------------------------------------------------------------- Python
    def of_type(self, value: type) -> Words:
        found: Any = sys.modules.get(value.__module__)
        for part in value.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is value:
            return (name_of(value),)
        # One that travels by value.
        held = {name: each for name, each in vars(value).items() if not name.startswith("__") or name in ("__doc__", "__annotations__")}
        return name_of(value), self.all_of(value.__bases__), tuple([(name, self.of(held[name])) for name in sorted(held)])

    def of_function(self, value: types.FunctionType) -> Words:
        found: Any = sys.modules.get(value.__module__)
        for part in value.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is value:
            return (name_of(value),)
        cells = [_content(cell) for cell in value.__closure__ or ()]
        code = value.__code__
        held = [value.__defaults__, value.__kwdefaults__, value.__dict__, value.__doc__, value.__annotations__]
        info = code.co_code.hex(), code.co_varnames, code.co_names, str(code.co_firstlineno)
        return name_of(value), info, self.all_of(held), self.all_of(cells)

    def of_method(self, value: types.MethodType) -> Words:
        return self.of(value.__func__), self.of(value.__self__)

    def of_builtin_function(self, value: types.BuiltinFunctionType) -> Words:
        owner = value.__self__
        return value.__qualname__, self.of(owner) if not isinstance(owner, types.ModuleType) else owner.__name__

    def of_weak(self, value: Any) -> Words:
        return tuple(sorted([self.of(item) for item in list(value)], key=repr))

    # --------------------------------------------------------------------------------------------- numpy
    def of_dtype(self, dtype: Any) -> Words:
        names = dtype.names or ()
        fields = [(name, self.of_dtype(dtype.fields[name][0]), *map(str, dtype.fields[name][1:])) for name in names]
        base = (self.of_dtype(dtype.subdtype[0]), str(dtype.subdtype[1])) if dtype.subdtype else ()
        metadata = self.of(dict(dtype.metadata)) if dtype.metadata else ()
        info = dtype.char, dtype.str, str(dtype.itemsize), str(dtype.isalignedstruct)
        return repr(dtype), name_of(dtype.type), info, tuple(fields), base, metadata

    def of_array(self, array: Any) -> Words:
        import numpy

        if array is numpy.ma.masked:
            return ("masked",)
        plain = numpy.ndarray.view(array, numpy.ndarray) if type(array) is not numpy.ndarray else array
        strides = [str(stride) for stride, size in zip(array.strides, array.shape, strict=True) if size > 1] if array.size else []
        items = self.all_of(plain.ravel().tolist()) if plain.dtype.hasobject else _contents(plain)
        info = str(array.shape), tuple(strides), str(array.flags.f_contiguous), str(array.flags.c_contiguous)
        more: Words = ()
        if isinstance(array, numpy.ma.MaskedArray):
            more = self.of(numpy.ma.getmask(array)), repr(array.fill_value), str(array.hardmask)
            items = repr(array.tolist())
        return self.of_dtype(array.dtype), info, items, more, self.of(dict(getattr(array, "__dict__", {}) if not more else {}))

    def of_number(self, value: Any) -> Words:
        return self.of_dtype(value.dtype), repr(value.tolist())

    # --------------------------------------------------------------------------------------------- torch
    def of_tensor(self, tensor: Any) -> Words:
        import torch

        info = str(tensor.dtype), str(tensor.layout), str(tensor.requires_grad), str(tensor.device)
        info += (str(tensor.is_leaf), str(tensor.is_quantized), "" if tensor.is_nested else str(tuple(tensor.shape)))
        held = self.of(tensor.__dict__)
        plain = tensor.detach()
        if tensor.is_nested:
            return info, held, tuple([repr(part.tolist()) for part in plain.unbind()])
        if tensor.is_quantized:
            return info, held, str(tensor.qscheme()), repr(plain.int_repr().tolist()), repr(plain.dequantize().tolist())
        if tensor.layout is torch.sparse_coo:
            parts = [plain._indices(), plain._values()]
            return info, held, str(plain.is_coalesced()), tuple([(str(part.dtype), repr(part.tolist())) for part in parts])
        if tensor.layout is not torch.strided:
            return info, held, tuple([repr(getattr(plain, name)().tolist()) for name in _parts_of_layout(torch, tensor.layout)])
        if tensor.device.type == "meta":
            return info, held
        strides = plain.stride() if _is_dense(plain) else torch.empty(plain.shape).stride()
        words = [str(stride) for stride, size in zip(strides, plain.shape, strict=True) if size > 1] if plain.numel() else []
        bits = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain).reshape(-1)
        return info, held, tuple(words), _contents(bits.view(torch.uint8).numpy()) if plain.numel() else ""

    # -------------------------------------------------------------------------------------------- pandas
    def of_frame(self, frame: Any) -> Words:
        columns = tuple([self.of_column(frame.iloc[:, number]) for number in range(frame.shape[1])])
        return self._pandas(frame), self.of(frame.columns), self.of(frame.index), columns

    def of_series(self, series: Any) -> Words:
        return self._pandas(series), self.of(series.index), self.of_column(series)

    def _pandas(self, value: Any) -> Words:
        named = [(name, self.of(getattr(value, name, None))) for name in value._metadata]
        return self.of(value.attrs), str(value.flags.allows_duplicate_labels), tuple(named)

    def of_column(self, series: Any) -> Words:
        return self.of(series.name), self.of_values(series.array)

    def of_values(self, values: Any) -> Words:
        """An array of pandas."""
        more: Words = ()
        if hasattr(values, "categories"):
            more = self.of(values.categories), str(values.ordered), self.of_dtype(values.codes.dtype)
        elif hasattr(values, "sp_index"):
            more = name_of(type(values.sp_index)), repr(values.fill_value), self.of_dtype(values.sp_values.dtype)
        elif hasattr(values, "freq"):
            more = (str(values.freq),)
        if type(values).__name__ in ("PandasArray", "NumpyExtensionArray"):
            plain = values.to_numpy()
            items = self.all_of(list(values)) if plain.dtype.hasobject else _contents(plain)
            return name_of(type(values)), self.of_dtype(plain.dtype), items, more
        return name_of(type(values)), repr(values.dtype), name_of(type(values.dtype)), self.all_of(list(values)), more

    def of_index(self, index: Any) -> Words:
        names = self.of(list(index.names))
        if hasattr(index, "levels"):
            return names, self.all_of(index.levels), tuple([(str(codes.dtype), repr(codes.tolist())) for codes in index.codes])
        if hasattr(index, "step"):
            return names, repr(index), self.of_dtype(index.dtype)
        return names, self.of_values(index.array), str(getattr(index, "freqstr", None)), str(getattr(index, "closed", None))

    # --------------------------------------------------------------------------------------------- Arrow
    def of_arrow(self, value: Any) -> Words:
        import pyarrow

        if hasattr(value, "validate"):
            value.validate(full=True)
        if isinstance(value, (pyarrow.Table, pyarrow.RecordBatch)):
            return self.of_arrow(value.schema), str(value.num_rows), tuple([self.of_arrow(column) for column in value.columns])
        if isinstance(value, (pyarrow.Array, pyarrow.ChunkedArray)):
            return name_of(type(value)), self.of_arrow(value.type), repr(value.to_pylist())
        if isinstance(value, pyarrow.Schema):
            return tuple([self.of_arrow(field) for field in value]), repr(value.metadata)
        if isinstance(value, pyarrow.Field):
            return value.name, self.of_arrow(value.type), str(value.nullable), repr(value.metadata)
        if isinstance(value, pyarrow.Buffer):
            return (value.to_pybytes().hex(),)
        if isinstance(value, pyarrow.Scalar):
            return self.of_arrow(value.type), repr(value.as_py())
        return name_of(type(value)), str(value)

    # --------------------------------------------------------------------------------------------- SciPy
    def of_sparse(self, value: Any) -> Words:
        held = {name: each for name, each in vars(value).items() if not name.startswith("_has_")}  # found out by str(), among others
        return str(value.shape), tuple([(name, self.of(held[name])) for name in sorted(held)])

    # -------------------------------------------------------------------------------------------- polars
    def of_polars(self, value: Any) -> Words:
        columns = value.get_columns() if hasattr(value, "get_columns") else [value]
        flags = [{name: column.flags[name] for name in sorted(column.flags) if name.startswith("SORTED")} for column in columns]
        return tuple(
            [(column.name, repr(column.dtype), repr(column.to_list()), repr(flag)) for column, flag in zip(columns, flags, strict=True)]
        )


def _contents(array: Any) -> str:
    """Of an array without objects."""
    return repr(array.tolist()) if array.size < _MANY else hashlib.sha256(array.tobytes()).hexdigest()


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _reduced_types() -> tuple[type, ...]:
    """Types of the standard library of which the tests derive classes that hold more than their attributes."""
    import collections
    import datetime
    import decimal
    import fractions
    import pathlib
    import uuid

    times = datetime.date, datetime.timedelta, datetime.time, datetime.tzinfo
    return collections.deque, *times, decimal.Decimal, fractions.Fraction, pathlib.PurePath, uuid.UUID


def _is_dense(tensor: Any) -> bool:
    unit = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != unit:
                return False
            unit *= size
    return True


def _parts_of_layout(torch: Any, layout: Any) -> tuple[str, ...]:
    by_rows = layout in (torch.sparse_csr, torch.sparse_bsr)
    return ("crow_indices", "col_indices", "values") if by_rows else ("ccol_indices", "row_indices", "values")


@functools.cache
def _python_looks() -> dict[Any, Callable[[_Walk, Any], Words]]:
    looks: dict[Any, Callable[[_Walk, Any], Words]] = {
        type: _Walk.of_type,
        types.FunctionType: _Walk.of_function,
        types.MethodType: _Walk.of_method,
        types.BuiltinFunctionType: _Walk.of_builtin_function,
        types.ModuleType: lambda walk, module: (module.__name__,),
        (weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary): _Walk.of_weak,
    }
    return looks


_known: dict[Any, Callable[[_Walk, Any], Words]] = {}
_seen: set[str] = set()


def _looks() -> dict[Any, Callable[[_Walk, Any], Words]]:
    """How to look at a type and what derives from it, of what is imported."""
    if not _known:
        _known.update(_python_looks())
    for package, look in _PACKAGES.items():
        if package not in _seen and package in sys.modules:
            _seen.add(package)
            _known.update(look(sys.modules[package]))
    return _known


def _exact(kind: type) -> Any:
    """Of builtin types, no subclass: one may say of itself what it likes."""
    return type("Exactly", (type,), {"__instancecheck__": lambda _self, value: type(value) is kind})("Exactly", (), {})


_PACKAGES: dict[str, Callable[[Any], dict[Any, Callable[[_Walk, Any], Words]]]] = {
    "builtins": lambda _: {
        _exact(kind): functools.partial(lambda walk, value, kind: walk.builtin(value, kind), kind=kind) for kind in _BUILTIN
    },
    "numpy": lambda numpy: {
        numpy.ndarray: _Walk.of_array,
        numpy.generic: _Walk.of_number,
        numpy.dtype: _Walk.of_dtype,
    },
    "torch": lambda torch: {torch.Tensor: _Walk.of_tensor},
    "pandas": lambda pandas: {
        pandas.DataFrame: _Walk.of_frame,
        pandas.Series: _Walk.of_series,
        pandas.Index: _Walk.of_index,
        pandas.api.extensions.ExtensionArray: _Walk.of_values,
    },
    "pyarrow": lambda arrow: dict.fromkeys(
        (
            *(arrow.Table, arrow.RecordBatch, arrow.Array, arrow.ChunkedArray, arrow.Schema, arrow.Field, arrow.Buffer),
            *(arrow.Scalar, arrow.DataType),
        ),
        _Walk.of_arrow,
    ),
    "scipy.sparse": lambda sparse: {(sparse.spmatrix, getattr(sparse, "sparray", sparse.spmatrix)): _Walk.of_sparse},
    "polars": lambda polars: {(polars.DataFrame, polars.Series): _Walk.of_polars},
}
