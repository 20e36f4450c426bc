"""Plain torch tensors as bytes, without the pickler; the layout is that of `mray._channel.array_form`.

    TENSOR = u32 offset of the memory, u32 length of the header, header (dtype, shape, strides), padding, memory

Exact `torch.Tensor` only, on the CPU, strided; everything else goes through the serializer.

torch has no read-only tensors. A received tensor is its reader's own: it lies in a copy-on-write mapping of the slot
(`mray._ipc.mapped`). A reader that writes pays a fault for each page, so a reader that has written gets copies for a while, then a
mapping again. Rejected: a copy for each of several readers (few of them write), and write protection (only a crash would enforce it).
"""

from __future__ import annotations

import sys
from typing import Any

from mray._channel.array_form import MOST_REMEMBERED, PREFIX, heads, number_of_elements, remember_head
from mray._ipc.frames import decode
from mray._objects.tensors import REQUIRES_GRAD, dense, is_plain, memory_of, shaped

#: Header -> dtype, shape, strides, number of elements.
_info: dict[bytes, tuple[Any, tuple[int, ...], tuple[int, ...] | None, int]] = {}


def encode_tensor(value: Any) -> tuple[bytes, memoryview] | None:
    """The header of a tensor's memory, and the memory as bytes; None if the serializer must carry it.

    Raises RuntimeError when the tensor requires grad.
    """
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor:
        return None
    if value.requires_grad:
        raise RuntimeError(REQUIRES_GRAD)
    if not is_plain(value):
        return None
    if not value.nbytes:
        return None
    value, strides = dense(value)
    key = (value.dtype, value.shape, strides)
    head = heads.get(key) or remember_head(key, (str(value.dtype).removeprefix("torch."), tuple(value.shape), strides))
    return head, memoryview(memory_of(value)).cast("B")


def decode_tensor(source: Any, memory: Any = None, start: int = 0) -> Any:
    """The tensor whose header begins `source`; its memory follows there, or lies in `memory` from `start` on. It keeps that alive.

    The memory must be writable, and the reader's own.
    """
    begin, size = PREFIX.unpack_from(source)
    info = bytes(memoryview(source)[PREFIX.size : PREFIX.size + size])
    dtype, shape, strides, count = _info.get(info) or _remember(info)
    import torch  # noqa: PLC0415

    if memory is None:
        flat = torch.frombuffer(source, dtype=dtype, count=count, offset=begin)
    else:
        flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=start)
    return shaped(flat, shape, strides)


def _remember(info: bytes) -> tuple[Any, tuple[int, ...], tuple[int, ...] | None, int]:
    import torch  # noqa: PLC0415

    name, shape, strides = of_tensor = decode(info)
    dtype = getattr(torch, name) if isinstance(name, str) else None
    count = number_of_elements(shape)
    # A dense tensor's strides order its dimensions; they reach no further than its elements.
    reach = 0 if strides is None else sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if strides is not None:
        number_of_elements(strides)
    if not isinstance(dtype, torch.dtype) or not 0 <= reach < count:
        raise ValueError(f"no tensor is {of_tensor!r:.200}")
    if len(_info) >= MOST_REMEMBERED:
        _info.clear()
    known = _info[info] = dtype, shape, strides, count
    return known
