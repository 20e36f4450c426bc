"""The outline of a DAG node, for the code that shows it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from mray._api.type_hint import ChannelOutputType
from mray._common.record import Record

T = TypeVar("T")

#: The graph's input, a part of it, a call, one of several results of a call, the end of the graph.
INPUT_KIND, ATTRIBUTE, CALL, RESULT, END = "input", "attribute", "call", "result", "end"


class ActorOutline(Record):
    """The actor that runs a call: its id in hexadecimal (of the DAG node that creates it, where it does not exist yet), and its class."""

    key: str
    class_name: str
    exists: bool


class Outline(Record):
    """A summary of a DAG node: what it calls, the DAG nodes that it depends on, and the actor that runs it."""

    name: str
    upstream: tuple[Outlined, ...]
    arguments: tuple[Outlined, ...]
    #: Ascending: a node's dependencies have smaller numbers.
    created: int
    hint: ChannelOutputType
    users: tuple[Outlined, ...]
    actor: ActorOutline | None = None


class Outlined(Protocol):
    """An object that has an outline. Its method's name is special, since other names are methods of the actor, or parts of the input."""

    def __dag_outline__(self) -> Outline:
        """The node's outline."""


def outlines(root: Outlined) -> dict[Outlined, Outline]:
    """`root` and the DAG nodes that it depends on, each after those that it depends on, with their outlines."""
    found = {root: root.__dag_outline__()}
    queue: list[Iterable[Outlined]] = [found[root].upstream]
    for upstream in queue:
        for node in upstream:
            if node not in found:
                found[node] = node.__dag_outline__()
                queue.append(found[node].upstream)
    return dict(sorted(found.items(), key=lambda item: item[1].created))


def in_order(upstream: Mapping[T, Sequence[T]], starts: Iterable[T], bound: Callable[[T], Any], ends: Callable[[T], bool]) -> list[T]:
    """The nodes in the order of their numbers, which are Ray's: a number in a program for Ray means the same node.

    Breadth first from the input, downstream before upstream, in the order of binding.

    `upstream`: each node with the nodes it uses; `starts`: the first nodes, in order; `bound`: its position in binding; `ends`: whether
    the search ends at a node.
    """
    downstream: dict[T, list[T]] = {node: [] for node in upstream}
    for node in sorted(upstream, key=bound):
        for source in dict.fromkeys(upstream[node]):
            downstream[source].append(node)
    found: dict[T, None] = {}
    queue: list[T] = []
    for start in starts:
        queue.append(start)
        for node in queue:
            if node not in found:
                found[node] = None
                if not ends(node):
                    queue += [*downstream[node], *upstream[node]]
        queue.clear()
    return list(found)
