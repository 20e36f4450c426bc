"""The state of the node's session as rows of builtin values, for observers.

One walk over the scheduler's records per query, on the node's one thread; between queries only dead workers are recorded. Values that
are columns in `mray.util.state.common` have the columns' names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, MappingProxyType
from typing import Any

from mray._common.causes import Cause
from mray._common.clock import time
from mray._common.kept import os, socket
from mray._common.places import frame_of
from mray._common.record import Record
from mray._decide.scheduler.records import ActorRecord, WorkerRecord
from mray._decide.scheduler.resources import FREE, to_quantities
from mray._decide.scheduler.scheduler import Scheduler
from mray._ipc.connection import ProtocolViolationError
from mray._ipc.table import BYTES, POOLED, SPILLED, SPILLED_EVER, SPILLED_OBJECTS
from mray._runtime.node.members import Members
from mray._runtime.node.records import NodeRecords
from mray._runtime.processes.object_counts import count_objects

#: Queries that an observer may send to the node.
QUERIES = ("snapshot", "stacks", "last calls", "newest last calls", "counts of last calls", "object counts", "written parts")


class View(Record):
    """The parts of a node that answers are built from."""

    info: Mapping[str, Any]
    scheduler: Scheduler
    records: NodeRecords
    zygote_pid: Callable[[], int]
    #: The code of the node's main loop: stacks omit frames above it.
    serving: CodeType


def answer(view: View, what: str, arguments: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """The answer to a query of an observer. Raises ProtocolViolationError for an unknown one."""
    if what == "snapshot":
        return snapshot(view)
    if what == "last calls":
        return view.records.last_calls.all()
    if what == "newest last calls":
        return view.records.last_calls.rows(**arguments)
    if what == "counts of last calls":
        return view.records.last_calls.counts(**arguments)
    if what == "written parts":
        return view.records.written.rows()
    if what == "object counts":
        return count_objects()
    if what == "stacks":
        import traceback  # noqa: PLC0415  (2 ms of the start of a node)

        return [("MainThread", "".join(traceback.format_stack(frame_of(view.serving, sys._getframe()))))]
    raise ProtocolViolationError(f"an observer cannot ask for {what!r}")


def describe_node(info: Mapping[str, Any]) -> dict[str, Any]:
    """This machine, as Ray lists it."""
    return {
        "NodeID": info["node_id"],
        "Alive": True,
        "alive": True,
        "NodeManagerAddress": info["node_ip_address"],
        "NodeManagerHostname": socket.gethostname(),
        "NodeManagerPort": 0,
        "ObjectManagerPort": 0,
        "ObjectStoreSocketName": "",
        "RayletSocketName": os.path.join(info["session_dir"], "node.sock"),
        "MetricsExportPort": 0,
        "MetricsAgentPort": 0,
        "DashboardAgentListenPort": 0,
        "RuntimeEnvAgentPort": 0,
        "NodeName": info["node_name"],
        "DeathReason": 0,
        "DeathReasonMessage": "",
        "Resources": info["resources"],
        "Labels": {"ray.io/node-id": info["node_id"], **info["labels"]},
    }


def snapshot(view: View) -> dict[str, Any]:
    """All rows of this moment."""
    scheduler, info = view.scheduler, view.info
    jobs = view.records.jobs.listing()
    own = None if info["persistent"] else next(iter(view.records.jobs.by_id.values()), None)
    return {
        "info": {name: info[name] for name in ("node_id", "node_name", "node_ip_address", "session_dir", "persistent", "versions")},
        "jobs": jobs,
        "session_name": info["session_name"],
        "labels": info["labels"],
        "object_store_memory": info["object_store_memory"],
        "spilled_bytes": view.records.members.total(SPILLED_EVER),
        "spilled_objects": view.records.members.total(SPILLED_OBJECTS),
        "node_pid": os.getpid(),
        #: 0 in a persistent session.
        "driver_pid": own.pid if own is not None else 0,
        "zygote_pid": view.zygote_pid(),
        "resources": scheduler.pool.quantities(),
        "available": scheduler.pool.available(),
        "actors": scheduler.actors.listing(dead=True),
        "workers": [_worker(worker) for worker in scheduler.workers.workers.values()],
        "dead_workers": list(view.records.dead_workers),
        "demands": [describe_demand(claimant) for claimant in scheduler.queue.waiting()],
        "placement_groups": scheduler.groups.listing(),
        "processes": list(_processes(view.records.members)),
    }


def _processes(members: Members) -> Iterable[dict[str, Any]]:
    for process, connection in members.connections.items():
        yield {
            "process": process,
            "role": connection.role,
            "pid": connection.pid,
            "object_store_bytes": members.word(process, BYTES),
            "pooled_bytes": members.word(process, POOLED),
            "spilled_bytes": members.word(process, SPILLED),
        }


def _worker(worker: WorkerRecord) -> dict[str, Any]:
    claimant = worker.claimant
    return {
        "process": worker.process,
        "pid": worker.pid,
        "state": worker.state,
        "claimant": claimant.label if claimant is not None else "",
        "actor_id": claimant.id.hex() if isinstance(claimant, ActorRecord) else "",
        "gpu_ids": [str(gpu) for gpu in worker.gpus or ()],
        "cpu_affinity": list(claimant.cpus) if claimant is not None else [],
    }


def dead_worker(worker: WorkerRecord | None, process: str, cause: Cause) -> dict[str, Any]:
    """The row of a worker that has just died, with the actor that lived in it."""
    intended, actor = (worker.intended, worker.actor) if worker is not None else (None, None)
    ends = list(intended) if intended is not None else None
    row = {"process": process, "pid": cause.pid, "status": cause.status, "cause": ends, "end": time()}
    if actor is not None:
        row |= {"actor_id": actor.id.hex(), "class_name": actor.spec.get("class_name") or actor.label, "name": actor.name or ""}
    return row


def describe_demand(claimant: Any) -> dict[str, Any]:
    """A row of ``demands``."""
    amounts = {name: units for name, units in claimant.needs_free.items() if name != FREE}
    return {"label": claimant.label, "resources": to_quantities(amounts), "client": claimant.client_process}
