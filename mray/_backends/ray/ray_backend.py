"""`RayBackend`: mray's verbs on real Ray, in a driver or in a worker of Ray.

Any thread.
"""

from __future__ import annotations

import types
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import ray
import ray.actor
import ray.cloudpickle

from mray._api.actor import make_handle
from mray._api.backend import Backend
from mray._api.current import backend_if_started, set_backend
from mray._api.object_ref import ObjectRef
from mray._backends.ray import connecting, wrappers
from mray._backends.ray import ray_options as rules
from mray._backends.ray.counterparts import counterpart
from mray._backends.ray.errors import translated, translating
from mray._backends.ray.generators import RayObjectRefGenerator
from mray._backends.ray.placement_groups import PlacementGroupCalls
from mray._backends.ray.ray_waiting import WaitCalls
from mray._backends.ray.runtime_info import QUERIES, RuntimeInfo, cluster_and_job, in_worker, pickles_in_band
from mray._backends.ray.shipped_code import Arrival, Shipped
from mray._backends.ray.values import RAYS_VALUES, rays_own, rays_ref, ref_of, value_of
from mray._common.bridge import own_loop, tell
from mray._common.reducers import registered_serializers
from mray.exceptions import ActorDiedError

if TYPE_CHECKING:
    import asyncio

    from mray._api.actor_handle import ActorHandle
    from mray._api.blueprint import ActorMethodSpec
    from mray._common.options import SessionOptions

#: The end of the id of a task's first ref.
_FIRST = (1).to_bytes(4, "little")


class RayBackend(PlacementGroupCalls, WaitCalls, Backend):
    def __init__(self, *, driver: bool) -> None:
        super().__init__()
        self._driver = driver
        self._info: dict[str, Any] | None = None

    @classmethod
    def start(cls, options: SessionOptions) -> RayBackend:
        """Connect this process to the options' cluster, or start one for it (``ray:local``)."""
        with translating:
            connecting.connect(options)
        backend = cls(driver=not in_worker())
        backend.info()
        for kind, (serializer, deserializer) in registered_serializers().items():
            ray.util.register_serializer(kind, serializer=serializer, deserializer=deserializer)
        return backend

    @classmethod
    def attach(cls) -> RayBackend:
        """The backend of a process that is connected to Ray already."""
        return cls(driver=not in_worker())

    # ------------------------------------------------------------------------------------ session
    def info(self) -> dict[str, Any]:
        if self._info is None:
            self._info = connecting.info()
        return self._info

    def _namespace(self) -> str:
        return str(self.info()["namespace"]) if ray.is_initialized() else ""

    def shutdown(self) -> None:
        self._end_calls()
        ray.shutdown()

    # ------------------------------------------------------------------------------------ objects
    def put(self, value: Any) -> ObjectRef:
        with translating:
            return ref_of(ray.put(value))

    def get(self, refs: Sequence[ObjectRef], timeout: float | None, through_host: bool = False) -> list[Any]:
        if self.ended is not None:
            raise self.ended  # Ray would begin another session
        try:
            with translating:
                values: list[Any] = ray.get([rays_ref(ref) for ref in refs], timeout=timeout)
        except SystemExit:  # so Ray ends waiting threads when a session ends
            if self.ended is None:
                raise
            raise self.ended from None
        for index, value in enumerate(values):
            if type(value) in RAYS_VALUES:
                values[index] = value_of(value)
        return values

    def wait(self, refs: Sequence[ObjectRef], num_returns: int, timeout: float | None) -> tuple[list[ObjectRef], list[ObjectRef]]:
        given = {rays_ref(ref): ref for ref in refs}
        with translating:
            ready, rest = ray.wait(list(given), num_returns=num_returns, timeout=timeout)
        return [given[ref] for ref in ready], [given[ref] for ref in rest]

    def future_of(self, ref: ObjectRef) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = own_loop().create_future()

        def come(done: Any) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                tell(future, None, translated(error))
            elif not done.cancelled():
                tell(future, value_of(done.result()))

        rays_ref(ref).as_future().add_done_callback(come)
        return future

    def wait_in_loop(self, ref: ObjectRef) -> Generator[Any, None, Any]:
        with translating:
            value = yield from rays_ref(ref).__await__()
        return value_of(value)

    def restore_ref(self, object_id: bytes, owner: Any) -> ObjectRef:
        return ObjectRef(object_id, ray.cloudpickle.loads(owner) if isinstance(owner, bytes) else owner)

    def export_ref(self, ref: ObjectRef) -> Any:
        """Ray's ref if Ray is pickling, since Ray then counts it. Other picklers would lose its owner: they get bytes, for which Ray
        retains the object while this process lives.
        """
        if pickles_in_band():
            return rays_own(ref)
        with translating:  # Ray may be configured to forbid it
            return ray.cloudpickle.dumps(rays_own(ref))

    # ------------------------------------------------------------------------------------ tasks
    def submit_task(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        exports = self.exports(function)
        plan = exports.get("plan")
        if plan is None or plan[0] is not options:
            plan = exports["plan"] = (options, self._plan(function, options))
        with translating:
            returned = plan[1].remote(*_unwrapped(args), **_unwrapped_keywords(kwargs))
        return _returned(returned)

    def _plan(self, function: Any, options: dict[str, Any]) -> Any:
        """Created once, so that Ray ships it once."""
        exports = self.exports(function)
        made = exports.get("remote")
        if made is None:
            given = rules.function_options(function.given_options)
            wrapper = wrappers.function_wrapper(function, ARRIVAL)
            made = exports["remote"] = ray.remote(**given)(wrapper) if given else ray.remote(wrapper)
        given = rules.task_options(options)
        return made.options(**given) if given else made

    def cancel(self, ref: ObjectRef, force: bool, recursive: bool) -> None:
        entry = rays_ref(ref)
        with translating:
            # Ray has the value before it regards the task as done; cancelling in between would abort this process. Not for later refs: a
            # generator may continue.
            if ref.binary().endswith(_FIRST) and _is_ready(entry):
                return
            ray.cancel(entry, force=force, recursive=recursive)

    # ------------------------------------------------------------------------------------ actors
    def create_actor(self, actor_class: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> ActorHandle:
        blueprint = actor_class._blueprint
        exports = self.exports(blueprint)
        made = exports.get("actor class")
        if made is None:
            given = rules.class_options(options)
            wrapper = wrappers.class_wrapper(blueprint, ARRIVAL)
            made = exports["actor class"] = ray.remote(**given)(wrapper) if given else ray.remote(wrapper)
        given = rules.actor_options(options)
        with translating:
            handle = made.options(**given).remote(*_unwrapped(args), **_unwrapped_keywords(kwargs))
        return _handle(handle, blueprint, options)

    def submit_method(
        self,
        handle: ActorHandle,
        method: ActorMethodSpec,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        num_returns: Any,
        options: dict[str, Any] | None,
    ) -> Any:
        target = getattr(rays_own(handle), method.name, None)
        if target is None:
            _check_session(handle)
            raise AttributeError(f"Ray's handle of {handle!r} has no method {method.name!r}.")
        given = {} if options is method.options else rules.method_options(options or {})
        if num_returns != method.num_returns:
            given["num_returns"] = num_returns
        try:
            if given:
                target = target.options(**given)
            returned = target.remote(*_unwrapped(args), **_unwrapped_keywords(kwargs))
        except ray.exceptions.RayError as error:
            raise translated(error) from None
        except Exception:
            _check_session(handle)
            raise
        return _returned(returned)

    def carried_by_own_handle(self) -> Any:
        return ray.get_runtime_context().current_actor

    def hold_actor(self, actor_id: bytes) -> Any:
        raise NotImplementedError(f"a handle of actor {actor_id.hex()} arrived without Ray's handle.")

    def export_handle(self, handle: ActorHandle) -> None:
        """Check the handle: Ray aborts the process for one that it does not know any more."""
        _check_session(handle)

    def kill_actor(self, handle: ActorHandle, no_restart: bool) -> None:
        with translating:
            ray.kill(rays_own(handle), no_restart=no_restart)

    def get_actor(self, name: str, namespace: str | None) -> ActorHandle:
        with translating:
            handle = ray.get_actor(name, namespace=namespace)
        return _handle(handle, wrappers.blueprint_of(handle), None)

    # ------------------------------------------------------------------------------------ what there is
    def query(self, what: str, *arguments: Any) -> Any:
        ask = QUERIES.get(what)
        if ask is None:
            raise NotImplementedError(f"Ray does not report {what!r}.")
        return ask(*arguments)

    def timeline(self, filename: str | None) -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] | None = ray.timeline(filename)
        return found

    def context(self) -> dict[str, Any]:
        return RuntimeInfo("driver" if self._driver else "worker", self._namespace())

    def exit_actor(self) -> None:
        ray.actor.exit_actor()

    # ------------------------------------------------------------------------------------ graphs
    def compile_graph(self, root: Any, **options: Any) -> Any:
        from mray._backends.ray.ray_graphs import compile_graph  # noqa: PLC0415  (a second that programs without graphs need not wait)

        return compile_graph(root, function=self._plan, value=lambda ref: self.get([ref], None)[0], **options)

    def restore_graph(self, handle: Any) -> Any:
        raise NotImplementedError("A compiled graph of mray's own reached a process that runs on Ray.")

    # ------------------------------------------------------------------------------------ sessions within
    @property
    def has_sessions_within(self) -> bool:  # type: ignore[override]
        return not self._driver

    def start_within(self, options: SessionOptions) -> Backend:
        if self._driver:
            return super().start_within(options)
        from mray._backends.ray.within import NativeWithin  # noqa: PLC0415  (the native engine, only when it is used)

        return NativeWithin.begin(self, options)

    def counterpart(self, module: str) -> Any:
        return counterpart(module)


# ------------------------------------------------------------------------------------- to and from Ray
def _unwrapped(args: Sequence[Any]) -> list[Any]:
    return [rays_ref(arg) if type(arg) is ObjectRef else arg for arg in args]


def _unwrapped_keywords(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    return dict(zip(kwargs, _unwrapped(list(kwargs.values())), strict=True)) if kwargs else {}


def _returned(returned: Any) -> Any:
    if isinstance(returned, ray.ObjectRef):
        return ref_of(returned)
    if isinstance(returned, list):
        return [ref_of(ref) for ref in returned]
    if isinstance(returned, ray.ObjectRefGenerator):
        return RayObjectRefGenerator(returned, ref_of)
    return None


def _is_ready(entry: ray.ObjectRef) -> bool:
    """Whether a task is done. TypeError for a task of another session."""
    try:
        return bool(ray.wait([entry], timeout=0, fetch_local=False)[0])
    except ValueError as error:
        raise TypeError(f"No owner found for object {entry}: it belongs to a session that has ended.") from error


def _check_session(handle: ActorHandle) -> None:
    """ActorDiedError for a handle from an ended session, on Ray or not."""
    carried = rays_own(handle)
    if carried is None or carried._ray_cluster_and_job != cluster_and_job():  # noqa: SLF001  (Ray's)
        actor = handle.__actor_outline__()
        raise ActorDiedError(
            actor_id=actor.key,
            class_name=actor.class_name,
            error_msg=f"{handle!r} belongs to a session that has ended: create or get the actor in this one.",
        )


def _handle(handle: Any, blueprint: Any, options: dict[str, Any] | None) -> ActorHandle:
    token = None if getattr(handle, "_ray_weak_ref", False) else handle
    return make_handle(blueprint, handle._actor_id.binary(), token, options, carried=handle)  # noqa: SLF001  (Ray's)


# ------------------------------------------------------------------------------------------- arriving
def arrive(payload: bytes) -> Shipped:
    if backend_if_started() is None:
        set_backend(RayBackend.attach())
    return Shipped(ray.cloudpickle.loads(payload), payload, ARRIVAL)


def _arrival_by_value() -> Arrival:
    """A function of no module, and so pickled by value."""

    def unpack_mray(version: str, payload: bytes) -> Any:
        try:
            from mray._common.version import __version__ as here  # noqa: PLC0415
        except ImportError as error:
            raise RuntimeError(
                f"this node of the Ray cluster has no mray ({error}), and the driver has mray {version}: install the same version on every "
                "node, or name it in runtime_env."
            ) from None
        if here != version:
            raise RuntimeError(
                f"this node of the Ray cluster has mray {here}, and the driver has mray {version}: install the same version on every node."
            )
        from mray._backends.ray.ray_backend import arrive  # noqa: PLC0415

        return arrive(payload)

    made = types.FunctionType(unpack_mray.__code__, {"__builtins__": __builtins__, "__name__": "mray_arrival"}, "unpack_mray")
    made.__module__ = "mray_arrival"
    made.__qualname__ = "unpack_mray"
    return made


ARRIVAL = _arrival_by_value()
