"""A compiled graph in another process than the one that compiled it: a copy, with its own channels to the same actors.

    process that was passed the graph (the copier)            process that compiled it (the owner)      each actor
    first execution:
    COPY ────────────────────────────────────────────────────▶ records the copier
    ATTACH (`Allocation`) ─────────────────────────────────────────────────────────────────────────────▶ one more program
        ◀─────────────────── ENDED, or the owner's death      the copy ends

A copy is released with the last handle in its process, and ends with the owner's graph (RayChannelError). A separate thread of the
actor creates the program, since the main thread might be the one that waits.

Each process's executions stay in order at every actor; those of several processes interleave, even in the middle of an execution. So
graphs are not copied if their actors do something together, or use devices tested between the original processes only (`why_not`).

Rejected: executions through the owner: slower.
"""

from __future__ import annotations

import pickle
import threading
import uuid
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mray._channel.select import SHM
from mray._common.bridge import Cancel, in_thread
from mray._graph.caller.allocation import Allocation
from mray._graph.caller.handle import restore_graph
from mray._graph.graph_messages import COPY
from mray._graph.host import weakly
from mray._graph.plan import DRIVER, Plan
from mray._objects.remote_error import unpickle_error
from mray.exceptions import OwnerDiedError, RayChannelError

if TYPE_CHECKING:
    from mray._graph.caller.compiled import CompiledGraph
    from mray._graph.caller.handle import GraphHandle
    from mray._graph.host import GraphHost

_HINT = (
    "Execute it in the process that compiled it, for example in a method of the actor that compiled it, or compile it here: handles of "
    "actors can be passed on."
)


def why_not(plan: Plan) -> str:
    """Why a graph cannot be copied; "" if it can."""
    if plan.groups or any(step.group >= 0 for step in plan.graph.steps):
        return "its actors take part in collective operations"
    for channel in plan.channels:
        if channel.transport != SHM:
            return f"{channel.name} travels by {channel.transport}"
        if channel.transfer.device != "default":
            return f"{channel.name} goes to a device"
    return ""


# ----------------------------------------------------------------------------------------- in the owner
def find_graph(host: GraphHost, graph_id: str) -> CompiledGraph | None:
    return next((graph for graph in list(host.graphs) if graph.get_id() == graph_id), None)


def note_copier(host: GraphHost, graph_id: str, process: str) -> bytes:
    graph = find_graph(host, graph_id)
    if graph is None:
        raise RayChannelError("Channel closed.")
    graph.note_copier(process)
    return b""


# ----------------------------------------------------------------------------------- in other processes
def copy_of(host: GraphHost, handle: GraphHandle) -> GraphCopy:
    """One for all handles of a graph, until it is torn down here."""
    graph_id = handle.plan.graph_id
    with _making:
        graph: GraphCopy | None = host.copies.get(graph_id)
        if graph is None or graph.is_teardown:
            graph = host.copies[graph_id] = GraphCopy(host, handle)
        return graph


#: Guards the creation of a copy.
_making = threading.Lock()


def end_copy(host: GraphHost, payload: bytes) -> bytes:
    """ENDED: Reading thread; holds no lock."""
    graph_id, error = pickle.loads(payload)
    graph = host.copies.get(graph_id)
    if graph is not None:
        ended = unpickle_error(error) if error else None
        graph.end_with(ended if isinstance(ended, Exception) else RayChannelError("Channel closed."))
    return b""


class GraphCopy:
    """The first call creates the copy. Any thread, any event loop. `teardown` ends the graph for this process alone."""

    def __init__(self, host: GraphHost, handle: GraphHandle) -> None:
        self._host = host
        self._handle = handle
        self._copy: CompiledGraph | None = None
        self._making = threading.Lock()
        #: Why the copy ended.
        self._over: Exception | None = None
        self.is_teardown = False

    def execute(self, /, *args: Any, **kwargs: Any) -> Any:
        """Like `CompiledGraph.execute`. The first call waits until the actors' processes have answered, but not for their methods.

        RayChannelError if the owner has ended the graph or died, NotImplementedError if the graph cannot be copied.
        """
        return (self._copy or self.made()).execute(*args, **kwargs)

    async def execute_async(self, /, *args: Any, **kwargs: Any) -> Any:
        return await (self._copy or await in_thread(self.made, "mray-graph")).execute_async(*args, **kwargs)

    async def stream(self, inputs: Any) -> AsyncIterator[Any]:
        async for value in (self._copy or await in_thread(self.made, "mray-graph")).stream(inputs):
            yield value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.made(), name)

    # ------------------------------------------------------------------------------------ making
    def made(self) -> CompiledGraph:
        while self._copy is None:
            if not self._making.acquire(False):
                self._host.wait_until(lambda: not self._making.locked(), None)
                continue
            try:
                if self._copy is None:
                    self._make()
            finally:
                self._making.release()
                self._host.wake()
        return self._copy

    def _make(self) -> None:
        host, handle = self._host, self._handle
        if (over := self._reason()) is not None:
            raise over
        if handle.owner == host.process:  # its owner has dropped the graph
            raise RayChannelError("Channel closed.")
        if reason := why_not(handle.plan):
            raise NotImplementedError(f"Compiled graph {self.get_id()} cannot be executed in another process: {reason}. {_HINT}")
        unwatch = self._ask_owner()
        try:
            plan = replace(handle.plan, graph_id=uuid.uuid4().hex, copy_of=handle.plan.graph_id)
            processes = {endpoint: process for endpoint, process in handle.processes.items() if endpoint != DRIVER}
            made = Allocation(host, plan, handle.actors, processes)
            made.make()
            with made.until_owned():
                self._copy = host.graph_kind(host, plan, made, handle.limits, names=handle.names)
        except BaseException:
            unwatch()
            raise
        # POINT graph copied
        weakref.finalize(self, unwatch).atexit = False
        if (over := self._reason()) is not None:  # meanwhile
            self._copy.end_with(over)

    def _ask_owner(self) -> Cancel:
        """Returns the cancel function of the watch on the owner's death."""
        host, handle = self._host, self._handle
        try:
            unwatch = host.then("", weakly(self._on_death), process=handle.owner)
            asked = host.request(handle.owner, COPY, self.get_id().encode())
        except OSError:
            raise self._died() from None
        try:
            host.wait_until(asked.ready, None)
            asked.result()
        except BaseException as error:
            unwatch()
            if isinstance(error, OwnerDiedError):
                raise self._died() from None
            raise
        return unwatch

    def _died(self) -> RayChannelError:
        return RayChannelError(f"The process {self._handle.owner} that compiled the graph {self.get_id()} has died.")

    # ------------------------------------------------------------------------------------ ending
    def _on_death(self, _error: Exception) -> None:
        self.end_with(self._died())

    def _reason(self) -> Exception | None:
        return self._over

    def end_with(self, error: Exception) -> None:
        self._over = error
        if self._copy is not None:
            self._copy.end_with(error)

    def teardown(self, kill_actors: bool = False) -> None:
        """End the graph in this process only. Idempotent."""
        if kill_actors:
            raise ValueError("only the process that compiled a graph can kill its actors")
        self.is_teardown = True
        self._over = RayChannelError("Channel closed.")
        if self._copy is not None:
            self._copy.teardown()

    # ------------------------------------------------------------------------------------ looking
    def report(self, timeout: float | None = None) -> str:
        return f"{self}, which this process has not executed." if self._copy is None else self._copy.report(timeout)

    def get_id(self) -> str:
        return self._handle.plan.graph_id

    def __str__(self) -> str:
        return f"CompiledDAG({self.get_id()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_graph, (self._handle,)
