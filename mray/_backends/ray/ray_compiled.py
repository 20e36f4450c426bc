"""A graph that Ray has compiled, in the process that compiled it.

Features that Ray lacks raise NotImplementedError. For one thread at a time, or with ``enable_asyncio=True`` for the event loop in
which it was compiled. Errors are mray's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Sequence
from typing import Any, NoReturn

import ray
from ray.exceptions import ActorUnavailableError
from ray.exceptions import RayChannelError as RaysChannelError
from ray.exceptions import RayChannelTimeoutError as RaysTimeout

from mray._api.dag_node import GraphRef, Unique
from mray._backends.ray.errors import translated, translating
from mray._backends.ray.runtime_info import pickles_in_band
from mray._common.clock import monotonic, sleep
from mray._inside.graphs import all_of, each_of, receive_into

#: Ray's timeout for waiting forever.
_FOR_EVER = -1

#: Seconds that Ray may take to find out that a machine is down, and between two polls.
_UNTIL_DEAD, _PAUSE = 60.0, 0.05


class CompiledDAGRef(GraphRef):
    """The result of one execution, to be got once. Cannot be copied, pickled or passed to a task."""

    __slots__ = ("_graph", "_ref")

    def __init__(self, graph: RayGraph, ref: Any) -> None:
        self._graph = graph
        self._ref = ref

    def get(self, timeout: float | None = None, out: Any = None) -> Any:
        """Return the value, or raise the exception of the failed method; once.

        `timeout` in seconds: ``None`` waits for `DAGContext.get_timeout` (forever unless set), ``-1`` forever, ``0`` does not wait;
        RayChannelTimeoutError when it has passed, and the ref can still be got. With `out`, an array or tensor, the value is copied
        there. When an actor of the graph dies, Ray ends the graph and this raises ActorDiedError.
        """
        try:
            value = self._ref.get(self._graph.get_timeout if timeout is None else timeout)
        except BaseException as error:
            if isinstance(error, RaysTimeout):
                # Ray takes a ref for got after the first call.
                self._ref._ray_get_called = False  # noqa: SLF001  (Ray's)
            raise self._graph.explained(error) from None
        return value if out is None else receive_into(value, out)

    def get_among(self, _refs: Sequence[Any], timeout: float | None, deadline: float | None) -> Any:
        return self.get(timeout if deadline is None else max(deadline - monotonic(), 0))

    def wait_among(self, refs: Sequence[Any], num_returns: int, timeout: float | None) -> NoReturn:
        """TypeError: Ray does not report whether a graph's result is ready."""
        raise TypeError(
            "wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator: Ray does not report whether the result of a compiled "
            "graph is ready. On Ray, get() it, or compile with enable_asyncio=True."
        )

    def __str__(self) -> str:
        return str(self._ref)

    __repr__ = __str__

    def __reduce__(self) -> NoReturn:
        if pickles_in_band():
            raise TypeError("A CompiledDAGRef cannot be an argument or a result: get() it, and pass its value.")
        super().__reduce__()


class CompiledDAGFuture(Unique):
    """The result of one execution, to be awaited once, in the event loop that executed. Cannot be copied or pickled."""

    __slots__ = ("__weakref__", "_future")

    def __init__(self, future: Any) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, Any]:
        with translating:
            return (yield from self._future.__await__())

    def __str__(self) -> str:
        return str(self._future)

    __repr__ = __str__


class RayGraph:
    """The result of `experimental_compile` on Ray."""

    def __init__(self, graph: Any, get_timeout: float | None, in_flight: int, keep: Any, handles: dict[Any, Any]) -> None:
        self._graph = graph
        self._in_flight = in_flight
        #: Seconds that `get` waits without a timeout.
        self.get_timeout = _FOR_EVER if get_timeout is None else get_timeout
        #: The user's DAG, whose handles keep the actors alive.
        self._keep = keep
        #: mray's handles, by Ray's.
        self._handles = handles
        self._torn_down = False

    # ------------------------------------------------------------------------------------ executing
    def execute(self, /, *args: Any, **kwargs: Any) -> CompiledDAGRef | list[CompiledDAGRef]:
        """Send one input through the graph; returns a ref, or a list of refs if the graph ends in a `MultiOutputNode`.

        Raises RayCgraphCapacityExceeded if too many executions are in flight, RayChannelError after `teardown`, ActorDiedError after the
        death of an actor.
        """
        try:
            made = self._graph.execute(*args, **kwargs)
        except Exception as error:
            raise self.explained(error) from None
        if type(made) is list:
            return [CompiledDAGRef(self, ref) for ref in made]
        return CompiledDAGRef(self, made)

    async def execute_async(self, /, *args: Any, **kwargs: Any) -> CompiledDAGFuture | list[CompiledDAGFuture]:
        """Return a future, or a list of them, to be awaited in this event loop; for graphs compiled with ``enable_asyncio=True``."""
        with translating:
            made = await self._graph.execute_async(*args, **kwargs)
        if type(made) is list:
            return [CompiledDAGFuture(future) for future in made]
        return CompiledDAGFuture(made)

    async def stream(self, inputs: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
        """``async for value in graph.stream(inputs)``: execute the graph with each input; yields the results in input order."""
        flying: deque[Any] = deque()
        async for value in each_of(inputs):
            if len(flying) >= self._in_flight:
                yield await all_of(flying.popleft())
            flying.append(await self.execute_async(value))
        while flying:
            yield await all_of(flying.popleft())

    def explained(self, error: BaseException) -> BaseException:
        """mray's exception for one of Ray's.

        Waits for Ray's final answer: Ray may close channels before it reports an actor's death.
        """
        deadline = monotonic() + _UNTIL_DEAD
        if isinstance(error, RaysChannelError) and not isinstance(error, RaysTimeout) and not self._torn_down:
            try:
                ray.get(list(self._graph.worker_task_refs.values()), timeout=_UNTIL_DEAD)
            except ray.exceptions.GetTimeoutError:
                pass
            except ray.exceptions.RayError as said:
                error = said
        while isinstance(error, ActorUnavailableError) and monotonic() < deadline:
            sleep(_PAUSE)
            try:
                ray.get([actor.__ray_ready__.remote() for actor in self._graph.worker_task_refs], timeout=_UNTIL_DEAD)
            except ray.exceptions.RayActorError as said:
                error = said
            except ray.exceptions.RayError:
                continue
            else:
                break
        return translated(error)

    # ------------------------------------------------------------------------------------ ending
    def teardown(self, kill_actors: bool = False) -> None:
        """End the graph. Its actors become free for other work, or are killed. Idempotent. Waits for running methods."""
        self._torn_down = True
        self._graph.teardown(kill_actors)

    @property
    def is_teardown(self) -> bool:
        return bool(self._graph.is_teardown)

    # ------------------------------------------------------------------------------------ looking
    def get_id(self) -> str:
        return str(self._graph.get_id())

    def visualize(
        self,
        filename: str = "compiled_graph",
        format: str = "png",
        view: bool = False,
        channel_details: bool = False,
        statistics: bool = False,
    ) -> str:
        """Draw the graph as Ray does; needs the package graphviz, except for ``format="ascii"``.

        NotImplementedError for `statistics`: Ray has no counters.
        """
        if statistics:
            self.statistics()
        return str(self._graph.visualize(filename, format, view, channel_details))

    def visualize_schedule(self, filename: str = "compiled_graph_schedule", executions: int = 1, statistics: bool = False) -> NoReturn:
        """NotImplementedError: Ray shows no schedule."""
        raise _only_mray("visualize_schedule()", "`actor_to_execution_schedule` has each actor's operations")

    def report(self, timeout: float | None = None) -> NoReturn:
        """NotImplementedError: Ray has no report."""
        raise _only_mray("report()", "`ray stack` shows where the actors are")

    def statistics(self) -> NoReturn:
        """NotImplementedError: Ray has no counters."""
        raise _only_mray("statistics()", "measure in the program")

    def profile(self, *_args: Any, **_options: Any) -> NoReturn:
        """NotImplementedError: Ray profiles graphs from the start of the program only."""
        raise _only_mray("profile()", "set RAY_CGRAPH_ENABLE_TORCH_PROFILING=1 or RAY_CGRAPH_ENABLE_NVTX_PROFILING=1 for the program")

    @property
    def actor_to_execution_schedule(self) -> dict[Any, list[Any]]:
        """Ray's schedule: the operations of each actor, in order."""
        return {self._handles.get(actor, actor): operations for actor, operations in self._graph.actor_to_execution_schedule.items()}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_graph" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._graph, name)

    def __str__(self) -> str:
        return str(self._graph)

    def __reduce__(self) -> NoReturn:
        raise TypeError("Ray's compiled graphs cannot be handed to another process: execute it where it was compiled.")


def _only_mray(what: str, instead: str) -> NotImplementedError:
    return NotImplementedError(f"{what} of a compiled graph is mray's own, and Ray has nothing like it. On Ray: {instead}.")
