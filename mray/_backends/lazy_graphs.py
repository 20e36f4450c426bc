"""The part of a worker that serves compiled graphs, made at the first request for it, or before the worker is forked.

In a worker; entered by its reading thread (a driver's request) or by any thread of user code that compiles a graph of its own.

The graphs' modules are a quarter of what a worker needs, and most sessions run no graph. So the zygote imports them for all workers only
where they are expected: when the driver's program has imported them before `init`, or when anybody may join the session later
(`mray._runtime.session.session.choose_options`). Elsewhere a worker imports them (20 ms, once) when the first request for a graph comes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mray._common import messages as m

if TYPE_CHECKING:
    from mray._backends.graph_host import Host
    from mray._ipc.connection import Connection
    from mray._runtime.client.client import Client
    from mray._runtime.worker.worker import Worker

#: The module that every process in a graph needs.
GRAPH_MODULE = "mray._backends.graph_host"


def offer_graphs(worker: Worker, host: Callable[[], object]) -> None:
    """Let this worker take part in graphs: from now on where their modules are imported already, else from the first request.

    `host` makes the part of this process that serves graphs, if there is none yet.
    """
    worker.client.sections["trace"] = lambda: _trace_of(worker)
    if GRAPH_MODULE in sys.modules:
        host()


def first_request(client: Client, host: Callable[[], object]) -> Callable[..., None]:
    """The handler of the first request for a graph in a process without a host: it makes one, in the reading thread."""

    def handle(connection: Connection, *fields: Any) -> None:
        host()  # which puts its own handler in this one's place
        client.from_peers[m.GRAPH](connection, *fields)

    return handle


def make_host(client: Client, worker: Worker | None) -> Host:
    """A host of this process's graphs, which needs one."""
    from mray._backends.graph_host import Host  # noqa: PLC0415

    host = Host(client, worker)
    if worker is not None:
        worker.main_thread.service = host.service
    return host


def _trace_of(worker: Worker) -> Any:
    from mray._backends.session_trace import trace_of  # noqa: PLC0415  (whoever asks waits for a picture)

    return trace_of(worker.client, worker)
