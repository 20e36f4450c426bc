"""Collectives in graphs: what `mray.experimental.collective` binds.

One `CollectiveOperation` stands for the collective; each participating actor has one `CollectiveOutputNode`, and more for its results
if it brings several tensors::

    inputs[0] = [a.f, b.f]   -->   CollectiveOutputNode(a.f, a.g)  -->  return_idx_0, return_idx_1     on actor a, rank 0
    inputs[1] = [a.g, b.g]         CollectiveOutputNode(b.f, b.g)  -->  return_idx_0, return_idx_1     on actor b, rank 1

Errors of the inputs are raised when they are bound. The nodes run in compiled graphs only: as ordinary calls they would wait for each
other in actors that run one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from mray._api.actor_handle import ActorHandle
from mray._api.communicator import Communicator, ReduceOp
from mray._api.dag_calls import ClassMethodNode, next_bind_index
from mray._api.dag_node import (
    BIND_INDEX_KEY,
    COLLECTIVE_OPERATION_KEY,
    IS_CLASS_METHOD_OUTPUT_KEY,
    PARENT_CLASS_NODE_KEY,
    DAGNode,
)
from mray._api.type_hint import TorchTensorType

__all__ = [
    "AllGatherOp",
    "AllReduceOp",
    "CollectiveOp",
    "CollectiveOperation",
    "CollectiveOutputNode",
    "ReduceScatterOp",
    "bind_collective",
]


class CollectiveOp:
    """The operation of a group."""

    @property
    def name(self) -> str:
        """The method of `Communicator`: ``"allgather"``, ``"allreduce"`` or ``"reducescatter"``."""
        return type(self).__name__.removesuffix("Op").lower()

    @property
    def reduction(self) -> ReduceOp | None:
        return getattr(self, "reduceOp", None)


@dataclass
class AllGatherOp(CollectiveOp):
    """Every member gets the tensors of all, concatenated along the first dimension."""


@dataclass
class AllReduceOp(CollectiveOp):
    """Every member gets the reduction of all tensors."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  (Ray's name)


@dataclass
class ReduceScatterOp(CollectiveOp):
    """Member r gets part r, along the first dimension, of the reduction of all tensors."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815  (Ray's name)


class CollectiveOperation:
    """One collective of a group of actors in each execution of a graph."""

    # Without `__dict__`: a scan for DAG nodes in a node's arguments must not find those of the other actors.
    __slots__ = ("__weakref__", "actor_handles", "inputs", "nodes", "op", "type_hint")

    def __init__(self, inputs: Sequence[Sequence[DAGNode]], op: CollectiveOp, transport: str | Communicator | None = None) -> None:
        """`inputs`: lists of DAG nodes, each with one of every actor, in the same order. Raises ValueError when they do not match."""
        #: Participants in the order of the inputs.
        self.actor_handles = _checked_actors(inputs)
        self.inputs = tuple(tuple(column) for column in inputs)
        self.op = op
        self.type_hint = TorchTensorType(TorchTensorType.ACCELERATOR if transport is None else transport, _direct_return=True)
        communicator = self.communicator
        if communicator is not None and set(communicator.get_actor_handles()) != set(self.actor_handles):
            raise ValueError("Expected actor handles to match the custom communicator group")
        #: Each actor's call, in the order of `actor_handles`.
        self.nodes: tuple[CollectiveOutputNode, ...] = ()

    @property
    def communicator(self) -> Communicator | None:
        """The communicator that the user demands; None leaves the choice."""
        return self.type_hint.get_custom_communicator()

    def __str__(self) -> str:
        return f"CollectiveOperation(_actor_handles={self.actor_handles}, _op={self.op}, _type_hint={self.type_hint})"

    __repr__ = __str__


class CollectiveOutputNode(ClassMethodNode):
    """One actor's part in a collective, or one of its several resulting tensors."""

    def __init__(
        self,
        method_name: str,
        method_args: Any,
        method_kwargs: dict[str, Any],
        method_options: dict[str, Any],
        other_args_to_resolve: dict[str, Any],
    ) -> None:
        #: None for one of several results, whose `class_method_call` has it.
        self.collective_op: CollectiveOperation | None = other_args_to_resolve.get(COLLECTIVE_OPERATION_KEY)
        if self.collective_op is None and not other_args_to_resolve.get(IS_CLASS_METHOD_OUTPUT_KEY, False):
            raise ValueError("Expected a collective operation")
        super().__init__(method_name, method_args, method_kwargs, method_options, other_args_to_resolve)

    def _copy_impl(self, args: Any, kwargs: dict[str, Any], options: dict[str, Any], others: dict[str, Any]) -> CollectiveOutputNode:
        return CollectiveOutputNode(self._method_name, args, kwargs, options, others)

    def _execute_impl(self, /, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("CollectiveOutputNode is only supported with dag.experimental_compile()")

    @property
    def num_returns(self) -> int:
        call = self.class_method_call or self
        return len(call.get_args())


# ----------------------------------------------------------------------------------------------- binding
def bind_collective(inputs: Any, op: CollectiveOp, transport: str | Communicator | None = None) -> list[Any]:
    """The results of a collective over `inputs`: a DAG node of each actor, or lists of them with one of each actor.

    Returns a node for each actor, in the order of the inputs; with several lists, a list of nodes for each actor, one for each list.
    Raises ValueError when the inputs do not match.
    """
    columns = _as_lists(inputs)
    operation = CollectiveOperation(columns, op, transport)
    name = op.name if op.reduction is None else f"{op.name}.{op.reduction}"
    calls = []
    for handle, row in zip(operation.actor_handles, zip(*columns, strict=True), strict=True):
        others = {PARENT_CLASS_NODE_KEY: handle, BIND_INDEX_KEY: next_bind_index(handle), COLLECTIVE_OPERATION_KEY: operation}
        calls.append(CollectiveOutputNode(name, row, {}, {}, others))
    operation.nodes = tuple(calls)
    return [call if len(columns) == 1 else _results_of(call, len(columns)) for call in calls]


def _results_of(call: CollectiveOutputNode, count: int) -> list[CollectiveOutputNode]:
    others = {
        BIND_INDEX_KEY: call.bind_index,
        IS_CLASS_METHOD_OUTPUT_KEY: True,
        PARENT_CLASS_NODE_KEY: call.actor_handle,
    }
    return [CollectiveOutputNode(f"return_idx_{index}", (call, index), {}, {}, dict(others)) for index in range(count)]


def _as_lists(inputs: Any) -> list[list[Any]]:
    if not isinstance(inputs, (list, tuple)):
        raise ValueError(f"Expected a list of DAG nodes, or a list of lists of them, but got {inputs!r}.")
    if not inputs:
        raise ValueError("Expected non-empty input list.")
    if isinstance(inputs[0], (list, tuple)):
        for column in inputs:
            if not isinstance(column, (list, tuple)):
                raise ValueError(f"Expected all inputs to be lists of DAG nodes, since the first one is, but got {column!r}.")
        return [list(column) for column in inputs]
    return [list(inputs)]


def _checked_actors(inputs: Sequence[Sequence[Any]]) -> list[ActorHandle]:
    """The actors of the inputs. Raises ValueError for the first error, with Ray's text."""
    first: list[ActorHandle] = []
    for index, column in enumerate(inputs):
        place = f" at list at index {index}" if len(inputs) > 1 else ""
        if not column:
            raise ValueError(f"Expected non-empty input list{f' at index {index}' if len(inputs) > 1 else ''}.")
        if not all(isinstance(node, DAGNode) for node in column):
            raise ValueError(f"Expected all input nodes to be DAGNode{place}, but got {list(column)}.")
        twice = list(_repeated(column))
        if twice:
            raise ValueError(f"Expected unique input nodes{place}, but found duplicates: {twice}")
        actors = [node.actor_handle if isinstance(node, ClassMethodNode) else None for node in column]
        if None in actors:
            raise ValueError(f"Expected an actor handle from the input node{place}")
        handles = [handle for handle in actors if handle is not None]
        if len(set(handles)) != len(handles):
            same = [node for node, handle in zip(column, handles, strict=True) if handles.count(handle) > 1]
            raise ValueError(f"Expected unique actor handles{place}, but found duplicate actor handles from input nodes: {same}")
        first = first or handles
        _check_against_first(index, handles, first)
    return first


def _check_against_first(index: int, handles: list[ActorHandle], first: list[ActorHandle]) -> None:
    if len(handles) != len(first):
        raise ValueError(
            f"Expected all input lists to have the same number of nodes. List at index 0 has length {len(first)}, but list at index "
            f"{index} has length {len(handles)}."
        )
    if set(handles) != set(first):
        raise ValueError(
            f"Expected all input lists to have the same set of actor handles. List at index 0 has actors {set(first)}, but list at index "
            f"{index} has actors {set(handles)}."
        )
    for position, (one, other) in enumerate(zip(first, handles, strict=True)):
        if one != other:
            raise ValueError(
                f"Expected all input lists to have the same order of actor handles. List at index 0 has actor {one} at position "
                f"{position}, but list at index {index} has actor {other} at position {position}."
            )


def _repeated(nodes: Sequence[DAGNode]) -> Iterator[DAGNode]:
    return (node for node in nodes if nodes.count(node) > 1)


# ------------------------------------------------------------------------------------------- whole graphs
def nodes_of_graph(root: DAGNode) -> list[DAGNode]:
    """The nodes connected with `root`, also by a collective: each after those that it uses.

    Raises ValueError when the graph, or a part of it, is compiled already.
    """
    found = dict.fromkeys(root.connected())
    queue = list(found)
    for node in queue:
        if isinstance(node, CollectiveOutputNode) and node.collective_op is not None:
            for other in node.collective_op.nodes:
                new = [each for each in other.connected() if each not in found]
                found.update(dict.fromkeys(new))
                queue.extend(new)
    nodes = sorted(found, key=lambda node: node.__dag_outline__().created)
    for node in nodes:
        if node is not root and node.is_cgraph_output_node:
            raise ValueError(
                f"The DAG was compiled more than once. The following two nodes call `experimental_compile`: (1) {node}, (2) {root}"
            )
    return nodes
