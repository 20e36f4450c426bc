"""The records of each kind, assembled from the rows of the node, the driver and the workers.

In the querying process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mray._common import messages as m
from mray._common.causes import EXIT_ACTOR
from mray._common.clock import perf_counter, time
from mray._common.ids import JOB_SIZE, NO_ACTOR, is_from, worker_id_of
from mray._common.invocations import short_name
from mray._inside.processes import IDLE_TITLE, shown_title
from mray._observe.observer import ask_node, ask_processes
from mray.exceptions import describe_status
from mray.util.placement_group import scheduling_state
from mray.util.state._processes import gpu_memory, gpus, info_of
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
Row = dict[str, Any]

_ACTOR_STATES = {"pending": "PENDING_CREATION", "alive": "ALIVE", "restarting": "RESTARTING", "dead": "DEAD"}
_CREATION_STATES = {"pending": "PENDING_NODE_ASSIGNMENT", "alive": "FINISHED", "restarting": "PENDING_NODE_ASSIGNMENT", "dead": "FINISHED"}
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
_CREATION_ERRORS = {m.CAUSE_INIT: "TASK_EXECUTION_EXCEPTION", m.CAUSE_REFUSED: "ACTOR_UNSCHEDULABLE_ERROR"}
#: Memory of a worker that has not joined yet.
_NO_MEMORY = {"object_store_bytes": 0, "pooled_bytes": 0, "spilled_bytes": 0}
_DRIVER_TASK = (b"\xff" * 8 + NO_ACTOR).hex()


@dataclass
class SessionView:
    """The node's snapshot, and the answers of its processes when asked."""

    directory: str
    timeout: float
    detail: bool = True
    #: A text for each process that did not answer.
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.node: dict[str, Any] = ask_node(self.directory, "snapshot", self.timeout)
        self.processes: dict[str, Row] = {process["process"]: process for process in self.node["processes"]}
        #: Pids by process, also of ended ones.
        self.pids = {dead["process"]: dead["pid"] for dead in self.node["dead_workers"]}
        self.pids.update({process: row["pid"] for process, row in self.processes.items()})
        info = self.node["info"]
        self.node_id: str = info["node_id"]
        self.ip: str = info["node_ip_address"]
        #: Actor id -> its name, or else its class's.
        self.names = {actor["actor_id"].hex(): actor["name"] or short_name(actor["class_name"]) for actor in self.node["actors"]}
        self._asked: set[str] = set()
        self._told: dict[str, dict[str, Any]] = {}
        self._silent: dict[str, str] = {}

    def ask(self, *sections: str) -> dict[str, dict[str, Any]]:
        """process -> section -> its answer; without those that did not answer. Asked once by each view."""
        new = [section for section in sections if section not in self._asked]
        self._asked.update(new)
        well = [process for process in self.processes if process not in self._silent] if new else ()
        for process, answers in ask_processes(self.directory, well, new, self.timeout).items():
            if isinstance(answers, str):
                self._silent[process] = answers
                if answers != "has ended":  # it has no rows
                    self.missing.append(f"the {self.processes[process]['role']} of pid {self.pids[process]} {answers}")
                continue
            for section, (done, rows) in answers.items():
                if done:
                    self._told.setdefault(process, {})[section] = rows
                else:
                    self.missing.append(f"{section} of pid {self.pids[process]}: {rows}")
        return self._told

    def ask_one(self, process: str, section: str) -> Any:
        """A text if it does not answer."""
        if process in self._silent:
            return self._silent[process]
        answers = ask_processes(self.directory, [process], [section], self.timeout)[process]
        return answers if isinstance(answers, str) else answers[section][1]

    def rows_of(self, told: dict[str, dict[str, Any]], process: str, section: str) -> list[Row]:
        found = told.get(process, {}).get(section) or {"total": 0, "rows": []}
        if found["total"] > len(found["rows"]):
            self.notes.append(f"pid {self.pids[process]} has {found['total']} {section} and tells of {len(found['rows'])}")
        return found["rows"]  # type: ignore[no-any-return]

    def records(self, kind: type[_Record]) -> Iterator[_Record]:
        return _GATHER[kind](self)

    def in_order(self) -> list[str]:
        return sorted(self.processes, key=lambda process: self.processes[process]["role"] != m.ROLE_DRIVER)


def made(record: type[_Record], row: Row, **values: Any) -> _Record:
    columns = record.__dataclass_fields__
    return record(**{**{name: value for name, value in row.items() if name in columns}, **values})


def worker_id(process: str) -> str:
    """A process's id for users; empty for none."""
    return worker_id_of(process).hex() if process else ""


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
            current_task=work.get("task", ""),
            num_queued=work.get("queued", 0),
            num_finished=work.get("served", 0),
        )


# ------------------------------------------------------------------------------------------------- tasks
def tasks(view: SessionView) -> Iterator[TaskState]:
    told = view.ask("calls", "work", "failed", "ids", "made")
    works = {process: answers.get("work") or {} for process, answers in told.items()}
    running = {task_id for work in works.values() for task_id in _running(work)}
    # A worker that leaves in order sends the node its finished calls.
    epoch = time() - perf_counter()
    last = ask_node(view.directory, "last calls", view.timeout)
    over = {task_id: (begin + epoch, end + epoch) for _pid, _worker, task_id, _name, begin, end, _resources in last}
    over.update({task_id: (begin, end) for work in works.values() for task_id, _name, begin, end, _resources in work.get("recent", ())})
    made = {task_id: (process, parent or b"") for process, answers in told.items() for task_id, parent in answers.get("made") or ()}
    seen: set[bytes] = set()
    for process in view.in_order():
        for call in view.rows_of(told, process, "calls"):
            if not call["creation"]:
                seen.add(call["task_id"])
                work, now = works.get(call["process"], {}), {}
                if call["task_id"] in running:
                    now = {"name": _shown_name(call["name"], call["func_or_class_name"], work), "state": "RUNNING"}
                elif call["state"] == "SUBMITTED_TO_WORKER" and work.get("groups"):
                    now = {"state": "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY"}
                yield _task(view, call, call["process"], process, waits_for=[each.hex() for each in call["waits_for"]], **now)
    for process, answers in told.items():
        for failed in answers.get("failed") or ():
            task_id = failed["task_id"]
            if task_id not in seen:
                seen.add(task_id)
                times = over.get(task_id)
                work = works.get(failed["process"], {}) if times is not None else {}
                name = _shown_name(failed["name"], failed["func_or_class_name"], work)
                row = {**failed, "name": name, **_how_failed(failed, times)}
                yield _task(view, row, failed["process"], failed["owner"] or process, **_when(times))
    for process, work in works.items():
        failures = {task_id: error for task_id, *error in work.get("failures", ())}
        for task_id, name, *_times, resources in work.get("recent", ()):
            if task_id not in seen:
                seen.add(task_id)
                function = work["named"].get(task_id, name or "")
                how = dict(zip(("error_type", "error_message"), failures.get(task_id, ()), strict=False))
                owner, parent = made.get(task_id) or (_driver_of(view, told, task_id), b"")
                row = {"task_id": task_id, "required_resources": resources or {}, "func_or_class_name": function, "parent": parent, **how}
                name, state = _shown_name(name or "", function, work), "FAILED" if how else "FINISHED"
                yield _task(view, row, process, owner, name=name, state=state, **_when(over[task_id]))
    processes = {pid: process for process, pid in view.pids.items()}
    for pid, _worker, task_id, name, _begin, _end, resources in last:
        if task_id not in seen:
            seen.add(task_id)
            owner, parent = made.get(task_id) or (_driver_of(view, told, task_id), b"")
            row = {"task_id": task_id, "required_resources": resources or {}, "func_or_class_name": name or "", "name": name or ""}
            row["parent"] = parent
            yield _task(view, row, processes.get(pid, ""), owner, state="FINISHED", **_when(over[task_id]))
    for actor in view.node["actors"]:
        yield _creation(view, actor)


def _how_failed(failed: Row, times: tuple[float, float] | None) -> Row:
    """A call that ended its own actor has succeeded."""
    is_exit = times is not None and EXIT_ACTOR in failed["error_message"]
    return {"state": "FINISHED", "error_type": None, "error_message": None} if is_exit else {"state": "FAILED"}


def _driver_of(view: SessionView, told: dict[str, dict[str, Any]], task_id: bytes) -> str:
    """The driver that made a call which is over; "" for a worker's, and where processes share ids."""
    makers = [process for process, answers in told.items() if answers.get("ids") is not None and is_from(task_id, answers["ids"])]
    return makers[0] if len(makers) == 1 and view.processes[makers[0]]["role"] == m.ROLE_DRIVER else ""


def _when(times: tuple[float, float] | None) -> Row:
    return {} if times is None else {"start_time_ms": int(times[0] * 1000), "end_time_ms": int(times[1] * 1000)}


def _shown_name(name: str, function: str, work: Row) -> str:
    """A method's begins with the instance's repr, if its class defines one."""
    shown, class_name = work.get("repr") or "", work.get("class_name") or ""
    if not class_name or name != function or shown in ("", class_name, f"<{class_name}>"):
        return name
    return shown + name.removeprefix(class_name)


def _running(work: Row) -> list[bytes]:
    """One task, or several calls of an actor."""
    return [*([work["task_id"]] if work.get("task_id") else []), *work.get("beside", ())]


def _task(view: SessionView, row: Row, process: str, owner: str = "", **values: Any) -> TaskState:
    """A call that the first process runs and the second one made: a row by column names, and values that override it."""
    task_id = row["task_id"]
    is_task = task_id[8:-JOB_SIZE] == NO_ACTOR
    derived = {
        "task_id": task_id.hex(),
        "attempt_number": 0,
        "job_id": task_id[-JOB_SIZE:].hex(),
        "actor_id": None if is_task else task_id[8:].hex(),
        "type": "NORMAL_TASK" if is_task else "ACTOR_TASK",
        "parent_task_id": _parent(view, owner, row.get("parent", b""), task_id) if owner else "",
        "node_id": view.node_id if process else None,
        "worker_id": worker_id(process) or None,
        "worker_pid": view.pids.get(process),
        "owner_id": worker_id(owner),
    }
    return made(TaskState, {"retries_left": 0, "waits_for": [], "required_resources": {}, **row, **derived}, **values)


def _parent(view: SessionView, owner: str, parent: bytes, task_id: bytes) -> str:
    """The task that made a call: the driver's; for an actor's code outside of any call, its constructor."""
    known = view.processes.get(owner)
    if known is not None and known["role"] == m.ROLE_DRIVER:
        return _DRIVER_TASK + task_id[-JOB_SIZE:].hex()
    actor = next((worker["actor_id"] for worker in view.node["workers"] if worker["process"] == owner), "")
    return parent.hex() or ("ff" * 8 + actor if actor else "")


def _creation(view: SessionView, actor: Row) -> TaskState:
    """The constructor's call, which no process remembers."""
    cause, function = actor["cause"], short_name(actor["class_name"]) + ".__init__"
    name = f"{actor['name']}:{function}" if actor["name"] else function
    state = _CREATION_STATES[actor["state"]]
    if actor["announced"]:
        state = "PENDING_ARGS_AVAIL"
    elif actor["process"] and actor["state"] not in ("alive", "dead"):
        state = "RUNNING"
    elif actor["state"] == "dead" and cause is not None and (cause[0] in (m.CAUSE_INIT, m.CAUSE_REFUSED) or not cause[2]):
        state = "FAILED"
    kind, text = (_CREATION_ERRORS.get(cause[0], "ACTOR_DIED"), cause[1]) if state == "FAILED" else (None, None)
    row = {"task_id": b"\xff" * 8 + actor["actor_id"], "parent": actor["parent"], "required_resources": actor["required_resources"]}
    what = {"name": name, "func_or_class_name": function, "state": state, "type": "ACTOR_CREATION_TASK", "worker_pid": actor["pid"] or None}
    return _task(view, row, actor["process"], actor["owner"], error_type=kind, error_message=text, **what)


# ----------------------------------------------------------------------------------------------- objects
def objects(view: SessionView) -> Iterator[ObjectState]:
    told = view.ask("objects", "calls", "work")
    running = {task_id for answers in told.values() for task_id in _running(answers.get("work") or {})}
    states = {call["task_id"]: call["state"] for answers in told.values() for call in (answers.get("calls") or {}).get("rows", ())}
    for process in view.in_order():
        role = view.processes[process]["role"].upper()
        for found in view.rows_of(told, process, "objects"):
            task_id = found["object_id"][:24]
            status = "FAILED" if found["failed"] else "FINISHED"
            if found["pending"]:
                status = "RUNNING" if task_id in running else states.get(task_id, "NIL")
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
    for process in dict.fromkeys([*view.in_order(), *records]):
        known, record, answers = view.processes.get(process), records.get(process, {}), told.get(process, {})
        pid = known["pid"] if known is not None else record["pid"]
        work, actor = answers.get("work") or {}, actors.get(process)
        yield made(
            WorkerState,
            {"actor_id": "", "gpu_ids": [], "cpu_affinity": [], **_NO_MEMORY, **record, **(known or {})},
            worker_id=worker_id(process),
            is_alive=True,
            worker_type="DRIVER" if known is not None and known["role"] == m.ROLE_DRIVER else "WORKER",
            node_id=view.node_id,
            ip=view.ip,
            pid=pid,
            end_time_ms=0,
            state=_activity(record, actor, work, bool(answers.get("programs"))),
            occupant=short_name(actor["class_name"]) if actor is not None else _task_in(record, work) if view.detail and record else "",
            name=actor["name"] if actor is not None else "",
            current_task=work.get("task", ""),
            num_queued=work.get("queued"),
            num_finished=work.get("served"),
            waits_for=list(_debts(view, answers)),
            waits_in_graphs=list(_edges_awaited(view, answers)),
            gpu_bytes=on_gpus.get(pid),
            **(info_of(pid) if view.detail and pid else {}),
        )
    for dead in view.node["dead_workers"]:
        kind, text = dead["cause"] or (m.CAUSE_CRASH, "")
        how = "" if dead["status"] is None else f"it {describe_status(dead['status'])}"
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
        )


def _activity(record: Row, actor: Row | None, work: Row, in_graph: bool) -> str:
    if actor is None:
        return str(record.get("state", ""))
    return str(actor["state"]) if actor["state"] != "alive" else "busy" if work.get("task") else "graph" if in_graph else "idle"


def _task_in(worker: Row, work: Row) -> str:
    """Many may have run under a lease since it was granted."""
    if not worker["claimant"]:
        return ""
    # Process titles show it even when the worker cannot answer; not in a session of one process, or where user code has set the title.
    task = shown_title(worker["pid"]) or work.get("task", "")
    return f"task {task}" if task and task != IDLE_TITLE else ""


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
    TaskState: tasks,
    ObjectState: objects,
    WorkerState: workers,
    NodeState: nodes,
    JobState: jobs,
    PlacementGroupState: placement_groups,
    GraphState: graphs,
    ChannelState: channels,
}
