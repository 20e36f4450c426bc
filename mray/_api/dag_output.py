"""`output`: tensors that a method of a compiled graph fills in the memory where the reader of its result expects them.

the actor's program                              the method                          the edge that carries its result
with_outputs(method, outputs): current ────────▶ output(shape, dtype) ─────────────▶ Outputs.take: memory of the next message
Outputs.returned(value, is_alone) ◀───────────── returns that tensor                 is sent in place, if it has no other holder
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol


class Outputs(Protocol):
    """Memory for the results of one step; see `mray._gpu.outputs`."""

    def take(self, shape: tuple[int, ...], dtype: str) -> Any:
        """An uninitialized tensor on the current device."""

    def returned(self, value: Any, *, is_alone: bool) -> None:
        """The method has returned this value; `is_alone`: nothing else refers to it."""


_current: ContextVar[Outputs | None] = ContextVar("outputs of the step that runs", default=None)


def output(shape: int | Sequence[int], dtype: Any = "float32") -> Any:
    """A tensor for a method of a compiled graph to fill and return: it crosses to another GPU process without a copy.

    It is uninitialized, on the current GPU, in C order. `dtype`: torch's, or its name. Fill it on the current stream. Other returned
    tensors are copied, and so is this one if it, or a view of it, has another holder.

    The memory is one of the edge's blocks (8 at most): a method can replay a CUDA graph that fills one, one for each ``data_ptr()``. It
    is an ordinary new tensor (on the CPU without a GPU) where there is no such edge: outside of compiled graphs, where the result has
    several readers or is used by its actor too, through pinned memory or NCCL, and the first time.

    Raises torch's OutOfMemoryError or MemoryError where the device is full.
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    name = str(dtype).removeprefix("torch.")
    outputs = _current.get()
    if outputs is not None:
        return outputs.take(sizes, name)
    import torch  # noqa: PLC0415  (an optional dependency)

    return torch.empty(sizes, dtype=getattr(torch, name), device="cuda" if torch.cuda.is_available() else "cpu")


def with_outputs(method: Callable[..., Any], outputs: Outputs) -> Callable[..., Any]:
    """The method, which may call `output`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        token = _current.set(outputs)
        try:
            value = method(*args, **kwargs)
        finally:
            _current.reset(token)
        is_alone = sys.getrefcount(value) <= _ALONE
        outputs.returned(value, is_alone=is_alone)
        return value

    return call


def _count_one() -> int:
    value = object()
    return sys.getrefcount(value)


#: Python's reference count of an object that only a variable of the asking frame refers to.
_ALONE = _count_one()
