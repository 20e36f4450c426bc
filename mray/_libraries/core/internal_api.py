"""``ray._private.internal_api``: what holds memory, as text."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mray._api.current import started_backend
from mray._api.verbs import cluster_resources
from mray._libraries.core.state import GlobalState, state
from mray._observe.process_snapshot import own_section
from mray.util.state import list_objects
from mray.util.state.common import ObjectState

__all__ = ["get_local_ongoing_lineage_reconstruction_tasks", "get_memory_info_reply", "get_state_from_address", "memory_summary"]

_COLUMNS = ("object_id", "object_size", "reference_type", "task_status", "pid", "type", "ip")
_ORDERS = {"OBJECT_SIZE": ("object_size", True), "PID": ("pid", False), "REFERENCE_TYPE": ("reference_type", False)}
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}


def memory_summary(
    address: str | None = None,
    group_by: str = "NODE_ADDRESS",
    sort_by: str = "OBJECT_SIZE",
    units: str = "B",
    line_wrap: bool = True,
    stats_only: bool = False,
    num_entries: int | None = None,
) -> str:
    """A line for each object and holder, and a line for shared memory; with `stats_only` only that. `group_by` has no effect.

    Raises ValueError for a `sort_by` or `units` that is none of Ray's.
    """
    if sort_by not in _ORDERS or units not in _UNITS:
        raise ValueError(f"sort_by is one of {list(_ORDERS)}, units one of {list(_UNITS)}; got {sort_by!r} and {units!r}.")
    name, reverse = _ORDERS[sort_by]
    objects: list[ObjectState] = sorted(
        list_objects(address, limit=10_000, detail=True, raise_on_missing_output=False),
        key=lambda each: getattr(each, name),
        reverse=reverse,
    )
    sizes = {each.object_id: each.object_size for each in objects if each.storage == "shared memory"}
    held = sum(sizes.values())
    part = round(100 * held / cluster_resources()["object_store_memory"], 2)
    lines = []
    if not stats_only:
        total = sum(each.object_size for each in objects) / _UNITS[units]
        lines = ["======== Object references status ========", f"{len(objects)} references, {total:g} {units}"]
        rows = [_COLUMNS, *(_row(each, _UNITS[units]) for each in objects[:num_entries])]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines.append("--- Aggregate object store stats across all nodes ---")
    lines.append(f"Plasma memory usage {held >> 20} MiB, {len(sizes)} objects, {part}% full, {part}% needed")
    return "\n".join(lines) + "\n"


def _row(each: ObjectState, unit: int) -> tuple[str, ...]:
    values = {name: getattr(each, name) for name in _COLUMNS}
    values["object_size"] = f"{each.object_size / unit:g}"
    return tuple(str(values[name]) for name in _COLUMNS)


def get_state_from_address(_address: str | None) -> GlobalState:
    return state


def get_memory_info_reply(
    _state: GlobalState, node_manager_address: str | None = None, node_manager_port: int | None = None, timeout_seconds: float = 60.0
) -> Any:
    """The spilled objects, as a message of Ray's."""
    from ray.core.generated.node_manager_pb2 import FormatGlobalMemoryInfoReply  # noqa: PLC0415  (of the installed Ray)

    reply = FormatGlobalMemoryInfoReply()
    reply.store_stats.spilled_bytes_total, reply.store_stats.spilled_objects_total = started_backend().query("spilled")
    return reply


def get_local_ongoing_lineage_reconstruction_tasks() -> list[tuple[Any, int]]:
    """The tasks of this process that run again because their values were lost, as messages of Ray's, with the number of equal ones."""
    from ray.core.generated.common_pb2 import LineageReconstructionTask, TaskStatus  # noqa: PLC0415  (of the installed Ray)

    tasks = own_section(started_backend().info()["session_dir"], "reconstructed") or []
    counted = Counter((name, state, tuple(sorted(labels.items()))) for name, state, labels in tasks)
    return [
        (LineageReconstructionTask(name=name, status=TaskStatus.Value(state), labels=dict(labels)), count)
        for (name, state, labels), count in counted.items()
    ]
