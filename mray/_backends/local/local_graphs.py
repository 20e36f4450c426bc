"""Compiled graphs whose actors run cooperatively: the differences from those of other engines.

    driver's thread                                 actor's thread
    CompiledGraph.execute                           Program.run
      a scheduling point, then the input's ring       a scheduling point before each operation: READ, COMPUTE, WRITE
    CompiledDAGRef.get                              nothing there, or no room: back to its calls
      a scheduling point, then waits cooperatively

Programs, rings and all that is decided are those of every engine (`mray._graph`, `mray._channel`): what is copied, what a buffer holds
and how errors travel is the same. So a seed fixes the interleaving of the operations of all actors, and of executions in flight.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mray._api.current import current_backend
from mray._backends.graph_host import Host
from mray._backends.local.transport import LocalReactor
from mray._channel.base import NOTHING, ChannelReader, ChannelWriter
from mray._common.kept import os
from mray._graph.actor.loop import GraphService
from mray._graph.caller.compiled import CompiledGraph
from mray._graph.caller.executions import TORN_DOWN, wait_until
from mray._graph.gpu_edges import Method, Read, Write
from mray._graph.host import GraphHost
from mray._graph.plan import Route, Step
from mray._ipc.doorbell import Doorbell, GroupDoorbell
from mray._ipc.segment import Ask, offered
from mray._ipc.spin import AdaptiveSpinner, Spinner

if TYPE_CHECKING:
    from mray._runtime.client.client import Client
    from mray._runtime.worker.worker import Worker


class NeverSpins(Spinner):
    """A spinner that never spins: no other thread computes while one waits."""

    def __init__(self) -> None:
        AdaptiveSpinner.__init__(self, 0.0)

    def may_spin(self, takes_turns: bool = False) -> bool:
        return False

    def is_oversubscribed(self) -> bool:
        return True


class NoDoorbell(Doorbell):
    """A doorbell that wakes nobody: every waiting thread is asked at each decision."""

    __slots__ = ()

    def __init__(self) -> None:
        self.fd = -1

    def ring(self) -> None:
        """Do nothing: nobody sleeps on it."""


_doorbell = NoDoorbell()


def _nothing() -> None:
    pass


class PauseProbe:
    """A `Probe` that makes each operation of a program a scheduling point."""

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause

    def read(self, channel: Route, reader: ChannelReader) -> Read:
        pause, ready, try_read = self._pause, reader.ready, reader.try_read

        def read() -> Any:
            if not ready():
                return NOTHING  # back to the actor's calls
            pause()
            return try_read()

        return read

    def write(self, channel: Route, writer: ChannelWriter) -> Write:
        pause, send = self._pause, writer.try_write

        def write(value: Any) -> bool:
            pause()
            return send(value)

        return write

    def method(self, step: Step, name: str, method: Method) -> Method:
        pause = self._pause

        def call(*args: Any, **kwargs: Any) -> Any:
            pause()
            return method(*args, **kwargs)

        return call


class LocalHost(Host):
    """The host of graphs in a simulated process."""

    def __init__(self, client: Client, worker: Worker | None) -> None:
        reactor = client.reactor
        assert isinstance(reactor, LocalReactor)
        self.run_token = reactor.run_token
        reactor.spinner = NeverSpins()
        self.service_kind, self.graph_kind = LocalService, LocalGraph
        super().__init__(client, worker)

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None, *, spin: bool = False) -> bool:
        with self.run_token.held():
            return self.run_token.wait_until(predicate, timeout)

    def ask_node(self, what: str, *arguments: Any) -> Any:
        return "" if what == "mps_hint" else []  # all is one process

    def in_a_thread(self, callback: Callable[[], None]) -> None:
        callback()  # nothing waits: all that other processes are asked for is here

    def die(self) -> None:
        """Release everything: the process has died, and tells nobody."""
        for graph in list(self.graphs):
            assert isinstance(graph, LocalGraph)
            graph.die()
        if self.service is not None:
            self.service.close_all()

    def look_at_calls(self, who: str, on: bool) -> None:
        """Do nothing: spans of ordinary calls are not taken, since all processes have the same verbs."""

    def doorbell_of(self, process: str) -> Doorbell:
        return _doorbell

    def ask_of(self, process: str) -> Ask:
        return lambda name: os.dup(offered(name).fd)  # one process: offers of all of them are in one table

    def group_doorbell(self, key: str, doorbells: Sequence[Doorbell]) -> GroupDoorbell | None:
        return None

    def join_group_doorbell(self, writer: str, key: str) -> Callable[[], None]:
        return _nothing

    def end_group_doorbell(self, key: str) -> None:
        """Do nothing: there is none."""


class LocalService(GraphService):
    """The programs of one actor, run by the thread that runs its calls."""

    def __init__(self, host: GraphHost) -> None:
        assert isinstance(host, LocalHost)
        super().__init__(host)
        self.probes = (PauseProbe(host.run_token.pause),)
        self._spinner_oversubscribed = host.spinner
        #: The thread that made this and runs the actor's calls.
        self._thread = threading.get_ident()

    def is_its_thread(self) -> bool:
        return threading.get_ident() == self._thread


class LocalGraph(CompiledGraph):
    """A compiled graph in the session's one process. Any thread, also one that has no run token yet."""

    host: LocalHost

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spinner = self.host.spinner

    @contextlib.contextmanager
    def _scheduling_point(self) -> Iterator[None]:
        """A scheduling point, unless the session is over."""
        run_token = self.host.run_token
        if run_token.closed:
            yield
            return
        with run_token.held():
            run_token.pause()
            yield

    def execute(self, /, *args: Any, **kwargs: Any) -> Any:
        with self._scheduling_point():
            return super().execute(*args, **kwargs)

    def fetch(self, index: int, output: int | None, timeout: float | None, deadline: float | None = None) -> Any:
        with self._scheduling_point():
            return super().fetch(index, output, timeout, deadline)

    def wait_until(self, predicate: Callable[[], bool], deadline: float | None) -> bool:
        # By the host of the waiting process, which may be another one than the compiler's.
        host = current_backend().host()
        with self.host.run_token.held():
            return wait_until(host, host.process in self._made.processes.values(), predicate, deadline)

    def die(self) -> None:
        """Release memory and names: the process that has compiled the graph has died."""
        if not self.is_teardown:
            self.state = TORN_DOWN
            self._made.release()

    def _end(self, patience: float, cause: Exception | None = None, *, kill_actors: bool = False) -> None:
        with self._scheduling_point():
            super()._end(patience, cause, kill_actors=kill_actors)
