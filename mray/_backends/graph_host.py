"""The host of compiled graphs in a process of the native engine: the `GraphHost` of `mray._graph.host`."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._backends.call_spans import CallSpans
from mray._backends.graph_rows import GRAPHS, PICTURES, PROGRAMS, graphs_of, pictures_of, programs_of
from mray._common import messages as m
from mray._common.beside import GPUS
from mray._common.bridge import Cancel
from mray._common.causes import Cause
from mray._common.invocations import short_name
from mray._common.kept import os
from mray._common.slow import waiting
from mray._graph.actor.loop import GraphService
from mray._graph.caller.compiled import CompiledGraph
from mray._graph.caller.copies import GraphCopy, end_copy, note_copier
from mray._graph.caller.graph_loop import LoopWatcher
from mray._graph.gpu_edges import SETTLING, GpuEdges
from mray._graph.graph_messages import ATTACH, COPY, ENDED, READING, REPORT, STOP, VERBS
from mray._graph.host import Pending
from mray._ipc.connection import Connection
from mray._ipc.limits import is_exhausted
from mray._ipc.ring_loans import sweep_closed
from mray._objects.remote_error import pickle_error, task_error
from mray._runtime.client.actor_calls import ActorState
from mray._runtime.client.client import Client
from mray._runtime.client.killing import kill_actors
from mray._runtime.connections.deaths import actor_error
from mray._runtime.connections.ends import Ended
from mray._runtime.connections.requests import Answer
from mray._runtime.worker.exits import ExitActor
from mray.exceptions import AsyncioActorExit, OwnerDiedError, RayChannelError, RaySystemError

if TYPE_CHECKING:
    from mray._graph.watch.probes import Probe
    from mray._runtime.worker.worker import Worker


class Host:
    """Implements `GraphHost`."""

    def __init__(
        self, client: Client, worker: Worker | None, graph_kind: type[CompiledGraph] = CompiledGraph, probes: tuple[Probe, ...] = ()
    ) -> None:
        """`probes` wrap every program of the actor in this process."""
        self._client = client
        self.graph_kind = graph_kind
        self._worker = worker
        self.process = client.process
        self.prefix = f"/mray-{client.info['session']}-{client.process}-"
        self.reactor = client.reactor
        assert client.reactor.spinner is not None
        self.spinner = client.reactor.spinner
        self.service: GraphService | None = None if worker is None else GraphService(self, worker.main_thread.is_current, probes)
        self.graphs: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()
        self.copies: weakref.WeakValueDictionary[str, GraphCopy] = weakref.WeakValueDictionary()
        wakeups = client.wakeups
        self.doorbell_of, self.ask_of = wakeups.of, wakeups.ask_of
        self.group_doorbell, self.join_group_doorbell, self.end_group_doorbell = wakeups.group, wakeups.join_group, wakeups.end_group
        _hosts.add(self)

        self.loop_watchers: weakref.WeakKeyDictionary[Any, LoopWatcher] = weakref.WeakKeyDictionary()
        self._calls = CallSpans(worker)
        self._enqueue = None if worker is None else worker.main_thread.enqueuing(m.GRAPH)
        client.from_peers.replace(m.GRAPH, self._on_request)
        client.sections[GRAPHS] = lambda: graphs_of(self.graphs)
        client.sections[PICTURES] = lambda: pictures_of(self.graphs)
        client.sections[PROGRAMS] = lambda: programs_of(() if self.service is None else self.service.programs)

    def gpus(self) -> GpuEdges:
        found: GpuEdges = self._client.late(GPUS)
        return found

    def settle_gpus(self, patience: float) -> None:
        if GPUS in self._client.made:
            self.gpus().settle(patience)

    def wake(self) -> None:
        self.reactor.wake()

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None, *, spin: bool = False) -> bool:
        return self.reactor.wait_until(predicate, timeout, spin=spin)

    def fetch(self, refs: Sequence[ObjectRef]) -> Callable[[], int]:
        entries = [ref._entry for ref in refs]
        borrowed = [entry for entry in entries if entry.form is None and entry.owner is not None]
        client = self._client
        if borrowed:
            with client.lock:
                for entry in borrowed:
                    client.borrowing.fetch(entry)
        return lambda: len(entries) - [entry.form for entry in entries].count(None)

    def is_ready(self, ref: ObjectRef) -> bool:
        return ref._entry.form is not None

    def ask_node(self, what: str, *arguments: Any) -> Any:
        return self._client.ask(m.QUERY, what, list(arguments))

    def actor_process(self, actor: str) -> str:
        client = self._client
        with client.lock:
            caller = client.actors.of(bytes.fromhex(actor))
            caller.subscribe()
        with waiting(lambda: f"until the actor {short_name(caller.class_name)} has started"):
            client.reactor.wait(ActorState(caller, m.ALIVE, m.DEAD))
        if caller.actor.state == m.DEAD:
            raise caller.error()
        return caller.actor.process

    def wait_for_answers(self, pendings: Mapping[str, Pending]) -> None:
        client = self._client

        def whom() -> str:
            busy = [actor for actor, pending in pendings.items() if not pending.ready()]
            names = [f"{short_name(client.actors.of(bytes.fromhex(actor)).class_name)}({actor[:8]})" for actor in busy]
            return f"until actors have finished what they run: {', '.join(names)}"

        with waiting(whom):
            self.reactor.wait_until(lambda: all(pending.ready() for pending in pendings.values()), None, spin=False)

    def death_of(self, actor: str, process: str) -> Exception | None:
        client = self._client
        try:
            request = self.request(process, REPORT, b"")
            client.reactor.wait(request)
            request.result()
            return None
        except (OSError, OwnerDiedError) as lost:
            if isinstance(lost, OSError) and is_exhausted(lost):
                return None  # no descriptor is left to ask with
        return self._death(client.await_end(process) or Ended(process, Cause(m.CAUSE_CRASH)), actor)

    def request(self, process: str, verb: str, payload: bytes) -> Answer:
        client = self._client
        if process == self.process:
            # An actor that compiles a graph over itself.
            assert self._worker is not None and self.service is not None
            answer = Answer(client.node)  # answered immediately
            try:
                if verb == REPORT:
                    answer.set(self._state(payload))
                elif verb == STOP and (self.reactor.is_amidst() or not self.service.is_its_thread()):
                    self.service.leave(payload.decode())  # the main thread may be running its program
                    self.wake()
                    answer.set(b"")
                else:
                    answer.set(self.service.handle(verb, payload, self._worker.executor.actor.instance))
            except Exception as error:
                answer.set(None, error)
            return answer
        with client.lock:  # until it is sent, so that an immediate answer finds it
            return client.request(client.peer(process), m.GRAPH, verb, payload)

    def _on_request(self, connection: Connection, number: int, verb: str, payload: bytes) -> None:
        """Answer or queue a peer's request. Reading thread; client's lock held."""

        def reply(well: bool, answer: bytes) -> None:
            connection.send((m.GRAPHED, number, well, answer))

        def answer(handle: Callable[[], bytes]) -> None:
            try:
                reply(True, handle())
            except Exception as error:
                reply(False, pickle_error(error))

        if verb in (COPY, ENDED):
            # Deferred: it takes the graph's lock, which must not be awaited under the client's.
            noted = partial(note_copier, self, payload.decode(), connection.process) if verb == COPY else partial(end_copy, self, payload)
            self.reactor.defer(lambda: answer(noted))
        elif verb == REPORT:
            answer(lambda: self._state(payload))
        else:
            assert self.service is not None, "a driver does not take part in graphs"
            assert self._enqueue is not None, "a driver does not take part in graphs"
            if verb == ATTACH:
                attach = self.service.attaching(payload)
                self._client.ends.then(connection.process, self._owner_ended)
                self.in_a_thread(lambda: answer(attach))
            elif VERBS.get(verb) == READING:
                answer(partial(self.service.handle, verb, payload, None))
            else:
                self._client.ends.then(connection.process, self._owner_ended)
                self._enqueue(connection, number, verb, payload)

    def in_a_thread(self, callback: Callable[[], None]) -> None:
        """Call in a new thread, which may wait for other processes."""
        assert self._worker is not None
        self._worker.process.start_thread(callback, "mray-graph")

    def _state(self, payload: bytes) -> bytes:
        return pickle.dumps(None) if self.service is None else self.service.state(payload.decode())

    def then(self, actor: str, callback: Callable[[Exception], None], *, process: str = "", doing: str = "") -> Cancel:
        client = self._client
        if process:
            client.check()
        with client.lock:
            if not process:
                return ActorState(client.actors.of(bytes.fromhex(actor)), m.RESTARTING, m.DEAD, doing=doing).then(callback)
            if process != self.process:
                client.peer(process)  # whose hang-up reports the exit
            return client.ends.then(process, lambda end: self.reactor.defer(partial(callback, self._death(end, actor))))

    def _death(self, end: Ended, actor: str) -> Exception:
        error: BaseException | None
        if end.cause is None:
            error = end.error
        elif actor:
            actor_id = bytes.fromhex(actor)
            caller = self._client.actors.get(actor_id)
            error = actor_error(actor_id, caller.class_name if caller is not None else "", end.cause)
        else:
            error = RaySystemError(f"The {end}.")
        assert isinstance(error, Exception)
        return error

    def _owner_ended(self, end: Ended) -> None:
        assert self.service is not None
        self.service.owner_gone(end.process)

    def look_at_calls(self, who: str, on: bool) -> dict[str, Any] | None:
        # In one process members share their verbs: calls have no spans.
        return None if self._client.info.get("one_process") else self._calls.look_on(who, on)

    def kill_actors(self, actors: Sequence[str]) -> None:
        kill_actors(self._client, [bytes.fromhex(actor) for actor in actors], no_restart=True)

    def failure(self, error: BaseException, name: str) -> bytes:
        if isinstance(error, AsyncioActorExit):
            raise ExitActor from error
        worker = self._worker
        actor_id = worker.context.actor_id if worker is not None else None
        return pickle_error(
            task_error(
                name,
                error,
                actor_id=actor_id,
                actor_repr=worker.executor.actor.repr_now() if worker is not None and actor_id else None,
                pid=os.getpid(),
                ip=self._client.info["node_ip_address"],
            )
        )

    def close(self) -> None:
        for graph in list(self.graphs):
            graph.end_with(RayChannelError("Channel closed: the session was shut down."))
        for watcher in list(self.loop_watchers.values()):
            watcher.close()

    def disown(self) -> None:
        error = self._client.fatal
        assert isinstance(error, Exception)
        for graph in list(self.graphs):
            graph.disown(error)

    def settle(self) -> None:
        """Free shared memory, which no process maps any more."""
        sweep_closed()
        self.settle_gpus(SETTLING)


#: Hosts of this process's session, and of ended sessions that are still referenced.
_hosts: weakref.WeakSet[Host] = weakref.WeakSet()


def _after_fork() -> None:
    for host in list(_hosts):
        host.disown()


os.register_at_fork(after_in_child=_after_fork)
