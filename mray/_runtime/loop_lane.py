"""Coroutines for the calls of one concurrency group of an async actor.

    reading thread ── submit ──▶ queue ──▶ event loop: a task per call, at most n of them; arguments, method, reply

The loop of the default group is the main thread's, which also reads (`mray._ipc.event_loop`): a call that comes while it is idle crosses
no thread. Other groups have a loop on a thread of their own each. Calls begin in the order in which they came. Sync methods run in the
loop as well, and hold it up for as long as they take.

Imports asyncio: for async actors.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from mray._ipc.connection import Connection
from mray._runtime.running import RunningCall, current_call

if TYPE_CHECKING:
    from mray._runtime.lanes import Arrival, Lanes


class LoopLane:
    """A `Lane` of coroutines. For the loop's thread, except the methods of a `Lane`."""

    def __init__(self, lanes: Lanes, size: int, loop: Any, wake: Callable[[], None]) -> None:
        self._lanes = lanes
        self._loop = loop
        #: Has the loop call `begin` soon. Any thread.
        self._wake = wake
        #: Calls that may begin.
        self._room = size
        self._queue: deque[Arrival] = deque()
        #: Held while a call goes from the queue to those that run, so that whoever cancels it finds it in one of them.
        self._lock = threading.Lock()
        #: The loop itself holds its tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()
        #: What a call's own context is a copy of. One that begins when another ends would inherit that one's variables.
        self._context = copy_context()
        self._thread = threading.get_ident()

    @property
    def queued(self) -> int:
        return len(self._queue)

    def submit(self, arrival: Arrival) -> None:
        with self._lock:
            self._queue.append(arrival)
        self._wake()

    def take(self, task_id: bytes) -> Arrival | None:
        with self._lock:
            for arrival in self._queue:
                if arrival[1][0] == task_id:
                    self._queue.remove(arrival)
                    return arrival
        return None

    def take_all(self) -> list[Arrival]:
        with self._lock:
            taken = list(self._queue)
            self._queue.clear()
        return taken

    def cancel(self, running: RunningCall) -> None:
        if threading.get_ident() == self._thread:
            self._interrupt(running)
        else:
            self._loop.call_soon_threadsafe(self._interrupt, running)

    @staticmethod
    def _interrupt(running: RunningCall) -> None:
        if running.started and running.task is not None:  # else it sees that itself, or is over
            running.task.cancel()

    def begin(self) -> None:
        """Start what has come, as far as there is room."""
        queue = self._queue
        while queue and self._room > 0:
            with self._lock:
                if not queue:  # taken back meanwhile
                    return
                connection, fields = queue.popleft()
                running = self._lanes.begin(self, fields)
            self._room -= 1
            running.task = task = self._context.run(self._loop.create_task, self._run(connection, running, fields))
            self._tasks.add(task)

    async def _run(self, connection: Connection, running: RunningCall, fields: tuple[Any, ...]) -> None:
        lanes = self._lanes
        current_call.set(running)
        running.started = True
        try:
            await lanes.executor.run_in_loop(connection, running, fields)
        except BaseException:
            lanes.crash()
        finally:
            self._tasks.discard(running.task)
            running.task = None  # which has this call in its context: nothing for the garbage collector
            lanes.end(running)
            self._room += 1
            lanes.client.reactor.post_later(connection)
            self._answered()

    def _answered(self) -> None:
        """A reply has been posted. The reactor sends it with the loop's next turn."""
        if self._queue:
            self.begin()


class GroupLoop(LoopLane):
    """A `Lane` of coroutines with a loop and a thread of its own, which begin with the first call."""

    def __init__(self, lanes: Lanes, size: int, name: str) -> None:
        super().__init__(lanes, size, None, self._ring)
        self._name = name
        self._rung = False
        self._flushing = False

    def _ring(self) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._serve, name=f"mray-loop-{self._name}", daemon=True).start()
        if not self._rung:
            self._rung = True
            self._loop.call_soon_threadsafe(self._begin_rung)

    def _serve(self) -> None:
        self._thread = threading.get_ident()
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _begin_rung(self) -> None:
        self._rung = False
        self.begin()

    def _answered(self) -> None:
        super()._answered()
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        # Either the reader sees the post before it sleeps, or it is seen to sleep here.
        if self._lanes.client.reactor.asleep:
            self._lanes.client.reactor.flush()
