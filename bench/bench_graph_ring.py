"""Compiled graphs without the runtime: actors are forked processes, doorbells and requests are inherited descriptors.

Shows what graphs themselves cost: ``python bench/bench_graph_ring.py [names...]``.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import sys
import weakref
from collections.abc import Callable, Sequence
from statistics import median
from time import monotonic, perf_counter
from typing import Any

from mray._graph.actor.loop import GraphService
from mray._graph.caller.allocation import Allocation
from mray._graph.caller.compiled import CompiledGraph
from mray._graph.caller.graph_limits import Limits
from mray._graph.compiler.compile import plan_graph
from mray._graph.plan import INPUT, Argument, Graph, Source, Step
from mray._ipc.doorbell import Doorbell, new_wakeup_fd
from mray._ipc.memory_order import fence
from mray._ipc.spin import Spinner
from mray._ipc.table import AWAKE, PARKED, ROW_WORDS, STATE, SessionTable
from mray._objects.remote_error import pickle_error
from mray._objects.serializer import serialize

DRIVER_ROW = 0


class Answer:
    """A request whose answer comes over a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._answer: tuple[bool, Any] | None = None

    def ready(self) -> bool:
        if self._answer is None and select.select([self._sock], [], [], 0)[0]:
            self._answer = pickle.loads(self._sock.recv(1 << 20))
        return self._answer is not None

    def result(self) -> bytes:
        assert self._answer is not None
        ok, value = self._answer
        if not ok:
            raise value
        return bytes(value)


class TinyHost:
    """The least that graphs need of a process."""

    def __init__(self, prefix: str, table: SessionTable, doorbells: dict[str, int], row: int, rows: int, process: str) -> None:
        self.process = process
        self.prefix = prefix
        self.reactor: Any = self  # as far as graphs need one
        self.table = table
        self.rows = {name: number for number, name in enumerate(doorbells)}
        self.doorbells = doorbells
        self.spinner = Spinner(table, row, lambda: rows)
        self.service: GraphService | None = None
        self.graphs: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()
        self.ending: weakref.WeakSet[Any] = weakref.WeakSet()
        self.sockets: dict[str, socket.socket] = {}
        self._state = row * ROW_WORDS + STATE
        table.words[self._state] = AWAKE
        self._epoll = select.epoll()
        self._epoll.register(doorbells[process], select.EPOLLIN | select.EPOLLET)

    def watch(self, sock: socket.socket) -> None:
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def ask_of(self, process: str) -> None:
        """Names stay."""

    def group_doorbell(self, key: str, doorbells: Sequence[Doorbell]) -> None:
        return None

    def join_group_doorbell(self, writer: str, key: str) -> Callable[[], None]:
        return lambda: None

    def end_group_doorbell(self, key: str) -> None:
        pass

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None, *, spin: bool = False) -> bool:
        words, state = self.table.words, self._state
        deadline = None if timeout is None else monotonic() + timeout
        while not predicate():
            if deadline is not None and monotonic() >= deadline:
                return False
            words[state] = PARKED
            fence()
            if predicate():
                words[state] = AWAKE
                return True
            self._epoll.poll(-1 if deadline is None else max(0.0, deadline - monotonic()))
            words[state] = AWAKE
        return True

    def defer(self, callback: Callable[[], None]) -> None:
        callback()

    def actor_process(self, actor: str) -> str:
        return actor

    def request(self, process: str, verb: str, payload: bytes) -> Answer:
        sock = self.sockets[process]
        sock.send(pickle.dumps((verb, payload)))
        return Answer(sock)

    def doorbell_of(self, process: str) -> Doorbell:
        return Doorbell(self.doorbells[process], self.table, self.rows[process])

    def then(self, actor: str, callback: Callable[[Exception], None], *, doing: str = "") -> Callable[[], None]:
        return lambda: None

    def kill_actors(self, actors: Sequence[str]) -> None:
        pass

    def failure(self, error: BaseException, name: str) -> bytes:
        return pickle_error(error)


class Echo:
    """The actor."""

    def echo(self, value: Any) -> Any:
        return value


def actor_main(host: TinyHost, sock: socket.socket) -> None:
    """An actor's main loop, as a worker has it."""
    host.service = service = GraphService(host)
    host.watch(sock)
    instance = Echo()
    poller = select.poll()
    poller.register(sock, select.POLLIN)

    def pending() -> bool:
        return False

    def look() -> bool:
        return bool(poller.poll(0)) or service.ready()

    while True:
        if poller.poll(0):
            verb, payload = pickle.loads(sock.recv(1 << 20))
            try:
                answer = (True, service.handle(verb, payload, instance))
            except BaseException as error:
                answer = (False, error)
            sock.send(pickle.dumps(answer))
        service.run(pending)
        host.wait_until(look, None)


class Cluster:
    """A driver and forked actors ``a0 .. an``."""

    def __init__(self, actors: int) -> None:
        self.prefix = f"/mray-bench{os.getpid()}-"
        self.names = [f"a{number}" for number in range(actors)]
        table = SessionTable.create(self.prefix + "table")
        doorbells = {name: new_wakeup_fd() for name in ["driver", *self.names]}
        self.pids = []
        sockets = {}
        for row, name in enumerate(self.names, 1):
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = os.fork()
            if pid == 0:
                try:
                    actor_main(TinyHost(self.prefix, table, doorbells, row, actors + 1, name), theirs)
                except KeyboardInterrupt:
                    pass
                except BaseException:
                    import traceback

                    traceback.print_exc()
                finally:
                    os._exit(0)
            theirs.close()
            self.pids.append(pid)
            sockets[name] = mine
        self.host = TinyHost(self.prefix, table, doorbells, DRIVER_ROW, actors + 1, "driver")
        self.host.sockets = sockets
        for mine in sockets.values():
            self.host.watch(mine)
        self.table = table

    def compile(self, graph: Graph, in_flight: int = 10) -> CompiledGraph:
        plan = plan_graph(graph, in_flight)
        empty = serialize([])
        constants = {actor: (empty.form, empty.to_bytes()) for actor in graph.actors}
        actors = {actor: actor for actor in graph.actors}
        made = Allocation(self.host, plan, actors, {actor: self.host.actor_process(actor) for actor in actors})
        made.make(constants)
        return CompiledGraph(self.host, plan, made, Limits(in_flight))

    def close(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.table.segment.unlink()


def chain(length: int) -> Graph:
    """driver -> a0 -> a1 ... -> driver"""
    steps = [Step(i, f"a{i}", "echo", 0, (Argument(INPUT if i == 0 else Source(i - 1)),)) for i in range(length)]
    return Graph(tuple(steps), (Argument(Source(length - 1)),), False, 1, (), True)


def fan_out(width: int) -> Graph:
    """driver -> a0 .. an -> driver"""
    steps = [Step(i, f"a{i}", "echo", 0, (Argument(INPUT),)) for i in range(width)]
    return Graph(tuple(steps), tuple(Argument(Source(i)) for i in range(width)), True, 1, (), True)


def latency(graph: CompiledGraph, value: Any, count: int, several: bool = False) -> list[float]:
    """Seconds of each round trip."""
    times = []
    for _ in range(count):
        start = perf_counter()
        refs = graph.execute(value)
        if several:
            for ref in refs:
                ref.get()
        else:
            refs.get()
        times.append(perf_counter() - start)
    return times


def pipelined(graph: CompiledGraph, value: Any, count: int, depth: int) -> float:
    """Executions a second with `depth` in flight."""
    start = perf_counter()
    refs = [graph.execute(value) for _ in range(depth)]
    for _ in range(count):
        refs.append(graph.execute(value)) if len(refs) < depth else None
        refs.pop(0).get()
        refs.append(graph.execute(value))
    for ref in refs:
        ref.get()
    return count / (perf_counter() - start)


def show(name: str, times: list[float]) -> None:
    times = sorted(times)
    p99 = times[int(len(times) * 0.99)]
    print(
        f"{name:28} median {median(times) * 1e6:8.1f} us   p99 {p99 * 1e6:8.1f} us   min {times[0] * 1e6:8.1f} us",
        flush=True,
    )


def main(names: list[str]) -> None:
    wanted = lambda name: not names or name in names  # noqa: E731

    @contextlib.contextmanager
    def running(graph: Graph, actors: int) -> Any:
        cluster = Cluster(actors)
        try:
            compiled = cluster.compile(graph)
            yield compiled
            compiled.teardown()
        finally:
            cluster.close()

    if wanted("echo"):
        with running(chain(1), 1) as graph:
            latency(graph, "hello", 2000)
            show("echo str, one actor", latency(graph, "hello", 20000))
            value = {"a": [1, 2, 3], "b": "text"}
            show("echo dict, one actor", latency(graph, value, 5000))
    if wanted("numpy"):
        import numpy as np

        with running(chain(1), 1) as graph:
            for size in (4 << 10, 1 << 20, 16 << 20):
                array = np.zeros(size, np.uint8)
                latency(graph, array, 30)
                show(f"echo numpy {size >> 10} KiB", latency(graph, array, 300 if size < 2 << 20 else 50))
    if wanted("chain"):
        with running(chain(4), 4) as graph:
            latency(graph, "hello", 500)
            show("chain of 4", latency(graph, "hello", 5000))
    if wanted("fan"):
        with running(fan_out(4), 4) as graph:
            latency(graph, "hello", 500, True)
            show("fan-out to 4", latency(graph, "hello", 5000, True))
    if wanted("pipeline"):
        with running(chain(2), 2) as graph:
            pipelined(graph, "hello", 1000, 8)
            print(f"{'two-actor pipeline, 8 deep':28} {pipelined(graph, 'hello', 30000, 8):10.0f} a second", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
