"""The executor: the part of a worker that calls user functions.

On the worker's main thread, one call at a time, in the order of arrival. All contact with user code is here: unpickling functions, classes
and arguments, running them, pickling their results, and turning their exceptions into the errors that callers get.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CoroutineType, GeneratorType
from typing import Any, NoReturn

from mray._api.blueprint import METHOD_ATTRIBUTE, bound_method
from mray._common import messages as m
from mray._common import settings
from mray._common.concurrency import is_system_group, no_group
from mray._common.history import History
from mray._common.ids import FIRST, TaskID, return_id
from mray._common.invocations import ArgumentValue, Invocation, MethodInvocation, Result, TaskInvocation, argument_values
from mray._common.kept import os
from mray._ipc import process as processes
from mray._ipc.connection import Connection
from mray._ipc.copying import LEAST, call_all
from mray._ipc.output import name_marker
from mray._objects.arrays import plain_arrays
from mray._objects.remote_error import (
    UNPICKLABLE,
    dependency_error,
    import_error,
    pickle_error,
    serialization_error,
    task_error,
    unpickle_error,
)
from mray._objects.serializer import Serialized, deserialize, is_plain, serialize
from mray._objects.store import read
from mray._runtime.client import failed_calls
from mray._runtime.client.call_context import CallContext, Running
from mray._runtime.client.calls import failed_reply
from mray._runtime.client.cancelling import Interrupts
from mray._runtime.client.client import Client
from mray._runtime.objects.owner import INLINE_BYTES
from mray._runtime.worker.exits import EXITED, TERMINATED, ExitActor, Terminated, cause_of, exit_status
from mray._runtime.worker.running import ActorCall, Cancelled, LoopCall, RunningCall, TaskCall
from mray._runtime.worker.stream_producer import Collected, Producers
from mray.exceptions import AsyncioActorExit, RaySystemError, RayTaskError, TaskCancelledError, UserCodeException

#: Failed calls that are remembered, and in how many bytes.
FAILURES, FAILURE_BYTES = 200, 1 << 18
#: Calls with names of their own that are remembered.
NAMED = 1000
#: In the place of an actor that has gone, in a process that is about to.
_GONE = object()


class Executor:
    """Runs calls and replies to them."""

    title_class: type[processes.Title] = processes.Title
    #: Whether the bytes of a call that runs here are those that its caller keeps.
    shares_messages = False

    def __init__(self, client: Client, context: CallContext, interrupts: Interrupts) -> None:
        self.client = client
        self.context = context
        self.guard = client.reactor.guard
        self._run_deferred = client.reactor.run_deferred
        self._interrupts = interrupts
        self.instance: Any = None
        self._functions: dict[bytes, Callable[..., Any] | BaseException] = {}
        self._code: dict[bytes, bytes] = {}
        #: Calls of each function that ends the worker after so many (max_calls).
        self._counts: dict[bytes, int] = {}
        self._title = self.title_class()
        self.producers = Producers(self)
        self._methods: dict[str, Callable[..., Any]] = {}
        self.actor_prefix = ""
        self.qualified_prefix = ""
        self.repr = ""
        #: The name under which the driver shows output.
        self.shown = ""
        #: Set when the worker is to end after the current call: (cause kind, text); and the process's exit status.
        self.end: tuple[str, str] | None = None
        self.status: int | None = None
        #: Whether calls go to groups, whose names are checked there.
        self.has_groups = False
        #: Called before the constructor with the actor's spec; returns the function that runs it, None for a plain call in this thread.
        self.prepare: Callable[[dict[str, Any]], Callable[..., None] | None] = lambda _spec: None
        #: (task id, type, text) of the last calls that failed; for observers.
        self.failures = History(FAILURES, FAILURE_BYTES)
        #: (task id, function or method) of the last calls that were given names.
        self.named: deque[tuple[bytes, str]] = deque(maxlen=NAMED)
        self._noting = threading.Lock()
        #: Sends the answer of a call, or holds it back for company.
        self.answer: Callable[[Connection, tuple[Any, ...]], object] = self.hold

    # ------------------------------------------------------------------------------------ code
    def add_code(self, function_id: bytes, pickled: bytes) -> None:
        """Keep the pickle of a function; it is unpickled at its first call."""
        if function_id not in self._functions:
            self._code[function_id] = pickled

    def function(self, call: TaskInvocation) -> Callable[..., Any]:
        """The function of a task. Raises the error of its unpickling."""
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
        """The method of a call, wrapped as the options ask."""
        method = self._methods.get(call.method)
        if method is None:
            method = self._method(call.method)
        return method if call.options is None else self._adapt(method, call.options)

    # ------------------------------------------------------------------------------------ arguments
    def arguments(self, connection: Connection, call: Invocation) -> tuple[Any, Any]:
        """The positional and keyword arguments of a call. Any thread."""
        try:
            if call.form == m.SEGMENT:
                args, kwargs = self._read_argument(call.payload[:-1], call.payload[-1], connection.process)
            else:
                args, kwargs = deserialize(call.form, call.payload)
            return (args, kwargs or {}) if call.arguments is None else self._fill_in(args, kwargs, call.arguments)
        except RaySystemError as error:  # a value that cannot be made here
            raise dependency_error(error) from None

    def arguments_on_main(self, connection: Connection, call: Invocation) -> tuple[Any, Any]:
        """As `arguments`, on the main thread, where one call runs: its caller's objects are borrowed without a message, until the reply."""
        if call.refs is None and call.arguments is None and call.form == m.PICKLED:
            try:
                args, kwargs = deserialize(m.PICKLED, call.payload)
            except RaySystemError as error:
                raise dependency_error(error) from None
            return args, kwargs or {}
        borrowing = self.client.borrowing
        borrowing.caller = connection
        try:
            return self.arguments(connection, call)
        finally:
            borrowing.caller = None

    def _fill_in(self, args: Any, kwargs: Any, arguments: list[ArgumentValue] | None) -> tuple[Any, Any]:
        """The arguments with the values of refs in their places."""
        kwargs = kwargs or {}
        if arguments is None:
            return args, kwargs
        has_tensors = any(value.form == m.TENSORS for value in arguments)
        if has_tensors:
            arguments = self.client.tensors.begin_arguments(arguments)
        args = list(args)
        for value in arguments:
            (args if type(value.place) is int else kwargs)[value.place] = self._argument(value)
        if has_tensors and self.context.running is not None:
            self.context.running.awaited = self.client.tensors.awaited(arguments)
        return args, kwargs

    def _argument(self, value: ArgumentValue) -> Any:
        _place, form, payload, object_id, owner = value
        if form == m.FAILED:
            raise dependency_error(unpickle_error(payload))
        if form == m.SEGMENT:
            return self._read_argument(payload, object_id, owner)
        if form == m.TENSORS:
            try:
                self.client.tensors.tensors_of(payload)
            except Exception as error:
                raise dependency_error(error) from None
            return self.client.tensors.argument(payload, owner)
        return deserialize(form, payload)

    # ------------------------------------------------------------------------------------ running
    def _read_argument(self, payload: Any, object_id: bytes, owner: str) -> Any:
        """The value of an argument that lies in a segment of its owner's; as `Objects.read_segment`."""
        client = self.client
        with client.lock:
            entry = client.borrowing.entry_of(object_id, owner)
            entry.complete(m.SEGMENT, tuple(payload))
        return client.objects.read_segment(entry, owner, object_id, lambda failure: dependency_error(unpickle_error(failure)))

    def run_method(self, connection: Connection, call: MethodInvocation) -> str:
        """CALL, on the main thread. Returns the call's name."""
        name = self.name_of(call, self.actor_prefix + call.method)
        self.context.running = running = ActorCall(connection, call, name, self.qualified_prefix + call.method)
        self.run(running)
        self.context.running = None
        return name

    def run_task(self, connection: Connection, call: TaskInvocation) -> str:
        """TASK. Returns the call's name."""
        name, options = self.name_of(call, call.name.rpartition(".")[2]), call.options
        most = options.get("max_calls") if options is not None else None
        is_last = most is not None and self._is_last(call.function_id, most)
        if is_last:
            connection.post((m.LEAVING,))
        self.context.running = running = TaskCall(connection, call, name, None)
        self._show(name)
        self.run(running)
        self.context.running = None
        if is_last:
            self.end = (m.CAUSE_EXIT, f"Exited because worker reached max_calls={most} for this method.")
            # POINT last call served
        return name

    def run(self, running: RunningCall) -> None:
        """Run a call on this thread, and answer it."""
        self._title.set(running.name)
        try:
            result = running.begin(self)
            if type(result) is GeneratorType or (running.call.options is not None and running.streams):
                result = self.producers.run(running, result)
            running.end(self)
        except BaseException as error:
            result = None
            try:
                outcome = running.outcome(self, error)
            except KeyboardInterrupt as another:  # it came before interrupts were shut out
                outcome = running.outcome(self, another)
            self._failed(running, outcome)
            del outcome  # which has this frame, and that of the user's code
        else:
            if running.call.form or running.call.arguments is not None:
                # The memory of a large argument goes back before the answer: the caller's next one finds it. (A loop sees to that itself.)
                self._run_deferred()
            self._reply(running, result)

    async def run_in_loop(self, running: LoopCall) -> None:
        """As `run`, in a task of an event loop."""
        self._title.set(running.name)
        try:
            result = running.begin(self)
            if type(result) is CoroutineType:
                result = await result
            if type(result) is GeneratorType or running.streams:
                result = await self.producers.run_in_loop(running, result)
            running.end(self)
        except BaseException as error:
            outcome = running.outcome(self, error)
            result = None
            self._failed(running, outcome)
            del outcome
        else:
            self._reply(running, result)

    def run_at_once(self, running: LoopCall) -> None:
        """As `run_in_loop`, outside of any task: a method that neither waits nor yields, and is over before anybody reads a title."""
        try:
            result = running.begin(self)
            running.end(self)
        except BaseException as error:
            self._failed(running, running.outcome(self, error))
        else:
            self._reply(running, result)

    def begin_interruptible(self, task_id: bytes) -> None:
        """Let a task be interrupted from here on. Raises KeyboardInterrupt when it was cancelled before."""
        if self._interrupts.active:
            self._interrupts.begin(task_id)

    def name_of(self, call: Invocation, function: str) -> str:
        """The name of a call: the one among its options, else its function's. Any thread that runs calls."""
        name = None if call.options is None else call.options.get("name")
        if not name:
            return function
        self.named.append((call.task_id, function))
        return str(name)

    def cancel_running(self, task_id: bytes) -> None:
        """Cancel a call on the main thread: it goes on, may ask (`is_canceled`), and ends as cancelled. Reading thread."""
        running = self.context.running
        if running is not None and running.task_id == task_id:
            running.canceled = True

    def _adapt(self, bound: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
        """The method as a call with these options runs it."""
        if "group" in options and not (self.has_groups or is_system_group(options["group"])):
            raise no_group(options["group"], ())
        return bound

    def _method(self, name: str) -> Callable[..., Any]:
        if name == "__ray_call__":
            instance = self.instance
            bound: Callable[..., Any] = lambda function, *args, **kwargs: function(instance, *args, **kwargs)  # noqa: E731
        elif name == "__ray_ready__":
            bound = lambda: True  # noqa: E731
        elif name == "__ray_terminate__":
            bound = self._terminate
        else:
            bound = bound_method(self.instance, name)
        self._methods[name] = bound
        return bound

    def _terminate(self) -> None:
        raise ExitActor

    def _is_last(self, function_id: bytes, most: int) -> bool:
        """Count a call that is about to run; whether this process ends after it."""
        count = self._counts[function_id] = self._counts.get(function_id, 0) + 1
        return count >= most

    # ------------------------------------------------------------------------------------ answering
    @staticmethod
    def hold(connection: Connection, message: tuple[Any, ...]) -> None:
        """Hold an answer back for company."""
        connection.post(message)

    def _reply(self, running: RunningCall, result: Any) -> None:
        connection, task_id = running.connection, running.task_id
        if running.call.num_returns == 1:
            if is_plain(result) and not running.awaited:
                payload = pickle.dumps(result, 5)
                if len(payload) <= INLINE_BYTES:
                    if self.client.borrowing.unacknowledged:
                        self.settle()
                    self.answer(connection, (m.REPLY, task_id, m.PICKLED, payload, None))
                    return
            try:
                value = self.freeze(running, task_id, task_id + FIRST, result, running.call.options)
            except BaseException as error:
                self._failed(running, error, may_repeat=False)
                return
            self.settle()
            # POINT result frozen
            self.answer(connection, (m.REPLY, task_id, *value))
            return
        try:
            # POINT values returned
            values = self._split(running, result)
        except BaseException as error:
            self._failed(running, error)
            return
        self.settle()
        self.answer(connection, (m.REPLIES, task_id, values))

    def _split(self, running: RunningCall, result: Any) -> list[Result]:
        connection, call, task_id = running.connection, running.call, running.task_id
        num_returns = call.num_returns
        if num_returns == 0:
            return []
        if type(result) is Collected:
            return [*result, *[(m.FAILED, result.failure, None)] * (num_returns - len(result))]
        try:
            results = list(result)
        except TypeError:
            raise TypeError(f"num_returns={num_returns} asks for an iterable of so many values, not {type(result)}.") from None
        if len(results) != num_returns:
            raise ValueError(f"Task returned {len(results)} objects, but num_returns={num_returns}.")
        values: list[Result] = []
        with self._all_or_none(connection, task_id, values) as stored:
            if not running.awaited and (call.options is None or "tensor_transport" not in call.options):
                self._store_arrays(results, connection.process, stored)
            for index, value in enumerate(results):
                frozen = stored.pop(index, None)
                if frozen is None:
                    frozen = self.freeze(running, return_id(task_id, index), return_id(task_id, index + 1), value, call.options)
                values.append(frozen)
        return values

    def _store_arrays(self, results: Sequence[Any], owner: str, stored: dict[int, Result]) -> None:
        """Store large plain arrays among these results, several at a time: by their index."""

        def store(index: int, packed: Serialized) -> None:
            stored[index] = m.SEGMENT, self.client.owner.store_value(packed, owner), None

        large = plain_arrays(results, LEAST)
        if len(large) > 1:
            call_all([partial(store, index, serialize(results[index])) for index in large])

    @contextlib.contextmanager
    def _all_or_none(self, connection: Connection, task_id: bytes, values: Sequence[Result]) -> Iterator[dict[int, Result]]:
        """Free the values that were made already when making one of a call's values fails: the caller never asks for them.

        Those stored ahead, by index, are put into what it gives.
        """
        stored: dict[int, Result] = {}
        try:
            yield stored
        except BaseException:
            with self.client.lock:
                for index in range(len(values)):
                    self.client.borrowing.unpin(connection, return_id(task_id, index))
            for index, (form, payload, _refs) in [*enumerate(values), *stored.items()]:
                self._free(return_id(task_id, index + 1), form, payload)
            raise

    def _free(self, object_id: bytes, form: int, payload: Any) -> None:
        """Free a value that is not sent."""
        if form == m.TENSORS:
            with self.client.lock:
                self.client.tensors.drop(object_id)
            form, payload = payload[-2:]
        if form == m.SEGMENT:
            self.client.owner.store.free(payload[0])

    def freeze(self, running: RunningCall, pin: bytes, object_id: bytes, value: Any, options: dict[str, Any] | None) -> Result:
        """The result of a call; refs inside the value are pinned by the name `pin`.

        Raises also the error of a dead holder of tensors that the call was given, and that were never there.
        """
        client, connection = self.client, running.connection
        transport = None if options is None else options.get("tensor_transport")
        if transport is None:
            try:
                form, payload, refs = client.owner.freeze(value, connection.process)
            except UNPICKLABLE as error:
                raise serialization_error(error, value, f"the return value of {running.name}") from None
        else:
            context = self.context
            actor = (context.actor_id or b"", context.class_name or "")
            form, payload, refs = client.tensors.freeze(value, transport, object_id, connection.process, connection, actor)
        lost = client.tensors.why_lost(running.awaited) if running.awaited else None
        if lost is not None:
            self._free(object_id, form, payload)
            raise dependency_error(lost)
        if not refs:
            return form, payload, None
        with client.lock:
            client.borrowing.pin(connection, pin, refs)
            return form, payload, client.borrowing.names_of(refs)

    def settle(self) -> None:
        """Wait until owners have counted our borrows: the caller lets go of refs that it passed as soon as it has the reply."""
        borrowing = self.client.borrowing
        while borrowing.unacknowledged:
            with contextlib.suppress(KeyboardInterrupt):  # it came too late to cancel the task
                self.client.reactor.wait_until(lambda: not borrowing.unacknowledged)

    def _failed(self, running: RunningCall, error: BaseException, may_repeat: bool = True) -> None:
        """Answer with the error, or have the caller repeat the call, or end the worker."""
        connection, task_id, name = running.connection, running.task_id, running.name
        if isinstance(error, SystemExit):
            if self.instance is None:
                self.end = TERMINATED if isinstance(error, Terminated) else (m.CAUSE_CRASH, f"The task {name} raised {error!r}.")
                self.status = exit_status(error)
            else:
                self.exit_by(error, name)
            return
        if isinstance(error, KeyboardInterrupt):
            wrapped: BaseException = TaskCancelledError(TaskID(task_id))
            self._interrupts.ended(task_id)
        elif isinstance(error, Cancelled):
            cancelled = TaskCancelledError(TaskID(task_id))
            cancelled.__context__ = error.error
            wrapped = self.wrapped(cancelled, name)
        elif isinstance(error, TaskCancelledError):
            wrapped = error
        else:
            lost = self.client.tensors.why_lost(running.awaited) if running.awaited else None
            if lost is not None:  # it may come of undefined contents
                error = dependency_error(lost)
            try:
                retried = may_repeat and self._is_retried(running, error)
            except Exception as unclear:  # an exception class of the user's that cannot be unpickled here, say: the error is its context
                error, retried = unclear, False
            if retried:
                self.settle()
                connection.post((m.ATTEMPT, task_id))
                return
            wrapped = self.wrapped(error, name)
        payload = self._note_failure(task_id, wrapped)
        self.settle()
        connection.post(failed_reply(task_id, running.call.num_returns, payload))

    def exit_by(self, error: SystemExit, name: str) -> tuple[str, str]:
        """Set the exit status of an actor whose code has raised SystemExit. Returns (cause kind, text)."""
        self.end = cause = cause_of(error, name)
        self.status = exit_status(error)
        error.__traceback__ = None  # with the frames of code that is to let go of the actor
        return cause

    def item_failure(self, running: RunningCall, error: BaseException) -> bytes | None:
        """The error of a generator as its last item, pickled; None when it ends more than the call (see `_failed`)."""
        if not isinstance(error, Exception) or isinstance(error, (TaskCancelledError, AsyncioActorExit)):
            return None
        if self._is_retried(running, error):
            return None
        return self._note_failure(running.task_id, self.wrapped(error, running.name))

    def _note_failure(self, task_id: bytes, error: BaseException) -> bytes:
        """Remember a failed call for observers; returns its error, pickled."""
        facts = failed_calls.facts(error)
        with self._noting:  # groups fail beside each other
            self.failures.append((task_id, *facts))
        return pickle_error(error)

    def wrapped(self, error: BaseException, name: str) -> RayTaskError:
        """The error that the caller gets for an exception of user code."""
        context = self.context
        return task_error(
            name,
            error,
            pid=os.getpid(),
            ip=self.client.facts["node_ip_address"],
            actor_id=context.actor_id,
            actor_repr=self.repr_now() if context.actor_id else None,
        )

    def _is_retried(self, running: RunningCall, error: BaseException) -> bool:
        """Whether the caller asked for errors like this one to be retried."""
        wanted = (running.call.options or {}).get("retry", False)
        if isinstance(wanted, bool):
            return wanted and isinstance(error, Exception)
        raised = error.__cause__ if isinstance(error, UserCodeException) else error
        if isinstance(wanted, str):  # declared at the method, whose class is here
            method = getattr(type(self.instance), (running.function_name or "").rpartition(".")[2], None)
            wanted = getattr(method, METHOD_ATTRIBUTE, {}).get("retry_exceptions", ())
            return isinstance(raised, tuple(wanted))
        return isinstance(raised, tuple(pickle.loads(wanted)))

    def repr_now(self) -> str:
        """The instance's own repr, for texts."""
        if self.instance is None:
            return self.repr
        try:
            return repr(self.instance)
        except Exception:
            return object.__repr__(self.instance)

    # ------------------------------------------------------------------------------------ becoming an actor
    def become(self, actor_id: bytes, spec: dict[str, Any], incarnation: int) -> bytes | None:
        """ACTOR_START: run the constructor. Returns the pickled error when it failed."""
        context = self.context
        # POINT becomes actor
        context.actor_id = actor_id
        context.actor_name = spec.get("name") or ""
        context.class_name = spec["class_name"]
        context.restarted = bool(spec.get("restarted")) or incarnation > 0
        context.namespace = spec.get("namespace") or ""
        context.max_task_retries = spec.get("max_task_retries") or 0
        self.actor_prefix = spec["class_name"] + "."
        self.repr = f"<{spec['class_name']}>"
        self._show(spec["class_name"])
        name = self.actor_prefix + "__init__"
        self._title.set(f"{context.actor_name}:{name}" if context.actor_name else name)
        context.running = running = Running(b"\xff" * 8 + actor_id, name, name)
        try:
            try:
                cls = pickle.loads(spec["code"])
            except Exception as error:
                raise import_error(error, spec["class_name"], actor=True) from None
            self.qualified_prefix = f"{cls.__module__}.{cls.__qualname__}."
            construct = self.prepare(spec)
            self.instance = instance = cls.__new__(cls)  # before the arguments: their error shows its repr
            args, kwargs = self._constructor_arguments(spec)
            # POINT constructor unpacked
            if construct is None:
                instance.__init__(*args, **kwargs)
            else:
                construct(instance.__init__, args, kwargs)
            lost = self.client.tensors.why_lost(running.awaited)
            if lost is not None:
                raise dependency_error(lost)
            if running.final_error is not None:
                raise running.final_error
            self.settle()
        except SystemExit as error:
            self.exit_by(error, name)
        except AsyncioActorExit:
            self.end = EXITED
        except BaseException as error:
            wrapped = self.wrapped(error, name)
            return pickle_error(wrapped)
        finally:
            context.running = None
        if self.instance is None:  # it has ended before there was one
            return None
        default = object.__repr__(self.instance)
        shown = self.repr_now()
        self.repr = (context.class_name or "") if shown == default else shown
        self._show(self.repr)
        self.idle_title()
        return None

    def _constructor_arguments(self, spec: dict[str, Any]) -> tuple[Any, Any]:
        form, payload = spec["arguments"]
        try:
            if form == m.SEGMENT:
                if len(payload) == 3:  # the actor's own, see `mray._runtime.worker.detached`
                    entry = self.client.entry()
                    entry.complete(form, tuple(payload))
                    args, kwargs = read(entry.payload, entry)
                else:
                    args, kwargs = self._read_argument(payload[:-1], payload[-1], spec["owner"])
            else:
                args, kwargs = deserialize(form, payload)
            return self._fill_in(args, kwargs, argument_values(spec.get("values")))
        except RaySystemError as error:
            raise dependency_error(error) from None

    def _show(self, name: str) -> None:
        """Have the driver show output under this name from now on: a task's, a class's, then the actor's own repr."""
        if name == self.shown:
            return
        self.shown = name
        marker = name_marker(name)
        for stream, fd in ((sys.stdout, 1), (sys.stderr, 2)):
            # Before any code in this process, or its children, writes to the descriptor.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
            with contextlib.suppress(OSError):
                os.write(fd, marker)

    def idle_title(self) -> None:
        """Set the title that `ps` shows between calls."""
        self._title.set(self.context.class_name or processes.IDLE_TITLE)

    def shut_down_instance(self) -> None:
        """Graceful end of an actor: its own ``__ray_shutdown__`` first."""
        hook = getattr(self.instance, "__ray_shutdown__", None)
        if hook is None:
            return
        limit = settings.ACTOR_GRACEFUL_SHUTDOWN_TIMEOUT_MS.get()
        if limit > 0:  # by the kernel: the hook may sit in code that lets no other thread run
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, limit / 1000)
        hook()
        signal.setitimer(signal.ITIMER_REAL, 0)

    def become_fork(self) -> None:
        """In a process that user code has forked in a call: it ends where this one would answer."""
        self.end = (m.CAUSE_EXIT, "")
        self._reply = self._failed = end_fork  # type: ignore[method-assign, assignment]

    def let_go(self) -> None:
        """Nothing of the user's runs here any more: the actor goes, and the functions of tasks."""
        self.instance = _GONE if self.instance is not None else None
        self.context.running = None
        self._methods.clear()
        self._functions.clear()
        self._code.clear()


def end_fork(_running: RunningCall | None, outcome: Any, _may_repeat: bool = True) -> NoReturn:
    """End a process that user code has forked and that would answer the call, as Python ends one: with this value or error."""
    status = 0
    if isinstance(outcome, SystemExit):
        status = exit_status(outcome)
    elif isinstance(outcome, BaseException):
        status = 1
        sys.excepthook(type(outcome), outcome, outcome.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)
