"""``allreduce``, ``allgather`` and ``reducescatter``: bound into graphs, or called in a group of actors."""

from __future__ import annotations

from typing import Any

from mray._api.collective_node import AllGatherOp, AllReduceOp, ReduceScatterOp, bind_collective
from mray._api.communicator import Communicator, ReduceOp
from mray.util import collective

__all__ = ["allgather", "allreduce", "reducescatter"]


def _check_reduction(op: Any) -> None:
    if not isinstance(op, ReduceOp):
        raise ValueError(f"Unexpected operation: {op}")


class AllGatherWrapper:
    """Every member gets the tensors of all."""

    def bind(self, input_nodes: Any, transport: str | Communicator | None = None) -> list[Any]:
        """The results: all actors' tensors, concatenated along the first dimension.

        `input_nodes`: for each actor a DAG node that returns a torch tensor, all of the same shape and dtype; or a list of such lists,
        where the result is a list of nodes for each actor. `transport`: ``"accelerator"``, ``"cpu"`` or a `Communicator` of these
        actors. Raises ValueError when the inputs do not match.
        """
        return bind_collective(input_nodes, AllGatherOp(), transport)

    def __call__(self, tensor_list: Any, tensor: Any, group_name: str = "default") -> Any:
        """In each member of the group: gather the members' tensors into `tensor_list`; see `mray.util.collective.allgather`."""
        return collective.allgather(tensor_list, tensor, group_name)


class AllReduceWrapper:
    """Every member gets the reduction of the tensors of all."""

    def bind(self, input_nodes: Any, op: ReduceOp = ReduceOp.SUM, transport: str | Communicator | None = None) -> list[Any]:
        """The results: the elementwise reduction of all tensors; otherwise as `AllGatherWrapper.bind`."""
        _check_reduction(op)
        return bind_collective(input_nodes, AllReduceOp(op), transport)

    def __call__(self, tensor: Any, group_name: str = "default", op: Any = None) -> Any:
        """In each member of the group: reduce `tensor` in place; `op` is one of `mray.util.collective`, by default the sum."""
        return collective.allreduce(tensor, group_name, *_given(op))


class ReduceScatterWrapper:
    """Every member gets a part of the reduction of the tensors of all."""

    def bind(self, input_nodes: Any, op: ReduceOp = ReduceOp.SUM, transport: str | Communicator | None = None) -> list[Any]:
        """The results: actor r gets part r of the reduction along the first dimension; otherwise as `AllGatherWrapper.bind`."""
        _check_reduction(op)
        return bind_collective(input_nodes, ReduceScatterOp(op), transport)

    def __call__(self, tensor: Any, tensor_list: Any, group_name: str = "default", op: Any = None) -> Any:
        """In each member of the group: reduce the members' lists, of which this rank gets its own tensor."""
        return collective.reducescatter(tensor, tensor_list, group_name, *_given(op))


def _given(op: Any) -> tuple[Any, ...]:
    return () if op is None else (op,)


allgather = AllGatherWrapper()
allreduce = AllReduceWrapper()
reducescatter = ReduceScatterWrapper()
