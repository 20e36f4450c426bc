"""Arrays as bytes without the pickler."""

from __future__ import annotations

import marshal
import pickle
from typing import Any

import numpy as np
import pytest

from mray._channel.array_form import PREFIX, decode_array, encode_array
from mray._channel.tensor_form import decode_tensor

ARRAYS = {
    **{
        name: np.arange(24).astype(name)
        for name in ("i1", "u2", ">i4", "<f4", "f8", "c16", "e", "?", "S5", "U3", "g", "q", "l", "Q", "L", "G")
    },
    "matrix": np.arange(24.0).reshape(4, 6),
    "fortran": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "one": np.array([7]),
    "scalar": np.array(2.5),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_arrays_come_back_as_they_were(array: Any) -> None:
    encoded = encode_array(array)
    assert encoded is not None
    head, memory = encoded
    assert len(head) % 64 == 0
    data = head + memory
    back = decode_array(data + b"more", len(data))
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype
    assert back.dtype.type is pickle.loads(pickle.dumps(array)).dtype.type
    assert back.shape == array.shape
    assert back.flags.f_contiguous == array.flags.f_contiguous
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
        back.flags.writeable = True


@pytest.mark.parametrize(
    "value",
    [
        [1],
        np.float64(1),
        np.array([object]),
        np.zeros(0),
        np.zeros((3, 4))[:, ::2],
        np.zeros(3, dtype=[("a", "i4")]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.ma.masked_array([1, 2]),
        np.zeros(2, dtype=np.dtype("f8", metadata={"a": 1})),
    ],
    ids=repr,
)
def test_other_values_are_left_to_the_serializer(value: Any) -> None:
    assert encode_array(value) is None


@pytest.mark.parametrize(
    "info", [("O", (3,), False), ("<f4", (0,), False), ("<f4", (3,), 1), (3, (3,), False)], ids=["dtype", "empty", "order", "name"]
)
def test_a_header_that_describes_no_array_is_refused(info: Any) -> None:
    header = marshal.dumps(info)
    with pytest.raises(ValueError, match="no array is"):
        decode_array(PREFIX.pack(64, len(header)) + header + bytes(128), 76)


@pytest.mark.parametrize("info", [("nn", (3,), None), ("float32", (0,), None), ("float32", (3,), (2,))], ids=["dtype", "empty", "reach"])
def test_a_header_that_describes_no_tensor_is_refused(info: Any) -> None:
    pytest.importorskip("torch")
    header = marshal.dumps(info)
    with pytest.raises(ValueError, match="no tensor is"):
        decode_tensor(bytearray(PREFIX.pack(64, len(header)) + header + bytes(128)))
