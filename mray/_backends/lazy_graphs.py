"""`Graphs`: a process's access to its compiled graphs, whose host is created on demand.

Most sessions run no graph, and its modules are a quarter of what a worker imports. So the zygote imports them only if the driver's
program has, or other drivers may join later (`mray._runtime.session.launching.choose_options`); otherwise a worker imports them at the
first request for a graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common.beside import SESSION_TRACE, loaded

if TYPE_CHECKING:
    from mray._backends.graph_host import Host
    from mray._ipc.connection import Connection
    from mray._runtime.client.client import Client
    from mray._runtime.worker.worker import Worker

GRAPH_MODULE = "mray._backends.graph_host"


def _make_host(client: Client, worker: Worker | None) -> Host:
    from mray._backends.graph_host import Host  # noqa: PLC0415

    return Host(client, worker)


class Graphs:
    """The graphs of a process."""

    def __init__(self, client: Client, worker: Worker | None, make_host: Callable[[Client, Worker | None], Host] = _make_host) -> None:
        self._client = client
        self._make_host = make_host
        self._worker = worker
        self.made: Host | None = None
        client.from_peers.on({m.GRAPH: self._on_first_request})
        client.sections["trace"] = lambda since=0: loaded(SESSION_TRACE).trace_of(client.role, worker, since)

    def host(self) -> Host:
        """The host of this process's graphs; the first call creates it. Any thread."""
        if self.made is None:
            with self._client.lock:  # two threads may be the first
                if self.made is None:
                    self.made = self._make_host(self._client, self._worker)
                    if self._worker is not None:
                        self._worker.main_thread.service = self.made.service
        return self.made

    def _on_first_request(self, connection: Connection, *fields: Any) -> None:
        self.host()  # replaces this handler by its own
        self._client.from_peers[m.GRAPH](connection, *fields)

    def offer(self) -> None:
        """Let this worker take part in graphs: now if their modules are imported, else from the first request."""
        assert self._worker is not None
        if GRAPH_MODULE in sys.modules:
            self.host()
