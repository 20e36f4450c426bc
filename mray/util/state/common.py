"""The records of listings: a class for each kind, a field for each column.

A new column is a new field here and a value in `mray.util.state._gather`. Names are Ray's where Ray has the field; fields without a
meaning on one host (placement by labels, lineage, call sites) are omitted.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from mray._common import settings
from mray._common.amounts import readable_bytes

__all__ = [
    "DEFAULT_LIMIT",
    "DEFAULT_RPC_TIMEOUT",
    "RAY_MAX_LIMIT_FROM_API_SERVER",
    "ActorState",
    "ChannelState",
    "GetApiOptions",
    "GraphState",
    "JobState",
    "ListApiOptions",
    "NodeState",
    "ObjectState",
    "PlacementGroupState",
    "StateResource",
    "StateSchema",
    "SummaryApiOptions",
    "SummaryResource",
    "TaskState",
    "WorkerState",
    "remove_ansi_escape_codes",
]

#: Rows of a listing by default, and at most; seconds of a query.
DEFAULT_LIMIT = 100
RAY_MAX_LIMIT_FROM_API_SERVER = settings.MOST_ROWS.get()
DEFAULT_RPC_TIMEOUT = 30


def _time(milliseconds: float) -> str:
    return "" if not milliseconds else datetime.fromtimestamp(milliseconds / 1000).isoformat(" ", "milliseconds")


def _seconds(count: float) -> str:
    return f"{count:.3f}"


def _size(count: float) -> str:
    return readable_bytes(count) if count >= 0 else "-"


def column(
    doc: str,
    *,
    detail: bool = False,
    filterable: bool = True,
    words: str = "",
    shown: Callable[[Any], str] | None = None,
    in_tables: bool = True,
    metric: str = "",
) -> Any:
    """A field of a record. Not `in_tables`: the same in every row of a session, so that tables show it only with details. `metric`: the
    kind and the name of the number in `mray metrics`.
    """
    metadata = {
        "doc": doc,
        "detail": detail,
        "filterable": filterable,
        "words": tuple(words.split()),
        "shown": shown,
        "in_tables": in_tables,
        "metric": metric,
    }
    return dataclasses.field(default=None, metadata=metadata)


#: Filters cannot use it.
detail = partial(column, detail=True, filterable=False)


class StateSchema:
    """``row["state"]`` and ``row.state`` are equivalent."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    #: The identifying field, and the singular and plural words of the command line.
    KEY: ClassVar[str]
    WORDS: ClassVar[tuple[str, str]]

    @classmethod
    def fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        return dataclasses.fields(cls)

    @classmethod
    def list_columns(cls, detail: bool = True) -> list[str]:
        return [field.name for field in cls.fields() if detail or not field.metadata["detail"]]

    @classmethod
    def columns(cls) -> set[str]:
        return set(cls.list_columns())

    @classmethod
    def base_columns(cls) -> set[str]:
        return set(cls.list_columns(detail=False))

    @classmethod
    def details(cls) -> set[str]:
        return cls.columns() - cls.base_columns()

    @classmethod
    def detail_columns(cls) -> set[str]:
        return set(cls.list_columns(detail=True))

    @classmethod
    def filterable_columns(cls) -> set[str]:
        return {field.name for field in cls.fields() if field.metadata["filterable"]}

    @classmethod
    def table_columns(cls, detail: bool) -> list[str]:
        return [field.name for field in cls.fields() if detail or (field.metadata["in_tables"] and not field.metadata["detail"])]

    @classmethod
    def humanify(cls, state: dict[str, Any]) -> dict[str, Any]:
        shown = {field.name: field.metadata["shown"] for field in cls.fields() if field.metadata["shown"] is not None}
        return {name: shown[name](value) if name in shown and value is not None else value for name, value in state.items()}

    def asdict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def without_details(self) -> None:
        for name in self.details():
            setattr(self, name, None)

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key, default)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, key, value)


@dataclass
class ActorState(StateSchema):
    """An actor, also one that is dead."""

    KEY, WORDS = "actor_id", ("actor", "actors")

    actor_id: str = column("The actor's id.")
    class_name: str = column("The name of its class.")
    state: str = column(
        "DEPENDENCIES_UNREADY (what its constructor wants is not there), PENDING_CREATION (waits for resources or for its constructor), "
        "ALIVE, RESTARTING, DEAD.",
        words="DEPENDENCIES_UNREADY PENDING_CREATION ALIVE RESTARTING DEAD",
    )
    job_id: str = column("The job that it belongs to: there is one in a session.", in_tables=False)
    name: str | None = column("The name it was given, or empty.")
    node_id: str | None = column("The node, once it has a process.", in_tables=False)
    pid: int | None = column("The pid of its process; 0 before there is one.")
    ray_namespace: str | None = column("The namespace of its name.")
    required_resources: dict[str, float] | None = detail("The resources that it holds while it lives.")
    serialized_runtime_env: str | None = detail("Its runtime_env as JSON: the names of its variables, without their values.")
    death_cause: dict[str, Any] | None = detail("Why it is dead, or why it was restarted: kind, text, pid, status.")
    is_detached: bool | None = detail("Whether it outlives its handles.")
    placement_group_id: str | None = column("The placement group it lives in.", detail=True)
    repr_name: str | None = column("The text of its own `__repr__`, or empty.", detail=True)
    num_restarts: int | None = detail("How often it was restarted.")
    worker_id: str | None = column("The process that it lives in.", detail=True)
    owner_id: str | None = column("The process that created it.", detail=True)
    num_holders: int | None = detail("How many processes hold handles of it.")
    current_task: str | None = column("The method that it runs now, or empty.", detail=True)
    num_queued: int | None = detail("Calls that have arrived and wait.")
    num_finished: int | None = detail("Calls that it has run.")


@dataclass
class TaskState(StateSchema):
    """A call of a function or method: unanswered ones, and the last thousand of each living worker."""

    KEY, WORDS = "task_id", ("task", "tasks")

    task_id: str = column("The task's id.")
    attempt_number: int = column("0: attempts that are over are not listed.", in_tables=False)
    name: str = column("Its name: that of the function or method, unless it was given one.")
    state: str = column(
        "PENDING_ARGS_AVAIL (an argument is not there), PENDING_NODE_ASSIGNMENT (waits for a worker or its actor), SUBMITTED_TO_WORKER "
        "(queues at the worker), PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY (queues at an actor that runs others), RUNNING, FINISHED, "
        "FAILED. Ray's other states are known to filters, and no task is in them.",
        words="NIL PENDING_ARGS_AVAIL PENDING_NODE_ASSIGNMENT PENDING_OBJ_STORE_MEM_AVAIL PENDING_ARGS_FETCH SUBMITTED_TO_WORKER "
        "PENDING_ACTOR_TASK_ARGS_FETCH PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY RUNNING RUNNING_IN_RAY_GET RUNNING_IN_RAY_WAIT FINISHED "
        "FAILED GETTING_AND_PINNING_ARGS",
    )
    job_id: str = column("The job that it belongs to.", in_tables=False)
    actor_id: str | None = column("The actor whose method it is, or empty.")
    type: str = column("NORMAL_TASK, ACTOR_TASK, ACTOR_CREATION_TASK or DRIVER_TASK.")
    func_or_class_name: str = column("The function or method.")
    parent_task_id: str = column(
        "The task that submitted it, or the driver's; where code of an actor has in no call, its constructor's. "
        "Empty once the process that submitted it has ended."
    )
    node_id: str | None = column("The node, once it has a worker.", in_tables=False)
    worker_id: str | None = column("The process that runs it.")
    worker_pid: int | None = column("The pid of that process.")
    seconds: float | None = column(
        "How long it has run, until now or its end; empty before it begins, and where its worker has ended before it.",
        filterable=False,
        shown=_seconds,
    )
    error_type: str | None = column("TASK_EXECUTION_EXCEPTION when it raised, WORKER_DIED, TASK_CANCELLED, ...")
    required_resources: dict[str, float] | None = detail("The resources that it holds while it runs.")
    start_time_ms: int | None = detail("When it began.", shown=_time)
    end_time_ms: int | None = detail("When it was over.", shown=_time)
    error_message: str | None = detail("Its text, with the traceback.")
    owner_id: str | None = column("The process that submitted it.", detail=True)
    retries_left: int | None = detail("Remaining retries; -1: without limit.")
    waits_for: list[str] | None = detail("Ids of arguments that are not there.")


@dataclass
class ObjectState(StateSchema):
    """An object in one process that holds refs of it: a row for each such process."""

    KEY, WORDS = "object_id", ("object", "objects")

    object_id: str = column("The object's id.")
    object_size: int = column(
        "Bytes of the serialized value; -1 while it is pending, or where its tensors stayed with their maker.", shown=_size
    )
    task_status: str = column("FINISHED, FAILED, or the state of the task that makes it; NIL where this process does not know.")
    attempt_number: int = column("1.", in_tables=False)
    reference_type: str = column(
        "LOCAL_REFERENCE (a ref in the program), PINNED_IN_MEMORY (arrays of its value too), USED_BY_PENDING_TASK (an argument), "
        "CAPTURED_IN_OBJECT (inside another object's value), ACTOR_HANDLE."
    )
    call_site: str = column("Not recorded: always 'disabled'.", in_tables=False)
    type: str = column("The kind of process that holds the ref: DRIVER or WORKER.")
    pid: int = column("The pid of that process.")
    ip: str = column("The address of the node.", in_tables=False)
    storage: str | None = column("Where the value lies: inline (in its owner), shared memory, disk, with its maker.", detail=True)
    owner_id: str | None = column("The process that owns it.", detail=True)
    task_name: str | None = column("The task that makes it, while it is pending.", detail=True)


@dataclass
class WorkerState(StateSchema):
    """A process of the session that runs user code, also one that is dead."""

    KEY, WORDS = "worker_id", ("worker", "workers")

    worker_id: str = column("The process's id.")
    is_alive: bool = column("Whether it lives.")
    worker_type: str = column("WORKER or DRIVER.")
    exit_type: str | None = column("How it ended: INTENDED_SYSTEM_EXIT, INTENDED_USER_EXIT, USER_ERROR, SYSTEM_ERROR, NODE_OUT_OF_MEMORY.")
    node_id: str = column("The node.", in_tables=False)
    ip: str = column("The address of the node.", in_tables=False)
    pid: int = column("Its pid; 0 before it is forked.")
    exit_detail: str | None = detail("How it ended, in words.")
    start_time_ms: int | None = detail("When it was started.", shown=_time)
    end_time_ms: int | None = detail("When it ended.", shown=_time)
    state: str | None = column(
        "starting, idle, busy, leaving; of an actor pending, restarting, busy, idle, or graph (it has no call, and a graph to run); of the "
        "driver: empty.",
        detail=True,
    )
    shown_as: str | None = column(
        "Its name in tables: NAME: CLASS of a named actor, CLASS(ID) of another one, the task that it runs, driver; empty for a worker "
        "between tasks.",
        detail=True,
    )
    occupant: str | None = column("The class of the actor that lives or lived there, or the task that it runs.", detail=True)
    name: str | None = column("The name of that actor.", detail=True)
    current_task: str | None = column("The call that it runs now.", detail=True)
    num_queued: int | None = detail("Calls that have arrived and wait.", metric="gauge mray_calls_queued")
    num_finished: int | None = detail("Calls that it has run.", metric="counter mray_calls")
    waits_for: list[str] | None = detail("The calls and objects that its threads wait for.")
    waits_in_graphs: list[str] | None = detail("The others in graphs that its actor waits for.")
    actor_id: str | None = column("The actor that lives or lived in it, or empty.", detail=True)
    gpu_ids: list[str] | None = detail("The GPUs that it may use.")
    cpu_affinity: list[int] | None = detail("The CPUs that it is pinned to; empty when it is not.")
    pss_bytes: int | None = detail(
        "Memory: its own pages, and its share of pages that other processes hold too (the kernel's PSS).",
        shown=readable_bytes,
        metric="gauge mray_proportional_bytes",
    )
    rss_bytes: int | None = detail("Resident memory, shared pages included.", shown=readable_bytes, metric="gauge mray_resident_bytes")
    cpu_seconds: float | None = detail("CPU time that it has used.", metric="counter mray_cpu_seconds")
    object_store_bytes: int | None = detail(
        "Shared memory that it holds for objects.", shown=readable_bytes, metric="gauge mray_object_store_bytes"
    )
    pooled_bytes: int | None = detail("... of which nothing refers to: kept for reuse.", shown=readable_bytes)
    spilled_bytes: int | None = detail("Objects that it has written to disk.", shown=readable_bytes)
    gpu_bytes: int | None = detail(
        "Memory of GPUs that it holds, where the driver tells.", shown=readable_bytes, metric="gauge mray_process_gpu_memory_bytes"
    )


@dataclass
class NodeState(StateSchema):
    """The node: there is one."""

    KEY, WORDS = "node_id", ("node", "nodes")

    node_id: str = column("The node's id.")
    node_ip: str = column("Its address.")
    is_head_node: bool = column("True: there is one node.")
    state: str = column("ALIVE.")
    state_message: str | None = column("Empty.", filterable=False)
    node_name: str = column("The name that `init` gave it.")
    resources_total: dict[str, float] = column("Its resources.", filterable=False)
    labels: dict[str, str] = column("Its labels.", filterable=False)
    start_time_ms: int | None = detail("When its process was started.", shown=_time)
    end_time_ms: int | None = detail("0: it lives.")
    resources_available: dict[str, float] | None = detail("Free resources.")
    pid: int | None = column("The pid of its process.", detail=True)
    object_store_bytes: int | None = detail("Shared memory that objects hold.", shown=readable_bytes)
    gpus: list[dict[str, Any]] | None = detail("The GPUs of the machine: index, name, used_bytes, total_bytes, busy (percent).")


@dataclass
class JobState(StateSchema):
    """A driver: the only one of its session, or one of those that have joined a persistent session."""

    KEY, WORDS = "job_id", ("job", "jobs")

    job_id: str = column("The job's id.")
    submission_id: str | None = column("None: nothing is submitted to mray.")
    entrypoint: str = column("The driver's command line.", filterable=False)
    type: str = column("DRIVER.")
    status: str = column("RUNNING, SUCCEEDED (it has left) or FAILED (it died).")
    message: str | None = column("Why it failed.", filterable=False)
    error_type: str | None = column("None.", filterable=False)
    driver_info: dict[str, Any] | None = column("The driver's id, address and pid.", filterable=False)
    start_time: int | None = detail("When the driver was started.", shown=_time)
    end_time: int | None = detail("When the driver ended.", shown=_time)
    namespace: str | None = detail("The namespace of its named actors.")
    session_dir: str | None = detail("The session's directory.")


@dataclass
class PlacementGroupState(StateSchema):
    """A placement group, also one of the last 1,000 that were removed."""

    KEY, WORDS = "placement_group_id", ("placement-group", "placement-groups")

    placement_group_id: str = column("The group's id.")
    name: str = column("Its name.")
    creator_job_id: str = column("The job that made it.")
    state: str = column("PENDING, CREATED or REMOVED.")
    bundles: list[dict[str, Any]] | None = detail("Its bundles.")
    is_detached: bool | None = column("Whether it outlives its creator.", detail=True)
    stats: dict[str, Any] | None = detail("How far its scheduling is, and why it can never be created.")


@dataclass
class GraphState(StateSchema):
    """A compiled graph that is not torn down. mray's own."""

    KEY, WORDS = "graph_id", ("graph", "graphs")

    graph_id: str = column("The graph's id.")
    state: str = column("ALIVE, BROKEN (an actor died) or TORN_DOWN.")
    pid: int = column("The process that compiled it, or has a copy of it.")
    actors: dict[str, str] = column("Actor id -> name of its class.", filterable=False)
    num_tasks: int = column("Methods that one execution calls.", filterable=False)
    submitted: int = column("Executions submitted.", filterable=False, metric="counter mray_graph_executions_submitted")
    finished: int = column("Executions whose results have been read.", filterable=False, metric="counter mray_graph_executions_finished")
    in_flight: int = column("Executions submitted and not finished.", filterable=False, metric="gauge mray_graph_in_flight")
    kept: int = column("Results that have come and were not asked for.", filterable=False)
    max_in_flight: int = column("Executions that may be in flight.", filterable=False)
    waits: str | None = column("The waits between its participants, if there are any.", filterable=False)
    owner_id: str | None = column("The id of that process.", detail=True)
    copy_of: str | None = column("The id of the graph that this is a copy of, for a process that it was passed to.", detail=True)
    error: str | None = detail("Why it is broken.")
    size_bytes: int | None = detail("Bytes of its shared segment, without large values.", shown=readable_bytes)
    executions: dict[str, int] | None = detail("Actor id -> executions that it has finished.")
    computing: list[str] | None = detail("The methods that compute now.")


@dataclass
class ChannelState(StateSchema):
    """An edge of a compiled graph. mray's own."""

    KEY, WORDS = "channel_id", ("channel", "channels")

    channel_id: str = column("The graph's id, a colon and the channel's number.")
    graph_id: str = column("The graph.")
    source: str = column("The value that travels: the input, or the result of a method.")
    writer: str = column("The writer: 'driver' (the process that compiled the graph), or class and actor id.")
    readers: list[str] = column("The readers, named likewise.", filterable=False)
    transport: str = column("The mechanism that carries it.")
    written: int | None = column("Messages written; None where the writer did not answer.", filterable=False)
    waiting: int | None = column("Messages written and not yet consumed.", filterable=False)
    slots: int | None = detail("Messages that fit.")
    awaited_by: list[str] | None = detail("Those that wait at it now: its readers for a message, or its writer for room.")
    counters: dict[str, int] | None = detail("All counters of its writer.")


#: By plural word.
RECORDS: dict[str, type[StateSchema]] = {
    record.WORDS[1]: record
    for record in (
        ActorState,
        TaskState,
        ObjectState,
        WorkerState,
        NodeState,
        JobState,
        PlacementGroupState,
        GraphState,
        ChannelState,
    )
}


# ------------------------------------------------------------------------------- what a client is asked for
class StateResource(enum.Enum):
    """A kind of records, by Ray's word."""

    ACTORS = "actors"
    JOBS = "jobs"
    PLACEMENT_GROUPS = "placement_groups"
    NODES = "nodes"
    WORKERS = "workers"
    TASKS = "tasks"
    OBJECTS = "objects"
    RUNTIME_ENVS = "runtime_envs"
    CLUSTER_EVENTS = "cluster_events"


class SummaryResource(enum.Enum):
    """A kind of records that can be summarized."""

    ACTORS = "actors"
    TASKS = "tasks"
    OBJECTS = "objects"


def check_predicate(predicate: str) -> None:
    """Raise ValueError for an unknown predicate."""
    if predicate not in ("=", "!="):
        raise ValueError(f"Unsupported filter predicate {predicate} is given. Available predicates: =, !=.")


@dataclasses.dataclass
class ListApiOptions:
    """The processes are asked directly, and have all of `timeout`. The driver's own task is never listed."""

    limit: int = DEFAULT_LIMIT
    timeout: float = DEFAULT_RPC_TIMEOUT
    detail: bool = False
    filters: list[tuple[str, str, Any]] | None = dataclasses.field(default_factory=list)
    exclude_driver: bool = True
    server_timeout_multiplier: float = 0.8

    def __post_init__(self) -> None:
        self.filters = self.filters or []
        for _column, predicate, _value in self.filters:
            check_predicate(predicate)


@dataclasses.dataclass
class GetApiOptions:
    """Options of getting."""

    timeout: float = DEFAULT_RPC_TIMEOUT
    server_timeout_multiplier: float = 0.8


@dataclasses.dataclass
class SummaryApiOptions:
    """Options of summarizing."""

    timeout: float = DEFAULT_RPC_TIMEOUT
    filters: list[tuple[str, str, Any]] | None = dataclasses.field(default_factory=list)
    summary_by: str | None = None


_TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def remove_ansi_escape_codes(text: str) -> str:
    """Remove terminal control sequences."""
    return _TERMINAL.sub("", text)
