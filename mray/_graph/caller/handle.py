"""The handle by which a compiled graph crosses processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mray._api.current import current_backend
from mray._graph.caller.graph_limits import Limits
from mray._graph.plan import Plan


@dataclass(frozen=True)
class GraphHandle:
    owner: str
    plan: Plan
    limits: Limits
    #: Endpoint -> the class of its actor, the actor's id, the process.
    names: Mapping[str, str]
    actors: Mapping[str, str]
    processes: Mapping[str, str]


def restore_graph(handle: GraphHandle) -> Any:
    return current_backend().restore_graph(handle)
