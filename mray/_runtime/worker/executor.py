"""The executor: the part of a worker that calls user functions.

On the main thread, one call at a time, in order of arrival, or in the thread of a concurrency group. Only the executor and its parts
call user code::

  call ──▶ Unpacker: code, arguments ──▶ RunningCall.begin: user code ──▶ Producers: items ──▶ Packer: results, errors ──▶ reply
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections import deque
from collections.abc import Callable
from types import CoroutineType, GeneratorType
from typing import Any, NoReturn

from mray._common import messages as m
from mray._common import settings
from mray._common.ids import FIRST, TaskID
from mray._common.invocations import Invocation, MethodInvocation, TaskInvocation, short_name
from mray._common.kept import os
from mray._ipc.connection import Connection
from mray._ipc.process import IDLE_TITLE
from mray._objects.remote_error import DependencyError, from_user, import_error, pickle_error
from mray._objects.serializer import is_plain
from mray._runtime.client.call_context import CallContext, Running
from mray._runtime.client.calls import failed_reply
from mray._runtime.client.cancelling import Interrupts
from mray._runtime.client.client import Client
from mray._runtime.objects.owner import INLINE_BYTES
from mray._runtime.processes.process import Process, ProcessEnded
from mray._runtime.worker.exits import EXITED, TERMINATED, Terminated, cause_of, exit_status
from mray._runtime.worker.live_actor import LiveActor
from mray._runtime.worker.main_thread import MainThread
from mray._runtime.worker.packer import Packer
from mray._runtime.worker.running import ActorCall, Cancelled, LoopCall, RunningCall, TaskCall
from mray._runtime.worker.stream_producer import Producers
from mray._runtime.worker.time_limit import TimeLimit
from mray._runtime.worker.unpacker import Unpacker
from mray.exceptions import AsyncioActorExit, TaskCancelledError

NAMED = 1000
#: Replaces the instance of an ended actor.
_GONE = object()


class Executor:
    def __init__(self, client: Client, context: CallContext, interrupts: Interrupts, main_thread: MainThread, process: Process) -> None:
        self.client = client
        self.context = context
        self.actor = LiveActor()
        self.unpacker = Unpacker(client, context, self.actor, interrupts)
        self.packer = Packer(client, context, self.actor)
        self._run_deferred = client.reactor.run_deferred
        self._interrupts = interrupts
        self._time_limit = TimeLimit(client, interrupts)
        #: Calls of each function with `max_calls`.
        self._counts: dict[bytes, int] = {}
        self._process = process
        self._set_title = process.set_title
        self.producers = Producers(client, self.packer)
        #: The name under which the driver shows output.
        self.shown = ""
        #: (cause kind, text), set if the worker is to end after the current call; and its exit status.
        self.end: tuple[str, str] | None = None
        self.status: int | None = None
        #: (task id, function or method) of the last calls.
        self.named: deque[tuple[bytes, str]] = deque(maxlen=NAMED)
        self._inbox = main_thread.inbox

    # ------------------------------------------------------------------------------------ running
    def run_method(self, connection: Connection, call: MethodInvocation) -> str:
        """CALL, on the main thread. Returns the call's name."""
        name = self.actor.prefix + call.method
        if call.options is not None:
            name = self.name_of(call, name)
        self.context.running = running = ActorCall(connection, call, name, self.actor.qualified_prefix + call.method)
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
        limit = options.get("timeout") if options is not None else None
        if limit is None:
            self.run(running)
        else:
            self._time_limit.begin(call.task_id, limit)
            try:
                self.run(running)
            finally:
                self._time_limit.end()
        self.context.running = None
        if is_last:
            self.end = (m.CAUSE_EXIT, f"Exited because worker reached max_calls={most} for this method.")
            # POINT last call served
        return name

    def run(self, running: RunningCall) -> None:
        self._set_title(running.name)
        try:
            result = running.begin(self.unpacker)
            if type(result) is GeneratorType or (running.call.options is not None and running.streams):
                result = self.producers.run(running, result)
            running.end()
        except BaseException as error:
            result = None
            try:
                outcome = running.outcome(error)
            except KeyboardInterrupt as another:  # it arrived before interrupts were shut out
                outcome = running.outcome(another)
            self._failed(running, outcome)
            del outcome  # it refers to this frame, and to frames of user code
        else:
            if running.call.form or running.call.arguments is not None:
                # Frees a large argument before the answer, so that its memory serves the caller's next one.
                self._run_deferred()
            self._reply(running, result)

    async def run_in_loop(self, running: LoopCall) -> None:
        """As `run`, in a task of an event loop."""
        self._set_title(running.name)
        try:
            result = running.begin(self.unpacker)
            if type(result) is CoroutineType:
                result = await result
            if type(result) is GeneratorType or running.streams:
                result = await self.producers.run_in_loop(running, result)
            running.end()
        except BaseException as error:
            outcome = running.outcome(error)
            result = None
            self._failed(running, outcome)
            del outcome
        else:
            self._reply(running, result)

    def run_at_once(self, running: LoopCall) -> None:
        """As `run_in_loop`, outside any task, for a method that neither waits nor yields."""
        try:
            result = running.begin(self.unpacker)
            running.end()
        except BaseException as error:
            self._failed(running, running.outcome(error))
        else:
            self._reply(running, result)

    def name_of(self, call: Invocation, function: str) -> str:
        """The name from the call's options, else its function's. Any thread that runs calls."""
        name = None if call.options is None else call.options.get("name")
        if not name:
            return function
        self.named.append((call.task_id, function))
        return str(name)

    def cancel_running(self, task_id: bytes) -> None:
        """Mark the call on the main thread as cancelled. Reading thread."""
        running = self.context.running
        if running is not None and running.task_id == task_id:
            running.canceled = True

    def _is_last(self, function_id: bytes, most: int) -> bool:
        """Count a starting call; returns whether this process ends after it."""
        count = self._counts[function_id] = self._counts.get(function_id, 0) + 1
        return count >= most

    # ------------------------------------------------------------------------------------ answering
    def _answer(self, connection: Connection, message: tuple[Any, ...]) -> None:
        """Send a call's answer immediately if no other call waits, else with other answers."""
        if self._inbox or self.actor.has_groups:  # concurrency groups send it when their calls have ended
            connection.post(message)
        else:
            connection.send(message)

    def _reply(self, running: RunningCall, result: Any) -> None:
        connection, task_id = running.connection, running.task_id
        if running.call.num_returns == 1:
            if is_plain(result) and not running.awaited:
                payload = pickle.dumps(result, 5)
                if len(payload) <= INLINE_BYTES:
                    if self.client.borrowing.borrower.unacknowledged:
                        self.packer.settle()
                    self._answer(connection, (m.REPLY, task_id, m.PICKLED, payload, None))
                    return
            try:
                value = self.packer.freeze(running, task_id, task_id + FIRST, result, running.call.options)
            except BaseException as error:
                self._failed(running, error, may_repeat=False)
                return
            self.packer.settle()
            # POINT result frozen
            self._answer(connection, (m.REPLY, task_id, *value))
            return
        try:
            # POINT values returned
            values = self.packer.split(running, result)
        except BaseException as error:
            self._failed(running, error)
            return
        self.packer.settle()
        self._answer(connection, (m.REPLIES, task_id, values))

    def _failed(self, running: RunningCall, error: BaseException, may_repeat: bool = True) -> None:
        """Answer with the error, ask the caller to repeat the call, or end the worker."""
        if isinstance(error, ProcessEnded):
            raise error
        connection, task_id, name = running.connection, running.task_id, running.name
        if isinstance(error, SystemExit):
            if self.actor.instance is None:
                self.end = TERMINATED if isinstance(error, Terminated) else (m.CAUSE_CRASH, f"The task {name} raised {error!r}.")
                self.status = exit_status(error)
            else:
                self.exit_by(error, name)
            return
        if isinstance(error, KeyboardInterrupt) and (limit := self._time_limit.passed()) is not None:
            self._interrupts.ended(task_id)
            error = TimeoutError(f"{name} has run for longer than its timeout_s={limit:g}").with_traceback(error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            wrapped: BaseException = TaskCancelledError(TaskID(task_id))
            if from_user(error.__traceback__) is not None:
                wrapped = self.packer.wrapped(wrapped.with_traceback(error.__traceback__), name)
            self._interrupts.ended(task_id)
        elif isinstance(error, Cancelled):
            cancelled = TaskCancelledError(TaskID(task_id))
            cancelled.__context__ = error.error
            wrapped = self.packer.wrapped(cancelled, name)
        elif isinstance(error, TaskCancelledError):  # of this call itself, or of another call's result that its code has read
            wrapped = error if from_user(error.__traceback__) is None else self.packer.wrapped(error, name)
        else:
            lost = self.client.tensors.why_lost(running.awaited) if running.awaited else None
            if lost is not None:  # undefined contents may have caused the error
                error = DependencyError(lost)
            try:
                retried = may_repeat and self.packer.is_retried(running, error)
            except Exception as unclear:  # for example the user's exception class cannot be unpickled here
                error, retried = unclear, False
            if retried:
                self.packer.attempts.append(task_id)
                self.packer.settle()
                connection.post((m.ATTEMPT, task_id))
                return
            wrapped = self.packer.wrapped(error, name)
        payload = self.packer.note_failure(task_id, wrapped)
        self.packer.settle()
        connection.post(failed_reply(task_id, running.call.num_returns, payload))

    def exit_by(self, error: SystemExit, name: str) -> tuple[str, str]:
        """Set the exit status of an actor whose code has raised SystemExit. Returns (cause kind, text)."""
        self.end = cause = cause_of(error, name)
        self.status = exit_status(error)
        error.__traceback__ = None  # it refers to frames that hold the actor
        return cause

    # ------------------------------------------------------------------------------------ becoming an actor
    def become(
        self, actor_id: bytes, spec: dict[str, Any], incarnation: int, prepare: Callable[[dict[str, Any]], Callable[..., None] | None]
    ) -> bytes | None:
        """ACTOR_START: run the constructor. Returns the pickled error if it failed.

        `prepare` returns the function that runs the constructor; None for a plain call in this thread.
        """
        context = self.context
        # POINT becomes actor
        context.actor_id = actor_id
        context.actor_name = spec.get("name") or ""
        context.class_name = spec["class_name"]
        context.restarted = bool(spec.get("restarted")) or incarnation > 0
        context.namespace = spec.get("namespace") or ""
        context.max_task_retries = spec.get("max_task_retries") or 0
        own = short_name(spec["class_name"])
        self.actor.prefix = own + "."
        self.actor.repr = f"<{own}>"
        self._show(own)
        name = self.actor.prefix + "__init__"
        self._set_title(f"{context.actor_name}:{name}" if context.actor_name else name)
        context.running = running = Running(b"\xff" * 8 + actor_id, name, name)
        try:
            try:
                cls = pickle.loads(spec["code"])
            except Exception as error:
                raise import_error(error, spec["class_name"], actor=True) from None
            self.actor.cls = cls
            # Ray's name of an async actor includes the scope in which the class was defined.
            is_async = bool(spec.get("concurrency")) and spec["concurrency"][0]
            self.actor.qualified_prefix = f"{cls.__module__}.{spec['class_name'] if is_async else own}."
            running.function_name = f"{cls.__module__}.{name}"
            construct = prepare(spec)
            self.actor.instance = instance = cls.__new__(cls)  # before the arguments: their error shows its repr
            args, kwargs = self.unpacker.constructor_arguments(spec)
            # POINT constructor unpacked
            if construct is None:
                instance.__init__(*args, **kwargs)
            else:
                construct(instance.__init__, args, kwargs)
            lost = self.client.tensors.why_lost(running.awaited) if running.awaited else None
            if lost is not None:
                raise DependencyError(lost)
            if running.final_error is not None:
                raise running.final_error
            self.packer.settle()
        except SystemExit as error:
            self.exit_by(error, name)
        except AsyncioActorExit:
            self.end = EXITED
        except ProcessEnded:
            raise
        except BaseException as error:
            wrapped = self.packer.wrapped(error, name)
            return pickle_error(wrapped)
        finally:
            context.running = None
        if self.actor.instance is None:  # the actor ended before it had an instance
            return None
        default = object.__repr__(self.actor.instance)
        shown = self.actor.repr_now()
        self.actor.repr = short_name(context.class_name or "") if shown == default else shown
        self._show(self.actor.repr)
        self.idle_title()
        return None

    def _show(self, name: str) -> None:
        if name == self.shown:
            return
        self.shown = name
        self._process.mark_output(name)

    def idle_title(self) -> None:
        self._set_title(short_name(self.context.class_name or "") or IDLE_TITLE)

    def shut_down_instance(self) -> None:
        """Call the actor's own ``__ray_shutdown__``, within the time limit for a graceful end."""
        hook = getattr(self.actor.instance, "__ray_shutdown__", None)
        if hook is None:
            return
        limit = settings.ACTOR_GRACEFUL_SHUTDOWN_TIMEOUT_MS.get()
        if limit > 0:
            self._process.set_alarm(limit / 1000)
        hook()
        self._process.set_alarm(0)

    def become_fork(self) -> None:
        """In a process forked by user code: exit instead of answering."""
        self.end = (m.CAUSE_EXIT, "")
        self._reply = self._failed = end_fork  # type: ignore[method-assign, assignment]

    def let_go(self) -> None:
        self.actor.instance = _GONE if self.actor.instance is not None else None
        self.actor.cls = object
        self.context.running = None
        self.unpacker.let_go()


def end_fork(_running: RunningCall | None, outcome: Any, _may_repeat: bool = True) -> NoReturn:
    """End a process forked by user code as Python ends one, with this value or error."""
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
