"""``mray memory``: the users of shared memory, by process, and the largest objects."""

from __future__ import annotations

import argparse
from typing import Any

from mray._common.amounts import readable_bytes
from mray.cli.columns import counted
from mray.cli.terminal import DONE, add_format, add_session, parser, run_command, show
from mray.util.state.api import look
from mray.util.state.common import ObjectState, WorkerState

SUMMARY = "show who holds how much memory, and the largest objects"

_ORDERS = {"size": "object_size", "type": "reference_type", "pid": "pid"}
_PROCESS = ("pid", "worker_type", "shown_as", "pss_bytes", "rss_bytes", "object_store_bytes", "pooled_bytes", "spilled_bytes")
_OBJECT = ("object_id", "object_size", "storage", "reference_type", "task_status", "task_name", "type", "pid")


def main(words: list[str]) -> int:
    arguments = parser(
        "memory",
        SUMMARY,
        "Values above 100 KiB lie in shared memory; smaller ones are inline in the process that owns them. An object stays as long as any\n"
        "process has a row for it here. 'Pooled' memory is free, and kept for the next value of its size; 'spilled' lies on disk.",
    )
    arguments.add_argument("--sort-by", choices=sorted(_ORDERS), default="size", help="the order of the objects (default size)")
    arguments.add_argument("--limit", type=int, default=30, help="objects at most (default 30)")
    arguments.add_argument("--stats-only", action="store_true", help="only the processes")
    add_session(arguments)
    add_format(arguments)
    return run_command(arguments, words, _memory)


def _memory(given: argparse.Namespace) -> int:
    view = look(given.session, given.timeout)
    processes = [{name: row.get(name) for name in _PROCESS} for row in view.records(WorkerState) if row.is_alive]
    store = view.node["object_store_memory"]
    used = sum(row["object_store_bytes"] or 0 for row in processes)
    whole: dict[str, Any] = {
        "object_store_memory": store,
        "object_store_bytes": used,
        "on_disk_bytes": sum(row["spilled_bytes"] or 0 for row in processes),
        "spilled_bytes": view.node["spilled_bytes"],
        "spilled_objects": view.node["spilled_objects"],
        "processes": processes,
    }
    if not given.stats_only:
        if given.sort_by == "size":
            found, whole["total_objects"] = view.largest_objects(given.limit)
        else:
            found = sorted(view.records(ObjectState), key=lambda row: row[_ORDERS[given.sort_by]])
            whole["total_objects"] = len(found)
        whole["objects"] = [{name: row[name] for name in _OBJECT} for row in found[: given.limit]]
    if view.missing:
        whole["missing"] = view.missing
    if given.format != "table":
        show(whole, given.format)
        return DONE
    print(f"{readable_bytes(used)} of {readable_bytes(store)} of the object store are used")
    if whole["spilled_objects"]:
        count = counted(whole["spilled_objects"], "object")
        print(f"Spilled {readable_bytes(whole['spilled_bytes'])}, {count}; {readable_bytes(whole['on_disk_bytes'])} are on disk now")
    print()
    show([WorkerState.humanify(row) for row in processes], "table")
    if not given.stats_only:
        print(f"\n{len(whole['objects'])} of {whole['total_objects']} references:")
        show([ObjectState.humanify(row) for row in whole["objects"]], "table", "object_id")
    for text in view.missing:
        print(f"missing: {text}")
    return DONE
