"""Collectives: bound into graphs with ``allreduce.bind(...)``, and groups of actors outside of graphs.

In a graph the members are the actors whose methods are the inputs. Outside, `create_collective_group` makes actors a group, in which
they call `mray.util.collective`.
"""

from __future__ import annotations

from mray.experimental.collective.collective import (
    create_collective_group,
    destroy_all_collective_groups,
    destroy_collective_group,
    get_collective_groups,
)
from mray.experimental.collective.operations import allgather, allreduce, reducescatter

__all__ = [
    "allgather",
    "allreduce",
    "create_collective_group",
    "destroy_all_collective_groups",
    "destroy_collective_group",
    "get_collective_groups",
    "reducescatter",
]
