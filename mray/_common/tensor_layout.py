"""The layout of a torch tensor in memory, for serializers and devices alike. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REQUIRES_GRAD = (
    "A tensor that requires grad cannot travel along the edge of a compiled graph: the history of its computation stays behind, and its "
    "receiver could not propagate gradients through it. Send tensor.detach()."
)


FREED = (
    "This tensor has no memory: it was freed or truncated (as FSDP does with the parameters of layers that are not computing), or it is "
    "a tensor of zeros without storage (as forward-mode differentiation creates). Gather the parameters first, or send tensor.clone()."
)


def has_memory(tensor: Any) -> bool:
    """Whether all elements of a strided tensor lie in its storage. They must not be read where it was freed or cut."""
    count = tensor.numel()
    if not count:
        return True
    if not tensor.is_contiguous():
        count = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    unit = tensor.element_size()
    before = tensor.storage_offset() * unit
    # A storage of zeros without memory has a size.
    return bool(before + count * unit <= tensor.untyped_storage().nbytes()) and bool(tensor.data_ptr() != before)


def lies_dense(tensor: Any) -> bool:
    """Whether the elements have no gaps and overlaps, so that `dense` makes no copy."""
    if tensor.is_conj() or tensor.is_neg():
        return False
    return tensor.is_contiguous() or is_dense(tensor.shape, tensor.stride())


def dense(tensor: Any) -> tuple[Any, tuple[int, ...] | None]:
    """The same elements without gaps, and their strides unless in C order. Copies only if there are gaps or overlaps."""
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.is_contiguous():
        return tensor, None
    strides = tensor.stride()
    return (tensor, tuple(strides)) if is_dense(tensor.shape, strides) else (tensor.contiguous(), None)


def is_dense(shape: Sequence[int], strides: Sequence[int], unit: int = 1) -> bool:
    """Whether the elements have no gaps and overlaps, in any order. `unit`: the stride from one to the next."""
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != unit:
                return False
            unit *= size
    return True
