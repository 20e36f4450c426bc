"""The contract of an engine behind the user's verbs: ``mray._backends.native``, ``local`` (one process) or ``ray`` (real Ray).

A backend never sees a user's decorator; it gets functions, classes, values and checked options.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef, RefBackend

if TYPE_CHECKING:
    from mray._api.actor_handle import ActorHandle
    from mray._api.blueprint import ActorMethodSpec
    from mray._common.bridge import Cancel
    from mray._common.options import SessionOptions
    from mray._common.tensor_transports import TensorTransport

#: One ref, a list of refs (num_returns > 1), None (num_returns == 0), or an `ObjectRefGenerator` ("streaming").
Returned = Any
#: From this length of a list of refs on, `wait` remembers what it has left of it.
LONG_LIST = 256


class Backend(RefBackend):
    """One engine. All methods may be called from any thread; those that block say how they end."""

    #: Whether `init(address="local")` in this process starts a nested session, by `start_within`.
    has_sessions_within = False
    #: In a nested session: the backend that this process returns to.
    outer: Backend | None = None

    # -- session -------------------------------------------------------------------------------
    @abstractmethod
    def info(self) -> dict[str, Any]:
        """The session: ``node_id, session_dir, session_name, node_ip_address, namespace, job_id, address``."""

    @abstractmethod
    def shutdown(self) -> None:
        """End the session and its processes. Idempotent."""

    def end_threads(self) -> None:
        """The program is over: end the threads that wait for the session, where the engine can. Main thread."""
        return

    def start_within(self, options: SessionOptions) -> Backend:
        """Start a session nested in this process. Raises RuntimeError where there can be none."""
        raise RuntimeError("this process already has a session")

    def after_reset(self) -> Backend | None:
        """End all work, and return a backend that starts again in the same session; this one is useless then.

        None: impossible; the caller ends the session and starts another one.
        """
        return None

    def counterpart(self, module: str) -> Any:
        """Ray's own module that replaces ``mray.<module>`` where Ray is the engine; else None."""
        return None

    # -- objects -------------------------------------------------------------------------------
    @abstractmethod
    def put(self, value: Any) -> ObjectRef:
        """Store a value; the calling process owns it."""

    def new_memory(self, size: int) -> Any | None:
        """An exporter of writable memory of `size` bytes, which this engine sends without a copy; None if it has none."""
        return None

    def memory_counts(self) -> tuple[int, int, int, int]:
        """Of `new_memory`: how often there was some, and no room for it; parts of it sent without a copy, and with one."""
        return 0, 0, 0, 0

    @abstractmethod
    def wait(self, refs: Sequence[ObjectRef], num_returns: int, timeout: float | None) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """At most `num_returns` ready refs, and the others, each in the order given."""

    @abstractmethod
    def then(self, ref: ObjectRef | ActorHandle, callback: Callable[..., None], *, soon: bool = True) -> Cancel:
        """As `RefBackend.then`; with the handle of an actor, call `callback(error)` when the actor is dead for good."""

    def has_left(self, refs: list[Any]) -> bool:
        """Whether these are exactly the refs that a recent `wait` has left, so that none needs a check."""
        return False

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Wait as `get` does, for a condition that callbacks of `then` bring about. Returns the predicate's last value.

        The predicate must be quick: it is called often, in any thread. Any other code that makes it true must call `wake`.
        """
        raise NotImplementedError(f"{type(self).__name__} waits for refs only.")

    def read_along(self) -> None:
        """A thread is about to wait by other means: deliver callbacks immediately all the same."""
        raise NotImplementedError(f"{type(self).__name__} waits for refs only.")

    def flush(self) -> None:
        """Send the batched answers to earlier calls: the caller may end this process."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call `callback` in any thread after `seconds`, or some milliseconds more."""
        raise NotImplementedError(f"{type(self).__name__} has no timers.")

    def wake(self) -> None:
        """Make threads in `wait_until` test their predicates again."""
        raise NotImplementedError(f"{type(self).__name__} waits for refs only.")

    # -- tensors that stay with their maker -------------------------------------------------------
    def put_tensors(self, value: Any, transport: TensorTransport) -> ObjectRef:
        """As `put`, but the tensors stay in this process until a reader needs them."""
        raise NotImplementedError(f"{type(self).__name__} has no tensor transports.")

    def wait_tensor_freed(self, tensor: Any, timeout: float | None) -> None:
        """Wait until no object has this tensor of this process. Raises TimeoutError."""
        raise NotImplementedError(f"{type(self).__name__} has no tensor transports.")

    def set_tensor_target(self, ref: ObjectRef, place: Callable[[list[Any]], list[Any]], device: str | None) -> None:
        """Make `get` return what `place` makes of the tensors. Raises ValueError unless they stay with their holder.

        `device`: a type of devices that its transport must admit.
        """
        raise NotImplementedError(f"{type(self).__name__} has no tensor transports.")

    # -- code ------------------------------------------------------------------------------------
    def exports(self, owner: Any) -> dict[str, Any]:
        """The cache of this backend for a `RemoteFunction` or `ActorBlueprint`; empty in a new session."""
        backend, kept = owner.export_cache
        if backend is not self:
            kept = {}
            owner.export_cache = (self, kept)
        return kept  # type: ignore[no-any-return]

    # -- tasks -----------------------------------------------------------------------------------
    @abstractmethod
    def submit_task(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Returned:
        """Run `function` (a `RemoteFunction`). `options` are checked and merged with its own."""

    @abstractmethod
    def cancel(self, ref: ObjectRef, force: bool, recursive: bool) -> None:
        """Cancel the task behind a ref."""

    # -- actors ----------------------------------------------------------------------------------
    @abstractmethod
    def create_actor(self, actor_class: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> ActorHandle:
        """Start an actor of `actor_class`; returns immediately."""

    @abstractmethod
    def submit_method(
        self,
        handle: ActorHandle,
        method: ActorMethodSpec,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        num_returns: Any,
        options: dict[str, Any] | None,
    ) -> Returned:
        """Call a method; calls of one process reach an actor in the order of submission."""

    @abstractmethod
    def hold_actor(self, actor_id: bytes) -> Any:
        """A token that lives as long as the handle: when the last token in the last process dies, the actor ends."""

    def has_made(self, actor_id: bytes) -> bool:
        """Whether an actor is of this session; False where it is known to be of another session."""
        return True

    @abstractmethod
    def export_handle(self, handle: ActorHandle) -> None:
        """Called when a handle is pickled: keeps the actor alive with the pickle."""

    def carried_by_own_handle(self) -> Any:
        """The engine's data of a new handle in this process; see `ActorHandle._carried`."""
        return None

    @abstractmethod
    def kill_actor(self, handle: ActorHandle, no_restart: bool) -> None:
        """Kill the actor's process immediately."""

    def actor_state(self, handle: ActorHandle) -> str | None:
        """The actor's state as this process knows it: "pending", "alive", "restarting", "dead"; None if unknown."""
        raise NotImplementedError(f"{type(self).__name__} does not follow the states of actors.")

    @abstractmethod
    def get_actor(self, name: str, namespace: str | None) -> ActorHandle:
        """The (weak) handle of a named actor. Raises ValueError if there is none."""

    # -- placement groups ------------------------------------------------------------------------
    def create_placement_group(
        self, bundles: list[dict[str, float]], strategy: str, name: str, detached: bool, selectors: list[dict[str, str]] | None
    ) -> bytes:
        """Begin a reservation; returns its id. Raises RaySystemError when the name is taken. Arguments are checked."""
        raise NotImplementedError(f"{type(self).__name__} has no placement groups.")

    def remove_placement_group(self, group_id: bytes) -> None:
        """End a reservation, its tasks and actors; ignored when there is none."""
        raise NotImplementedError(f"{type(self).__name__} has no placement groups.")

    def placement_group_ready(self, group_id: bytes, value: Any) -> ObjectRef:
        """A ref that becomes `value` once the group is created."""
        raise NotImplementedError(f"{type(self).__name__} has no placement groups.")

    def wait_placement_group(self, group_id: bytes, timeout: float) -> bool:
        """Whether the group is created within `timeout` seconds. Raises when it is removed."""
        raise NotImplementedError(f"{type(self).__name__} has no placement groups.")

    def on_out_of_scope(self, ref: ObjectRef, callback: Callable[[bytes], None]) -> None:
        """Call back with the object's id, once no process holds a ref of it, in any thread. Raises ValueError unless this process owns
        it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not report when an object goes out of scope.")

    # -- what there is ---------------------------------------------------------------------------
    @abstractmethod
    def query(self, what: str, *arguments: Any) -> Any:
        """One of ``cluster_resources, available_resources, nodes, named_actors, actors, placement_groups``; ``spilled``: bytes and
        number of spilled objects.
        """

    def timeline(self, filename: str | None) -> list[dict[str, Any]] | None:
        """See `mray.timeline`."""
        raise NotImplementedError(f"{type(self).__name__} records no events of tasks.")

    @abstractmethod
    def context(self) -> dict[str, Any]:
        """The context of the calling thread: ``task_id, task_name, function_name, actor_id, actor_name, worker_id, mode, resources,
        gpu_ids, namespace, restarted, runtime_env``; None where there is none.
        """

    @abstractmethod
    def exit_actor(self) -> None:
        """End the actor this is called in after the current call; does not return. Raises TypeError outside an actor."""

    # -- graphs ----------------------------------------------------------------------------------
    @abstractmethod
    def compile_graph(self, root: Any, **options: Any) -> Any:
        """Compile the DAG that ends in `root`; see `mray._graph.caller.compiled.CompiledGraph`."""

    @abstractmethod
    def restore_graph(self, handle: Any) -> Any:
        """The compiled graph that was pickled as `handle`; elsewhere than where it was compiled, an object that executes it there."""

    def host(self) -> Any:
        """The `mray._graph.host.GraphHost` of this process. Raises NotImplementedError where channels are the engine's own."""
        raise NotImplementedError(f"{type(self).__name__} has channels of its own.")
