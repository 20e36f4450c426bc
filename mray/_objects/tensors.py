"""Torch tensors as plain memory, for the pickler and the channels.

A tensor travels as the bytes of its elements, not as its storage. Strides are preserved if they only permute dense memory (transposed,
channels last); tensors with gaps or repeats arrive dense. Tensors that are not plain memory (sparse, quantized, nested, other devices,
subclasses, with attributes, with freed or truncated memory) are left to torch's own pickling.

A GPU tensor is offered to the edge first (`mray._common.device_tensors`); otherwise it travels through host memory.
"""

from __future__ import annotations

import ctypes
import functools
import pickle
from collections.abc import Callable
from typing import Any

from mray._common.device_tensors import reduce_device_tensor
from mray._common.tensor_layout import REQUIRES_GRAD as REQUIRES_GRAD
from mray._common.tensor_layout import dense as dense
from mray._common.tensor_layout import has_memory


class TensorMemory:
    """Marks exporters of tensors' memory."""

    tensor: Any


@functools.lru_cache(256)
def _memory_type(length: int) -> Any:
    return type("TensorMemory", (ctypes.c_ubyte * length, TensorMemory), {})


def is_tensor_memory(exporter: object) -> bool:
    """Whether this is an exporter of `memory_of`."""
    return isinstance(exporter, TensorMemory)


def memory_of(tensor: Any) -> Any:
    """An exporter of the bytes of a tensor without gaps; keeps the tensor alive."""
    # Not tensor.numpy(), which needs numpy and supports neither bfloat16 nor float8.
    memory = _memory_type(tensor.nbytes).from_address(tensor.data_ptr())
    memory.tensor = tensor
    return memory


def is_plain(tensor: Any) -> bool:
    """Whether the tensor (of exactly torch's type) is plain CPU memory."""
    import torch  # noqa: PLC0415

    return tensor.is_cpu and tensor.layout is torch.strided and _is_simple(tensor)


def is_plain_on_gpu(tensor: Any) -> bool:
    """Whether the tensor (of exactly torch's type) is plain GPU memory."""
    import torch  # noqa: PLC0415

    return tensor.is_cuda and tensor.layout is torch.strided and _is_simple(tensor)


def _is_simple(tensor: Any) -> bool:
    return not tensor.is_quantized and not tensor.is_nested and not tensor.__dict__ and has_memory(tensor)


# ------------------------------------------------------------------------------------------ the pickler's
def reduce_tensor(tensor: Any) -> Any:
    """Reduce a plain tensor to the bytes of its elements, out of band, or by the edge if that carries GPU tensors; others by torch's
    method.
    """
    if tensor.requires_grad:
        return tensor.__reduce_ex__(5)
    if not is_plain(tensor):
        if not is_plain_on_gpu(tensor):
            return tensor.__reduce_ex__(5)
        return reduce_device_tensor(tensor) or (restore_on_gpu, (tensor.get_device(), *reduce_tensor(tensor.cpu())))
    tensor, strides = dense(tensor)
    shape = tuple(tensor.shape)
    if not tensor.numel():
        return restore_empty, (tensor.dtype, shape)
    return restore_tensor, (pickle.PickleBuffer(memory_of(tensor)), tensor.dtype, shape, strides)


def reduce_tensor_without_grad(tensor: Any) -> Any:
    """As `reduce_tensor`; raises RuntimeError if the tensor requires grad."""
    if tensor.requires_grad:
        raise RuntimeError(REQUIRES_GRAD)
    return reduce_tensor(tensor)


def restore_empty(dtype: Any, shape: tuple[int, ...]) -> Any:
    """A tensor without elements."""
    import torch  # noqa: PLC0415

    return torch.empty(shape, dtype=dtype)


def restore_tensor(buffer: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    """A tensor over these bytes, or over a copy of read-only ones: torch has no read-only tensors."""
    import torch  # noqa: PLC0415

    if memoryview(buffer).readonly:
        buffer = bytearray(buffer)
    return shaped(torch.frombuffer(buffer, dtype=dtype), shape, strides)


def restore_on_gpu(index: int, restore: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A tensor that came through host memory, on the GPU with its sender's index if this process has it, else on the current one.

    Raises RuntimeError if the process has no GPU.
    """
    import torch  # noqa: PLC0415

    count = torch.cuda.device_count()
    if not count:
        raise RuntimeError(
            f"This value holds a tensor of GPU {index} of the process that sent it, and this process has no GPU to put it on. Send "
            'tensor.cpu(), or say that it is wanted in host memory where a graph is built: with_tensor_transport(device="cpu").'
        )
    where = torch.device("cuda", index if index < count else torch.cuda.current_device())
    return restore(*arguments).to(where)


def shaped(flat: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Any:
    """A view of a flat dense tensor in this shape."""
    if strides is not None:
        return flat.as_strided(shape, strides)
    return flat if len(shape) == 1 else flat.view(shape)
