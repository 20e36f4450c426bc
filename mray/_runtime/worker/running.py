"""`RunningCall`: a call that a worker runs; `current_call` is the one that the running code belongs to.

  ActorCall     a method on the main thread of an actor that runs one call at a time
  TaskCall      a function on the main thread
  GroupCall     a method on a thread of a concurrency group
  LoopCall      a method in an event loop

A call on the main thread stands in the worker's `CallContext`, for all its threads; a concurrent one in `current_call`.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from mray._common.clock import perf_counter
from mray._common.ids import TaskID
from mray._common.invocations import MethodInvocation
from mray._common.places import runs_users
from mray._common.record import Record
from mray._ipc.connection import Connection
from mray._runtime.client.call_context import CallContext, Running
from mray.exceptions import TaskCancelledError

if TYPE_CHECKING:
    from mray._runtime.worker.unpacker import Unpacker

#: A finished call: task id, name, begin, end (seconds of CLOCK_MONOTONIC), resources of a task.
Done = tuple[bytes, str | None, float, float, dict[str, float] | None]


class StartedCall(Record):
    """A running call, or a running constructor, as observers get it."""

    task_id: bytes
    name: str
    func_or_class_name: str
    #: Seconds of CLOCK_MONOTONIC; None if it has only just begun.
    begin: float | None
    required_resources: dict[str, float]
    #: The process that made the call.
    owner: str


class FinishedCall(Record):
    """A finished call as observers get it: the row of a listing."""

    task_id: bytes
    name: str
    func_or_class_name: str
    #: Seconds of CLOCK_MONOTONIC.
    begin: float
    end: float
    required_resources: dict[str, float]
    #: None if it has not failed. Of older failures the text is forgotten first.
    error_type: str | None
    error_message: str | None


class Cancelled(BaseException):
    """The end of a cancelled coroutine: `error` is the exception that it raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class RunningCall(Running):
    """A call, and where its answer goes."""

    __slots__ = ("call", "connection")

    def __init__(self, connection: Connection, call: Any, name: str, function_name: str | None) -> None:
        self.connection = connection
        self.call = call
        self.task_id = call.task_id
        self.name = name
        self.function_name = function_name
        self.canceled = False
        self.awaited = ()
        self.final_error = None

    @property
    def streams(self) -> bool:
        options = self.call.options
        return options is not None and "stream" in options

    @abstractmethod
    def begin(self, unpacker: Unpacker) -> Any:
        """Run the user's code and return its value, which may be a coroutine or a generator."""

    def end(self) -> None:
        """Raise the error that replaces the returned value, if any."""
        if self.final_error is not None:
            raise self.final_error
        if self.canceled:
            raise TaskCancelledError(TaskID(self.task_id))

    def outcome(self, error: BaseException) -> BaseException:
        """The error for the caller, after user code has raised this one."""
        is_cancelled = self.canceled and not isinstance(error, TaskCancelledError)
        return self.final_error or (TaskCancelledError(TaskID(self.task_id)) if is_cancelled else error)


class ActorCall(RunningCall):
    __slots__ = ()

    @runs_users
    def begin(self, unpacker: Unpacker) -> Any:
        call = self.call
        args, kwargs = unpacker.arguments_on_main(self.connection, call)
        if unpacker.guard.late is not None:
            unpacker.guard.raise_late()
        method = unpacker.methods.get(call.method) if call.options is None else None
        return (method or unpacker.bound(call))(*args, **kwargs)


class TaskCall(RunningCall):
    """An interrupt may arrive only while user code runs."""

    __slots__ = ()

    @runs_users
    def begin(self, unpacker: Unpacker) -> Any:
        unpacker.begin_interruptible(self.task_id)
        function = unpacker.function(self.call)
        self.function_name = f"{function.__module__}.{self.call.name.rpartition('.')[2]}"
        args, kwargs = unpacker.arguments_on_main(self.connection, self.call)
        if unpacker.guard.late is not None:
            unpacker.guard.raise_late()
        # POINT task unpacked
        return function(*args, **kwargs)

    def end(self) -> None:
        # POINT task returned
        pass

    def outcome(self, error: BaseException) -> BaseException:
        return error


class GroupCall(RunningCall):
    __slots__ = ("began", "group")

    def __init__(self, connection: Connection, call: MethodInvocation, name: str, function_name: str, group: Any) -> None:
        super().__init__(connection, call, name, function_name)
        self.group = group
        self.began = perf_counter()

    @runs_users
    def begin(self, unpacker: Unpacker) -> Any:
        args, kwargs = unpacker.arguments(self.connection, self.call)
        return unpacker.bound(self.call)(*args, **kwargs)


class LoopCall(GroupCall):
    __slots__ = ("task",)

    #: Its task; None when it has ended.
    task: Any

    def outcome(self, error: BaseException) -> BaseException:
        # The loop has imported asyncio.
        is_cancelled = self.canceled or isinstance(error, sys.modules["asyncio"].CancelledError)
        return self.final_error or (Cancelled(error) if is_cancelled else error)


#: Tasks that a coroutine starts inherit it. None on the main thread of workers without concurrent calls.
current_call: ContextVar[GroupCall | None] = ContextVar("mray_running_call", default=None)


class GroupsContext(CallContext):
    """The `CallContext` of a worker with concurrent calls: it describes the call that reads it."""

    @property
    def running(self) -> Running | None:
        return current_call.get() or self.__dict__.get("running")

    @running.setter
    def running(self, value: Running | None) -> None:
        self.__dict__["running"] = value
