"""A compiled graph in a process that executes it."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from types import FrameType
from typing import Any

from mray._common.uncollected import uncollected
from mray._graph.caller.allocation import Allocation
from mray._graph.caller.executions import Executions
from mray._graph.caller.future import CompiledDAGFuture, all_of, each_of, submit_when_there_is_room
from mray._graph.caller.graph_limits import Limits
from mray._graph.caller.handle import GraphHandle, restore_graph
from mray._graph.caller.ref import CompiledDAGRef
from mray._graph.caller.results import TAKEN
from mray._graph.depicted import Depicted
from mray._graph.host import GraphHost
from mray._graph.plan import Operation, Plan
from mray._graph.watch.measures import measured
from mray._graph.watch.profile import Attachment, Profile
from mray._graph.watch.report import counters, labelled
from mray._trace.digest import Digest
from mray._trace.span import MOST_SPANS, clock


class CompiledGraph(Executions, Depicted):
    claim = CompiledDAGRef

    def __init__(
        self,
        host: GraphHost,
        plan: Plan,
        made: Allocation,
        limits: Limits,
        handles: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._handles = handles or {}
        names = names or {actor: str(handle.__actor_outline__().class_name) for actor, handle in self._handles.items()}
        #: The running one; the measures of the last one that ended.
        self._profile: Profile | None = None
        self._measured: Digest | None = None
        super().__init__(host, plan, made, limits, names)

    # ------------------------------------------------------------------------------------ asyncio
    async def execute_async(self, /, *args: Any, **kwargs: Any) -> CompiledDAGFuture | list[CompiledDAGFuture]:
        """Like `execute`, for graphs compiled with ``enable_asyncio=True``: a future, or a list of them, for any event loop."""
        if not self.limits.enable_asyncio:
            raise ValueError("Use execute if enable_asyncio=False")
        value = self._input.value(args, kwargs)
        index = self.submit_nowait(value, self.limits.wait)
        if index < 0:
            index = await submit_when_there_is_room(self, value)
        return self._futures(index)

    def stream(self, inputs: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
        """``async for value in graph.stream(inputs)``: execute the graph with each input and yield the results in input order.

        As many executions are in flight as the graph allows. A method's exception is raised in order and ends the stream; executions in
        flight are then dropped.
        """
        if not self.limits.enable_asyncio:
            raise ValueError("Use execute if enable_asyncio=False")
        return self._stream(inputs)

    async def _stream(self, inputs: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
        flying: deque[CompiledDAGFuture | list[CompiledDAGFuture]] = deque()
        async for item in each_of(inputs):
            value = self._input.value((item,), {})
            # Results in flight are read first: another process may need that to make room.
            while (index := -1 if len(flying) >= self.limits.in_flight else self.submit_nowait(value, True)) < 0 and flying:
                yield await all_of(flying.popleft())
            flying.append(self._futures(index if index >= 0 else await submit_when_there_is_room(self, value)))
        while flying:
            yield await all_of(flying.popleft())

    def _futures(self, index: int) -> CompiledDAGFuture | list[CompiledDAGFuture]:
        if self._outputs is None:
            return CompiledDAGFuture(self, index)
        return [CompiledDAGFuture(self, index, output) for output in self._outputs]

    def note_copier(self, process: str) -> None:
        with self._lock:
            if self.state:
                self._raise_cause()
            self._made.note_copier(process)

    # ------------------------------------------------------------------------------------ looking
    @classmethod
    def awaited(cls) -> set[int]:
        """The `id` of each graph that a thread here waits for."""
        found = set()
        with uncollected:
            for innermost in sys._current_frames().values():
                frame: FrameType | None = innermost
                while frame is not None:
                    if frame.f_code is cls._await.__code__:
                        found.add(id(frame.f_locals.get("self")))
                        break
                    frame = frame.f_back
        return found

    @property
    def actor_to_execution_schedule(self) -> dict[Any, list[Operation]]:
        """The handle of each actor (the name of a function's worker) -> its operations in order."""
        return {self._handles.get(endpoint, endpoint): list(operations) for endpoint, operations in self._plan.schedule.items()}

    def statistics(self) -> dict[str, Any]:
        """Counters: executions ``submitted`` and ``finished``, results ``kept``, and under ``channels`` those of each channel.

        By source: messages ``written`` and ``waiting``; for values larger than a ring's entry the ``slots``, those ``in_use`` by held
        values, their ``bytes``, slots ``given_away`` to values that were held long, values ``passed_on`` without a copy and those
        ``on_loan``. An actor that computes for more than a second is left out.

        ``steps`` are keyed by their number in pictures and ``edges`` by the index of their channel: an edge has messages ``written`` and
        ``occupancy``, the used share of its ring. The latest `profile` (of the given ``seconds``) adds, in seconds: ``compute_p50`` and
        ``compute_p99`` of steps; ``wait_...`` of steps and edges for the next value; and of edges ``room_...`` (the writer's wait),
        ``serialize_...``, ``transfer_...`` and ``deserialize_...``, with the ``bytes`` of their messages; under ``endpoints`` the share
        of the time in which each was ``busy``; ``bottleneck``, the step that delays the others (``"[2] slow"``), ``"the caller"`` or
        None, and ``why``; ``count`` is the number of executions and messages in the profile.
        """
        counts = self.counts()
        by_channel = counters(self.participants, self.writers)
        said = {"submitted": counts.submitted, "finished": counts.finished, "kept": counts.kept}
        return {**said, "channels": labelled(self.participants, by_channel), **measured(self.participants, self._measured, by_channel)}

    def profile(self, filename: str | None = None, *, calls: bool = True, torch: bool = False, limit: int = MOST_SPANS) -> Profile:
        """``with graph.profile("trace.json") as profile``: record the graph's operations in all its processes meanwhile.

        The end writes `filename`, a trace for https://ui.perfetto.dev; ``profile.spans`` has the spans. `calls`: include ordinary calls
        of the actors and this process. `torch`: merge the actors' torch profiler events. Each process stores at most `limit` spans and
        counts the rest. ``start`` and ``stop`` work at any time. ValueError if another profile is running.
        """
        attachment = Attachment(self._begin_profile, self.put_probes, self._end_profile, self._keep_measured)
        return Profile(self.participants, attachment, filename, calls=calls, torch=torch, limit=limit)

    def _begin_profile(self, profile: Profile) -> None:
        with self._lock:
            if self.state:
                self._raise_cause()
            if self._profile is not None:
                raise ValueError(f"The compiled graph {self.get_id()} is already being profiled.")
            if profile.begun:
                raise ValueError("This profile has ended; create another one.")
            self._profile = profile
            profile.begun = clock()

    def _end_profile(self) -> None:
        with self._lock:
            self._profile = None
            self.remove_probes()

    def _keep_measured(self, digest: Digest) -> None:
        self._measured = digest

    @property
    def _result_buffer(self) -> dict[int, dict[int, Any]]:
        self._settle()
        return {
            index: {position: value for position, value in enumerate(outputs) if value is not TAKEN}
            for index, outputs in self.results.kept.items()
        }

    @property
    def _destructed_ref_idxs(self) -> dict[int, set[int | None]]:
        self._settle()
        return {index: {None} if self._outputs is None else set(found) for index, found in self.results.unwanted.items()}

    @property
    def _got_ref_idxs(self) -> dict[int, set[int]]:
        self._settle()
        got = {
            index: {position for position, value in enumerate(outputs) if value is TAKEN} for index, outputs in self.results.kept.items()
        }
        return {index: positions for index, positions in got.items() if positions}

    def _settle(self) -> None:
        with self._lock:
            self.results.note_dropped()
            while self.results.next_is_unwanted() and not self.state:
                if not self.results.advance():
                    self._wait_unlocked(lambda: self.state or self.results.may_finish(), None)

    def __str__(self) -> str:
        return f"CompiledDAG({self.get_id()})"

    def __reduce__(self) -> tuple[Any, ...]:
        made, names = self._made, self.participants.classes
        return restore_graph, (GraphHandle(self.host.process, self._plan, self.limits, names, made.actors, made.processes),)


#: Ray's name.
CompiledDAG = CompiledGraph
