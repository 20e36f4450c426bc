"""The concurrency groups of an actor that runs several calls concurrently: where and when each call runs.

  reading thread                                   executors
  CALL ── by its concurrency group ──▶ ThreadGroupExecutor: at most n threads, a queue before them
  CANCEL ── by task id ─────────────▶ LoopGroupExecutor: at most n coroutines in an event loop; the default group has the main thread's

An async actor has loops (in which its sync methods run too), any other one has threads. Each group has its own executor, so that a group
whose calls all wait does not block another. The calls of an actor that runs one at a time go through the inbox of the main thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from types import CoroutineType, FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from mray._common import messages as m
from mray._common import settings
from mray._common.clock import perf_counter
from mray._common.concurrency import Concurrency, no_group
from mray._common.ids import TaskID
from mray._common.invocations import Invocation, MethodInvocation, read
from mray._ipc.connection import Connection
from mray._objects.remote_error import pickle_error
from mray._runtime.client.calls import failed_reply
from mray._runtime.processes.process import Process, ProcessEnded
from mray._runtime.worker.exits import TERMINATED, flush_output
from mray._runtime.worker.group_executor import Arrival, GroupExecutor
from mray._runtime.worker.running import GroupCall, GroupsContext, LoopCall
from mray._runtime.worker.thread_group import ThreadGroupExecutor
from mray.exceptions import TaskCancelledError

if TYPE_CHECKING:
    import asyncio

    from mray._ipc.event_loop import MainLoop
    from mray._objects.ownership import Entry
    from mray._runtime.client.client import Client
    from mray._runtime.worker.executor import Executor
    from mray._runtime.worker.main_thread import MainThread

_Call = TypeVar("_Call", bound=GroupCall)


class ConcurrencyGroups:
    def __init__(self, client: Client, executor: Executor, main_thread: MainThread, process: Process) -> None:
        self.client = client
        self.process = process
        self.executor = executor
        self.main_thread = main_thread
        self.is_async = False
        #: None: no groups, calls go through the inbox.
        self._executors: dict[str, GroupExecutor] | None = None
        #: Running calls, by task id. Only its own thread changes a call.
        self.running: dict[bytes, GroupCall] = {}
        self.main: MainLoop | None = None
        self._ending = False
        self._is_made = False
        self._lock = threading.Lock()

    # ------------------------------------------------------------------------------------ beginning
    @property
    def exist(self) -> bool:
        return self._executors is not None

    def prepare(self, spec: dict[str, Any]) -> Callable[..., None] | None:
        """Create the actor's groups, if any. Returns the function that runs its constructor."""
        concurrency: Concurrency | None = spec.get("concurrency")
        if concurrency is None:
            return None
        self.is_async, most, groups = concurrency
        executors: dict[str, GroupExecutor] = {}
        if self.is_async:
            from mray._ipc.event_loop import MainLoop  # noqa: PLC0415  (only async actors import asyncio)
            from mray._runtime.worker.loop_group import LoopGroupExecutor, OwnLoopGroupExecutor  # noqa: PLC0415

            self.main = MainLoop(self.client.reactor, self.rest)
            group_executor = LoopGroupExecutor(self, most, "default", self.main.loop, self.main.notify)
            self.main.on_each_iteration(group_executor.begin)
            executors[""] = group_executor
            self.client.objects.warns = bool(settings.WARN_BLOCKING_GET.get())
            for group, size in groups.items():
                executors[group] = OwnLoopGroupExecutor(self, size, group)
        else:
            executors[""] = ThreadGroupExecutor(self, most, "default")
            for group, size in groups.items():
                executors[group] = ThreadGroupExecutor(self, size, group)
        self._executors = executors
        self.executor.actor.has_groups = True
        # The context object is shared, so its class is changed in place.
        self.executor.context.__class__ = GroupsContext
        self.client.from_peers.replace(m.CALL, self._on_call)
        self.client.objects.reads_always = True
        return self._construct

    def rest(self) -> None:
        """Show the idle title and flush output, before the main thread sleeps."""
        if not self.running:
            self.executor.idle_title()
        flush_output()

    def _construct(self, constructor: Callable[..., Any], args: Any, kwargs: Any) -> None:
        if self.main is None:
            constructor(*args, **kwargs)
        else:
            self._construct_in(self.main.loop, constructor, args, kwargs)
        self._is_made = True

    @staticmethod
    def _construct_in(loop: asyncio.AbstractEventLoop, constructor: Callable[..., Any], args: Any, kwargs: Any) -> None:
        async def run() -> BaseException | None:
            try:
                result = constructor(*args, **kwargs)
                if type(result) is CoroutineType:
                    await result
            except BaseException as error:
                return error
            return None

        error = loop.run_until_complete(run())
        if error is not None:
            raise error  # not through the loop, whose frames are not the user's

    # ------------------------------------------------------------------------------------ calls come
    def _on_call(self, connection: Connection, *fields: Any) -> None:
        """CALL, in the reading thread."""
        executors = self._executors
        assert executors is not None
        if self._ending:
            return  # the call fails with the actor's death, about to be reported
        call = read(MethodInvocation, fields)
        group = "" if call.options is None else call.options.get("group", "")
        group_executor = executors.get(group)
        if group_executor is None:
            error = no_group(group, executors)
            self.refuse(connection, call, self.executor.packer.wrapped(error, self.executor.actor.prefix + call.method))
            return
        group_executor.submit((connection, call))

    def refuse(self, connection: Connection, call: Invocation, error: BaseException) -> None:
        """Answer a call that does not run. Any thread."""
        connection.send(failed_reply(call.task_id, call.num_returns, pickle_error(error)))

    def cancel(self, connection: Connection, task_id: bytes, recursive: bool) -> None:
        """CANCEL, in the reading thread."""
        for group_executor in (self._executors or {}).values():
            arrival = group_executor.take(task_id)
            if arrival is not None:
                self.refuse(connection, arrival[1], TaskCancelledError(TaskID(task_id)))
                return
        running = self.running.get(task_id)
        if running is not None:
            running.canceled = True
            running.group.cancel(running)
            self.executor.producers.stop(task_id)
            if recursive:
                self.client.cancelling.cancel_children(task_id)

    # ------------------------------------------------------------------------------------ calls run
    def begin(self, group_executor: GroupExecutor, arrival: Arrival, kind: type[_Call]) -> _Call:
        """Called on the group's thread."""
        connection, call = arrival
        executor = self.executor
        name = executor.name_of(call, executor.actor.prefix + call.method)
        running = kind(connection, call, name, executor.actor.qualified_prefix + call.method, group_executor)
        self.running[call.task_id] = running
        return running

    def end(self, running: GroupCall) -> None:
        """Called on the group's thread."""
        main = self.main_thread
        del self.running[running.task_id]
        if not self.running and self.main is None:  # else before the main thread sleeps
            self.executor.idle_title()
        main.recent.append((running.task_id, running.name, running.began, perf_counter(), None))
        with self._lock:
            main.served += 1
        end = self.executor.end
        if end is not None and not self._ending:
            self.leave(*end)
        elif self._ending and not self.running:
            self.client.reactor.wake()

    def crash(self) -> None:
        """End this process, so that the caller of an unanswerable call gets an error. Any thread."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ProcessEnded, GeneratorExit)):  # GeneratorExit: the process ends already
            sys.excepthook(*sys.exc_info())
        self.process.exit(1)

    # ------------------------------------------------------------------------------------ ending
    def leave(self, kind: str, text: str) -> None:
        """End the actor: no more calls begin, except calls queued when the last handle was dropped. Any thread."""
        self._ending = True
        self.executor.end = None
        if kind != m.CAUSE_SCOPE:
            self.drop_all()
        self.main_thread.inbox.append((self.client.node, m.EXIT, (kind, text)))
        if self.main is not None:
            self.main.notify()
        self.client.reactor.wake()

    def finish(self, kind: str) -> None:
        """Wait for running calls and, if the last handle was dropped, for queued ones. Main thread."""
        if self._executors is None:
            return
        if kind == m.CAUSE_SCOPE:
            self._wait(lambda: not self.running and not self.queued())
        self._ending = True
        self.drop_all()
        self._wait(lambda: not self.running)

    def drop_all(self) -> None:
        for group_executor in (self._executors or {}).values():
            group_executor.drop_all()

    def queued(self) -> int:
        return sum(group_executor.queued for group_executor in (self._executors or {}).values())

    def held_by(self, task_id: bytes, by_task: Mapping[bytes, int], by_thread: Mapping[int, int]) -> list[int]:
        """See `ProcessHost.held_by`; the call itself does not wait."""
        running = self.running.get(task_id)
        for group_executor in (self._executors or {}).values():
            if running.group is group_executor if running is not None else group_executor.has(task_id):
                beside = [call.task_id for call in tuple(self.running.values()) if call.group is group_executor]
                calls = [by_task[each] for each in beside if each in by_task]
                return group_executor.held_by(calls, by_thread, is_running=running is not None)
        return []

    def awaited_by(self, task_id: bytes) -> tuple[str, Any, Entry, FrameType | None] | None:
        """See `ProcessHost.awaited_by`."""
        running = self.running.get(task_id)
        if not isinstance(running, LoopCall) or (task := running.task) is None:
            return None
        from mray._runtime.client.awaiting import awaited_by  # noqa: PLC0415  (only async actors import asyncio)

        found = awaited_by(task)
        return None if found is None else (running.name, *found)

    @property
    def constructs(self) -> bool:
        """Whether the constructor runs."""
        return not self._is_made

    def _wait(self, done: Callable[[], bool]) -> None:
        if self.main is not None:
            self.main.run_while_idle(done)
        else:
            self.client.reactor.wait_until(done)

    def let_go(self) -> None:
        for group_executor in (self._executors or {}).values():
            group_executor.let_go()

    def terminate(self) -> bool:
        """Handle SIGTERM: as `exit_actor`, with another cause. False where no calls run concurrently (yet).

        Main thread, between any two byte codes, and so perhaps with a group's lock held.
        """
        if not self._is_made:
            return False
        self.client.reactor.defer(lambda: self.leave(*TERMINATED))
        return True
