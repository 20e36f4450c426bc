"""Attributes of the calling process and listings of the cluster, from Ray, with mray's names.

Only this module reads Ray's object of the process (`global_worker`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray._private import worker as ray_worker
from ray._private.state import actors as actor_table
from ray.util.placement_group import placement_group_table

from mray._backends.ray.counterparts import TABLES


def _binary(text: str | None) -> bytes | None:
    return bytes.fromhex(text) if text else None


class RuntimeInfo(dict[str, Any]):
    """Each attribute is fetched when read, since some cost Ray a round trip.

    Works after Ray was shut down: an exiting process asks whether it is a driver.
    """

    def __init__(self, mode: str, namespace: str) -> None:
        super().__init__(mode=mode)
        if ray.is_initialized():
            self["namespace"] = namespace
            self._askable = _IN_WORKERS if mode == "worker" else _ANYWHERE
        else:
            self._askable = {}

    def __missing__(self, name: str) -> Any:
        ask = self._askable.get(name)
        if ask is None:
            raise KeyError(name)
        found = self[name] = ask()
        return found

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


def _here() -> Any:
    return ray.get_runtime_context()


def in_worker() -> bool:
    return bool(ray_worker.global_worker.mode == ray.WORKER_MODE)


def pickles_in_band() -> bool:
    return bool(ray_worker.global_worker.get_serialization_context().is_in_band_serialization())


def cluster_and_job() -> Any:
    """The session of this process, as Ray's handles name it."""
    return ray_worker.global_worker.current_cluster_and_job


def node_here() -> Any:
    return ray_worker.global_worker.node


def _is_async() -> bool:
    return _here().get_actor_id() is not None and bool(ray_worker.global_worker.core_worker.current_actor_is_asyncio())


def _actor_class() -> Any:
    worker = ray_worker.global_worker
    instance = worker.actors.get(worker.actor_id)
    return None if instance is None else type(getattr(instance, "mray_instance", instance))


def _restarted() -> bool:
    actor_id = _here().get_actor_id()
    row = actor_table(actor_id) if actor_id is not None else None
    return bool(row and row["NumRestarts"])


_ANYWHERE: dict[str, Callable[[], Any]] = {
    "worker_id": lambda: _binary(_here().get_worker_id()),
    "actor_id": lambda: _binary(_here().get_actor_id()),
    "task_id": lambda: _binary(_here().get_task_id()),
    "gpu_ids": ray.get_gpu_ids,
    "accelerators": lambda: {kind: ids for kind, ids in _here().get_accelerator_ids().items() if kind != "GPU"},
    "placement_group_id": lambda: _binary(_here().get_placement_group_id()),
    "captures_children": lambda: _here().should_capture_child_tasks_in_placement_group,
    "runtime_env": lambda: dict(_here().runtime_env),
}
_IN_WORKERS: dict[str, Callable[[], Any]] = {
    **_ANYWHERE,
    "task_name": lambda: _here().get_task_name(),
    "function_name": lambda: _here().get_task_function_name(),
    "is_async": _is_async,
    "actor_name": lambda: _here().get_actor_name(),
    "actor_class": _actor_class,
    "class_name": lambda: getattr(_actor_class(), "__name__", None),
    "resources": lambda: _here().get_assigned_resources(),
    "restarted": _restarted,
    "canceled": lambda: _here().is_canceled(),
}


def _named_actors(all_namespaces: bool = False, namespace: str | None = None) -> list[dict[str, Any]]:
    found = ray.util.list_named_actors(all_namespaces=all_namespaces)
    return found if all_namespaces else [{"name": name, "namespace": namespace} for name in found]


def _placement_groups() -> list[dict[str, Any]]:
    rows = []
    for group_id, row in placement_group_table().items():
        bundles = row["bundles"]
        rows.append(
            {
                **row,
                "placement_group_id": bytes.fromhex(group_id),
                "impossible": row["stats"]["scheduling_state"] == "INFEASIBLE",
                "described": row,
                "bundles": [bundles[index] for index in sorted(bundles)] if isinstance(bundles, dict) else list(bundles),
            }
        )
    return rows


QUERIES: dict[str, Callable[..., Any]] = {
    "cluster_resources": ray.cluster_resources,
    "available_resources": ray.available_resources,
    "nodes": ray.nodes,
    "named_actors": _named_actors,
    "placement_groups": _placement_groups,
    **TABLES,
}
