"""The verbs: what a user calls on sessions, objects and actors.

Any thread. Each checks its arguments, with Ray's texts, and passes them to the backend; those that need a session start one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from mray._api import current
from mray._api.actor import backend_of_handle
from mray._api.actor_handle import ActorHandle
from mray._api.backend import LONG_LIST
from mray._api.current import backend_if_started, backend_in_use, backend_of, current_backend, started_backend, stop
from mray._api.dag_node import GraphRef
from mray._api.object_ref import NO_SESSION, ObjectRef
from mray._api.ref_generator import ObjectRefGenerator
from mray._common.clock import check_timeout, now
from mray._common.options import check_namespace, plain
from mray._common.places import undone
from mray._common.tensor_transports import tensor_transport
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._api.backend import Backend

    W = TypeVar("W", bound="ObjectRef[Any] | ObjectRefGenerator[Any] | GraphRef")

R = TypeVar("R")
_NO_STATE = "Ray has not been started yet. Trying to use state API before ray.init() has been called."


# --------------------------------------------------------------------------------------------- sessions
def is_initialized() -> bool:
    """Whether this process has a session."""
    return backend_in_use() is not None


def shutdown(*, wait_for_processes: bool = True, _exiting_interpreter: bool = False) -> None:
    """End the session: its processes, its objects, its files. Returns when they are removed; no-op without a session."""
    stop()


# ---------------------------------------------------------------------------------------------- objects
def _give_back(local: dict[str, Any], value: Any) -> None:
    """Undo `get`: a graph's ref gives its result once."""
    refs = local["object_refs"]
    given, values = (refs, value) if isinstance(refs, list) else ([refs], [value])
    for ref, each in zip(given, values, strict=True):
        if isinstance(ref, GraphRef):
            ref.put_back(each)


@overload
def get(object_refs: Sequence[ObjectRef[R]], *, timeout: float | None = None, _use_object_store: bool = False) -> list[R]: ...


@overload
def get(object_refs: Sequence[ObjectRef[Any]], *, timeout: float | None = None, _use_object_store: bool = False) -> list[Any]: ...


@overload
def get(object_refs: ObjectRef[R], *, timeout: float | None = None, _use_object_store: bool = False) -> R: ...


@overload
def get(object_refs: ObjectRefGenerator[R], *, timeout: float | None = None, _use_object_store: bool = False) -> ObjectRefGenerator[R]: ...


@overload
def get(object_refs: Sequence[GraphRef[R]], *, timeout: float | None = None, _use_object_store: bool = False) -> list[R]: ...


@overload
def get(object_refs: GraphRef[R], *, timeout: float | None = None, _use_object_store: bool = False) -> R: ...


@undone(_give_back)
def get(object_refs: Any, *, timeout: float | None = None, _use_object_store: bool = False) -> Any:
    """The value of a ref, or the values of a list of refs, in order.

    `timeout` in seconds (default: no limit; 0 does not wait): GetTimeoutError, after which the ref is still valid. Raises what the task
    raised, as soon as one of the refs has failed even if others are pending; ActorDiedError or WorkerCrashedError immediately when the
    process that worked on it dies. KeyboardInterrupt (Ctrl-C) in a driver cancels the tasks that this call was waiting for, not calls of
    actors, unless MRAY_CANCEL_ON_INTERRUPT says otherwise.

    Tensors that a method left with its actor (``tensor_transport``) are fetched; ValueError for "gloo" and "nccl" unless
    `_use_object_store` makes them come through host memory.
    """
    if timeout is not None:
        check_timeout(timeout)
    if isinstance(object_refs, ObjectRef):
        if _use_object_store:
            return backend_of(object_refs).get((object_refs,), timeout, True)[0]
        return (current.started or backend_of(object_refs)).get_one(object_refs, timeout)
    if isinstance(object_refs, GraphRef):
        return object_refs.get(timeout)
    if isinstance(object_refs, ObjectRefGenerator):
        return object_refs  # as Ray does
    backend = current.started or _backend_of_first(object_refs)
    if not isinstance(object_refs, list):
        raise ValueError(
            f"Invalid type of object refs, {type(object_refs)}, is given. "
            "'object_refs' must either be an ObjectRef or a list of ObjectRefs. "
        )
    if {*map(type, object_refs)} != _PLAIN:
        if any(isinstance(ref, GraphRef) for ref in object_refs):
            return _get_graph_refs(object_refs, timeout)
        for ref in object_refs:
            if not isinstance(ref, ObjectRef):
                raise TypeError(f"Attempting to call `get` on the value {ref}, which is not an ray.ObjectRef.")
    if _use_object_store:
        return backend.get(object_refs, timeout, True)
    return backend.get(object_refs, timeout) if object_refs else []


_PLAIN = {ObjectRef}


def _backend_of_first(given: Any) -> Backend:
    """Where no session is started: raises for the first ref in a list, and starts one if there is none."""
    first = next((each for each in given if isinstance(each, ObjectRef)), None) if isinstance(given, list) else None
    return current_backend() if first is None else backend_of(first)


def _get_graph_refs(refs: list[Any], timeout: float | None) -> list[Any]:
    if not all(isinstance(ref, GraphRef) for ref in refs):
        raise ValueError(
            "Invalid type of object refs. 'object_refs' must be a list of CompiledDAGRefs if there is any CompiledDAGRef within it."
        )
    deadline = now() + timeout if timeout and timeout > 0 else None
    values: list[Any] = []
    try:
        for ref in refs:
            value = ref.get_among(refs, timeout, deadline)
            values.append(value)
    except BaseException:
        for ref, value in zip(refs, values, strict=False):
            ref.put_back(value)
        raise
    return values


def put(value: R, *, _owner: ActorHandle | None = None, _tensor_transport: str | None = None) -> ObjectRef[R]:
    """Store a value and return its ref. Arrays above about 100 KiB are copied once, into shared memory, and read from there.

    With `_tensor_transport` ("shm", "cuda_ipc") tensors are not copied until a reader needs them; see `mray.method`.
    """
    backend = current_backend()
    if isinstance(value, ObjectRef):
        raise TypeError(
            "Calling 'put' on an ray.ObjectRef is not allowed. If you really want to do this, you can wrap the ray.ObjectRef in a list and "
            "call 'put' on it."
        )
    transport = None if _tensor_transport is None else tensor_transport(_tensor_transport)
    if transport is None:
        return backend.put(value)
    if not transport.one_sided:
        raise ValueError(
            f"ray.put() is not supported for two-sided RDT transport {transport.name!r}. Use a one-sided transport ('shm', 'cuda_ipc'), or "
            f"return the value from an actor task and use the @ray.method(tensor_transport={transport.name!r}) decorator instead."
        )
    return backend.put_tensors(value, transport)


@overload
def wait(
    ray_waitables: list[ObjectRef[R]], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[ObjectRef[R]], list[ObjectRef[R]]]: ...


@overload
def wait(
    ray_waitables: list[W], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[W], list[W]]: ...


@overload
def wait(  # type: ignore[overload-cannot-match]  # it is, where the common base of refs is object
    ray_waitables: list[ObjectRef[Any] | ObjectRefGenerator[Any] | GraphRef],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[Any], list[Any]]: ...


def wait(
    ray_waitables: Any, *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[Any], list[Any]]:
    """Wait until `num_returns` refs are ready, or `timeout` seconds have passed: (ready, not ready), each in the order given.

    At most `num_returns` are ready. A failed ref is ready; a generator of refs is when its next item is, or when it is exhausted.
    `fetch_local` has no effect. Results of compiled graphs may be among them; waiting for one does not take it.
    """
    backend = current.started or _backend_of_first(ray_waitables)
    if isinstance(ray_waitables, (ObjectRef, ObjectRefGenerator)):
        raise TypeError(
            "wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got a single ray.ObjectRef or ray.ObjectRefGenerator "
            f"{ray_waitables}"
        )
    if not isinstance(ray_waitables, list):
        raise TypeError(f"wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got {type(ray_waitables)}")
    if timeout is not None:
        check_timeout(timeout)
        if timeout < 0:
            raise ValueError(f"The 'timeout' argument must be nonnegative. Received {timeout}")
    others: list[Any] = []
    if len(ray_waitables) < LONG_LIST or not backend.has_left(ray_waitables):
        # Fast for each ref, since long lists may be passed repeatedly. (Equal refs share their entry.)
        entries = {ref._entry for ref in ray_waitables if ref.__class__ is ObjectRef}
        if len(entries) != len(ray_waitables):
            others = [each for each in ray_waitables if each.__class__ is not ObjectRef]
            _check_waitables(ray_waitables, others, len(entries))
    if not ray_waitables:
        return [], []
    if num_returns <= 0:
        raise ValueError(f"Invalid number of objects to return {num_returns}.")
    if num_returns > len(ray_waitables):
        raise ValueError("num_returns cannot be greater than the number of ray_waitables provided to ray.wait.")
    num_returns = int(num_returns)
    if not num_returns:
        raise RaySystemError("Number of objects to wait for must be between 1 and the number of ids.")
    others = [each for each in others if not isinstance(each, ObjectRef)]
    if others:
        return _wait_among(ray_waitables, others, num_returns, timeout)
    return backend.wait(ray_waitables, num_returns, timeout)


def _check_waitables(waitables: list[Any], others: list[Any], entries: int) -> None:
    """Raise Ray's errors for values that cannot be waited for, and for duplicates; `others` are not plain refs, the rest have `entries`."""
    for each in others:
        if not isinstance(each, (ObjectRef, GraphRef, ObjectRefGenerator)):
            raise TypeError(f"wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got list containing {type(each)}")
    is_sure = entries + len({*others}) == len(waitables) and not any(isinstance(each, ObjectRef) for each in others)
    if not is_sure and len({*waitables}) != len(waitables):
        raise ValueError("Wait requires a list of unique ray_waitables.")


def _wait_among(waitables: list[Any], others: list[Any], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
    """As `wait`, when `others` are no refs of objects: a generator is as ready as its next item."""
    refs = waitables
    given: dict[int, Any] = {}
    if any(isinstance(each, ObjectRefGenerator) for each in others):
        refs = [each.next_ref() if isinstance(each, ObjectRefGenerator) else each for each in waitables]
        given = dict(zip(map(id, refs), waitables, strict=True))
    graph_ref = next((each for each in others if isinstance(each, GraphRef)), None)
    if graph_ref is not None:
        found = graph_ref.wait_among(refs, num_returns, timeout)
    else:
        found = current_backend().wait(refs, num_returns, timeout)
    if not given:
        return found
    ready, rest = ([given[id(ref)] for ref in part] for part in found)
    return ready, rest


# ---------------------------------------------------------------------------------- tasks and actors
def cancel(ray_waitable: ObjectRef | ObjectRefGenerator, *, force: bool = False, recursive: bool = True) -> None:
    """Cancel the task whose result a ref is: it does not start, or is interrupted with KeyboardInterrupt (`force`: its process is killed).

    `get` of the ref raises TaskCancelledError; the task is not retried. `recursive`: the tasks and calls that it has started too. No
    effect on a task that is over, on a value that was `put`, or when the process that owns the ref has died. A running method of an
    actor is not interrupted, except a coroutine (asyncio.CancelledError): it may check `get_runtime_context().is_canceled()`.

    Returns without waiting for the end of the task. Any process that holds the ref, any thread. Raises ValueError for `force` with a
    call of an actor, TypeError for a ref of a session that has ended.
    """
    if isinstance(ray_waitable, ObjectRefGenerator):
        ray_waitable = ray_waitable.completed()
    try:
        backend = current.started or _backend_of_first([ray_waitable])
    except ValueError:
        raise TypeError(f"No owner found for object {ray_waitable}: {NO_SESSION}.") from None
    if not isinstance(ray_waitable, ObjectRef):
        raise TypeError(f"ray.cancel() only supported for object refs. For actors, try ray.kill(). Got: {type(ray_waitable)}.")
    if force and not ray_waitable.task_id().actor_id().binary().startswith(b"\xff" * 12):
        raise ValueError("force=True is not supported for actor tasks.")
    backend.cancel(ray_waitable, bool(force), bool(recursive))


def kill(actor: ActorHandle | type[Any], *, no_restart: bool = True) -> None:
    """Kill an actor's process immediately; neither ``atexit`` nor ``__ray_shutdown__`` runs. With ``no_restart=False`` it may be restarted.

    When this returns, the process runs no more code and answers no call. Raises ActorHandleNotFoundError for a handle of a session that
    has ended.
    """
    backend = current.started or (backend_of_handle(actor) if isinstance(actor, ActorHandle) else current_backend())
    if not isinstance(actor, ActorHandle):
        raise ValueError(f"ray.kill() only supported for actors. For tasks, try ray.cancel(). Got: {type(actor)}.")
    backend.kill_actor(actor, no_restart)


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    """A handle of the actor that has this name, in this session's namespace or another; it does not keep the actor alive.

    Raises ValueError when there is none.
    """
    backend = current_backend()
    if not name:
        raise ValueError("Please supply a non-empty value to get_actor")
    if not isinstance(name, str):
        raise TypeError(f"the name of an actor is a str, got {type(name)}")
    check_namespace(namespace)
    return backend.get_actor(plain(name), plain(namespace))


# --------------------------------------------------------------------------------------- what there is
def get_gpu_ids() -> list[int] | list[str]:
    """The GPUs of the task or actor this is called in: ints when they are plain indices, else UUIDs as text."""
    ids = current_backend().context().get("gpu_ids") or []
    return [int(gpu) if str(gpu).isdigit() else gpu for gpu in ids]


def nodes() -> list[dict[str, Any]]:
    """The node: a list of one dict."""
    listing = started_backend(_NO_STATE).query("nodes")
    assert isinstance(listing, list)
    return listing


def cluster_resources() -> dict[str, float]:
    """The resources that the session has."""
    listing = started_backend(_NO_STATE).query("cluster_resources")
    assert isinstance(listing, dict)
    return listing


def available_resources() -> dict[str, float]:
    """The free resources. Resources that are used up are not listed."""
    listing = started_backend(_NO_STATE).query("available_resources")
    assert isinstance(listing, dict)
    return {name: amount for name, amount in listing.items() if amount > 0}


def timeline(filename: str | None = None) -> list[dict[str, Any]] | None:
    """Calls with their times: the last 10 000 of each live worker, as events of a Chrome trace; or written to a file of that name.

    The file opens in https://ui.perfetto.dev. For the time in which a compiled graph was profiled (`CompiledGraph.profile`) it also has
    the parts of calls, and the graph's operations. Times are microseconds of CLOCK_MONOTONIC.
    """
    backend = backend_if_started()
    if backend is None:
        raise RuntimeError("Ray has not been started yet. Timeline requires Ray to be initialized first.")
    return backend.timeline(filename)


# -------------------------------------------------------------------------------- what one host cannot do
def client(address: str | None = None) -> Any:
    """Ray's connection to a remote cluster: there is none."""
    raise NotImplementedError("client() connects to a Ray cluster elsewhere; mray runs on this host. Call init() instead.")
