"""Torch tensors of the CPU as plain memory: what the pickler and the channels share.

A tensor travels as the bytes of its elements, never as its storage, of which it may be a small part. Strides are kept when they only
reorder dense memory (transposed, channels last); what has gaps or repeats arrives dense. What is not plain memory (sparse, quantized, other
devices, subclasses, tensors with attributes) is left to torch's own pickling.

torch is imported by who gets a tensor, and by nobody else: who sends one has it.
"""

from __future__ import annotations

import ctypes
import functools
import pickle
from typing import Any

REQUIRES_GRAD = (
    "A tensor that requires grad cannot travel along the edge of a compiled graph: the history of its computation stays behind, and its "
    "receiver could not propagate gradients through it. Send tensor.detach()."
)


class TensorMemory:
    """Marks exporters of tensors' memory."""

    tensor: Any


@functools.lru_cache(256)
def _memory_type(length: int) -> Any:
    return type("TensorMemory", (ctypes.c_ubyte * length, TensorMemory), {})


def is_tensor_memory(exporter: object) -> bool:
    """Whether this is what `memory_of` made."""
    return isinstance(exporter, TensorMemory)


def memory_of(tensor: Any) -> Any:
    """An exporter of the bytes of a tensor whose elements lie without gaps; keeps the tensor alive."""
    # Not tensor.numpy(), which needs numpy and knows neither bfloat16 nor float8.
    memory = _memory_type(tensor.nbytes).from_address(tensor.data_ptr())
    memory.tensor = tensor
    return memory


def is_plain(tensor: Any) -> bool:
    """Whether the tensor (of exactly torch's type) is plain memory of the CPU and nothing else."""
    import torch  # noqa: PLC0415

    return tensor.is_cpu and tensor.layout is torch.strided and not tensor.is_quantized and not tensor.__dict__


def dense(tensor: Any) -> tuple[Any, tuple[int, ...] | None]:
    """The same elements without gaps, and their strides unless they are in C order. Copies only what has gaps or repeats."""
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.is_contiguous():
        return tensor, None
    strides = tensor.stride()
    expected = 1
    for stride, size in sorted(zip(strides, tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return tensor.contiguous(), None
            expected *= size
    return tensor, tuple(strides)


# ------------------------------------------------------------------------------------------ the pickler's
def reduce_tensor(tensor: Any) -> Any:
    """A plain CPU tensor as the bytes of its elements, out of band; others torch's way."""
    if tensor.requires_grad or not is_plain(tensor):
        return tensor.__reduce_ex__(5)
    tensor, strides = dense(tensor)
    shape = tuple(tensor.shape)
    if not tensor.numel():
        return restore_empty, (tensor.dtype, shape)
    return restore_tensor, (pickle.PickleBuffer(memory_of(tensor)), tensor.dtype, shape, strides)


def reduce_tensor_without_grad(tensor: Any) -> Any:
    """`reduce_tensor`; raises RuntimeError if the tensor requires grad."""
    if tensor.requires_grad:
        raise RuntimeError(REQUIRES_GRAD)
    return reduce_tensor(tensor)


def restore_empty(dtype: Any, shape: tuple[int, ...]) -> Any:
    """A tensor without elements."""
    import torch  # noqa: PLC0415

    return torch.empty(shape, dtype=dtype)


def restore_tensor(buffer: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    """A tensor over these bytes, or over a copy of them if they may not be written to: torch has no read-only tensors."""
    import torch  # noqa: PLC0415

    if memoryview(buffer).readonly:
        buffer = bytearray(buffer)
    return shaped(torch.frombuffer(buffer, dtype=dtype), shape, strides)


def shaped(flat: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Any:
    """A view of a dense tensor of one dimension in this shape."""
    if strides is not None:
        return flat.as_strided(shape, strides)
    return flat if len(shape) == 1 else flat.view(shape)
