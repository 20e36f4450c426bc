"""The records of each kind, assembled from the rows of the node, the driver and the workers.

In the querying process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from mray._common import messages as m
from mray._common.invocations import short_name
from mray._inside.processes import IDLE_TITLE, shown_title
from mray._observe.observer import Interview
from mray._observe.process_snapshot import Sections
from mray.exceptions import describe_status
from mray.util.placement_group import scheduling_state
from mray.util.state._calls import calls, listed_calls, states_of
from mray.util.state._processes import gpu_memory, gpus, info_of, infos_of
from mray.util.state._select import Filter, matches, newest
from mray.util.state._view import Row, View, made, worker_id
from mray.util.state.common import (
    ActorState,
    ChannelState,
    GraphState,
    JobState,
    NodeState,
    ObjectState,
    PlacementGroupState,
    StateSchema,
    TaskState,
    WorkerState,
)

_Record = TypeVar("_Record", bound=StateSchema)
_ACTOR_STATES = {"pending": "PENDING_CREATION", "alive": "ALIVE", "restarting": "RESTARTING", "dead": "DEAD"}
#: Ray's words, by kind of cause.
_EXITS = {
    m.CAUSE_KILL: "INTENDED_USER_EXIT",
    m.CAUSE_EXIT: "INTENDED_USER_EXIT",
    m.CAUSE_SCOPE: "INTENDED_SYSTEM_EXIT",
    m.CAUSE_OWNER: "INTENDED_SYSTEM_EXIT",
    m.CAUSE_MEMORY: "NODE_OUT_OF_MEMORY",
    m.CAUSE_NODE: "INTENDED_SYSTEM_EXIT",
    m.CAUSE_GROUP: "INTENDED_SYSTEM_EXIT",
    m.CAUSE_INIT: "USER_ERROR",
    m.CAUSE_CRASH: "SYSTEM_ERROR",
}
#: Memory of a worker that has not joined yet.
_NO_MEMORY = {"object_store_bytes": 0, "pooled_bytes": 0, "spilled_bytes": 0}


class SessionView(View):
    """With all kinds of records."""

    def records(self, kind: type[_Record]) -> Iterator[_Record]:
        return _GATHER[kind](self)

    def listing(self, kind: type[_Record], filters: Sequence[Filter], limit: int) -> tuple[list[_Record], int]:
        """The records that pass, as `newest` orders and cuts them, and their number without a limit."""
        if kind is TaskState:
            return listed_calls(self, filters, limit)  # type: ignore[return-value]
        if kind is ObjectState and not filters:
            rows, total = _objects(self, limit)
            return newest(kind, rows, limit), total  # type: ignore[arg-type]
        found = [each for each in self.records(kind) if matches(each, filters)]
        return newest(kind, found, limit), len(found)

    def largest_objects(self, limit: int) -> tuple[list[ObjectState], int]:
        """The largest objects, and the number of all."""
        rows, total = _objects(self, limit, largest=True)
        return sorted(rows, key=lambda row: -row.object_size)[:limit], total


# ------------------------------------------------------------------------------------------------ actors
def actors(view: SessionView) -> Iterator[ActorState]:
    told = view.ask("work") if view.detail else {}
    for actor in view.node["actors"]:
        work = told.get(actor["process"], {}).get("work") or {}
        cause = actor["cause"]
        shown = work.get("repr") or ""
        yield made(
            ActorState,
            actor,
            actor_id=actor["actor_id"].hex(),
            state="DEPENDENCIES_UNREADY" if actor["announced"] else _ACTOR_STATES[actor["state"]],
            node_id=view.node_id if actor["pid"] else None,
            ray_namespace=actor["namespace"],
            serialized_runtime_env=json.dumps({"env_vars": actor["environment"]} if actor["environment"] else {}),
            death_cause=None if cause is None else dict(zip(("kind", "text", "pid", "status"), cause, strict=False)),
            placement_group_id=actor["placement_group_id"].hex() if actor["placement_group_id"] else None,
            repr_name="" if shown in ((own := short_name(actor["class_name"])), f"<{own}>") else shown,
            worker_id=worker_id(actor["process"]),
            owner_id=worker_id(actor["owner"]),
            current_task=_running_in(work),
            num_queued=work.get("queued", 0),
            num_finished=work.get("served", 0),
        )


# ----------------------------------------------------------------------------------------------- objects
def objects(view: SessionView) -> Iterator[ObjectState]:
    yield from _objects(view)[0]


def _objects(view: SessionView, limit: int | None = None, largest: bool = False) -> tuple[Iterator[ObjectState], int]:
    """Those of each process, at most `limit` of it: its first by id, or its largest; and how many there are in all."""
    asked: Sections = {"objects": {} if limit is None else {"limit": limit, "largest": largest}, "work": {}}
    with Interview(view.directory) as interview:
        told = view.question(interview, dict.fromkeys(view.processes, asked))
    total = sum(answers["objects"]["total"] for answers in told.values() if "objects" in answers)
    return _object_records(view, told, limit), total


def _object_records(view: SessionView, told: dict[str, dict[str, Any]], limit: int | None) -> Iterator[ObjectState]:
    rows = [each for answers in told.values() if "objects" in answers for each in answers["objects"]["rows"]]
    works = {process: answers.get("work") or {} for process, answers in told.items()}
    states = states_of(view, works, {each["object_id"][:24] for each in rows if each["pending"]})
    for process in view.in_order():
        role = view.processes[process]["role"].upper()
        for found in view.rows_of(told, process, "objects", limit):
            task_id = found["object_id"][:24]
            status = "FAILED" if found["failed"] else "FINISHED"
            if found["pending"]:
                status = states.get(task_id, "NIL")
            yield made(
                ObjectState,
                found,
                object_id=found["object_id"].hex(),
                task_status=status,
                attempt_number=1,
                call_site="disabled",
                type=role,
                pid=view.pids[process],
                ip=view.ip,
                owner_id=worker_id(found["owner"]),
            )


# ----------------------------------------------------------------------------------- workers, node, job
def workers(view: SessionView) -> Iterator[WorkerState]:
    records = {worker["process"]: worker for worker in view.node["workers"]}
    told = view.ask("work", "waits", "programs") if view.detail else {}
    actors = {actor["process"]: actor for actor in view.node["actors"] if actor["process"] and actor["state"] != "dead"}
    on_gpus = gpu_memory() if view.detail else {}
    pids = [*(known["pid"] for known in view.processes.values()), *(record["pid"] for record in records.values())]
    infos = infos_of(filter(None, dict.fromkeys(pids))) if view.detail else {}
    for process in dict.fromkeys([*view.in_order(), *records]):
        known, record, answers = view.processes.get(process), records.get(process, {}), told.get(process, {})
        pid = known["pid"] if known is not None else record["pid"]
        work, actor = answers.get("work") or {}, actors.get(process)
        runs = _running_in(work)
        # Its title shows the task of a worker that cannot answer; not where user code has set the title.
        if not work and view.detail and record.get("claimant") and actor is None and (title := shown_title(pid)) != IDLE_TITLE:
            runs = title
        task = f"task {runs}" if runs and record else ""
        role = m.ROLE_DRIVER if known is not None and known["role"] == m.ROLE_DRIVER else ""
        yield made(
            WorkerState,
            {"actor_id": "", "gpu_ids": [], "cpu_affinity": [], **_NO_MEMORY, **record, **(known or {})},
            worker_id=worker_id(process),
            is_alive=True,
            worker_type="DRIVER" if role else "WORKER",
            node_id=view.node_id,
            ip=view.ip,
            pid=pid,
            end_time_ms=0,
            state=_activity(record, actor, runs, bool(answers.get("programs"))),
            shown_as=_shown_as(actor["class_name"], actor["name"], actor["actor_id"].hex()) if actor is not None else task or role,
            occupant=short_name(actor["class_name"]) if actor is not None else task,
            name=actor["name"] if actor is not None else "",
            current_task=runs,
            num_queued=work.get("queued"),
            num_finished=work.get("served"),
            waits_for=list(_debts(view, answers)),
            waits_in_graphs=list(_edges_awaited(view, answers)),
            gpu_bytes=on_gpus.get(pid),
            **infos.get(pid, {}),
        )
    for dead in view.node["dead_workers"]:
        kind, text = dead["cause"] or (m.CAUSE_CRASH, "")
        how = "" if dead["status"] is None else f"it {describe_status(dead['status'])}"
        lived = dead.get("actor_id", "")
        yield WorkerState(
            worker_id=worker_id(dead["process"]),
            is_alive=False,
            worker_type="WORKER",
            exit_type="INTENDED_SYSTEM_EXIT" if text == "the worker had nothing to do" else _EXITS.get(kind, "SYSTEM_ERROR"),
            node_id=view.node_id,
            ip=view.ip,
            pid=dead["pid"],
            exit_detail="; ".join(filter(None, (text, how))),
            end_time_ms=int(dead["end"] * 1000),
            shown_as=_shown_as(dead["class_name"], dead["name"], lived) if lived else "",
            occupant=short_name(dead["class_name"]) if lived else "",
            name=dead["name"] if lived else "",
            actor_id=lived,
        )


def _shown_as(class_name: str, name: str, actor_id: str) -> str:
    own = short_name(class_name)
    return f"{name}: {own}" if name else f"{own}({actor_id[:8]})"


def _running_in(work: Row) -> str:
    """The call that has run for the longest, and how many others run."""
    names = [call[1] for call in work.get("running", ())]
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else "".join(names)


def _activity(record: Row, actor: Row | None, runs: str, in_graph: bool) -> str:
    if actor is not None and actor["state"] != "alive":
        return str(actor["state"])
    if actor is not None or record.get("state") == "busy":  # a worker may be leased between tasks
        return "busy" if runs else "graph" if in_graph else "idle"
    return str(record.get("state", ""))


def _debts(view: SessionView, answers: Row) -> Iterator[str]:
    for wait in answers.get("waits") or ():
        for debt in wait["on"]:
            actor, pid = view.names.get(debt["actor_id"].hex()), view.pids.get(debt["process"])
            where = f" of {actor}" if actor and not debt["task"].startswith(actor) else ""
            what = debt["task"] or f"object {debt['object_id'].hex()[:8]}"
            yield f"{what}{where}{f' (pid {pid})' if pid else ', which has no worker yet'}"
        if wait["count"] > len(wait["on"]):
            yield f"{wait['count'] - len(wait['on'])} more objects"


def _edges_awaited(view: SessionView, answers: Row) -> Iterator[str]:
    """The members of graphs whose values, or room, a process's actor waits for."""
    for program in answers.get("programs") or ():
        for each in program["waits_for"]:
            what = "room at" if program["awaits_room"] else "a value of"
            yield f"{what} {_actor_name(each, view.names) if each else 'the driver'} (graph {program['graph_id'][:8]})"


def nodes(view: SessionView) -> Iterator[NodeState]:
    info = view.node["info"]
    pid = view.node["node_pid"]
    used = sum(process["object_store_bytes"] for process in view.processes.values())
    # Room is not reserved: free is what is not used.
    free = {**view.node["available"], "object_store_memory": view.node["object_store_memory"] - used}
    yield NodeState(
        node_id=view.node_id,
        node_ip=view.ip,
        is_head_node=True,
        state="ALIVE",
        state_message=None,
        node_name=info["node_name"],
        resources_total=view.node["resources"],
        labels={"ray.io/node-id": view.node_id, **view.node["labels"]},
        start_time_ms=info_of(pid).get("start_time_ms"),
        end_time_ms=0,
        resources_available=free,
        pid=pid,
        object_store_bytes=used,
        gpus=gpus() if view.detail else [],
    )


def jobs(view: SessionView) -> Iterator[JobState]:
    for job in view.node["jobs"]:
        ended = bool(job["end"])
        yield made(
            JobState,
            job,
            type="DRIVER",
            status="RUNNING" if not ended else "SUCCEEDED" if job["left"] else "FAILED",
            message=None if not ended or job["left"] else "its driver has died without shutdown()",
            driver_info={"id": job["job_id"], "node_ip_address": view.ip, "pid": str(job["pid"])},
            start_time=(info_of(job["pid"]).get("start_time_ms") if not ended else None) or int(job["start"] * 1000),
            end_time=int(job["end"] * 1000) or None,
            session_dir=view.node["info"]["session_dir"],
        )


def placement_groups(view: SessionView) -> Iterator[PlacementGroupState]:
    for group in view.node["placement_groups"]:
        created = group["state"] == "CREATED"
        yield made(
            PlacementGroupState,
            group,
            placement_group_id=group["placement_group_id"].hex(),
            bundles=[
                {"bundle_id": index, "node_id": view.node_id if created else None, "unit_resources": bundle}
                for index, bundle in enumerate(group["bundles"])
            ],
            stats={"scheduling_state": scheduling_state(group), "reason": group["impossible"]},
        )


# ------------------------------------------------------------------------------------------------ graphs
def _actor_name(endpoint: str, names: dict[str, str]) -> str:
    if not endpoint:
        return "driver"
    return f"{names[endpoint]}({endpoint[:8]})" if names.get(endpoint) else endpoint


def graphs(view: SessionView) -> Iterator[GraphState]:
    for process, graph, programs in _graphs(view):
        names = graph["actors"]
        waits = []
        if graph["awaited"]:
            waits.append(f"driver for {' and '.join(_actor_name(each, names) for each in graph['waits_for']) or 'nothing'}")
        for program in programs:
            if program["waits_for"] and graph["submitted"] > graph["finished"]:
                waited = " and ".join(_actor_name(each, names) for each in program["waits_for"])
                waits.append(f"{_actor_name(program['actor'], names)} for {waited} ({program['kind']})")
            elif program["running"]:
                waits.append(f"{_actor_name(program['actor'], names)} computes {program['method']}()")
        yield made(
            GraphState,
            graph,
            pid=view.pids[process],
            actors={endpoint: name for endpoint, name in names.items() if endpoint},
            in_flight=graph["submitted"] - graph["finished"],
            waits="; ".join(waits),
            owner_id=worker_id(process),
            executions={program["actor"]: program["executions"] for program in programs},
            computing=[f"{names.get(each['actor']) or each['actor']}.{each['method']}" for each in programs if each["running"]],
        )


def _graphs(view: SessionView) -> Iterator[tuple[str, Row, list[Row]]]:
    """(compiling process, graph, programs)."""
    told = view.ask("graphs", "programs")
    programs: dict[str, list[Row]] = {}
    for answers in told.values():
        for program in answers.get("programs") or ():
            programs.setdefault(program["graph_id"], []).append(program)
    for process in view.in_order():
        for graph in told.get(process, {}).get("graphs") or ():
            yield process, graph, programs.get(graph["graph_id"], [])


def channels(view: SessionView) -> Iterator[ChannelState]:
    for _process, graph, programs in _graphs(view):
        names = graph["actors"]
        counters = {"": graph["counters"], **{program["actor"]: program["counters"] for program in programs}}
        waits = [("", graph["waits_on"])]
        if graph["submitted"] > graph["finished"]:
            waits += [(program["actor"], program["waits_on"]) for program in programs]
        for channel in graph["channels"]:
            counted = counters.get(channel["writer"], {}).get(channel["index"])
            yield made(
                ChannelState,
                channel,
                channel_id=f"{graph['graph_id']}:{channel['index']}",
                graph_id=graph["graph_id"],
                writer=_actor_name(channel["writer"], names),
                readers=[_actor_name(reader, names) for reader in channel["readers"]],
                written=(counted or {}).get("written"),
                waiting=(counted or {}).get("waiting"),
                awaited_by=[_actor_name(endpoint, names) for endpoint, channels in waits if channel["index"] in channels],
                counters=counted,
            )


_GATHER: dict[type[StateSchema], Callable[[SessionView], Iterator[Any]]] = {
    ActorState: actors,
    TaskState: calls,
    ObjectState: objects,
    WorkerState: workers,
    NodeState: nodes,
    JobState: jobs,
    PlacementGroupState: placement_groups,
    GraphState: graphs,
    ChannelState: channels,
}
