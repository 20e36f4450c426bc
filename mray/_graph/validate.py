"""Pass: the DAG nodes a user wrote, checked and turned into a `Graph`. Pure.

Everything that can be wrong with a graph by itself is said here, in the words that programs for Ray match on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mray._api.dag_node import ClassMethodNode, DAGNode, FunctionNode, InputAttributeNode, InputNode, MultiOutputNode, find_nodes
from mray._graph.plan import INPUT, Argument, Graph, Source, Step


@dataclass(frozen=True)
class Validated:
    """A graph and what the plan itself does not carry."""

    graph: Graph
    #: actor id -> the constants among the arguments of its steps.
    constants: dict[str, list[Any]]
    #: actor id -> its handle; the compiled graph keeps them.
    handles: dict[str, Any]


def validate(root: DAGNode) -> Validated:
    """Check the graph that ends in `root`. Raises ValueError or NotImplementedError."""
    nodes = _connected(root)
    _check_kinds(nodes)
    input_node = _only_input(nodes)
    if isinstance(root, (InputNode, InputAttributeNode)):
        raise ValueError("Compiled DAGs must end in a method of an actor or in a MultiOutputNode, not in their input.")
    if isinstance(root, MultiOutputNode):
        outputs = list(root.get_args())
    else:
        outputs = [root]
    _check_arguments(nodes)
    _check_unused_attributes(root, input_node)
    _check_leaves(nodes, root)
    return _Builder(nodes, outputs, isinstance(root, MultiOutputNode)).build()


# ------------------------------------------------------------------------------------------- checks
def _connected(root: DAGNode) -> list[DAGNode]:
    nodes = []
    compiled: DAGNode | None = None
    for node in root._find_root().connected():
        if node._args_contain_nested_dag_node:
            _refuse_nested(node)
        if node.is_cgraph_output_node:
            if compiled is not None:
                raise ValueError(
                    f"The DAG was compiled more than once. The following two nodes call `experimental_compile`: (1) {compiled}, (2) {node}"
                )
            compiled = node
        nodes.append(node)
    return nodes


def _refuse_nested(node: DAGNode) -> None:
    for argument in node.get_args():
        if not isinstance(argument, DAGNode):
            found = find_nodes(argument)
            if found:
                raise ValueError(
                    f"Found {len(found)} DAGNodes from the arg {argument} in {node}. Please ensure that the argument is a single DAGNode "
                    "and that a DAGNode is not allowed to be placed inside any type of container."
                )


def _check_kinds(nodes: list[DAGNode]) -> None:
    for node in nodes:
        if isinstance(node, FunctionNode):
            raise NotImplementedError("Compiled DAGs currently only support actor method nodes")
        if not isinstance(node, (InputNode, InputAttributeNode, MultiOutputNode, ClassMethodNode)):
            raise ValueError(f"Found unsupported node of type {type(node)}")
        if isinstance(node, ClassMethodNode) and node.is_class_method_call and node._get_actor_handle() is None:
            raise ValueError("Compiled DAGs can only bind methods to an actor that is already created with Actor.remote()")


def _only_input(nodes: list[DAGNode]) -> InputNode:
    inputs = [node for node in nodes if isinstance(node, InputNode)]
    if not inputs:
        raise NotImplementedError("Compiled DAGs currently require exactly one InputNode")
    if len(inputs) > 1:
        raise ValueError("More than one InputNode found: each graph has exactly one.")
    return inputs[0]


def _check_arguments(nodes: list[DAGNode]) -> None:
    direct: bool | None = None
    for node in nodes:
        if find_nodes(list(node.get_kwargs().values())):
            raise ValueError("Compiled DAG currently does not support binding to other DAG nodes as kwargs")
        arguments = [argument for argument in node.get_args() if isinstance(argument, DAGNode)]
        if isinstance(node, ClassMethodNode) and not arguments:
            raise ValueError("Compiled DAGs require each task to take a ray.dag.InputNode or at least one other DAGNode as an input")
        for argument in arguments:
            if isinstance(argument, (InputNode, InputAttributeNode)):
                whole = isinstance(argument, InputNode)
                if direct is not None and direct != whole:
                    raise ValueError("All tasks must either use InputNode() directly, or they must index to specific args or kwargs.")
                direct = whole


def _check_unused_attributes(root: DAGNode, input_node: InputNode) -> None:
    used: set[int | str] = set()
    seen: set[DAGNode] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            if isinstance(node, InputAttributeNode):
                used.add(node.key)
            stack.extend(node._upstream_nodes)
    declared = list(input_node.input_attribute_nodes)
    unused = [key for key in declared if key not in used]
    if unused:
        raise ValueError(
            f"Compiled Graph expects input to be accessed using all of attributes {', '.join(map(str, declared))}, but "
            f"{', '.join(map(str, unused))} {'is' if len(unused) == 1 else 'are'} unused. "
            "Ensure all input attributes are used and contribute to the computation of the Compiled Graph output."
        )


def _check_leaves(nodes: list[DAGNode], root: DAGNode) -> None:
    # What an error in a leaf says would reach nobody.
    leaves = [node for node in nodes if isinstance(node, ClassMethodNode) and not node._downstream_nodes and node is not root]
    if leaves:
        raise ValueError(
            "Compiled DAG doesn't support leaf nodes, i.e., nodes that don't have downstream nodes and are not output nodes. There are "
            f"{len(leaves)} leaf nodes in the DAG. Please add the outputs of {[leaf.get_method_name() for leaf in leaves]} to the "
            "the MultiOutputNode."
        )


# ------------------------------------------------------------------------------------------- building
class _Builder:
    """Numbers the steps and turns arguments into sources and constants."""

    def __init__(self, nodes: list[DAGNode], outputs: list[Any], returns_list: bool) -> None:
        self._calls = [node for node in nodes if isinstance(node, ClassMethodNode) and node.is_class_method_call]
        self._numbers = {node: number for number, node in enumerate(self._calls)}
        self._outputs = outputs
        self._returns_list = returns_list
        self._constants: dict[str, list[Any]] = {}
        self._positions: set[int] = set()
        self._words: dict[str, None] = {}
        self._direct = False

    def build(self) -> Validated:
        handles = {}
        steps = []
        for number, node in enumerate(self._calls):
            handle = node._get_actor_handle()
            assert handle is not None
            actor = handle._id.hex()
            handles[actor] = handle
            self._constants.setdefault(actor, [])
            steps.append(
                Step(
                    index=number,
                    actor=actor,
                    method=node.get_method_name(),
                    bind_index=node._get_bind_index() or 0,
                    arguments=tuple(self._argument(actor, argument) for argument in node.get_args()),
                    keywords=tuple((word, self._argument(actor, argument)) for word, argument in node.get_kwargs().items()),
                    num_returns=node.num_returns,
                )
            )
        outputs = tuple(self._output(output) for output in self._outputs)
        positional = 1 if self._direct else max(self._positions, default=-1) + 1
        graph = Graph(tuple(steps), outputs, self._returns_list, positional, tuple(self._words), self._direct)
        return Validated(graph, self._constants, handles)

    def _output(self, node: Any) -> Argument:
        if not isinstance(node, DAGNode):
            raise ValueError(f"MultiOutputNode takes DAG nodes only, got {type(node)}.")
        return self._argument("", node)

    def _argument(self, actor: str, value: Any) -> Argument:
        if isinstance(value, InputNode):
            self._direct = True
            return Argument(INPUT)
        if isinstance(value, InputAttributeNode):
            if isinstance(value.key, int):
                self._positions.add(value.key)
            else:
                self._words[value.key] = None
            return Argument(INPUT, value.key)
        if isinstance(value, ClassMethodNode):
            if value.is_class_method_output:
                assert value.output_idx is not None
                return Argument(Source(self._numbers[value.class_method_call], value.output_idx))
            return Argument(Source(self._numbers[value]))
        constants = self._constants[actor]
        constants.append(value)
        return Argument(None, None, len(constants) - 1)
