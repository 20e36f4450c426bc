"""`RunningCall`: a call of an actor that runs beside others; `current_call` is the one that the running code belongs to.

In a worker. A call on the main thread needs none of this: it is described by the worker's `Context`.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from mray._runtime.client.context import Context

#: A call that is over: task id, name, begin, end (seconds of CLOCK_MONOTONIC), and the resources of a task.
Done = tuple[bytes, str | None, float, float, dict[str, float] | None]


class RunningCall:
    """One call, from its begin until it is answered."""

    __slots__ = ("began", "canceled", "final_error", "function_name", "group", "task", "task_id", "task_name")

    def __init__(self, task_id: bytes, name: str, function_name: str, group: Any) -> None:
        self.task_id = task_id
        self.task_name = name
        #: The method: module and qualified name.
        self.function_name = function_name
        self.group = group
        #: In an event loop: its task.
        self.task: Any = None
        self.canceled = False
        #: The exception that replaces the method's result or error.
        self.final_error: BaseException | None = None
        self.began = 0.0


#: The call that the running code belongs to; tasks that a coroutine starts inherit it. None on the main thread of other workers.
current_call: ContextVar[RunningCall | None] = ContextVar("mray_running_call", default=None)


class GroupsContext(Context):
    """The `Context` of a worker whose calls run beside each other: its fields are those of the call whose code reads them."""

    @property
    def task_id(self) -> bytes | None:
        running = current_call.get()
        return self.__dict__.get("task_id") if running is None else running.task_id

    @task_id.setter
    def task_id(self, value: bytes | None) -> None:
        self.__dict__["task_id"] = value

    @property
    def task_name(self) -> str | None:
        running = current_call.get()
        return self.__dict__.get("task_name") if running is None else running.task_name

    @task_name.setter
    def task_name(self, value: str | None) -> None:
        self.__dict__["task_name"] = value

    @property
    def function_name(self) -> str | None:
        running = current_call.get()
        return self.__dict__.get("function_name") if running is None else running.function_name

    @function_name.setter
    def function_name(self, value: str | None) -> None:
        self.__dict__["function_name"] = value
