"""Plain numpy arrays for the pickler: their memory, dtype and shape.

numpy's own reducer costs several times as much for small arrays. It remains for arrays that are not of numbers, have gaps, Fortran order
or no elements, and for subclasses.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import Any

#: Numeric dtypes by name, and back. (Native byte order.)
_names: dict[Any, str] = {}
_types: dict[str, Any] = {}


def array_type() -> Any:
    """Return ``numpy.ndarray`` and prepare the tables of dtypes."""
    import numpy  # noqa: PLC0415  (another thread may be importing it: this waits)

    if not _types:
        # Two C types of one size compare equal (long and long long): the name maps to the same one as in numpy's own pickle.
        types = {name: numpy.dtype(name) for name in (numpy.dtype(letter).str for letter in "?bBhHiIlLqQefdFD")}
        # Each table in one step, the tested one last: other threads read them, and a signal's handler may raise here.
        _names.update({dtype: name for name, dtype in types.items()})
        _types.update(types)
    return numpy.ndarray


def plain_arrays(values: Sequence[Any], least: int) -> list[int]:
    """The indices of plain arrays of at least `least` bytes."""
    if "numpy" not in sys.modules:
        return []
    kind = array_type()
    return [place for place, value in enumerate(values) if type(value) is kind and value.nbytes >= least and _name(value) is not None]


def _name(array: Any) -> str | None:
    dtype = array.dtype
    return _names.get(dtype) if dtype.metadata is None and array.flags.c_contiguous and array.size else None


def reduce_array(array: Any) -> Any:
    """Reduce an array; a plain one's memory goes out of band."""
    name = _name(array)
    if name is None:
        return array.__reduce_ex__(5)
    return restore_array, (pickle.PickleBuffer(array), name, array.shape)


def restore_array(memory: Any, name: str, shape: tuple[int, ...]) -> Any:
    """An array over this memory; read-only if the memory is."""
    import numpy  # noqa: PLC0415  (as above)

    dtype = _types.get(name)
    if dtype is None:
        array_type()
        dtype = _types[name]
    return numpy.frombuffer(memory, dtype).reshape(shape)
