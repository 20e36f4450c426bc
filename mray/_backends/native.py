"""The native engine: mray's own runtime behind the user's verbs, in a driver or in a worker.

Connects the runtime and the graphs, which do not import each other.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from mray._api.actor import check_session, make_handle
from mray._api.actor_handle import ids_of
from mray._api.backend import Backend
from mray._api.blueprint import ActorBlueprint
from mray._api.object_ref import ObjectRef
from mray._api.remote_function import MOST_KEPT
from mray._backends.lazy_graphs import Graphs
from mray._backends.placement_groups import PlacementCalls, Refused, affinity_of, is_fail_fast, place_of, refusal
from mray._common import messages as m
from mray._common import options as option_rules
from mray._common.beside import SESSION_TRACE, TENSORS, loaded
from mray._common.bridge import Cancel
from mray._common.concurrency import concurrency_of
from mray._common.ids import FIRST, is_actor_of_session_of, is_of_session_of, new_actor_id, new_task_id, return_id, worker_id_of
from mray._common.invocations import short_name
from mray._common.record import Record
from mray._common.reducers import cloud_dumps
from mray._decide.caller.actor_queue import ASKED, UNKNOWN
from mray._ipc.interrupts import guarded
from mray._ipc.zero_copy import counts
from mray._objects.ownership import Guard, why_unknown
from mray._objects.remote_error import UNPICKLABLE, serialization_error
from mray._runtime.client.actor_calls import ActorCaller, ActorState
from mray._runtime.client.call_context import CallContext
from mray._runtime.client.calls import Call
from mray._runtime.client.client import Client
from mray._runtime.client.killing import kill_actors
from mray._runtime.client.streams import listener, new_stream
from mray._runtime.environment.environments import merge_environments, variables_of
from mray._runtime.worker.detached import discard_own, pack_own
from mray.exceptions import (
    ActorAlreadyExistsError,
    PendingCallsLimitExceeded,
    RaySystemError,
)

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures

    from mray._api.actor_handle import ActorHandle
    from mray._api.blueprint import ActorMethodSpec
    from mray._common.tensor_transports import TensorTransport
    from mray._graph.caller.compiled import CompiledGraph
    from mray._runtime.session.driver_output import OutputPrinter
    from mray._runtime.session.session import SessionHold
    from mray._runtime.worker.worker import Worker

#: Larger pickled functions and classes are refused, as in Ray.
LARGEST_CODE = 95 * 1024 * 1024


class _Plan(Record):
    """Attributes that calls of a function with the same options share."""

    pool: Any
    #: Id, pickle and name of the function, and the guard that reports the end of its last user.
    code: tuple[bytes, bytes, str, Guard]
    num_returns: int | str
    retries: int
    label: str
    call_options: dict[str, Any] | None


class _Creation:
    def __init__(self, backend: NativeBackend, spec: dict[str, Any], actor_id: bytes) -> None:
        self._backend = backend
        self.spec = spec
        self.actor_id = actor_id

    def ready(self, call: Call) -> None:
        caller = self._backend.client.actors.get(self.actor_id)
        if call.waiting == 0 and caller is not None and caller.actor.state != m.DEAD:
            self._backend.send_creation(call, self.spec, 0, self.actor_id)


Verb = TypeVar("Verb", bound=Callable[..., Any])

#: Recent calls of a worker whose parent task listings show.
MOST_MADE = 1000
_NO_PLANS: dict[int, Any] = {}


def of_part(part: Callable[[NativeBackend], Verb]) -> cached_property[Verb]:
    """A verb that is a method of a part of the process; the caller calls that directly after the first use."""
    return cached_property(part)


def _those_of(made: Iterable[tuple[bytes, bytes | None]], calls: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Those of these calls that this worker has made, each with its parent, for observers."""
    wanted = frozenset(calls)
    return [(task_id, parent or b"") for task_id, parent in tuple(made) if task_id in wanted]


class NativeBackend(PlacementCalls, Backend):
    """One process's share of the native engine."""

    client: Client
    graphs: Graphs

    host = of_part(lambda self: self.graphs.host)
    end_threads = of_part(lambda self: self.client.reactor.end_threads)
    put = of_part(lambda self: self.client.owner.put)
    get = of_part(lambda self: self.client.objects.get)
    get_one = of_part(lambda self: self.client.objects.get_one)
    new_memory = of_part(lambda self: self.client.owner.new_memory)
    wait_tensor_freed = of_part(lambda self: self.client.tensors.wait_tensor_freed)
    tensor_transport_of = of_part(lambda self: self.client.tensors.transport_of)
    set_tensor_target = of_part(lambda self: self.client.tensors.set_target)
    wait = of_part(lambda self: self.client.objects.wait)
    has_left = of_part(lambda self: self.client.objects.long_lists.has)
    on_out_of_scope = of_part(lambda self: self.client.objects.on_out_of_scope)
    read_along = of_part(lambda self: self.client.reactor.wake_background_reader)
    flush = of_part(lambda self: self.client.reactor.flush)
    wake = of_part(lambda self: self.client.reactor.wake)
    restore_ref = of_part(lambda self: self.client.borrowing.restore)
    export_ref = of_part(lambda self: self.client.borrowing.note)

    def __init__(self, client: Client, session: SessionHold | None, worker: Worker | None = None, graphs: Graphs | None = None) -> None:
        self.client = client
        self._session = session
        self._worker = worker
        self._context: CallContext = worker.context if worker is not None else CallContext()
        self._base_env: dict[str, Any] = dict(client.info.get("runtime_env") or {})
        #: This worker's latest calls, each with its parent task, if any; None in a driver.
        self._made: deque[tuple[bytes, bytes | None]] | None = None
        if worker is not None:
            made = self._made = deque(maxlen=MOST_MADE)
            client.sections["made"] = partial(_those_of, made)
        self.graphs = graphs or Graphs(client, worker)
        client.from_peers.on({m.STREAM_ITEMS: listener(client)})

    @classmethod
    def of_driver(cls, session: SessionHold, log_to_driver: bool) -> NativeBackend:
        from mray._runtime.session.driver_output import OutputPrinter  # noqa: PLC0415  (workers need it not)

        client = session.client
        backend = cls(client, session)
        if log_to_driver:
            backend._printer = session.or_end(partial(OutputPrinter, client))
            client.from_node.on({m.OUTPUT: backend._printer.on_output})
        session.or_end(client.reactor.start_background_reader)
        return backend

    _printer: OutputPrinter | None = None

    # ------------------------------------------------------------------------------------ session
    def info(self) -> dict[str, Any]:
        return self.client.info

    def shutdown(self) -> None:
        self._end_after_graphs(self.client.close if self._session is None else self._session.end)

    def after_reset(self) -> NativeBackend | None:
        session = self._session
        if session is None or session.reset is None or self.client.fatal is not None:
            return None
        self._end_after_graphs(session.reset)
        return self.of_driver(session, self._printer is not None)

    def _end_after_graphs(self, end: Callable[[], object]) -> None:
        """End the graphs, then the session by `end`; completely, even if a signal handler raises."""
        with guarded(), ExitStack() as ending:
            if self._printer is not None:
                ending.callback(self._printer.flush)
            host = self.graphs.made
            if host is not None:
                ending.callback(host.settle)
            ending.callback(end)
            if host is not None:
                host.close()

    # ------------------------------------------------------------------------------------ objects
    def memory_counts(self) -> tuple[int, int, int, int]:
        return counts.made, counts.elsewhere, counts.sent, counts.copied

    def put_tensors(self, value: Any, transport: TensorTransport) -> ObjectRef:
        self.client.check()
        context = self._context
        return self.client.tensors.put(value, transport, (context.actor_id or b"", context.class_name or ""))

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        client = self.client
        if not client.objects.wait_as_user(lambda: predicate() or client.fatal is not None, timeout):
            return False
        if client.fatal is not None and not predicate():
            client.check()
        return True

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.client.reactor.call_later(seconds, lambda: self.client.reactor.defer(callback))

    def then(self, ref: ObjectRef | ActorHandle, callback: Callable[..., None], *, soon: bool = True) -> Cancel:
        client = self.client
        if isinstance(ref, ObjectRef):
            return client.objects.then(ref, callback, soon=soon)
        with client.lock:
            return ActorState(client.actors.of(ref._id), m.DEAD).then(callback)

    def future_of(self, ref: ObjectRef) -> asyncio.Future[Any]:
        from mray._runtime.client.awaiting import awaited_refs  # noqa: PLC0415  (it imports asyncio, which who awaits has loaded)

        return awaited_refs(self.client).future(ref)

    def thread_future_of(self, ref: ObjectRef) -> concurrent.futures.Future[Any]:
        from mray._api.futures import ReadingFuture  # noqa: PLC0415  (it imports concurrent.futures, which few programs need)

        future = ReadingFuture(self)
        self.then(ref, lambda: self.settle(future, ref), soon=False)
        return future

    def wait_in_loop(self, ref: ObjectRef) -> Generator[Any, None, Any]:
        from mray._runtime.client.awaiting import awaited_refs  # noqa: PLC0415

        return awaited_refs(self.client).wait(ref)

    # ------------------------------------------------------------------------------------ tasks
    def submit_task(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        kept = function.export_cache
        plan = kept[1].get("plans", _NO_PLANS).get(id(options))
        context = self._context
        environment = context.runtime_env or self._base_env
        if plan is None or kept[0] is not self or plan[0] is not options or plan[1] is not environment or plan[2] is not context.placement:
            plan = (options, environment, context.placement, self._plan(function, options, environment))
            plans: dict[int, Any] = self.exports(function).setdefault("plans", {})
            if len(plans) >= MOST_KEPT:
                plans.clear()
            plans[id(options)] = plan
        plan = plan[3]
        task_id = new_task_id()
        client = self.client
        call, returned = _new_call(client, task_id, plan.code, plan.num_returns, options)
        running = self._context.running
        if running is not None:
            call.parent = running.task_id
        if self._made is not None:
            self._made.append((task_id, call.parent))
        call.name = plan.label
        call.retries = plan.retries
        call.options = plan.call_options
        if client.fatal is not None:
            client.check()
        client.arguments.pack(call, args, kwargs, function)
        with client.lock:
            if call.arguments is not None and plan.pool.awaits_arguments and client.arguments.wait(call, plan.pool):
                call.source = plan.pool
            else:
                plan.pool.submit(call)
        return returned

    def _plan(self, function: Any, options: dict[str, Any], environment: dict[str, Any]) -> _Plan:
        """Pickle the function and find its pool; once per function and options."""
        code_id, pickled, guard = self._code(function, "function")
        resources = option_rules.task_resources(options)
        label = options["name"] or function.name.rpartition(".")[2]
        place = place_of(options, self._context.placement, function, resources, resources)
        merged = merge_environments(environment, options["runtime_env"], self.client.session_dir)
        retriable = options["max_retries"] != 0
        demand: dict[str, Any] = {
            "resources": resources,
            "env": variables_of(merged),
            "label": f"task {label}",
            "retriable": retriable,
            "options": {"runtime_env": merged},
        }
        single = options["max_calls"] == 1
        call_options: dict[str, Any] = {}
        if options["name"]:
            call_options["name"] = options["name"]
        if options["max_calls"]:
            call_options["max_calls"] = options["max_calls"]
        if options["_labels"]:
            call_options["labels"] = options["_labels"]
        retry = options["retry_exceptions"]
        if retry and options["max_retries"]:
            call_options["retry"] = True if retry is True else _pickle_types(retry)
        if options["timeout_s"] is not None:
            call_options["timeout"] = float(options["timeout_s"])
        delay = options["retry_delay_s"]
        rest = None if delay is None else tuple(map(float, delay if isinstance(delay, (list, tuple)) else (delay,)))
        group = affinity = None
        if place is not None:
            demand["group"] = group = place[0]
            demand["options"]["placement"] = place[1]
        if options["cpu_affinity"] is not None:
            demand["affinity"] = affinity = affinity_of(options, self.client.info)
        if fail_fast := is_fail_fast(options):
            demand["fail_fast"] = True
        refused = refusal(self.client, options, f"The task {label}", resources if place is None else None)
        where = (group, place and place[1][1], repr(affinity), fail_fast, rest)
        key = (tuple(sorted(resources.items())), repr(sorted(merged.items())), single, retriable, where)
        with self.client.lock:
            pool: Any = self.client.leases.pool(key, demand, single, rest) if refused is None else Refused(self.client, demand, refused)
        code = code_id, pickled, function.name, guard
        return _Plan(pool, code, options["num_returns"], options["max_retries"], label, call_options or None)

    def _code(self, owner: Any, kind: str) -> tuple[bytes, bytes, Guard]:
        """(id, pickle, guard that reports when this process no longer needs it), pickled at its first use."""
        exports = self.exports(owner)
        code = exports.get("code")
        if code is None:
            value = owner.code() if kind == "actor class" else owner.function
            name = f"{owner.module}.{owner.name}" + (".__init__" if kind == "actor class" else "")
            try:
                pickled = cloud_dumps(value)
            except UNPICKLABLE as error:
                raise serialization_error(error, value, f"the {kind} {name}") from error
            if len(pickled) > LARGEST_CODE:
                what = f"actor {owner.name.rpartition('.')[2]}" if kind == "actor class" else f"remote function {name}"
                raise ValueError(
                    f"The {what} is too large ({len(pickled) >> 20} MiB > "
                    f"FUNCTION_SIZE_ERROR_THRESHOLD={LARGEST_CODE >> 20} MiB). "
                    "Check that its definition does not capture a large array or another large object; put() that and pass the ref instead."
                )
            import hashlib  # noqa: PLC0415  (it takes OpenSSL along: 2 ms of the start of every session)

            code_id = hashlib.sha1(pickled, usedforsecurity=False).digest()
            code = exports["code"] = (code_id, pickled, Guard(self.client.reactor.defer, self.client.leases.function_over, code_id))
        return code

    def cancel(self, ref: ObjectRef, force: bool, recursive: bool) -> None:
        client = self.client
        if type(ref._entry) is not client.entry:
            raise TypeError(f"No owner found for object {ref}: {why_unknown(ref)}.")
        client.cancelling.cancel(ref, force, recursive)

    # ------------------------------------------------------------------------------------ actors
    def create_actor(self, actor_class: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> ActorHandle:
        client = self.client
        if client.fatal is not None:
            client.check()
        blueprint = actor_class._blueprint
        concurrency = concurrency_of(blueprint.is_async, options, blueprint.groups())
        placement, resources = option_rules.actor_resources(options)
        place = place_of(options, self._context.placement, blueprint, resources, placement)
        namespace = options["namespace"] or client.info["namespace"]
        if options["get_if_exists"]:
            existing = self._held_by_name(options["name"], namespace)
            if existing is not None:
                return existing
        _code_id, code, _guard = self._code(blueprint, "actor class")
        environment = merge_environments(self._context.runtime_env or self._base_env, options["runtime_env"], client.session_dir)
        actor_id = new_actor_id(client.process)
        call = Call(new_task_id(actor_id), "__init__", 0, None)
        detached = options["lifetime"] == "detached"
        if detached:
            pack_own(client, call, actor_id, args, kwargs, blueprint)
        else:
            client.arguments.pack(call, args, kwargs, blueprint, blueprint.init)
        spec: dict[str, Any] = {
            "label": f"actor {blueprint.class_name}",
            "class_name": blueprint.name,
            "code": code,
            "owner": client.process,
            "resources": resources,
            "placement": placement,
            "env": variables_of(environment),
            "runtime_env": environment,
            "name": options["name"],
            "namespace": namespace,
            "get_if_exists": options["get_if_exists"],
            "concurrency": concurrency,
            "detached": detached,
            "max_restarts": options["max_restarts"],
            "max_task_retries": options["max_task_retries"],
            "public": pickle.dumps((blueprint.wire(), options), 5) if options["name"] else b"",
            "affinity": affinity_of(options, client.info),
            "parent": self._context.task_id or b"",
            "fail_fast": is_fail_fast(options),
            "refusal": refusal(client, options, f"The actor {blueprint.class_name}", placement if place is None else None),
        }
        if place is not None:
            spec["group"], spec["current_group"] = place
        with client.lock:
            caller = client.actors.of(actor_id)
            caller.class_name = spec["class_name"]
            caller.learn(options, blueprint.is_async)
            # The constructor's arguments must outlive every restart.
            caller.pins = call
            caller.owned = not detached
            token = client.borrowing.token(actor_id, held=True)
        if spec["name"]:
            if call.arguments is not None:
                client.objects.get(list(call.arguments), None)
            try:
                taken = self.send_creation(call, spec, 1, actor_id)
            except ActorAlreadyExistsError:
                if detached:
                    discard_own(call)
                raise
            if taken is not None:
                if detached:
                    discard_own(call)
                # Another process was faster; if its actor has ended by now, create this one.
                return self._held_by_name(options["name"], namespace) or self.create_actor(actor_class, args, kwargs, options)
            if not detached:
                with client.lock:
                    caller.subscribe()  # retains what its restarts need until it has ended
        else:
            with client.lock:
                if call.arguments is None or not client.arguments.wait(call, _Creation(self, spec, actor_id)):
                    self.send_creation(call, spec, 0, actor_id)
                else:
                    # Announced, since other processes may already watch or kill it.
                    self._ask_for_actor(caller, {**spec, "code": b"", "announced": True})
        return make_handle(blueprint, actor_id, token, options)

    def send_creation(self, call: Call, spec: dict[str, Any], answer: int, actor_id: bytes) -> Any:
        """With `answer`, returns the public spec of another actor that has the name, or None."""
        client = self.client
        spec["arguments"] = (call.form, call.payload)
        spec["values"] = None if call.arguments is None else call.argument_values(client.borrowing.export)
        if answer:
            try:
                return client.ask(m.ACTOR_CREATE, actor_id, spec)
            except RaySystemError as error:  # the node's refusal: the name is taken
                raise ActorAlreadyExistsError(str(error.client_exc)) from None
        self._ask_for_actor(client.actors.of(actor_id), spec)
        return None

    def _ask_for_actor(self, caller: ActorCaller, spec: dict[str, Any]) -> None:
        """Create the actor and subscribe to its states in one system call, so that the node reports each."""
        node = self.client.node
        node.post((m.ACTOR_CREATE, 0, caller.actor_id, spec))
        caller.subscribe()
        node.flush()

    def submit_method(
        self,
        handle: ActorHandle,
        method: ActorMethodSpec,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        num_returns: Any,
        options: dict[str, Any] | None,
    ) -> Any:
        client = self.client
        if client.fatal is not None:
            client.check()
        actor_id = handle._id
        task_id = new_task_id(actor_id)
        if options is not None and options.get("tensor_transport"):
            client.tensors.check_enabled(handle, options["tensor_transport"], num_returns)
        if num_returns == 1:
            entry = client.entry()
            call = entry.task = Call(task_id, method.name, 1, entry)
            returned: Any = ObjectRef(task_id + FIRST, entry)
        else:
            call, returned = _new_call(client, task_id, method.name, num_returns, options, handle)
        call.handle = handle._token
        running = self._context.running
        if running is not None:
            call.parent = running.task_id
        if self._made is not None:
            self._made.append((task_id, call.parent))
        blueprint = handle._blueprint
        client.arguments.pack(call, args, kwargs or None, blueprint, method)
        if call.arguments is not None and TENSORS in client.made:
            client.tensors.warn_if_sent_back(call.arguments, handle)
        with client.lock:
            caller = client.actors.get(actor_id)
            if caller is None:
                check_session(handle)
                caller = client.actors.of(actor_id)
                caller.class_name = blueprint.name
                caller.learn(handle.__actor_options__, blueprint.is_async)
            if options is not None or caller.needs_check:
                if caller.actor.is_full():
                    raise PendingCallsLimitExceeded(
                        f"The task {method.name} could not be submitted to {handle!r} because more than {caller.actor.most_pending} tasks "
                        "are queued on the actor. This limit can be adjusted with the `max_pending_calls` actor option."
                    )
                self._method_options(call, caller, options)
            if call.arguments is not None:
                client.arguments.wait(call, caller)
            caller.submit(call)
        return returned

    def _method_options(self, call: Call, caller: ActorCaller, options: dict[str, Any] | None) -> None:
        options = options or {}
        retries = options.get("max_task_retries")
        call.retries = caller.max_task_retries if retries is None else retries
        retry = options.get("retry_exceptions")
        if retry and call.retries:
            call.options = {"retry": retry if retry is True or isinstance(retry, str) else _pickle_types(retry)}
        if options.get("name"):
            call.options = {**(call.options or {}), "name": options["name"]}
        if options.get("concurrency_group"):
            call.options = {**(call.options or {}), "group": options["concurrency_group"]}
        if options.get("tensor_transport"):
            self.client.tensors.keep(call, options["tensor_transport"])

    def has_made(self, actor_id: bytes) -> bool:
        return is_actor_of_session_of(actor_id, self.client.process)

    def hold_actor(self, actor_id: bytes) -> Any:
        with self.client.lock:
            return self.client.borrowing.token(actor_id)

    def export_handle(self, handle: ActorHandle) -> None:
        check_session(handle)
        self.client.borrowing.note_handle(handle._id, handle._token)

    def kill_actor(self, handle: ActorHandle, no_restart: bool) -> None:
        check_session(handle)
        kill_actors(self.client, ids_of([handle]), no_restart)

    def actor_state(self, handle: ActorHandle) -> str | None:
        with self.client.lock:
            caller = self.client.actors.get(handle._id)
        return None if caller is None or caller.actor.state in (UNKNOWN, ASKED) else caller.actor.state

    def get_actor(self, name: str, namespace: str | None) -> ActorHandle:
        public = self._look_up(name, namespace or self.client.info["namespace"])
        if public is None:
            raise ValueError(
                f"Failed to look up actor with name '{name}'. It was never created, it has died, or it lives in another namespace than "
                f"'{namespace or self.client.info['namespace']}'."
            )
        return self._handle_of(public, None)

    def _held_by_name(self, name: str, namespace: str) -> ActorHandle | None:
        """A handle of the actor with this name that keeps it alive; None if there is none, or it is ending.

        The node is queried again after this process holds the actor, which may have begun to end in between.
        """
        public = self._look_up(name, namespace)
        while public is not None:
            actor_id = public["actor_id"]
            handle = self._handle_of(public, self.hold_actor(actor_id) if actor_id != self._context.actor_id else None)  # not of itself
            found, public = public, self._look_up(name, namespace)
            if public is not None and public["actor_id"] == found["actor_id"]:
                return handle
        return None

    def _look_up(self, name: str, namespace: str) -> dict[str, Any] | None:
        # First notify the node of dropped handles: the last one frees the name.
        self.client.reactor.run_deferred()
        try:
            public: dict[str, Any] = self.client.ask(m.NAME_LOOKUP, name, namespace)
        except Exception as error:
            if getattr(error, "client_exc", None) is None:
                raise
            return None
        return public

    @staticmethod
    def _handle_of(public: dict[str, Any], token: Any) -> ActorHandle:
        wire, options = pickle.loads(public["public"])
        return make_handle(ActorBlueprint.from_wire(wire), public["actor_id"], token, options)

    # ------------------------------------------------------------------------------------ what there is
    def query(self, what: str, *arguments: Any) -> Any:
        client = self.client
        if what == "available_resources":
            with client.lock:
                client.leases.give_back_idle()
        if what == "object_locations":
            return [client.objects.location_of(ref) for ref in arguments[0]]
        return client.ask(m.QUERY, what, list(arguments))

    def context(self) -> dict[str, Any]:
        context = self._context
        running = context.running
        return {
            "task_id": running and running.task_id,
            "task_name": running and running.name,
            "function_name": running and running.function_name,
            "is_async": self._worker is not None and self._worker.groups.is_async,
            "actor_id": context.actor_id,
            "actor_name": context.actor_name,
            "class_name": context.class_name and short_name(context.class_name),
            "actor_class": None if self._worker is None or context.actor_id is None else type(self._worker.executor.actor.instance),
            "worker_id": worker_id_of(self.client.process),
            "mode": "worker" if self._worker is not None else "driver",
            "resources": context.resources,
            "gpu_ids": context.gpu_ids,
            "accelerators": context.accelerators,
            "namespace": self.client.info["namespace"],
            "restarted": context.restarted,
            "placement_group_id": context.placement and context.placement[0],
            "captures_children": bool(context.placement and context.placement[1]),
            "runtime_env": context.runtime_env or self._base_env,
            "canceled": self._worker is not None and self._worker.is_cancelled(),
        }

    def exit_actor(self) -> None:
        if self._worker is None or self._worker.executor.actor.instance is None:
            raise TypeError("exit_actor API is called on a non-actor worker, or in a driver.")
        raise self._worker.exit_actor()

    def timeline(self, filename: str | None) -> list[dict[str, Any]] | None:
        trace = loaded(SESSION_TRACE).timeline(self.client.session_dir)
        if filename is None:
            events: list[dict[str, Any]] = trace.events()
            return events
        trace.save(filename, bare=True)
        return None

    # ------------------------------------------------------------------------------------ graphs
    def compile_graph(self, root: Any, **options: Any) -> CompiledGraph:
        from mray._graph.compiler.compile import compile_graph  # noqa: PLC0415  (20 ms that a session without graphs need not wait)

        return compile_graph(self.host(), root, **options)

    def restore_graph(self, handle: Any) -> Any:
        from mray._graph.caller.copies import copy_of, find_graph  # noqa: PLC0415

        if not is_of_session_of(handle.owner, self.client.process):
            raise ValueError(f"Compiled graph {handle.plan.graph_id} belongs to another session.")
        graph: Any = find_graph(self.host(), handle.plan.graph_id) if handle.owner == self.client.process else None
        return graph or copy_of(self.host(), handle)


def _new_call(
    client: Client, task_id: bytes, method: Any, num_returns: Any, options: dict[str, Any] | None, handle: ActorHandle | None = None
) -> tuple[Call, Any]:
    """A call, and what its caller receives: a ref, None, a list of refs, or `new_stream`'s result."""
    if num_returns == 1:
        entry = client.entry()
        call = entry.task = Call(task_id, method, 1, entry)
        return call, ObjectRef(task_id + FIRST, entry)
    if isinstance(num_returns, str):
        return new_stream(client, task_id, method, num_returns, options or {}, {} if handle is None else handle.__actor_options__)
    entries = [client.entry() for _ in range(num_returns)]
    call = Call(task_id, method, num_returns, None, entries)
    for entry in entries:
        entry.task = call
    refs = [ObjectRef(return_id(task_id, index + 1), entry) for index, entry in enumerate(entries)]
    return call, refs or None


def _pickle_types(types: Any) -> bytes:
    return cloud_dumps(tuple(types))
