"""What a process of the native engine offers to the graphs in it: the `GraphHost` of `mray._graph.host`.

In a driver or a worker that compiles graphs, and in every actor that takes part in one.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._graph.loop import GraphService
from mray._ipc.doorbell import Doorbell, GroupBell
from mray._objects.remote_error import pickle_error, task_error, unpickle_error
from mray._runtime.calls import ActorCaller
from mray._runtime.client import Client
from mray._runtime.deaths import actor_error
from mray._runtime.requests import Answer

if TYPE_CHECKING:
    from mray._graph.compiled import CompiledGraph
    from mray._runtime.worker import Worker


class Request:
    """A request to the service of another process."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def done(self) -> bool:
        return self._answer.ready

    def result(self) -> bytes:
        if self._answer.error is not None:
            raise self._answer.error
        return self._answer.value  # type: ignore[no-any-return]


class Host:
    """Implements `GraphHost`."""

    def __init__(self, client: Client, worker: Worker | None) -> None:
        self._client = client
        self._worker = worker
        self.process = client.process
        self.prefix = f"/mray-{client.facts['session']}-{client.process}-"
        assert client.reactor.spinner is not None
        self.spinner = client.reactor.spinner
        self.service: GraphService | None = GraphService(self) if worker is not None else None
        self.graphs: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()
        self._own_bell: Doorbell | None = None

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None, *, spin: bool = False) -> bool:
        return self._client.reactor.wait_until(predicate, timeout, spin=spin)

    def defer(self, callback: Callable[[], None]) -> None:
        self._client.reactor.defer(callback)

    def actor_process(self, actor: str) -> str:
        """Waits until the actor is alive; raises why it never will be."""
        client = self._client
        actor_id = bytes.fromhex(actor)
        with client.lock:
            caller = client.actor(actor_id)
            caller.subscribe()
        client.reactor.wait_until(lambda: caller.state in ("alive", "dead"))
        if caller.state == "dead":
            raise actor_error(actor_id, caller.class_name, caller.cause)
        return caller.process

    def request(self, process: str, verb: str, payload: bytes) -> Request:
        client = self._client
        if process == self.process:
            # An actor that compiles a graph over itself: its main thread is here.
            assert self._worker is not None and self.service is not None
            answer = Answer(client.node)  # nobody's: it is answered at once
            try:
                answer.set(self.service.handle(verb, payload, self._worker.executor.instance))
            except Exception as error:
                answer.set(None, error)
            return Request(answer)
        with client.lock:
            connection = client.peer(process)
        return Request(client.request(connection, m.GRAPH, verb, payload))

    def bell_of(self, process: str) -> Doorbell:
        client = self._client
        if process == self.process:
            if self._own_bell is None:
                assert client.reactor.table is not None
                self._own_bell = Doorbell(os.dup(client.reactor.bell_fd), client.reactor.table, client.reactor.row)
            return self._own_bell
        return client.bells.of(process)

    def group_bell(self, key: str, bells: Sequence[Doorbell]) -> GroupBell | None:
        return GroupBell(self._client.bells.group(key), bells)

    def join_group_bell(self, writer: str, key: str) -> Callable[[], None]:
        fd = self._client.bells.join_group(writer, key)
        return lambda: self._client.bells.leave_group(fd)

    def end_group_bell(self, key: str) -> None:
        self._client.bells.end_group(key)

    def watch_actor(self, actor: str, callback: Callable[[Exception], None]) -> Callable[[], None]:
        client = self._client
        with client.lock:
            caller = client.actor(bytes.fromhex(actor))

            def watch(now: ActorCaller) -> None:
                if now.state in ("dead", "restarting"):
                    error = actor_error(now.actor_id, now.class_name, now.cause)
                    assert isinstance(error, Exception)
                    client.reactor.defer(lambda: callback(error))

            caller.watchers.append(watch)
            caller.subscribe()
            if caller.state in ("dead", "restarting"):
                watch(caller)

        def cancel() -> None:
            if watch in caller.watchers:
                caller.watchers.remove(watch)

        return cancel

    def kill_actors(self, actors: Sequence[str]) -> None:
        client = self._client
        with client.lock:
            callers = [client.actor(bytes.fromhex(actor)) for actor in actors]
            for caller in callers:
                caller.subscribe()
                client.node.send((m.ACTOR_KILL, caller.actor_id, True))
        # Calls go straight to the actor: one made after this must not overtake its death.
        client.reactor.wait_until(lambda: client.fatal is not None or all(caller.state == "dead" for caller in callers))

    def failure(self, error: BaseException, name: str) -> bytes:
        worker = self._worker
        actor_id = worker.context.actor_id if worker is not None else None
        return pickle_error(
            task_error(
                name,
                error,
                actor_id=actor_id,
                actor_repr=worker.executor.repr_now() if worker is not None and actor_id else None,
                pid=os.getpid(),
                ip=self._client.facts["node_ip_address"],
            )
        )

    def exception(self, payload: bytes) -> BaseException:
        error: Any = unpickle_error(payload)
        return error  # type: ignore[no-any-return]

    def close(self) -> None:
        """The session ends."""
        for graph in list(self.graphs):
            graph.abandon()
        if self._own_bell is not None:
            self._own_bell.close()
            self._own_bell = None
