"""The picture of a graph that is not compiled: DAG nodes as a `Figure`. Pure.

A node has the same number and colours as in the compiled graph. The creation of an actor (`ClassNode`) is a box, with dashed lines to
the calls that need it.
"""

from __future__ import annotations

from collections.abc import Mapping

from mray._api.collective_node import CollectiveOperation, CollectiveOutputNode
from mray._api.dag_calls import ClassMethodNode, ClassNode, FunctionNode
from mray._api.dag_node import InputAttributeNode, InputNode, MultiOutputNode
from mray._api.dag_outline import ATTRIBUTE, CALL, END, INPUT_KIND, RESULT, Outline, Outlined, in_order, outlines
from mray._api.type_hint import ChannelOutputType
from mray._picture.figure import MAKE, ORDER, PART, VALUE, Box, Edge, Figure, owners_of


def dag_figure(root: Outlined) -> Figure:
    """`root` and the DAG nodes that it depends on."""
    found = outlines(root)
    upstream = {node: [*dict.fromkeys((*outline.arguments, *outline.upstream))] for node, outline in found.items()}
    starts = sorted(found, key=lambda node: (not isinstance(node, InputNode), found[node].created))
    ordered = in_order(upstream, starts, lambda node: found[node].created, lambda _node: False)
    numbers = {node: number for number, node in enumerate(ordered)}
    meetings: dict[CollectiveOperation, int] = {}
    for node in numbers:
        if isinstance(node, CollectiveOutputNode) and node.collective_op is not None:
            meetings.setdefault(node.collective_op, len(meetings))
    names = {key: title for key, title in map(_owner, found.values()) if key}
    boxes = tuple(_box(node, found[node], number, meetings) for node, number in numbers.items())
    edges = tuple(_edge(source, node, numbers, found) for node in numbers for source in upstream[node])
    return Figure("dag", boxes, edges, owners_of(names.items()))


def _owner(outline: Outline) -> tuple[str, str]:
    actor = outline.actor
    if actor is None:
        return "", ""
    return actor.key, f"{actor.class_name} {actor.key[:6]}" if actor.exists else actor.class_name


def _box(node: Outlined, outline: Outline, number: int, meetings: Mapping[CollectiveOperation, int]) -> Box:
    owner, title = _owner(outline)
    if isinstance(node, InputNode):
        return Box(number, INPUT_KIND, "InputNode", lines=("InputNode",))
    if isinstance(node, InputAttributeNode):
        return Box(number, ATTRIBUTE, f"input[{node.key!r}]", lines=(f"InputAttributeNode[{node.key}]",))
    if isinstance(node, MultiOutputNode):
        return Box(number, END, "MultiOutputNode", lines=("MultiOutputNode",))
    if isinstance(node, ClassNode):
        return Box(number, MAKE, f"{title}()", "makes the actor", (f"Actor: {title}",), owner)
    if isinstance(node, ClassMethodNode) and node.is_class_method_output:
        of = f"of {node.class_method_call.get_method_name()}"
        return Box(number, RESULT, f"result {node.output_idx}", of, (f"ClassMethodOutputNode[{node.output_idx}]",))
    if isinstance(node, ClassMethodNode):
        actor = outline.actor
        id_line = [f"ID: {owner[:6]}..."] if actor is not None and actor.exists else []
        lines = (f"Actor: {actor.class_name if actor is not None else ''}", *id_line, f"Method: {outline.name}")
        meeting = node.collective_op if isinstance(node, CollectiveOutputNode) else None
        group = -1 if meeting is None else meetings[meeting]
        return Box(number, CALL, outline.name, title, lines, owner, group)
    if isinstance(node, FunctionNode):
        name = str(node.get_options().get("name") or outline.name)
        return Box(number, CALL, name, "function", (f"Function: {name}",))
    return Box(number, CALL, outline.name, lines=(outline.name,))


def _edge(source: Outlined, node: Outlined, numbers: Mapping[Outlined, int], found: Mapping[Outlined, Outline]) -> Edge:
    ends = numbers[source], numbers[node]
    if source not in found[node].arguments:
        return Edge(*ends, ORDER)
    if isinstance(node, InputAttributeNode) or (isinstance(node, ClassMethodNode) and node.is_class_method_output):
        return Edge(*ends, PART)
    hint = _hint(found[source].hint)
    return Edge(*ends, VALUE, hint, hint)


def _hint(hint: ChannelOutputType) -> tuple[str, ...]:
    if type(hint) is ChannelOutputType:
        return ()
    asked = getattr(hint, "mechanism", None) or getattr(hint, "transport", None)
    return (f"{type(hint).__name__} ({asked})",) if asked else (type(hint).__name__,)
