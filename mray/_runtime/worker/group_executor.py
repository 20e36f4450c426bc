"""`GroupExecutor`: runs the calls of one concurrency group of an actor, with threads or with coroutines, and queues them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mray._common.invocations import Invocation, MethodInvocation
from mray._ipc.connection import Connection
from mray._runtime.worker.running import GroupCall

if TYPE_CHECKING:
    from mray._runtime.client.client import Client
    from mray._runtime.processes.process import Process
    from mray._runtime.worker.executor import Executor

#: A call, and the connection that it arrived on.
Arrival = tuple[Connection, MethodInvocation]

_Call = TypeVar("_Call", bound=GroupCall)


class GroupsOfActor(Protocol):
    """The members of `ConcurrencyGroups` that a group's executor uses."""

    client: Client
    executor: Executor
    process: Process

    def begin(self, group: GroupExecutor, arrival: Arrival, kind: type[_Call]) -> _Call: ...

    def end(self, running: GroupCall) -> None: ...

    def refuse(self, connection: Connection, call: Invocation, error: BaseException) -> None: ...

    def crash(self) -> None: ...

    def leave(self, kind: str, text: str) -> None: ...


class GroupExecutor(ABC):
    def __init__(self, actor: GroupsOfActor, size: int, name: str) -> None:
        self._actor = actor
        self._size = size
        self._name = name
        #: Held while a call moves from the queue to the running ones, so that a cancel finds it. Never held by a waiting thread.
        self._lock = threading.Lock()
        self._queue: deque[Arrival] = deque()

    @property
    def queued(self) -> int:
        return len(self._queue)

    def has(self, task_id: bytes) -> bool:
        """Whether the call is queued. Any thread."""
        with self._lock:
            return any(call.task_id == task_id for _connection, call in self._queue)

    @abstractmethod
    def held_by(self, calls: list[int], by_thread: Mapping[int, int], *, is_running: bool) -> list[int]:
        """The waits of which one must end before a call of this group, running or queued, can go on; empty if it can.

        `calls` are waits of running calls of the group, `by_thread` those of threads.
        """

    def take(self, task_id: bytes) -> Arrival | None:
        """Take a call out of the queue; None if it is not there. Any thread."""
        with self._lock:
            for arrival in self._queue:
                if arrival[1].task_id == task_id:
                    self._queue.remove(arrival)
                    return arrival
        return None

    def drop_all(self) -> None:
        with self._lock:
            self._queue.clear()

    @abstractmethod
    def submit(self, arrival: Arrival) -> None:
        """Queue or begin a call. Reading thread, the client's lock held."""

    @abstractmethod
    def cancel(self, running: Any) -> None:
        """Interrupt a running call, if the group can. Any thread."""

    @abstractmethod
    def let_go(self) -> None:
        """Release what finished calls have left behind. Main thread."""
