"""``ray._private.state``: the node, the resources and the jobs, as listings of an older form."""

from __future__ import annotations

from typing import Any

from mray import available_resources, cluster_resources, nodes, timeline

__all__ = [
    "available_resources",
    "available_resources_per_node",
    "cluster_resources",
    "current_node_id",
    "node_ids",
    "nodes",
    "timeline",
    "total_resources_per_node",
]


def node_ids() -> list[str]:
    """The resources that stand for the nodes, ``node:address``."""
    return [name for node in nodes() for name in node["Resources"] if name.startswith("node:") and name != "node:__internal_head__"]


def current_node_id() -> str:
    """The resource that stands for the node of this process."""
    return node_ids()[0]


def available_resources_per_node() -> dict[str, dict[str, float]]:
    """Hex id of each node to what is free of its resources."""
    (node,) = nodes()
    return {node["NodeID"]: available_resources()}


def total_resources_per_node() -> dict[str, dict[str, Any]]:
    """Hex id of each node to its resources."""
    return {node["NodeID"]: dict(node["Resources"]) for node in nodes()}
