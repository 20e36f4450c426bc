"""`CompiledDAGFuture`, which `execute_async` returns: a claim to one output of one execution, to be awaited.

A future reads its result when it is awaited, and a cancelled wait loses nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable
from functools import partial
from os import sched_yield
from types import coroutine
from typing import Any

from mray._api.dag_node import Unique
from mray._channel.base import NOTHING, Failed
from mray._common import clock
from mray._common.bridge import in_thread
from mray._graph.caller.executions import Executions
from mray._graph.caller.graph_loop import LoopWatcher, watcher_of
from mray._ipc.spin import AdaptiveSpinner

#: Seconds after which an `execute_async` that waits for room logs.
PATIENCE = 10.0


class CompiledDAGFuture(Unique):
    """The result of one execution of a compiled graph, to be awaited once.

    ``await future`` returns the value or raises the exception of the failed method; ActorDiedError as soon as an actor of the graph has
    died, RayChannelError after `teardown`. A cancelled await, as by `asyncio.wait_for`, leaves the future unchanged: await it again, or
    drop it. Cannot be copied, pickled or passed to a task.
    """

    __slots__ = ("__weakref__", "_awaited", "_channel", "_done", "_graph", "_index")

    def __init__(self, graph: Executions, index: int, channel: int | None = None) -> None:
        self._graph = graph
        self._index = index
        #: The output's position; None if the graph has one output and no list.
        self._channel = channel
        self._awaited = False
        self._done = False

    def __await__(self) -> Generator[Any, None, Any]:
        if self._done or self._awaited:
            raise ValueError("CompiledDAGFuture can only be awaited upon once, and it has already been awaited upon.")
        graph = self._graph
        watcher = watcher_of(graph.host)
        self._awaited = True
        try:
            if watcher.is_due():
                yield  # a cancellation here loses nothing
            value = self._spin(watcher.patience)
            while value is NOTHING:
                yield from self._sleep(watcher)
                value = graph.take_nowait(self._index, self._channel)
        finally:
            self._awaited = False
        self._done = True
        if value.__class__ is Failed:
            raise graph.error(value)
        return value

    def _spin(self, patience: AdaptiveSpinner) -> Any:
        graph = self._graph
        value = graph.take_nowait(self._index, self._channel)
        if value is not NOTHING or not graph.spinner.may_spin():
            return value
        take = partial(graph.take_nowait, self._index, self._channel)
        value = patience.spin(take, NOTHING)
        if value is not NOTHING:
            graph.spinner.succeeded()
            return value
        sched_yield()  # the actor may need this core
        return take()

    def _sleep(self, watcher: LoopWatcher) -> Generator[Any, None, None]:
        graph = self._graph
        return watcher.sleep(graph.completions, (self._index, self._channel), graph.spinner)

    def __str__(self) -> str:
        return f"CompiledDAGFuture({self._graph.get_id()}, execution_index={self._index}, channel_index={self._channel})"

    __repr__ = __str__

    def __del__(self) -> None:
        if not self._done:
            self._graph.note_drop((self._index, self._channel))


@coroutine
def _room(graph: Executions, timeout: float | None) -> Generator[Any, None, None]:
    yield from watcher_of(graph.host).sleep(graph.completions, None, graph.spinner, timeout)


async def submit_when_there_is_room(graph: Executions, value: Any) -> int:
    begun = clock.now()
    limit = graph.limits.wait_timeout
    deadline = None if limit is None or limit < 0 else begun + limit
    complaint: float | None = begun + PATIENCE
    while (index := graph.submit_nowait(value, True)) < 0:
        now = clock.now()
        if deadline is not None and now >= deadline:
            raise await in_thread(partial(graph.submit_timed_out, limit), "mray-report")
        if complaint is not None and now >= complaint:
            complaint = None
            await in_thread(graph.complain_of_waiting, "mray-report")
        until = [moment - now for moment in (deadline, complaint) if moment is not None]
        await _room(graph, min(until, default=None))
    return index


async def each_of(values: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


async def all_of(futures: Any) -> Any:
    return [await future for future in futures] if isinstance(futures, list) else await futures
