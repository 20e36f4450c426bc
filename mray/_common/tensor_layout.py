"""The layout of a torch tensor: where its elements lie; for serializers and for devices alike. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REQUIRES_GRAD = (
    "A tensor that requires grad cannot travel along the edge of a compiled graph: the history of its computation stays behind, and its "
    "receiver could not propagate gradients through it. Send tensor.detach()."
)


def dense(tensor: Any) -> tuple[Any, tuple[int, ...] | None]:
    """The same elements without gaps, and their strides unless they are in C order. Copies only what has gaps or repeats."""
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.is_contiguous():
        return tensor, None
    strides = tensor.stride()
    return (tensor, tuple(strides)) if is_dense(tensor.shape, strides) else (tensor.contiguous(), None)


def is_dense(shape: Sequence[int], strides: Sequence[int], unit: int = 1) -> bool:
    """Whether the elements of a tensor lie without gaps and repeats, in whatever order. `unit`: the stride from one to the next."""
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != unit:
                return False
            unit *= size
    return True
