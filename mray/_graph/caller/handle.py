"""The handle by which a compiled graph crosses processes, inside arguments and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mray._api.current import current_backend
from mray._graph.caller.graph_limits import Limits
from mray._graph.plan import Plan


@dataclass(frozen=True)
class GraphHandle:
    """A compiled graph as other processes know it."""

    #: The process that compiled it.
    owner: str
    plan: Plan
    limits: Limits
    #: endpoint -> name of its actor's class, endpoint -> the actor's id, and endpoint -> process.
    names: Mapping[str, str]
    actors: Mapping[str, str]
    processes: Mapping[str, str]


def restore_graph(handle: GraphHandle) -> Any:
    """Unpickle a graph: the graph itself in its owner, elsewhere a `mray._graph.caller.copies.GraphCopy`."""
    return current_backend().restore_graph(handle)
