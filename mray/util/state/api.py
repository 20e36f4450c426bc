"""`list_*`, `get_*` and `summarize_*`: the state of a session, as Ray's `ray.util.state` reports it.

For any process of the same user: `address` names a session by its directory, its name, the end of its name or the pid of its driver;
None is the session of this process, or else the only one that runs. Queries are answered from the processes' present state.

All raise `ServerUnavailable` when no such session runs, and `RayStateApiException` for an invalid filter or id, or when a
process does not answer in time (`raise_on_missing_output=False` makes that a warning). They wait `timeout` seconds at most.

On a Ray cluster Ray's state API answers, with its own records; it needs the cluster's dashboard (``pip install "ray[default]"``).
"""

from __future__ import annotations

import fnmatch
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import update_wrapper
from typing import Any, ParamSpec, TypeVar, cast

from mray._api.context import get_runtime_context
from mray._api.counterpart import counterpart_of
from mray._api.current import backend_if_started
from mray._api.object_ref import ObjectRef
from mray._common import settings
from mray._common.ids import ActorID, BaseID, NodeID, TaskID
from mray._common.kept import os
from mray._inside.sessions import EndedSession, directory_at, sessions
from mray._observe.log_files import lines_of, tail_of
from mray._observe.observer import SessionGoneError, ask_node
from mray.util.state._calls import Count, counted_calls
from mray.util.state._ended import ended_tasks
from mray.util.state._gather import SessionView
from mray.util.state._select import Filter, check_filters, check_limit, contradict, matches, newest
from mray.util.state.common import (
    DEFAULT_LIMIT,
    DEFAULT_RPC_TIMEOUT,
    RECORDS,
    ActorState,
    ChannelState,
    GetApiOptions,
    GraphState,
    JobState,
    ListApiOptions,
    NodeState,
    ObjectState,
    PlacementGroupState,
    StateResource,
    StateSchema,
    SummaryApiOptions,
    SummaryResource,
    TaskState,
    WorkerState,
    remove_ansi_escape_codes,
)
from mray.util.state.exception import RayStateApiException, ServerUnavailable

__all__ = [
    "SessionView",
    "StateApiClient",
    "get_actor",
    "get_graph",
    "get_job",
    "get_log",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_channels",
    "list_graphs",
    "list_jobs",
    "list_logs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
]

Filters = Sequence[Filter] | None
_Record = TypeVar("_Record", bound=StateSchema)
_P = ParamSpec("_P")

_IDS: dict[str, type[BaseID]] = {"actor_id": ActorID, "task_id": TaskID, "node_id": NodeID}
#: The session that this process is in, or the one that runs; "local" is also one that ends with its driver.
_ANY = (None, "auto", "local")
#: Seconds; with less, no process could answer.
_LEAST_TIMEOUT = 1.0


# --------------------------------------------------------------------------------------------- sessions
def session_directory(address: str | None = None) -> str:
    """The session that `address` names. ServerUnavailable when none runs, or when it is ambiguous."""
    if address in _ANY:
        backend = backend_if_started()
        if backend is not None:
            return str(backend.info()["session_dir"])
        address = settings.named_address()
    if address is None:
        running = sessions()
    elif os.path.isdir(address):
        return os.path.abspath(address)
    elif (found := directory_at(address)) is not None:
        return found
    else:
        running = [directory for directory in sessions() if is_named(directory, address)]
    if len(running) == 1:
        return running[0]
    if not running:
        which = "of this user" if address is None else repr(address)
        raise ServerUnavailable(f"No session {which} is running.")
    lines = "".join(f"\n  {os.path.basename(directory)}  {programs_of(directory)}" for directory in running)
    raise ServerUnavailable(f"Several sessions are running; say which one, by --session in a terminal or address= in a program:{lines}")


def programs_of(directory: str) -> str:
    """The drivers' pids and command lines."""
    try:
        jobs = ask_node(directory, "snapshot", _LEAST_TIMEOUT)["jobs"]
    except (SessionGoneError, TimeoutError, OSError):
        return "(does not answer)"
    return "; ".join(f"pid {job['pid']}: {job['entrypoint'][:100]}" for job in jobs if not job["end"]) or "(no driver)"


def is_named(directory: str, address: str) -> bool:
    """Whether a word is a session's name, the end of it, or the pid of its driver."""
    name = os.path.basename(directory)
    return name == address or name.endswith("_" + address) or name.split("_")[-2:-1] == [address]


def look(address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, *, detail: bool = True) -> SessionView:
    """A view, for gathering several kinds of records."""
    try:
        return SessionView(session_directory(address), max(timeout, _LEAST_TIMEOUT), detail)
    except (SessionGoneError, TimeoutError) as error:
        raise ServerUnavailable(str(error)) from None
    except OSError as error:
        raise RayStateApiException(error.strerror or str(error)) from None


def _ask_ray(address: str | None, name: str, *args: Any, **options: Any) -> Any:
    """None when the session is one of mray's."""
    if address not in (None, "auto"):
        return None
    try:
        counterpart = counterpart_of("util.state")
        if counterpart is None:
            return None
        if not hasattr(counterpart, name):
            raise NotImplementedError(f"{name}() is mray's own: Ray has no listing of graphs and their channels.")
        return getattr(counterpart, name)(*args, address=get_runtime_context().gcs_address, **options)
    except ImportError as error:
        raise ServerUnavailable(f'Ray\'s state API cannot be used here ({error}): pip install "ray[default]".') from None
    except Exception as error:
        if not type(error).__module__.startswith("ray.util.state"):
            raise
        unavailable = type(error).__name__ == "ServerUnavailable"
        raise (ServerUnavailable if unavailable else RayStateApiException)(str(error)) from None


def _name(words: str) -> str:
    return words.replace("-", "_")


# ------------------------------------------------------------------------------------------------ lists
def counted_records(
    record: type[_Record],
    address: str | None = None,
    filters: Filters = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
) -> tuple[list[_Record], int]:
    """The records of one kind that match all `filters`, and their number without a limit (of a Ray cluster: with it).

    Work that is over comes last, the newest first; a limit keeps failures for longer than successes. Of calls, each process filters and
    cuts its own.
    """
    options = {"limit": limit, "timeout": timeout, "detail": detail, "raise_on_missing_output": raise_on_missing_output}
    listed = _ask_ray(address, f"list_{_name(record.WORDS[1])}", filters=filters, **options)
    if listed is not None:
        return list(listed), len(listed)
    checked = check_filters(record, filters)
    check_limit(limit)
    if contradict(checked):
        return [], 0
    session = EndedSession.at(address) if record is TaskState and address is not None else None
    if session is not None:
        ended = [each for each in ended_tasks(session) if matches(each, checked)]
        found, total = cast("list[_Record]", newest(record, ended, limit)), len(ended)
    else:
        # A filter may use a column of the details.
        view = look(address, timeout, detail=detail or any(column in record.details() for column, _predicate, _value in checked))
        found, total = view.listing(record, checked, limit)
        _complain(view, raise_on_missing_output)
    for each in () if detail else found:
        each.without_details()
    return found, total


def _complain(view: SessionView, aloud: bool) -> None:
    if view.notes:
        warnings.warn("Not everything is listed: " + "; ".join(view.notes) + ".", stacklevel=4)
    if not view.missing:
        return
    text = "Not every process has answered: " + "; ".join(view.missing) + "."
    if aloud:
        raise RayStateApiException(text + " Use raise_on_missing_output=False (--allow-missing) for what the others have said.")
    warnings.warn(text, stacklevel=4)


def _of_a_listing(
    address: str | None = None,
    filters: Filters = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> None:
    """The parameters of a listing."""


def _listing(record: type[_Record], parameters: Callable[_P, None]) -> Callable[[Callable[[], None]], Callable[_P, list[_Record]]]:
    """The decorated function contributes its name and docstring."""
    shape = inspect.signature(parameters).replace(return_annotation=f"list[{record.__name__}]")

    def make(named: Callable[[], None]) -> Callable[_P, list[_Record]]:
        def listing(*args: _P.args, **kwargs: _P.kwargs) -> list[_Record]:
            try:
                given = shape.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise TypeError(f"{named.__name__}() {error}") from None
            given.pop("_explain", None)
            return counted_records(record, **given)[0]

        update_wrapper(listing, named)
        del listing.__wrapped__  # type: ignore[attr-defined]  # its signature is not that of the listing
        listing.__annotations__ = {**parameters.__annotations__, "return": shape.return_annotation}
        listing.__signature__ = shape  # type: ignore[attr-defined]
        return listing

    return make


@_listing(ActorState, _of_a_listing)
def list_actors() -> None:
    """Actors, also the last thousand dead ones: ``list_actors(filters=[("state", "=", "ALIVE")])``."""


@_listing(TaskState, _of_a_listing)
def list_tasks() -> None:
    """Unanswered calls, and the last thousand that each living worker has run."""


@_listing(ObjectState, _of_a_listing)
def list_objects() -> None:
    """Objects, once for each process that holds refs to them. Every process searches all its Python objects for that."""


@_listing(WorkerState, _of_a_listing)
def list_workers() -> None:
    """The driver and the workers, also the last thousand dead ones."""


@_listing(NodeState, _of_a_listing)
def list_nodes() -> None:
    """The node."""


@_listing(JobState, _of_a_listing)
def list_jobs() -> None:
    """The drivers, as Ray lists jobs; of a persistent session also the last thousand that have ended."""


@_listing(PlacementGroupState, _of_a_listing)
def list_placement_groups() -> None:
    """Placement groups, also the last thousand removed ones."""


@_listing(GraphState, _of_a_listing)
def list_graphs() -> None:
    """Compiled graphs that are not torn down, and which member waits for which. mray's own."""


@_listing(ChannelState, _of_a_listing)
def list_channels() -> None:
    """The edges of compiled graphs: transport, messages written and waiting. mray's own."""


# ----------------------------------------------------------------------------------------------- single
def get_records(record: type[_Record], key: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT) -> list[_Record]:
    """All records with this id (an object may have several), with details."""
    if counterpart_of("util.state") is not None and address in (None, "auto"):
        found = _ask_ray(address, f"get_{_name(record.WORDS[0 if record is not ObjectState else 1])}", key, timeout=timeout)
        return found if isinstance(found, list) else [] if found is None else [found]
    form = _IDS.get(record.KEY)
    if form is not None:
        try:
            form.from_hex(key)
        except ValueError as error:
            raise RayStateApiException(f"{key!r} cannot be the id of one of the {record.WORDS[1]}: {error}") from None
    view = look(address, timeout)
    found = view.listing(record, ((record.KEY, "=", key),), settings.MOST_ROWS.get())[0]
    if not found:
        _complain(view, True)
    return found


def _get(record: type[_Record], key: str, address: str | None, timeout: float) -> _Record | None:
    return next(iter(get_records(record, key, address, timeout)), None)


def get_actor(id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False) -> ActorState | None:
    """The actor with this id, with details; None if unknown."""
    return _get(ActorState, id, address, timeout)


def get_task(
    id: str | ObjectRef, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> TaskState | None:
    """The task with this id, or that creates the object of this ref; None if it is not known (any more)."""
    return _get(TaskState, id.task_id().hex() if isinstance(id, ObjectRef) else id, address, timeout)


def get_objects(id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False) -> list[ObjectState]:
    """The object with this id, once for each process that holds refs to it."""
    return get_records(ObjectState, id, address, timeout)


def get_worker(id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False) -> WorkerState | None:
    """The driver or worker with this id, with details; None if unknown."""
    return _get(WorkerState, id, address, timeout)


def get_node(id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False) -> NodeState | None:
    """The node, with details; None if it has another id."""
    return _get(NodeState, id, address, timeout)


def get_job(id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False) -> JobState | None:
    """The job, with details; None if it has another id."""
    return _get(JobState, id, address, timeout)


def get_placement_group(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> PlacementGroupState | None:
    """The placement group with this id, with details; None if unknown."""
    return _get(PlacementGroupState, id, address, timeout)


def get_graph(id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT) -> GraphState | None:
    """The compiled graph with this id, with details; None if unknown. mray's own."""
    return _get(GraphState, id, address, timeout)


# -------------------------------------------------------------------------------------------- summaries
def summarize_actors(
    address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, raise_on_missing_output: bool = True, _explain: bool = False
) -> dict[str, Any]:
    """How many actors of each class are in each state."""
    return _summarized(ActorState, lambda view: _by_class(list(view.records(ActorState))), address, timeout, raise_on_missing_output)


def _by_class(rows: list[ActorState]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for row in rows:
        group = summary.setdefault(row["class_name"], {"class_name": row["class_name"], "state_counts": Counter()})
        group["state_counts"][row["state"]] += 1
    return {"summary": summary, "total_actors": len(rows), "summary_by": "class"}


def summarize_tasks(
    address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, raise_on_missing_output: bool = True, _explain: bool = False
) -> dict[str, Any]:
    """How many calls of each function or method are in each state. Each process counts its own."""
    return _summarized(TaskState, lambda view: _by_name(counted_calls(view)), address, timeout, raise_on_missing_output)


def _by_name(counts: list[Count]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    kinds: Counter[str] = Counter()
    for name, kind, state, count in counts:
        empty = {"func_or_class_name": name, "type": kind, "state_counts": Counter()}
        summary.setdefault(name, empty)["state_counts"][state] += count
        kinds[kind] += count
    totals = {
        "total_tasks": kinds["NORMAL_TASK"],
        "total_actor_tasks": kinds["ACTOR_TASK"],
        "total_actor_scheduled": kinds["ACTOR_CREATION_TASK"],
    }
    return {"summary": summary, **totals, "summary_by": "func_name"}


def summarize_objects(
    address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, raise_on_missing_output: bool = True, _explain: bool = False
) -> dict[str, Any]:
    """How many objects there are and how large, by the state of their tasks and the kind of refs. Call sites are not recorded."""
    return _summarized(ObjectState, lambda view: _by_call_site(list(view.records(ObjectState))), address, timeout, raise_on_missing_output)


def _by_call_site(rows: list[ObjectState]) -> dict[str, Any]:
    megabytes = sum(max(row["object_size"], 0) for row in rows) / 2**20
    group = {
        "total_objects": len(rows),
        "total_size_mb": megabytes,
        "total_num_workers": len({row["pid"] for row in rows}),
        "total_num_nodes": 1 if rows else 0,
        "task_state_counts": Counter(row["task_status"] for row in rows),
        "task_attempt_number_counts": Counter(str(row["attempt_number"]) for row in rows),
        "ref_type_counts": Counter(row["reference_type"] for row in rows),
    }
    totals = {"total_objects": len(rows), "total_size_mb": megabytes, "callsite_enabled": False, "summary_by": "callsite"}
    return {"summary": {"disabled": group} if rows else {}, **totals}


def _summarized(
    record: type[StateSchema], summarize: Callable[[SessionView], dict[str, Any]], address: str | None, timeout: float, aloud: bool
) -> dict[str, Any]:
    """Ray's summary of its records, or `summarize`'s of mray's."""
    said = _ask_ray(address, f"summarize_{record.WORDS[1]}", timeout=timeout, raise_on_missing_output=aloud)
    if said is not None:
        return dict(said)
    view = look(address, timeout, detail=False)
    summary = summarize(view)
    _complain(view, aloud)
    return {"cluster": _plain(summary)}


def _plain(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) if isinstance(value, dict) else value for key, value in summary.items()}


SUMMARIES: dict[str, Callable[..., dict[str, Any]]] = {
    "actors": summarize_actors,
    "objects": summarize_objects,
    "tasks": summarize_tasks,
}


# ------------------------------------------------------------------------------------------------- logs
def list_logs(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    glob_filter: str | None = None,
    timeout: float = DEFAULT_RPC_TIMEOUT,
) -> dict[str, list[str]]:
    """The session's log files that match `glob_filter`, by kind: ``worker_out, worker_err, node``. They are removed with the session."""
    listed = _ask_ray(address, "list_logs", node_id=node_id, node_ip=node_ip, glob_filter=glob_filter, timeout=timeout)
    if listed is not None:
        return dict(listed)
    found: dict[str, list[str]] = {"worker_out": [], "worker_err": [], "node": []}
    with os.scandir(os.path.join(session_directory(address), "logs")) as entries:
        names = sorted(entry.name for entry in entries if entry.is_file())
    for name in names:
        if fnmatch.fnmatch(name, glob_filter or "*"):
            kind = "worker_" + name[-3:] if name.startswith("worker-") and name[-4:] in (".out", ".err") else "node"
            found[kind].append(name)
    return {kind: names for kind, names in found.items() if names}


def get_log(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    filename: str | None = None,
    actor_id: str | None = None,
    task_id: str | None = None,
    pid: int | None = None,
    follow: bool = False,
    tail: int = -1,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    suffix: str = "out",
    encoding: str | None = "utf-8",
    errors: str | None = "strict",
    submission_id: str | None = None,
    attempt_number: int = 0,
    _interval: float | None = None,
    filter_ansi_code: bool = False,
) -> Iterator[str | bytes]:
    """Lines of a log file: by its name, or of a worker by its pid, its actor or its task; `suffix` "out" or "err".

    `tail`: this many last lines, each as carriage returns have left it; -1: all, as written. Bytes with ``encoding=None``.
    `filter_ansi_code`: without colours. NotImplementedError for `follow`: use ``mray logs --follow``. RayStateApiException for a
    `submission_id` and for an `attempt_number` of a task.
    """
    which = {"node_id": node_id, "node_ip": node_ip, "filename": filename, "actor_id": actor_id, "task_id": task_id, "pid": pid}
    which |= {"submission_id": submission_id, "attempt_number": attempt_number}
    how = {"follow": follow, "tail": tail, "timeout": timeout, "suffix": suffix, "encoding": encoding, "errors": errors}
    lines_of_a_listing = _ask_ray(address, "get_log", **which, **how, _interval=_interval, filter_ansi_code=filter_ansi_code)
    if lines_of_a_listing is not None:
        yield from lines_of_a_listing
        return
    if follow:
        raise NotImplementedError("get_log(follow=True): use `mray logs --follow`")
    if submission_id is not None:
        raise RayStateApiException(f"No log of a submission {submission_id!r}: nothing is submitted to mray. Ask for a task or a pid.")
    if task_id is not None and attempt_number != 0:
        raise RayStateApiException(
            f"The log of attempt {attempt_number} of task {task_id} is not known: mray lists the last attempt alone, as attempt 0."
        )
    directory = session_directory(address)
    if filename is None:
        if actor_id is not None:
            actor = get_actor(actor_id, directory, timeout)
            pid = actor.pid if actor is not None else None
        elif task_id is not None:
            task = get_task(task_id, directory, timeout)
            pid = task.worker_pid if task is not None else None
        names = list_logs(directory, glob_filter=f"worker-*-{pid}.{suffix}")
        filename = next((name for found in names.values() for name in found), None)
        if filename is None:
            raise FileNotFoundError(f"no log {suffix} of this worker: it has printed nothing there, or there is none")
    path = os.path.join(directory, "logs", os.path.basename(filename))
    for line in tail_of(path, tail) if tail >= 0 else lines_of(path):
        if filter_ansi_code:  # latin-1 maps all bytes to themselves
            line = remove_ansi_escape_codes(line.decode("latin-1")).encode("latin-1")
        yield line if encoding is None else line.decode(encoding, errors or "strict")


# ----------------------------------------------------------------------------------------------- client
class StateApiClient:
    """The functions of this module, with the kind of records as an argument. `address` as in this module."""

    def __init__(self, address: str | None = None, cookies: dict[str, Any] | None = None, headers: dict[str, Any] | None = None) -> None:
        self._address = address

    def list(
        self, resource: StateResource, options: ListApiOptions, raise_on_missing_output: bool, _explain: bool = False
    ) -> list[StateSchema]:
        """NotImplementedError for environments and events."""
        record = _record_of(resource)
        how = options.filters, options.limit, options.timeout, options.detail, raise_on_missing_output
        return counted_records(record, self._address, *how)[0]

    def get(self, resource: StateResource, id: str, options: GetApiOptions | None, _explain: bool = False) -> Any:
        """With details, or None; a list for objects. ValueError for a kind without ids."""
        if resource in (StateResource.RUNTIME_ENVS, StateResource.CLUSTER_EVENTS):
            raise ValueError(f"Can't get {resource.name} by id.")
        found = get_records(_record_of(resource), id, self._address, (options or GetApiOptions()).timeout)
        return found if resource == StateResource.OBJECTS else next(iter(found), None)

    def summary(
        self, resource: SummaryResource, *, options: SummaryApiOptions, raise_on_missing_output: bool, _explain: bool = False
    ) -> dict[str, Any]:
        return SUMMARIES[SummaryResource(resource).value](self._address, options.timeout, raise_on_missing_output)


def _record_of(resource: StateResource) -> type[StateSchema]:
    word = StateResource(resource).value
    record = RECORDS.get(word.replace("_", "-"))
    if record is None:
        raise NotImplementedError(f"mray lists no {word.replace('_', ' ')}")
    return record
