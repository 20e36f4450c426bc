"""The picture of a graph that is not compiled: DAG nodes as a `Figure`. Pure.

What a node is compiled to has the same number and the same colours. Unlike a compiled graph, it may make its actors itself (`ClassNode`);
those are boxes, too, with dashed lines to the calls that need them to be there.
"""

from __future__ import annotations

from mray._api.collective_node import CollectiveOperation, CollectiveOutputNode
from mray._api.dag_calls import ClassMethodNode, ClassNode, FunctionNode
from mray._api.dag_node import DAGNode, InputAttributeNode, InputNode, MultiOutputNode, find_nodes
from mray._api.type_hint import ChannelOutputType
from mray._graph.picture.figure import ATTRIBUTE, CALL, END, INPUT, MAKE, ORDER, PART, RESULT, VALUE, Box, Edge, Figure, owners_of
from mray._graph.picture.numbers import in_order


def dag_figure(root: DAGNode) -> Figure:
    """The DAG nodes that `root` depends on, and itself."""
    found = root._upstream_first()
    upstream = {node: _used(node) + [each for each in node._upstream_nodes if each not in _used(node)] for node in found}
    starts = sorted(found, key=lambda node: (not isinstance(node, InputNode), node._created))
    numbers = {node: number for number, node in enumerate(in_order(upstream, starts, lambda node: node._created, lambda _node: False))}
    meetings: dict[CollectiveOperation, int] = {}
    for node in numbers:
        if isinstance(node, CollectiveOutputNode) and node.collective_op is not None:
            meetings.setdefault(node.collective_op, len(meetings))
    names = {key: title for key, title in map(_owner, found) if key}
    boxes = tuple(_box(node, number, meetings) for node, number in numbers.items())
    edges = tuple(_edge(source, node, numbers) for node in numbers for source in upstream[node])
    return Figure("dag", boxes, edges, owners_of(names.items()))


def _used(node: DAGNode) -> list[DAGNode]:
    """The nodes whose values are this node's arguments."""
    if isinstance(node, InputAttributeNode):
        return list(node._upstream_nodes)
    return find_nodes([node.get_args(), node.get_kwargs()])


def _owner(node: DAGNode) -> tuple[str, str]:
    """Who runs a node: a key, and what to call it."""
    if isinstance(node, ClassMethodNode) and not node.is_class_method_output:
        handle = node._get_actor_handle()
        if handle is not None:
            return handle._id.hex(), f"{handle._blueprint.class_name} {handle._id.hex()[:6]}"
        return _owner(node._parent_class_node)
    if isinstance(node, ClassNode):
        return node.get_stable_uuid(), f"{node._body._blueprint.cls.__name__}"
    return "", ""


def _box(node: DAGNode, number: int, meetings: dict[CollectiveOperation, int]) -> Box:
    owner, whose = _owner(node)
    if isinstance(node, InputNode):
        return Box(number, INPUT, "InputNode", lines=("InputNode",))
    if isinstance(node, InputAttributeNode):
        return Box(number, ATTRIBUTE, f"input[{node.key!r}]", lines=(f"InputAttributeNode[{node.key}]",))
    if isinstance(node, MultiOutputNode):
        return Box(number, END, "MultiOutputNode", lines=("MultiOutputNode",))
    if isinstance(node, ClassNode):
        return Box(number, MAKE, f"{whose}()", "makes the actor", (f"Actor: {whose}",), owner)
    if isinstance(node, ClassMethodNode) and node.is_class_method_output:
        of = f"of {node.class_method_call.get_method_name()}"
        return Box(number, RESULT, f"result {node.output_idx}", of, (f"ClassMethodOutputNode[{node.output_idx}]",))
    if isinstance(node, ClassMethodNode):
        handle = node._get_actor_handle()
        lines = (f"Actor: {whose.rpartition(' ')[0] or whose}", *([f"ID: {owner[:6]}..."] if handle is not None else []))
        group = meetings[node.collective_op] if isinstance(node, CollectiveOutputNode) and node.collective_op in meetings else -1
        return Box(number, CALL, node.get_method_name(), whose, (*lines, f"Method: {node.get_method_name()}"), owner, group)
    if isinstance(node, FunctionNode):
        name = str(node.get_options().get("name") or node._body.__name__)
        return Box(number, CALL, name, "function", (f"Function: {name}",))
    return Box(number, CALL, type(node).__name__, lines=(type(node).__name__,))


def _edge(source: DAGNode, node: DAGNode, numbers: dict[DAGNode, int]) -> Edge:
    ends = numbers[source], numbers[node]
    if source not in _used(node):
        return Edge(*ends, ORDER)
    if isinstance(node, InputAttributeNode) or (isinstance(node, ClassMethodNode) and node.is_class_method_output):
        return Edge(*ends, PART)
    hint = _hint(source.type_hint)
    return Edge(*ends, VALUE, hint, hint)


def _hint(hint: ChannelOutputType) -> tuple[str, ...]:
    """What the user has said of a value, in a line; nothing otherwise."""
    if type(hint) is ChannelOutputType:
        return ()
    asked = getattr(hint, "mechanism", None) or getattr(hint, "transport", None)
    return (f"{type(hint).__name__} ({asked})",) if asked else (type(hint).__name__,)
