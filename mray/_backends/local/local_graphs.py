"""Compiled graphs whose actors run cooperatively.

    driver's thread                                 actor's thread
    CompiledGraph.execute                           Program.run
      a scheduling point, then the input's ring       a scheduling point before each operation: READ, COMPUTE, WRITE
    CompiledDAGRef.get                              no value or no room: back to its calls
      a scheduling point, then waits cooperatively

A seed fixes the interleaving of all operations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mray._backends.graph_host import Host
from mray._backends.local.transport import LocalReactor
from mray._graph.caller.compiled import CompiledGraph
from mray._inside.transports import NOTHING, ChannelReader, ChannelWriter

if TYPE_CHECKING:
    from mray._backends.local.run_token import RunToken
    from mray._inside.client import Client
    from mray._inside.platform import WaitingPlace, Worker


class PauseProbe:
    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause

    def read(self, channel: object, reader: ChannelReader) -> Callable[[], Any]:
        pause, ready, try_read = self._pause, reader.ready, reader.try_read

        def read() -> Any:
            if not ready():
                return NOTHING  # back to the actor's calls
            pause()
            return try_read()

        return read

    def write(self, channel: object, writer: ChannelWriter) -> Callable[[Any], bool]:
        pause, send = self._pause, writer.try_write

        def write(value: Any) -> bool:
            pause()
            return send(value)

        return write

    def method(self, step: object, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        pause = self._pause

        def call(*args: Any, **kwargs: Any) -> Any:
            pause()
            return method(*args, **kwargs)

        return call


def make_host(client: Client, worker: Worker | None) -> Host:
    return Host(client, worker, LocalGraph, (PauseProbe(_run_token_of(client.reactor).pause),))


def _run_token_of(reactor: WaitingPlace) -> RunToken:
    assert isinstance(reactor, LocalReactor)
    return reactor.run_token


class LocalGraph(CompiledGraph):
    """For any thread, also one without the run token.

    A subclass, since user code calls it directly: its calls are scheduling points.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._run_token = _run_token_of(self.host.reactor)

    @contextlib.contextmanager
    def _scheduling_point(self) -> Iterator[None]:
        run_token = self._run_token
        if run_token.closed:
            yield
            return
        with run_token.held():
            run_token.pause()
            yield

    def execute(self, /, *args: Any, **kwargs: Any) -> Any:
        with self._scheduling_point():
            return super().execute(*args, **kwargs)

    def fetch(
        self,
        index: int,
        output: int | None,
        timeout: float | None,
        deadline: float | None = None,
        beside: Callable[[], list[Any]] | None = None,
    ) -> Any:
        with self._scheduling_point():
            return super().fetch(index, output, timeout, deadline, beside)

    def _end(self, patience: float, cause: Exception | None = None, *, kill_actors: bool = False) -> None:
        with self._scheduling_point():
            super()._end(patience, cause, kill_actors=kill_actors)
