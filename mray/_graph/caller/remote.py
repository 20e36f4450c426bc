"""A compiled graph in another process than the one that compiled it.

    process that got the graph                            process that compiled it (the owner)
    RemoteGraph.execute(value) ── "execute", value ──▶    its reading thread submits, and reads on when results come
                                                          (`mray._graph.caller.executions`): no thread of the owner's waits
    RemoteRef.get ◀────────────── values or errors ───    as soon as the execution is finished

A graph crosses processes inside arguments and values, as handles of actors do. It lives where it was compiled, and no longer than its owner
keeps it: executing a graph that was torn down or dropped raises RayChannelError, and so does waiting for one whose owner has died. Callers
share the owner's limit of executions in flight: executions of other processes queue for room, and each of these processes
keeps to the limit by itself.

That is how it begins: a process that executes a graph often gets channels of its own to the actors (`mray._graph.caller.copies`), and keeps
its limit by itself. By way of the owner, values go through the sockets of the two processes, twice: for many megabytes pass refs.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import threading
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from mray._channel.base import Failed
from mray._common.messages import FAILED
from mray._common.places import undone
from mray._graph.caller.copies import Copying, died
from mray._graph.caller.executions import Retired
from mray._graph.caller.handle import restore_graph
from mray._graph.caller.limits import deadline_of, too_many_text
from mray._graph.caller.receive import receive_into
from mray._graph.caller.ref import Claim
from mray._graph.caller.waiting import wait_until
from mray._graph.inputs import check_inputs, packer
from mray._graph.messages import EXECUTE, RECALL, RECEIVED
from mray._graph.participants import Participants
from mray._graph.plan import DIRECT
from mray._graph.watch.report import report_of
from mray._objects.remote_error import pickle_error, unpickle_error
from mray._objects.serializer import deserialize, serialize
from mray.exceptions import OwnerDiedError, RayCgraphCapacityExceeded, RayChannelError, RayChannelTimeoutError

if TYPE_CHECKING:
    from mray._graph.caller.compiled import CompiledGraph
    from mray._graph.caller.executions import Executions
    from mray._graph.caller.future import CompiledDAGFuture
    from mray._graph.caller.handle import GraphHandle
    from mray._graph.caller.ref import CompiledDAGRef
    from mray._graph.host import GraphHost, Pending

#: Answers a request: whether it went well, and the payload or the pickled exception.
Reply = Callable[[bool, bytes], None]


def find_graph(host: GraphHost, graph_id: str) -> Executions | None:
    """The graph with that id that this process has compiled; None if it is gone."""
    return next((graph for graph in list(host.graphs) if graph.get_id() == graph_id), None)


# ----------------------------------------------------------------------------------------- in the owner
class RemoteCallers:
    """Serves other processes that execute graphs of this one. In the reading thread, but for `_finished`; holds no lock."""

    def __init__(self, host: GraphHost) -> None:
        self._host = host
        #: graph -> executions that wait for room: the input, and its reply.
        self._queues: dict[Executions, deque[tuple[Any, Reply]]] = {}
        #: graph -> the number of executions in flight.
        self._flying: dict[Executions, int] = {}
        #: Graphs that call back when they have room.
        self._waiting: set[Executions] = set()
        self._tokens = itertools.count(1)
        #: Refs inside of answers, until these have been read.
        self._pins: dict[int, list[Any]] = {}

    def execute(self, payload: bytes, reply: Reply) -> None:
        """EXECUTE: run a graph for another process."""
        try:
            graph_id, form, arguments = pickle.loads(payload)
            graph = find_graph(self._host, graph_id)
            if graph is None:
                raise RayChannelError("Channel closed.")
            args, kwargs = deserialize(form, arguments)
            value = graph.checked(args, kwargs)
        except Exception as error:
            reply(False, pickle_error(error))
            return
        self._queues.setdefault(graph, deque()).append((value, reply))
        self._submit(graph)

    def copy(self, graph_id: str, process: str, reply: Reply) -> None:
        """COPY: another process wants channels of its own to the actors of a graph."""
        graph = find_graph(self._host, graph_id)
        try:
            if graph is None:
                raise RayChannelError("Channel closed.")
            reply(True, pickle.dumps(graph.recipe_for(process)))
        except Exception as error:
            reply(False, pickle_error(error))

    def received(self, payload: bytes) -> None:
        """RECEIVED: another process has read an answer with refs, which are let go."""
        self._pins.pop(int(payload), None)

    def _submit(self, graph: Executions) -> None:
        """Submit queued executions, as far as there is room."""
        queue = self._queues.get(graph)
        completions = graph.completions
        while queue:
            value, reply = queue[0]
            try:
                index = graph.submit_nowait(value, True)
            except Exception as error:
                queue.popleft()
                reply(False, pickle_error(error))
                continue
            if index < 0:
                if graph not in self._waiting:
                    self._waiting.add(graph)
                    self._attend(graph)
                    again = partial(self._host.defer, partial(self._submit_again, graph))
                    if not completions.add_room(again):
                        again()
                break
            queue.popleft()
            self._attend(graph)
            finished = partial(self._finished, graph, index, reply)
            if not completions.add(index, finished):
                finished()
        else:
            self._queues.pop(graph, None)
        completions.look()

    def _submit_again(self, graph: Executions) -> None:
        self._waiting.discard(graph)
        self._submit(graph)
        self._leave(graph)

    def _attend(self, graph: Executions) -> None:
        flying = self._flying.get(graph, 0)
        self._flying[graph] = flying + 1
        if not flying:
            self._host.add_poller(graph.completions.look)

    def _leave(self, graph: Executions) -> None:
        self._flying[graph] -= 1
        if not self._flying[graph]:
            del self._flying[graph]
            self._host.remove_poller(graph.completions.look)

    def _finished(self, graph: Executions, index: int, reply: Reply) -> None:
        """Take the results and send them. Any thread."""
        try:
            reply(True, self._answer(graph, index))
        except Exception as error:
            reply(False, pickle_error(error))
        finally:
            self._host.defer(partial(self._leave, graph))

    def _answer(self, graph: Executions, index: int) -> bytes:
        token = next(self._tokens)
        answer: list[tuple[int, bytes]] = []
        for output in graph.outputs or (None,):
            value = graph.take_nowait(index, output)
            if value.__class__ is Failed:
                graph.error(value)
                answer.append((FAILED, value.payload))
            else:
                serialized = serialize(value)
                answer.append((serialized.form, serialized.to_bytes()))
                if serialized.refs:
                    self._pins.setdefault(token, []).extend(serialized.refs)
        return pickle.dumps((token if token in self._pins else 0, answer))


# ----------------------------------------------------------------------------------- in other processes
def remote_graph(host: GraphHost, handle: GraphHandle) -> RemoteGraph:
    """The graph of another process as this one holds it: one object for all its handles, unless that was torn down here."""
    graph_id = handle.plan.graph_id
    with _making:
        graph: RemoteGraph | None = host.remote_graphs.get(graph_id)
        if graph is None or graph.is_teardown:
            graph = host.remote_graphs[graph_id] = RemoteGraph(host, handle)
        return graph


#: Held while a process looks whether it has a graph already.
_making = threading.Lock()


def hear(host: GraphHost, verb: str, payload: bytes, reply: Reply) -> None:
    """RECALL, ENDED: the owner of a graph that this process has a copy of. In the reading thread; holds no lock."""
    graph_id, error = pickle.loads(payload)
    graph = host.remote_graphs.get(graph_id)
    if graph is not None:
        if verb == RECALL:
            graph.go_by_owner()
        else:
            ended = host.exception(error) if error else RayChannelError("Channel closed.")
            graph.owner_ended(ended if isinstance(ended, Exception) else RayChannelError("Channel closed."))
    reply(True, b"")


class RemoteGraph:
    """A graph that another process has compiled. Any thread, any event loop."""

    def __init__(self, host: GraphHost, handle: GraphHandle) -> None:
        self.host = host
        self.handle = handle
        #: The own copy, while executions go to it; what makes the next one; the copy that was recalled, until it has settled.
        self._copy: CompiledGraph | None = None
        self._copying = self._new_copying()
        self._recalled: Copying | None = None
        #: Held while the way of an execution is chosen; the executions that have chosen the owner's and are not in `_flying` yet.
        self._choosing = threading.Lock()
        self._entering = 0
        #: The execution that was sent last by way of the owner.
        self._newest: _Flight | None = None
        self._participants = Participants(host, handle.plan, handle.names, handle.processes)
        graph = handle.plan.graph
        self._outputs = range(len(graph.outputs)) if graph.returns_list else None
        self._direct = graph.form == DIRECT
        self._pack = packer(graph)
        self._flying: list[_Flight] = []
        self._is_closed = False

    def execute(self, *args: Any, **kwargs: Any) -> CompiledDAGRef | RemoteRef | list[CompiledDAGRef] | list[RemoteRef]:
        """Send one input through the graph; a ref, or a list of refs when the graph ends in a `MultiOutputNode`.

        Does not wait, unless the graph was compiled with ``_when_full="wait"``. RayCgraphCapacityExceeded when as many executions of this
        process as the graph may have in flight are not finished. RayChannelError when the owner has died. The owner's own errors are
        raised by `get`.
        """
        while (copy := self._copy or self._choose()) is not None:
            try:
                return copy.execute(*args, **kwargs)
            except Retired:
                self._wait_for_recalled()
        try:
            if self.handle.limits.enable_asyncio:
                raise ValueError("Use execute_async if enable_asyncio=True")
            flight = self._send(args, kwargs)
        finally:
            self._chosen()
        if self._outputs is None:
            return RemoteRef(self, flight, None)
        return [RemoteRef(self, flight, output) for output in self._outputs]

    async def execute_async(
        self, *args: Any, **kwargs: Any
    ) -> CompiledDAGFuture | RemoteFuture | list[CompiledDAGFuture] | list[RemoteFuture]:
        """As `execute`, for graphs compiled with ``enable_asyncio=True``."""
        while (copy := self._copy or self._choose()) is not None:
            try:
                return await copy.execute_async(*args, **kwargs)
            except Retired:
                await self._await_recalled()
        try:
            limits = self.handle.limits
            if not limits.enable_asyncio:
                raise ValueError("Use execute if enable_asyncio=False")
            while limits.wait and self._count() >= limits.in_flight:
                await _Done([flight.pending for flight in self._flying])
            flight = self._send(args, kwargs)
        finally:
            self._chosen()
        if self._outputs is None:
            return RemoteFuture(self, flight, None)
        return [RemoteFuture(self, flight, output) for output in self._outputs]

    def _send(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Flight:
        if self._is_closed:
            raise RayChannelError("Channel closed.")
        check_inputs(self.handle.plan.graph, args, kwargs)
        self._make_way()
        serialized = serialize((args, kwargs))
        payload = pickle.dumps((self.get_id(), serialized.form, serialized.to_bytes()))
        try:
            pending = self.host.request(self.handle.owner, EXECUTE, payload)
        except OSError:
            raise self.owner_died() from None
        self._newest = flight = _Flight(pending, serialized.refs)
        self._flying.append(flight)
        return flight

    def _make_way(self) -> None:
        limits = self.handle.limits
        if self._count() >= limits.in_flight:
            if not limits.wait:
                raise RayCgraphCapacityExceeded(too_many_text(limits.in_flight, self._count()))
            timeout = limits.wait_timeout
            if not self.wait_until(lambda: self._count() < limits.in_flight, deadline_of(timeout)):
                raise RayChannelTimeoutError(f"No execution was finished within {timeout} seconds.\n{self.report()}")
        self._flying = [flight for flight in self._flying if not flight.pending.done()]

    def _count(self) -> int:
        """Executions of this process that are not finished."""
        return sum(not flight.pending.done() for flight in self._flying)

    @property
    def runs_here(self) -> bool:
        """Whether an actor of the graph lives in this process."""
        return self.host.process in self.handle.processes.values()

    def wait_until(self, predicate: Callable[[], bool], deadline: float | None) -> bool:
        """Wait in the process of the graph's caller; the predicate's last value."""
        return wait_until(self.host, self.runs_here, predicate, deadline)

    def owner_died(self) -> RayChannelError:
        """The error of a call whose owner has died."""
        return died(self.handle)

    # ------------------------------------------------------------------------------------ the own copy
    # The executions of a process keep their order on either way, and when the way changes: the copy is used when none is on its way to the
    # owner, and the owner's way again when all of a copy's have settled.
    def _new_copying(self) -> Copying | None:
        if not (self.host.has_copies and self.handle.may_be_copied) or self.runs_here:
            return None
        return Copying(self.host, self.handle)

    def _choose(self) -> CompiledGraph | None:
        """The copy that takes the next execution; None: it goes by way of the owner, and is on its way in until `_chosen`."""
        copying = self._copying
        copy = None if copying is None or self._is_closed else copying.advance()
        with self._choosing:
            if self._copy is not None:
                return self._copy
            recalled = self._recalled
            if recalled is not None and recalled.graph is not None and not recalled.graph.has_settled():
                return recalled.graph  # which refuses, and is waited for
            self._recalled = None
            if copy is not None and copying is self._copying and not self._entering and not self._count() and self._is_even():
                self._copy = copy
                return copy
            self._entering += 1
        return None

    def _chosen(self) -> None:
        with self._choosing:
            self._entering -= 1

    def _is_even(self) -> bool:
        """Whether all actors are done with what was sent by way of the owner: a failure answers for all outputs, before others come."""
        return len(self.handle.plan.graph.results) == 1 or self._newest is None or self._newest.is_whole

    def _wait_for_recalled(self) -> None:
        recalled = self._recalled
        if recalled is not None and recalled.graph is not None:
            recalled.graph.wait_until_settled()

    async def _await_recalled(self) -> None:
        import asyncio  # noqa: PLC0415  (`import mray` is to stay cheap; a process that awaits has it loaded)

        recalled = self._recalled
        while recalled is not None and recalled.graph is not None and not recalled.graph.has_settled():
            await asyncio.sleep(0.001)

    def go_by_owner(self) -> None:
        """The owner has recalled the copy: it takes no executions any more. In the reading thread."""
        with self._choosing:
            copying, self._copying = self._copying, self._new_copying()
            copy, self._copy = self._copy, None
            if copy is not None:
                self._recalled = copying
        if copy is not None:
            copy.retire()

    def owner_ended(self, error: Exception) -> None:
        """The owner has ended the graph. In the reading thread."""
        for copying in (self._copying, self._recalled):
            if copying is not None:
                copying.end(error)

    # ------------------------------------------------------------------------------------ looking, ending
    def report(self) -> str:
        """As `CompiledGraph.report`, without the caller's own line. Takes a second at most."""
        if self._copy is not None:
            return self._copy.report()
        return f"Compiled graph {self.get_id()}, of the process {self.handle.owner}:{report_of(self._participants)}"

    def teardown(self, kill_actors: bool = False) -> None:
        """Use the graph no more in this process; its owner tears it down. Idempotent."""
        if kill_actors:
            raise ValueError("only the process that compiled a graph can kill its actors")
        self._is_closed = True
        with self._choosing:
            self._copy = self._copying = self._recalled = None  # the refs of executions keep a copy until they have their results

    @property
    def is_teardown(self) -> bool:
        """Whether `teardown` was called in this process."""
        return self._is_closed

    def get_id(self) -> str:
        """The graph's id."""
        return self.handle.plan.graph_id

    def __str__(self) -> str:
        return f"CompiledDAG({self.get_id()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_graph, (self.handle,)


class _Flight:
    """One execution in flight, shared by its refs."""

    def __init__(self, pending: Pending, pins: Any) -> None:
        self.pending = pending
        #: Refs among the arguments; the owner has read these when it answers.
        self._pins = pins
        #: Whether it is known that no output has failed.
        self.is_whole = False
        self._values: list[tuple[int, bytes]] | None = None

    def value(self, graph: RemoteGraph, output: int | None) -> Any:
        """One output, once `pending` is done."""
        if self._values is None:
            try:
                token, self._values = pickle.loads(self.pending.result())
                self.is_whole = all(form != FAILED for form, _payload in self._values or ())
            except OwnerDiedError as error:
                if error.object_ref_hex:
                    raise
                raise graph.owner_died() from None
            finally:
                self._pins = None
        else:
            token = 0
        form, payload = self._values[output or 0]
        self._values[output or 0] = (form, b"")
        if form == FAILED:
            raise unpickle_error(payload)
        try:
            return deserialize(form, payload)
        finally:
            if token:
                with contextlib.suppress(Exception):
                    graph.host.request(graph.handle.owner, RECEIVED, str(token).encode())


class RemoteRef(Claim):
    """The result of one execution of another process's graph, to be got once. Cannot be copied, pickled or passed to a task."""

    __slots__ = ("_done", "_flight", "_graph", "_held", "_output")

    def __init__(self, graph: RemoteGraph, flight: _Flight, output: int | None) -> None:
        self._graph = graph
        self._flight = flight
        self._output = output
        self._done = False
        #: The value, when it did not fit into `out`.
        self._held: list[Any] = []

    @undone(lambda local, value: local["self"].put_back(value))
    def get(self, timeout: float | None = None, out: Any = None) -> Any:
        """As `CompiledDAGRef.get`; RayChannelError as soon as the process that compiled the graph has died."""
        if timeout is None:
            timeout = self._graph.handle.limits.get_timeout
        value = self._fetch(deadline_of(timeout), timeout)
        if out is None:
            return value
        try:
            return receive_into(value, out)
        except BaseException:
            self.put_back(value)
            raise

    def put_back(self, value: Any) -> None:
        self._held.append(value)

    def get_until(self, deadline: float, timeout: float) -> Any:
        return self._fetch(deadline, timeout)

    def _fetch(self, deadline: float | None, timeout: float | None) -> Any:
        if self._held:
            return self._held.pop()
        if self._done:
            raise ValueError("ray.get() can only be called once on a CompiledDAGRef, and it was already called.")
        if not self.wait_until(self._flight.pending.done, deadline):
            raise RayChannelTimeoutError(
                f"The execution of a compiled graph in another process brought no result within {timeout} seconds.\n{self._graph.report()}"
            )
        self._done = True
        return self._flight.value(self._graph, self._output)

    # ------------------------------------------------------------------------------------ waiting
    @property
    def host(self) -> GraphHost:
        return self._graph.host

    @property
    def runs_here(self) -> bool:
        return self._graph.runs_here

    @property
    def ready(self) -> bool:
        return self._flight.pending.done()

    def look(self) -> None:
        pass

    def may_be_ready(self) -> bool:
        return False

    def wait_until(self, predicate: Callable[[], bool], deadline: float | None) -> bool:
        return self._graph.wait_until(predicate, deadline)

    def __str__(self) -> str:
        return f"CompiledDAGRef({self._graph.get_id()}, of another process)"

    __repr__ = __str__


class RemoteFuture:
    """As `RemoteRef`, to be awaited once."""

    def __init__(self, graph: RemoteGraph, flight: _Flight, output: int | None) -> None:
        self._graph = graph
        self._flight = flight
        self._output = output
        self._done = False

    def __await__(self) -> Generator[Any, None, Any]:
        if self._done:
            raise ValueError("CompiledDAGFuture can only be awaited upon once, and it has already been awaited upon.")
        if not self._flight.pending.done():
            yield from _Done([self._flight.pending]).__await__()
        self._done = True
        return self._flight.value(self._graph, self._output)

    def __reduce__(self) -> NoReturn:
        raise ValueError("CompiledDAGFuture cannot be pickled.")


class _Done:
    """Awaitable until one of these has its answer."""

    def __init__(self, pendings: list[Pending]) -> None:
        self._pendings = pendings

    def __await__(self) -> Generator[Any, None, None]:
        import asyncio  # noqa: PLC0415  (`import mray` is to stay cheap; a process that awaits has it loaded)

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        for pending in self._pendings:
            pending.when_done(partial(_wake, loop, future))
        yield from future


def _wake(loop: Any, future: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: no coroutine waits any more
        loop.call_soon_threadsafe(lambda: future.done() or future.set_result(None))
