"""Tools built on the verbs: what ``ray.util`` has.

Rejected: importing everything here; rarely used tools are modules of their own.
"""

from __future__ import annotations

from mray.util import accelerators
from mray.util import rpdb as pdb
from mray.util._progress import progress
from mray.util._results import as_completed, get_node_instance_id, get_node_ip_address, list_named_actors, map_unordered
from mray.util.actor_pool import ActorPool
from mray.util.check_serialize import inspect_serializability
from mray.util.debug import disable_log_once_globally, enable_periodic_logging, log_once
from mray.util.placement_group import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from mray.util.serialization import deregister_serializer, register_serializer

__all__ = [
    "ActorPool",
    "accelerators",
    "as_completed",
    "deregister_serializer",
    "disable_log_once_globally",
    "enable_periodic_logging",
    "get_current_placement_group",
    "get_node_instance_id",
    "get_node_ip_address",
    "get_placement_group",
    "inspect_serializability",
    "list_named_actors",
    "log_once",
    "map_unordered",
    "pdb",
    "placement_group",
    "placement_group_table",
    "progress",
    "register_serializer",
    "remove_placement_group",
]
