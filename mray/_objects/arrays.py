"""Plain numpy arrays as the pickler sees them: their memory, their type of number and their shape.

numpy's own way says the same at several times the price: a small array takes longer to describe than to copy. Arrays of anything but
numbers, with gaps, in Fortran's order or without elements are left to it, and so are instances of derived classes.

Imports numpy: for processes that have an array, or get one.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy

array_type = numpy.ndarray
#: Types of numbers that are said by name, and back. (Of the machine's own byte order.)
_NAMES = {numpy.dtype(name): numpy.dtype(name).str for name in "?bBhHiIlLqQefdFD"}
_TYPES = {name: dtype for dtype, name in _NAMES.items()}


def reduce_array(array: Any) -> Any:
    """The reducer of ``numpy.ndarray``: its memory out of band, if it is a plain array."""
    dtype = array.dtype
    name = _NAMES.get(dtype)
    if name is None or dtype.metadata is not None or not array.flags.c_contiguous or not array.size:
        return array.__reduce_ex__(5)
    return restore_array, (pickle.PickleBuffer(array), name, array.shape)


def restore_array(memory: Any, name: str, shape: tuple[int, ...]) -> Any:
    """The array in this memory; read-only if that is."""
    return numpy.frombuffer(memory, _TYPES[name]).reshape(shape)
