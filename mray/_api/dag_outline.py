"""The outline of a DAG node, for the code that shows it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mray._api.type_hint import ChannelOutputType
from mray._common.record import Record


class ActorOutline(Record):
    """The actor that runs a call: its id in hexadecimal (of the DAG node that creates it, where it does not exist yet), and its class."""

    key: str
    class_name: str
    exists: bool


class Outline(Record):
    """A summary of a DAG node: what it calls, the DAG nodes that it depends on, and the actor that runs it."""

    name: str
    upstream: tuple[Outlined, ...]
    #: Those whose values are its arguments.
    arguments: tuple[Outlined, ...]
    #: Ascending: a node's dependencies have smaller numbers.
    created: int
    #: The user's hint about its value.
    hint: ChannelOutputType
    #: Those that depend on it.
    users: tuple[Outlined, ...]
    actor: ActorOutline | None = None


class Outlined(Protocol):
    """An object that has an outline. The method's name is special, since all other names are methods of the actor, or parts of the
    input.
    """

    def __dag_outline__(self) -> Outline:
        """The node's outline."""


def outlines(root: Outlined) -> dict[Outlined, Outline]:
    """The DAG nodes that `root` depends on and itself, each after those that it depends on, with their outlines."""
    found = {root: root.__dag_outline__()}
    queue: list[Iterable[Outlined]] = [found[root].upstream]
    for upstream in queue:
        for node in upstream:
            if node not in found:
                found[node] = node.__dag_outline__()
                queue.append(found[node].upstream)
    return dict(sorted(found.items(), key=lambda item: item[1].created))
