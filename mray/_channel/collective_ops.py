"""The results of collectives: pure functions of the tensors of all ranks.

For torch tensors and numpy arrays; neither library is imported here.

*Order.* A reduction goes element by element and in rank order, however it is cut into parts: all ranks get the same bits.

*Arguments are never written to* and a result shares no memory with them: they may be views of a message with several readers.

    AllReduce      [a0, a1]  [b0, b1]  ->  [a0+b0, a1+b1]              on every rank
    AllGather      [a0, a1]  [b0, b1]  ->  [a0, a1, b0, b1]            on every rank
    ReduceScatter  [a0, a1]  [b0, b1]  ->  [a0+b0] on rank 0, [a1+b1] on rank 1
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mray._api.communicator import ReduceOp

if TYPE_CHECKING:
    from mray._api.communicator import Communicator

#: A part of this size stays in a core's cache while every rank's tensor is added to it.
BLOCK_BYTES = 256 * 1024

_FUNCTIONS = {
    "torch": {ReduceOp.SUM: "add", ReduceOp.AVG: "add", ReduceOp.PRODUCT: "mul", ReduceOp.MAX: "maximum", ReduceOp.MIN: "minimum"},
    "numpy": {ReduceOp.SUM: "add", ReduceOp.AVG: "add", ReduceOp.PRODUCT: "multiply", ReduceOp.MAX: "maximum", ReduceOp.MIN: "minimum"},
}


# ---------------------------------------------------------------------------------------- what is a tensor
def library_of(tensor: Any) -> str | None:
    """``"torch"``, ``"numpy"``, or ``"null"`` for arrays of null devices; else None."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return "torch"
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(tensor, numpy.ndarray):
        return "numpy"
    null = sys.modules.get("mray.testing.null_array")
    if null is not None and isinstance(tensor, null.NullArray):
        return "null"
    return None


def check_tensors(tensors: Sequence[Any]) -> str:
    """The library of all of them. Raises ValueError when one is no tensor, or they are of different libraries."""
    libraries = {library_of(tensor) for tensor in tensors}
    if len(libraries) != 1 or None in libraries:
        raise ValueError(f"Expected a torch tensor for each input node, but got {[type(tensor).__name__ for tensor in tensors]}")
    return libraries.pop()  # type: ignore[return-value]


def check_same_dtype(tensors: Sequence[Any]) -> None:
    """Raise ValueError when they differ."""
    if any(tensor.dtype != tensors[0].dtype for tensor in tensors):
        raise ValueError(f"Expected all input tensors to have the same dtype, but got {[tensor.dtype for tensor in tensors]}")


def check_same_shape(tensors: Sequence[Any]) -> None:
    """Raise ValueError when they differ."""
    if any(tensor.shape != tensors[0].shape for tensor in tensors):
        raise ValueError(f"Expected all input tensors to have the same shape, but got {[tuple(tensor.shape) for tensor in tensors]}")


def check_rows(tensor: Any) -> None:
    """Raise ValueError for a scalar."""
    if not tensor.shape:
        raise ValueError("Expected tensors with at least one dimension, but got a scalar")


def check_divisible(tensor: Any, world_size: int) -> None:
    """Raise ValueError when a tensor cannot be scattered in equal parts."""
    check_rows(tensor)
    if tensor.shape[0] % world_size:
        raise ValueError(
            f"Expected the first dimension of the input tensor to be divisible by the world size {world_size}, "
            f"but its shape is {tuple(tensor.shape)}"
        )


def _check_alike(tensors: Sequence[Any]) -> str:
    library = check_tensors(tensors)
    check_same_dtype(tensors)
    check_same_shape(tensors)
    return library


# ---------------------------------------------------------------------------------------- computing
def reduce_into(out: Any, tensors: Sequence[Any], op: ReduceOp) -> None:
    """Write the reduction of `tensors` (by rank) into `out`, which may only be the first of them.

    All are of one library, shape and dtype, without gradients. AVG of integers is rounded towards zero, as in NCCL; AVG of bool is SUM.
    """
    kind = library_of(out)
    name = "torch" if kind == "torch" else "numpy"  # which also computes on null devices
    library = sys.modules[name]
    function = getattr(library, _FUNCTIONS[name][op])
    on_host = kind == "numpy" or (kind == "torch" and out.device.type == "cpu")
    if on_host and len(tensors) > 2 and out.nbytes > BLOCK_BYTES and all(len(tensor.shape) == 1 for tensor in (out, *tensors)):
        step = BLOCK_BYTES // out.itemsize
        for start in range(0, out.shape[0], step):
            end = start + step
            _reduce_block(out[start:end], [tensor[start:end] for tensor in tensors], op, function, library)
    else:
        _reduce_block(out, tensors, op, function, library)


def _reduce_block(out: Any, tensors: Sequence[Any], op: ReduceOp, function: Any, library: Any) -> None:
    if len(tensors) == 1:
        out[...] = tensors[0]
    else:
        function(tensors[0], tensors[1], out=out)
        for tensor in tensors[2:]:
            function(out, tensor, out=out)
    if op is ReduceOp.AVG:
        _divide(out, len(tensors), library)


def _divide(out: Any, count: int, library: Any) -> None:
    if library.__name__ == "torch":
        if out.dtype != library.bool:
            exact = out.is_floating_point() or out.is_complex()
            library.div(out, count, rounding_mode=None if exact else "trunc", out=out)
    elif out.dtype.kind in "fc":
        library.divide(out, count, out=out)
    elif out.dtype.kind != "b":
        library.subtract(out, library.fmod(out, out.dtype.type(count)), out=out)  # exact for every value, including the least
        library.floor_divide(out, out.dtype.type(count), out=out)


def reduce(tensors: Sequence[Any], op: ReduceOp) -> Any:
    """The reduction of all ranks' tensors, as a new tensor. Raises ValueError when they differ in dtype or shape."""
    library = _check_alike(tensors)
    if library == "torch":
        tensors = _together(tensors)
    out = empty_like(tensors[0], tensors[0].shape)
    if out.nbytes > BLOCK_BYTES and all(is_contiguous(tensor) for tensor in tensors):
        reduce_into(out.reshape(-1), [tensor.reshape(-1) for tensor in tensors], op)
    else:
        reduce_into(out, tensors, op)
    return out


def _together(tensors: Sequence[Any]) -> list[Any]:
    device = tensors[0].device
    return [tensor.detach() if tensor.device == device else tensor.detach().to(device) for tensor in tensors]


def is_contiguous(tensor: Any) -> bool:
    """Whether elements lie in the order of their indices."""
    return bool(tensor.flags.c_contiguous if library_of(tensor) == "numpy" else tensor.is_contiguous())


def empty_like(tensor: Any, shape: Sequence[int]) -> Any:
    """A new contiguous tensor of this shape, otherwise like `tensor`."""
    if library_of(tensor) == "torch":
        return tensor.new_empty(tuple(shape))
    if library_of(tensor) == "null":
        return type(tensor).new(tensor.storage.heap, tensor.dtype, tuple(shape))
    return sys.modules["numpy"].empty(tuple(shape), tensor.dtype)


def gather(tensors: Sequence[Any]) -> Any:
    """All ranks' tensors concatenated along the first dimension, as a new tensor. Raises as `reduce`."""
    library = _check_alike(tensors)
    check_rows(tensors[0])
    if library == "torch":
        return sys.modules["torch"].cat(_together(tensors))
    if library == "null":
        rows = tensors[0].shape[0]
        out = empty_like(tensors[0], (rows * len(tensors), *tensors[0].shape[1:]))
        for rank, tensor in enumerate(tensors):
            out[rank * rows : (rank + 1) * rows] = tensor
        return out
    return sys.modules["numpy"].concatenate(list(tensors))


def scatter(tensor: Any, rank: int, world_size: int) -> Any:
    """Part `rank` of `world_size` equal parts along the first dimension, as a view. Raises ValueError if it cannot be cut."""
    check_divisible(tensor, world_size)
    rows = tensor.shape[0] // world_size
    return tensor[rank * rows : (rank + 1) * rows]


def reduce_scatter(tensors: Sequence[Any], op: ReduceOp, rank: int) -> Any:
    """Part `rank` of the reduction, as a new tensor; other parts are not computed. Raises as `reduce` and `scatter`."""
    _check_alike(tensors)
    return reduce([scatter(tensor, rank, len(tensors)) for tensor in tensors], op)


# ---------------------------------------------------------------------------------------- as steps of a graph
class Collective(ABC):
    """A collective as a step: called with the tensors of all ranks, it returns the result of the calling rank.

    With `width` w the arguments are the w tensors of rank 0, then those of rank 1, and so on, and the result is a tuple of w tensors;
    with width 1 it is a tensor. Picklable, compared by value.
    """

    width: int

    def __call__(self, *tensors: Any) -> Any:
        width = self.width
        if not tensors or len(tensors) % width:
            raise ValueError(f"Expected {width} tensors for each rank, but got {len(tensors)} in all")
        if width == 1:
            return self._one(tensors)
        self._check_together(tensors[:width])
        return tuple(self._one(tensors[position::width]) for position in range(width))

    def through(self, communicator: Communicator, *tensors: Any) -> Any:
        """The same over a communicator: called on every rank with its own `width` torch tensors; blocks as the communicator does."""
        self._check_together(tensors)
        results = tuple(self._exchange(communicator, tensor) for tensor in tensors)
        return results if self.width > 1 else results[0]

    @abstractmethod
    def _one(self, tensors: Sequence[Any]) -> Any:
        """The result for one tensor of each rank."""

    @abstractmethod
    def _exchange(self, communicator: Communicator, tensor: Any) -> Any:
        """The result for one tensor of this rank."""

    def _check_together(self, own: Sequence[Any]) -> None:
        check_tensors(own)


@dataclass(frozen=True)
class AllReduce(Collective):
    """The reduction of all tensors."""

    op: ReduceOp = ReduceOp.SUM
    width: int = 1

    def _one(self, tensors: Sequence[Any]) -> Any:
        return reduce(tensors, self.op)

    def _check_together(self, own: Sequence[Any]) -> None:
        check_tensors(own)
        check_same_dtype(own)

    def through(self, communicator: Communicator, *tensors: Any) -> Any:
        if self.width == 1 or library_of(tensors[0]) == "null":
            return super().through(communicator, *tensors)
        self._check_together(tensors)
        flat = sys.modules["torch"].cat([tensor.detach().reshape(-1) for tensor in tensors])
        communicator.allreduce(flat, flat, self.op)
        parts = flat.split([tensor.numel() for tensor in tensors])
        return tuple(part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True))

    def _exchange(self, communicator: Communicator, tensor: Any) -> Any:
        received = empty_like(tensor, tensor.shape)
        communicator.allreduce(tensor, received, self.op)
        return received


@dataclass(frozen=True)
class AllGather(Collective):
    """All tensors concatenated along the first dimension."""

    width: int = 1

    def _one(self, tensors: Sequence[Any]) -> Any:
        return gather(tensors)

    def _exchange(self, communicator: Communicator, tensor: Any) -> Any:
        check_rows(tensor)
        received = empty_like(tensor, (tensor.shape[0] * communicator.get_world_size(), *tensor.shape[1:]))
        communicator.allgather(tensor, received)
        return received


@dataclass(frozen=True)
class ReduceScatter(Collective):
    """Part `rank` of the reduction of all tensors."""

    op: ReduceOp = ReduceOp.SUM
    rank: int = 0
    width: int = 1

    def _one(self, tensors: Sequence[Any]) -> Any:
        return reduce_scatter(tensors, self.op, self.rank)

    def _exchange(self, communicator: Communicator, tensor: Any) -> Any:
        world_size = communicator.get_world_size()
        check_divisible(tensor, world_size)
        received = empty_like(tensor, (tensor.shape[0] // world_size, *tensor.shape[1:]))
        communicator.reducescatter(tensor, received, self.op)
        return received
