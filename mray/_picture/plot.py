"""A picture of the DAG nodes that a user wrote, compiled or not, for `mray.dag.plot`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from mray._api.dag_node import DAGNode, InputAttributeNode, InputNode, MultiOutputNode
from mray._api.dag_outline import Outline, Outlined, outlines
from mray._picture.graphviz import picture, quote


class Drawing:
    """DOT text of the nodes that a DAG node depends on and of the edges between them; the figure runs from left to right."""

    def __init__(self, root: DAGNode) -> None:
        found = outlines(root)
        nodes = _upwards(root, found)
        names = _names({node: _name(node, found[node]) for node in nodes})
        edges = [f"{quote(names[upstream])} -> {quote(names[node])};" for node in nodes for upstream in found[node].upstream]
        self._text = "\n".join(["digraph G {", "rankdir=LR;", *(edges or [f"{quote(names[root])};"]), "}", ""])

    def to_string(self) -> str:
        return self._text


def plot(dag: DAGNode, to_file: str | None = None) -> Any:
    """Draw the graph that ends in `dag` into a picture file; the suffix sets the format, by default PNG.

    Under IPython the picture is returned for display, and `to_file` may be omitted. Raises ImportError when the program ``dot`` is not
    installed, ValueError for a format that it does not know.
    """
    path = None if to_file is None else Path(to_file)
    made = picture(Drawing(dag).to_string(), path.suffix[1:] if path is not None and path.suffix else "png")
    if path is not None:
        path.write_bytes(made)
    # IPython has imported it if the program runs under IPython.
    display = sys.modules.get("IPython.display")
    if display is None:
        return None
    return display.Image(data=made) if path is None else display.Image(filename=str(path))


def _upwards(root: Outlined, found: Mapping[Outlined, Outline]) -> list[Outlined]:
    """`root` and the nodes that it depends on, each after those that it uses; depth first, arguments in order."""
    ordered: dict[Outlined, None] = {}
    stack = [(root, False)]
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            ordered[node] = None
        elif node not in ordered:
            stack.append((node, True))
            stack.extend((upstream, False) for upstream in reversed(found[node].upstream))
    return list(ordered)


def _names(plain_names: Mapping[Outlined, str]) -> dict[Outlined, str]:
    names: dict[Outlined, str] = {}
    taken: set[str] = set()
    for node, plain in plain_names.items():
        name = plain
        for number in count(1):
            if name not in taken:
                break
            name = f"{plain}_{number}"
        taken.add(name)
        names[node] = name
    return names


def _name(node: Outlined, outline: Outline) -> str:
    if isinstance(node, InputNode):
        return "INPUT_NODE"
    if isinstance(node, InputAttributeNode):
        return f"INPUT_ATTRIBUTE_NODE_{node.key}"
    if isinstance(node, MultiOutputNode):
        return "MultiOutputNode"
    given = node.get_options().get("name") if isinstance(node, DAGNode) else None
    return str(given) if given else outline.name
