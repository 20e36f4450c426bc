"""What `execute_async` returns: a claim to one output of one execution, to be awaited.

In the process that compiled the graph, in any of its event loops. Nothing runs on behalf of a future: it reads its result when it is
awaited, and a wait that is cancelled loses nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable
from functools import partial
from os import sched_yield
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from mray._channel.base import NOTHING
from mray._common import clock
from mray._graph.caller.completions import Callback
from mray._graph.caller.event_loop import LoopDoor, door_of
from mray._graph.caller.pressure import PATIENCE, complain_of_waiting, submit_timed_out, way_is_clear
from mray._ipc.spin import Patience

if TYPE_CHECKING:
    from mray._graph.caller.compiled import CompiledGraph


class CompiledDAGFuture:
    """The result of one execution of a compiled graph, to be awaited once.

    ``await future`` gives the value or raises the exception of the method that failed; ActorDiedError as soon as an actor of the graph has
    died, RayChannelError after `teardown`. An await that is cancelled, as by `asyncio.wait_for`, leaves the future as it was: await it
    again, or drop it. Cannot be copied, pickled or passed to a task.
    """

    __slots__ = ("__weakref__", "_awaited", "_channel", "_done", "_graph", "_index")

    def __init__(self, graph: CompiledGraph, index: int, channel: int | None = None) -> None:
        self._graph = graph
        self._index = index
        #: Which output; None when the graph has one output and no list.
        self._channel = channel
        self._awaited = False
        self._done = False

    def __await__(self) -> Generator[Any, None, Any]:
        if self._done or self._awaited:
            raise ValueError("CompiledDAGFuture can only be awaited upon once, and it has already been awaited upon.")
        graph = self._graph
        door = door_of(graph._host)
        self._awaited = True
        try:
            if door.is_due():
                yield  # before anything is claimed: a cancellation that comes here loses nothing
            value = self._spin(door.patience)
            while value is NOTHING:
                yield from self._sleep(door)
                with graph._lock:
                    value = graph._claim(self, self._index, self._channel)
        finally:
            self._awaited = False
        return graph._open(value)

    def _spin(self, patience: Patience) -> Any:
        """The value, if it is there or comes within less time than a turn of the loop takes."""
        graph = self._graph
        with graph._lock:
            value = graph._claim(self, self._index, self._channel)
        if value is not NOTHING or not graph._spinner.may_spin():
            return value
        if patience.may_spin():
            until = monotonic() + patience.window
            while value is NOTHING and monotonic() < until:
                with graph._lock:
                    value = graph._claim(self, self._index, self._channel)
            if value is not NOTHING:
                patience.succeeded()
                graph._spinner.succeeded()
                return value
            patience.failed()
        sched_yield()  # the actor may be on this very core
        with graph._lock:
            return graph._claim(self, self._index, self._channel)

    def _sleep(self, door: LoopDoor) -> Generator[Any, None, None]:
        graph = self._graph
        index = self._index
        completions = graph._completions

        def begin(callback: Callback) -> bool:
            with graph._lock:
                if index < graph._results.finished or graph._stopped:
                    return False
                completions.add(index, callback)
                return True

        def end(callback: Callback) -> None:
            with graph._lock:
                completions.discard(index, callback)

        return door.sleep(completions, begin, end, graph._spinner)

    def __str__(self) -> str:
        return f"CompiledDAGFuture({self._graph.get_id()}, execution_index={self._index}, channel_index={self._channel})"

    __repr__ = __str__

    def __copy__(self) -> NoReturn:
        raise ValueError("CompiledDAGFuture cannot be copied.")

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise ValueError("CompiledDAGFuture cannot be deep copied.")

    def __reduce__(self) -> NoReturn:
        raise ValueError("CompiledDAGFuture cannot be pickled.")

    def __del__(self) -> None:
        if not self._done:
            self._graph._note_drop((self._index, self._channel))


class _Room:
    """Awaitable: one more execution may be submitted, or `timeout` seconds have passed."""

    def __init__(self, graph: CompiledGraph, timeout: float | None) -> None:
        self._graph = graph
        self._timeout = timeout

    def __await__(self) -> Generator[Any, None, None]:
        graph = self._graph
        completions = graph._completions

        def begin(callback: Callback) -> bool:
            with graph._lock:
                if graph._stopped or (way_is_clear(graph) and graph._takes_input()):
                    return False
                completions.add_room(callback)
                return True

        def end(callback: Callback) -> None:
            with graph._lock:
                completions.discard_room(callback)

        return door_of(graph._host).sleep(completions, begin, end, graph._spinner, self._timeout)


async def submit_when_there_is_room(graph: CompiledGraph, value: Any) -> int:
    """Submit an execution and return its index, waiting as long as there are too many; RayChannelTimeoutError after `wait_timeout`."""
    begun = clock.now()
    limit = graph._limits.wait_timeout
    deadline = None if limit is None or limit < 0 else begun + limit
    complaint: float | None = begun + PATIENCE
    while (index := graph._submit_nowait(value, True)) < 0:
        now = clock.now()
        if deadline is not None and now >= deadline:
            raise await _in_a_thread(partial(submit_timed_out, graph, limit))
        if complaint is not None and now >= complaint:
            complaint = None
            await _in_a_thread(partial(complain_of_waiting, graph))
        until = [moment - now for moment in (deadline, complaint) if moment is not None]
        await _Room(graph, min(until, default=None))
    return index


async def _in_a_thread(function: Any) -> Any:
    """A report waits for actors, and the event loop does not."""
    import asyncio  # noqa: PLC0415

    return await asyncio.get_running_loop().run_in_executor(None, function)


async def stream(graph: CompiledGraph, inputs: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    """See `CompiledGraph.stream`."""
    flying: deque[CompiledDAGFuture | list[CompiledDAGFuture]] = deque()
    async for item in each_of(inputs):
        value = graph._checked((item,), {})
        # What flies must be read first: others may need that to give room.
        while (index := -1 if len(flying) >= graph._limits.in_flight else graph._submit_nowait(value, True)) < 0 and flying:
            yield await all_of(flying.popleft())
        flying.append(graph._futures(index if index >= 0 else await submit_when_there_is_room(graph, value)))
    while flying:
        yield await all_of(flying.popleft())


async def each_of(values: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    """The values of what can be iterated over, with `async for` or without."""
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


async def all_of(futures: Any) -> Any:
    """What the futures of an execution give: a list, or one value."""
    return [await future for future in futures] if isinstance(futures, list) else await futures
