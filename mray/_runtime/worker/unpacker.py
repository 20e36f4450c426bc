"""The unpacker: the code and the arguments of calls, for user code. In the thread that runs the call.

A function's code arrives once, by its hash, is unpickled at its first call, and is dropped when no caller has the function: a program
may create functions without end.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mray._api.blueprint import bound_method
from mray._common import messages as m
from mray._common.concurrency import is_system_group, no_group
from mray._common.invocations import ArgumentValue, Invocation, MethodInvocation, TaskInvocation, argument_values
from mray._objects.remote_error import DependencyError, import_error, unpickle_error
from mray._objects.serializer import deserialize, refuse
from mray._objects.store import read
from mray._runtime.worker.exits import ExitActor
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._ipc.connection import Connection
    from mray._runtime.client.call_context import CallContext
    from mray._runtime.client.cancelling import Interrupts
    from mray._runtime.client.client import Client
    from mray._runtime.worker.live_actor import LiveActor


class Unpacker:
    def __init__(self, client: Client, context: CallContext, actor: LiveActor, interrupts: Interrupts) -> None:
        self._client = client
        self._context = context
        self._actor = actor
        self._interrupts = interrupts
        self.guard = client.reactor.guard
        #: Functions by id, or the errors of unpickling them; pickles of functions not called yet; methods by name.
        self._functions: dict[bytes, Callable[..., Any] | BaseException] = {}
        self._code: dict[bytes, bytes] = {}
        #: The connections over which calls of a function may arrive.
        self._callers: dict[bytes, set[Connection]] = {}
        self.methods: dict[str, Callable[..., Any]] = {}

    # ------------------------------------------------------------------------------------ code
    def add_code(self, connection: Connection, function_id: bytes, pickled: bytes) -> None:
        for known, callers in tuple(self._callers.items()):
            for gone in [caller for caller in callers if caller.closed]:
                self.drop_code(gone, known)
        self._callers.setdefault(function_id, set()).add(connection)
        if function_id not in self._functions:
            self._code[function_id] = pickled

    def drop_code(self, connection: Connection, function_id: bytes) -> None:
        """Drop a function for this caller, and its code if no other caller has it."""
        callers = self._callers.get(function_id, set())
        callers.discard(connection)
        if not callers:
            self._callers.pop(function_id, None)
            self._code.pop(function_id, None)
            self._functions.pop(function_id, None)

    def function(self, call: TaskInvocation) -> Callable[..., Any]:
        """Raises the error of the function's unpickling."""
        function = self._functions.get(call.function_id)
        if function is None:
            try:
                function = pickle.loads(self._code.pop(call.function_id))
            except Exception as error:
                function = import_error(error, call.name, actor=False)
            self._functions[call.function_id] = function
        if isinstance(function, BaseException):
            raise function
        return function

    def bound(self, call: MethodInvocation) -> Callable[..., Any]:
        method = self.methods.get(call.method)
        if method is None:
            method = self._method(call.method)
        options = call.options
        if options is not None and "group" in options and not (self._actor.has_groups or is_system_group(options["group"])):
            raise no_group(options["group"], ())
        return method

    def _method(self, name: str) -> Callable[..., Any]:
        if name == "__ray_call__":
            instance = self._actor.instance
            bound: Callable[..., Any] = lambda function, /, *args, **kwargs: function(instance, *args, **kwargs)  # noqa: E731
        elif name == "__ray_ready__":
            bound = lambda: True  # noqa: E731
        elif name == "__ray_terminate__":
            bound = self._terminate
        else:
            bound = bound_method(self._actor.instance, name, self._actor.cls)
        self.methods[name] = bound
        return bound

    def _terminate(self) -> None:
        raise ExitActor

    # ------------------------------------------------------------------------------------ arguments
    def arguments(self, connection: Connection, call: Invocation) -> tuple[Any, Any]:
        """The positional and keyword arguments of a call. Any thread."""
        try:
            if call.form == m.SEGMENT:
                args, kwargs = self._read_argument(call.payload[:-1], call.payload[-1], connection.process)
            else:
                args, kwargs = deserialize(call.form, call.payload)
            return (args, kwargs or {}) if call.arguments is None else self._fill_in(args, kwargs, call.arguments)
        except RaySystemError as error:  # a value that cannot be unpickled here
            raise DependencyError(error) from None

    def arguments_on_main(self, connection: Connection, call: Invocation) -> tuple[Any, Any]:
        """As `arguments`, on the main thread: objects of the caller are borrowed without acknowledgements."""
        if call.refs is None and call.arguments is None and call.form == m.PICKLED:
            try:
                args, kwargs = pickle.loads(call.payload)
            except Exception as error:
                try:
                    refuse(error)
                except RaySystemError as refusal:
                    raise DependencyError(refusal) from None
            return args, kwargs or {}
        borrowing = self._client.borrowing
        borrowing.caller = connection
        try:
            return self.arguments(connection, call)
        finally:
            borrowing.caller = None

    def constructor_arguments(self, spec: dict[str, Any]) -> tuple[Any, Any]:
        form, payload = spec["arguments"]
        try:
            if form == m.SEGMENT:
                if len(payload) == 3:  # the actor's own, see `mray._runtime.worker.detached`
                    entry = self._client.entry()
                    entry.complete(form, tuple(payload))
                    args, kwargs = read(entry.payload, entry)
                else:
                    args, kwargs = self._read_argument(payload[:-1], payload[-1], spec["owner"])
            else:
                args, kwargs = deserialize(form, payload)
            return self._fill_in(args, kwargs, argument_values(spec.get("values")))
        except RaySystemError as error:
            raise DependencyError(error) from None

    def _fill_in(self, args: Any, kwargs: Any, arguments: list[ArgumentValue] | None) -> tuple[Any, Any]:
        kwargs = kwargs or {}
        if arguments is None:
            return args, kwargs
        has_tensors = any(value.form == m.TENSORS for value in arguments)
        if has_tensors:
            arguments = self._client.tensors.begin_arguments(arguments)
        args = list(args)
        for value in arguments:
            (args if type(value.place) is int else kwargs)[value.place] = self._argument(value)
        if has_tensors and self._context.running is not None:
            self._context.running.awaited = self._client.tensors.awaited(arguments)
        return args, kwargs

    def _argument(self, value: ArgumentValue) -> Any:
        _place, form, payload, object_id, owner = value
        if form == m.FAILED:
            raise DependencyError(unpickle_error(payload))
        if form == m.SEGMENT:
            return self._read_argument(payload, object_id, owner)
        if form == m.TENSORS:
            try:
                self._client.tensors.tensors_of(payload)
            except Exception as error:
                raise DependencyError(error) from None
            return self._client.tensors.argument(payload, owner)
        return deserialize(form, payload)

    def _read_argument(self, payload: Any, object_id: bytes, owner: str) -> Any:
        """The value of an argument in a segment of its owner."""
        client = self._client
        with client.lock:
            entry = client.borrowing.entry_of(object_id, owner)
            entry.complete(m.SEGMENT, tuple(payload))
        return client.objects.read_segment(entry, owner, object_id, lambda failure: DependencyError(unpickle_error(failure)))

    # ------------------------------------------------------------------------------------ signals
    def begin_interruptible(self, task_id: bytes) -> None:
        """Raises KeyboardInterrupt if the task was already cancelled."""
        if self._interrupts.active:
            self._interrupts.begin(task_id)

    def let_go(self) -> None:
        self.methods.clear()
        self._functions.clear()
        self._code.clear()
        self._callers.clear()
