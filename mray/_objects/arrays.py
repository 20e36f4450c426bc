"""Plain numpy arrays as the pickler sees them: their memory, their type of number and their shape.

numpy's own way says the same at several times the price: a small array takes longer to describe than to copy. Arrays of anything but
numbers, with gaps, in Fortran's order or without elements are left to it, and so are instances of derived classes.

Imports numpy where there is an array, and not before. (Loaded with the serializer: a process without descriptors loads nothing.)
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import Any

#: Types of numbers that are said by name, and back. (Of the machine's own byte order.)
_names: dict[Any, str] = {}
_types: dict[str, Any] = {}


def array_type() -> Any:
    """``numpy.ndarray``, after which arrays may be reduced and restored."""
    import numpy  # noqa: PLC0415  (another thread may be importing it: this waits)

    if not _types:
        for letter in "?bBhHiIlLqQefdFD":
            name = numpy.dtype(letter).str
            # Two C types may be one size (long and long long), and so equal: a name means the same one of them as in numpy's own pickle.
            _types[name] = numpy.dtype(name)
            _names[_types[name]] = name
    return numpy.ndarray


def plain_arrays(values: Sequence[Any], least: int) -> list[int]:
    """The places of arrays of so many bytes or more that are pickled as their memory and a few words."""
    if "numpy" not in sys.modules:
        return []
    kind = array_type()
    return [place for place, value in enumerate(values) if type(value) is kind and value.nbytes >= least and _name(value) is not None]


def _name(array: Any) -> str | None:
    """The name of the type of number of a plain array with elements; None for any other."""
    dtype = array.dtype
    return _names.get(dtype) if dtype.metadata is None and array.flags.c_contiguous and array.size else None


def reduce_array(array: Any) -> Any:
    """The reducer of ``numpy.ndarray``: its memory out of band, if it is a plain array."""
    name = _name(array)
    if name is None:
        return array.__reduce_ex__(5)
    return restore_array, (pickle.PickleBuffer(array), name, array.shape)


def restore_array(memory: Any, name: str, shape: tuple[int, ...]) -> Any:
    """The array in this memory; read-only if that is."""
    import numpy  # noqa: PLC0415  (as above)

    dtype = _types.get(name)
    if dtype is None:
        array_type()
        dtype = _types[name]
    return numpy.frombuffer(memory, dtype).reshape(shape)
