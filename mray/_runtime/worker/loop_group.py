"""Coroutines for the calls of one concurrency group of an async actor.

  reading thread ── submit ──▶ queue ──▶ event loop: a task per call, at most n of them; arguments, method, reply

The default group's loop is the main thread's, which also reads (`mray._ipc.event_loop`): a call that arrives while it is idle crosses no
thread. Each other group has a loop on its own thread. Calls begin in order of arrival. Sync methods run in the loop too, and block it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any

from mray._common.bridge import call_in, new_loop
from mray._common.concurrency import AT_ONCE
from mray._common.ids import TaskID
from mray._runtime.worker.finalizing import close_tasks
from mray._runtime.worker.group_executor import Arrival, GroupExecutor, GroupsOfActor
from mray._runtime.worker.running import LoopCall, current_call
from mray.exceptions import AsyncioActorExit, TaskCancelledError


def _unretrieved(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception of a callback or of a task that no code awaits, unless it ends the actor."""
    if not isinstance(context.get("exception"), (AsyncioActorExit, SystemExit)):
        loop.default_exception_handler(context)


class LoopGroupExecutor(GroupExecutor):
    """For the loop's thread, except the methods of a `GroupExecutor`."""

    def __init__(self, actor: GroupsOfActor, size: int, name: str, loop: Any, wake: Callable[[], None]) -> None:
        super().__init__(actor, size, name)
        self._loop = loop
        #: Makes the loop call `begin` soon. Any thread.
        self._wake = wake
        #: The calls of tasks, which the loop holds weakly.
        self._tasks: dict[asyncio.Task[None], LoopCall] = {}
        #: Tasks before their first step.
        self._unbegun = 0
        #: Calls begin in it, without variables of earlier calls.
        self._context = copy_context()
        self._thread = threading.get_ident()
        if loop is not None:
            loop.set_exception_handler(_unretrieved)

    def submit(self, arrival: Arrival) -> None:
        with self._lock:
            self._queue.append(arrival)
        self._wake()

    def cancel(self, running: LoopCall) -> None:
        if threading.get_ident() == self._thread:
            self._interrupt(running)
        else:
            call_in(self._loop, self._interrupt, running)

    @staticmethod
    def _interrupt(running: LoopCall) -> None:
        if running.task is not None:  # else it has ended
            running.task.cancel()

    def held_by(self, calls: list[int], by_thread: Mapping[int, int], *, is_running: bool) -> list[int]:
        """The wait that blocks the loop. A call that awaits holds nothing."""
        wait = by_thread.get(self._thread)
        return [] if wait is None else [wait]

    def let_go(self) -> None:
        if self._loop is not None:
            close_tasks(self._loop)

    def begin(self) -> None:
        queue, tasks = self._queue, self._tasks
        while queue and len(tasks) < self._size:
            with self._lock:
                if not queue:
                    return
                running = self._actor.begin(self, queue.popleft(), LoopCall)
            at_once = False
            if not self._unbegun and running.call.options is None:
                with contextlib.suppress(Exception):  # the call names no method, and fails because of that
                    at_once = hasattr(self._actor.executor.unpacker.bound(running.call), AT_ONCE)
            if at_once:
                running.task = None
                copy_context().run(self._run_at_once, running)
                continue
            running.task = task = self._loop.create_task(self._run(running))
            tasks[task] = running
            self._unbegun += 1
            task.add_done_callback(self._not_begun)

    def _run_at_once(self, running: LoopCall) -> None:
        current_call.set(running)
        try:
            self._actor.executor.run_at_once(running)
        except BaseException:
            self._actor.crash()
        finally:
            self._answer(running)

    async def _run(self, running: LoopCall) -> None:
        self._unbegun -= 1
        current_call.set(running)
        running.task.remove_done_callback(self._not_begun)
        try:
            await self._actor.executor.run_in_loop(running)
        except BaseException:
            self._actor.crash()
        finally:
            self._end(running)

    def _not_begun(self, task: asyncio.Task[None]) -> None:
        """Answer the call of a task that was cancelled before its first step, and never runs."""
        self._unbegun -= 1
        running = self._tasks[task]
        self._actor.refuse(running.connection, running.call, TaskCancelledError(TaskID(running.task_id)))
        self._end(running)

    def _end(self, running: LoopCall) -> None:
        del self._tasks[running.task]
        running.task = None  # breaks a reference cycle: the task's context holds this call
        self._answer(running)
        if self._queue:
            self._context.run(self.begin)

    def _answer(self, running: LoopCall) -> None:
        """Record the end of a call; its reply leaves in the loop's next iteration."""
        self._actor.end(running)
        self._actor.client.reactor.post_later(running.connection)


class OwnLoopGroupExecutor(LoopGroupExecutor):
    """Coroutines with their own loop and thread, which start with the first call."""

    def __init__(self, actor: GroupsOfActor, size: int, name: str) -> None:
        super().__init__(actor, size, name, None, self._ring)
        self._rung = False
        self._flushing = False

    def _ring(self) -> None:
        if self._loop is None:
            self._loop = new_loop()
            self._loop.set_exception_handler(_unretrieved)
            self._actor.process.start_thread(self._serve, f"mray-loop-{self._name}")
        if not self._rung:
            self._rung = True
            call_in(self._loop, self._begin_rung)

    def _serve(self) -> None:
        self._thread = threading.get_ident()
        asyncio.set_event_loop(self._loop)
        while True:
            try:
                return self._loop.run_forever()  # type: ignore[no-any-return]
            except SystemExit as error:  # of a task that no call waits for; running calls finish
                self._actor.leave(*self._actor.executor.exit_by(error, "Its code, in no call,"))

    def _begin_rung(self) -> None:
        self._rung = False
        self.begin()

    def _answer(self, running: LoopCall) -> None:
        super()._answer(running)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        # Either the reader sees the post before it sleeps, or this thread sees it asleep.
        if self._actor.client.reactor.asleep:
            self._actor.client.reactor.flush()
