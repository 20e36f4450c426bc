"""``ray._private.state``: the node, the resources and the jobs, in listings of an older form."""

from __future__ import annotations

from typing import Any

from mray import ActorID, JobID, PlacementGroupID, available_resources, cluster_resources, nodes
from mray.util import placement_group_table
from mray.util.state import list_actors

__all__ = [
    "actors",
    "available_resources_per_node",
    "current_node_id",
    "node_ids",
    "object_transfer_timeline",
    "state",
    "total_resources_per_node",
]


def node_ids() -> list[str]:
    """Names of resources, ``node:address``."""
    return [name for node in nodes() for name in node["Resources"] if name.startswith("node:") and name != "node:__internal_head__"]


def current_node_id() -> str:
    return node_ids()[0]


def available_resources_per_node() -> dict[str, dict[str, float]]:
    """Hex id of a node -> its free resources."""
    (node,) = nodes()
    return {node["NodeID"]: available_resources()}


def total_resources_per_node() -> dict[str, dict[str, Any]]:
    """Hex id of a node -> its resources."""
    return {node["NodeID"]: dict(node["Resources"]) for node in nodes()}


def actors(actor_id: str | None = None, job_id: JobID | None = None, actor_state_name: str | None = None) -> dict[str, Any]:
    """Hex id of an actor -> its row; with an id that row, empty when unknown."""
    (node,) = nodes()
    rows = {}
    for actor in list_actors(limit=10_000, detail=True, raise_on_missing_output=False):
        rows[actor.actor_id] = {
            "ActorID": actor.actor_id,
            "ActorClassName": actor.class_name,
            "IsDetached": actor.is_detached,
            "Name": actor.name,
            "JobID": actor.job_id,
            "Address": {"IPAddress": node["NodeManagerAddress"], "Port": 0, "NodeID": actor.node_id or ""},
            "State": actor.state,
            "NumRestarts": actor.num_restarts,
            "Pid": actor.pid,
        }
    if actor_id is not None:
        return rows.get(ActorID.from_hex(actor_id).hex(), {})
    wanted_job = None if job_id is None else job_id.hex()
    return {name: row for name, row in rows.items() if wanted_job in (None, row["JobID"]) and actor_state_name in (None, row["State"])}


def object_transfer_timeline(filename: str | None = None) -> list[dict[str, Any]] | None:
    """[], as there is one node; or None, with the JSON file `filename` written."""
    if filename is None:
        return []
    with open(filename, "w") as file:
        file.write("[]")
    return None


class GlobalState:
    """The functions of this module and of `mray`, as methods."""

    node_table = staticmethod(nodes)
    actor_table = staticmethod(actors)
    cluster_resources = staticmethod(cluster_resources)
    available_resources = staticmethod(available_resources)
    available_resources_per_node = staticmethod(available_resources_per_node)
    total_resources_per_node = staticmethod(total_resources_per_node)

    def placement_group_table(self, placement_group_id: PlacementGroupID | None = None) -> dict[str, Any]:
        """As `mray.util.placement_group_table`, by id."""
        table = placement_group_table()
        return table if placement_group_id is None else table.get(placement_group_id.hex(), {})

    def get_draining_nodes(self) -> dict[str, int]:
        return {}

    def get_cluster_config(self) -> None:
        """None: there is no autoscaler."""

    get_max_resources_from_cluster_config = get_cluster_config


state = GlobalState()
