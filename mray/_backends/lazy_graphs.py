"""How a worker comes to its share of compiled graphs, with the first request for it, or before it is born.

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
    from mray._backends.native import NativeBackend
    from mray._ipc.connection import Connection
    from mray._runtime.worker.worker import Worker

#: What all that takes part in graphs needs.
GRAPH_MODULE = "mray._backends.graph_host"


def offer_graphs(backend: NativeBackend, worker: Worker) -> None:
    """Have this worker take part in graphs: from now on where their modules are there already, else from the first request."""
    client = backend.client
    client.sections["trace"] = lambda: _trace_of(worker)
    if GRAPH_MODULE in sys.modules:
        backend.host()


def first_request(backend: NativeBackend) -> Callable[..., None]:
    """What is done with the first request for a graph that comes to a process without a host: it gets one, in the reading thread."""

    def handle(connection: Connection, *fields: Any) -> None:
        backend.host()  # which puts its own handler in this one's place
        backend.client.from_peers[m.GRAPH](connection, *fields)

    return handle


def make_host(backend: NativeBackend, worker: Worker | None) -> Host:
    """What the graphs of this process have of it; made once. Any thread."""
    from mray._backends.graph_host import Host  # noqa: PLC0415

    with backend.client.lock:  # a worker's two threads may be the first at the same time
        if backend.graph_host is None:
            host = Host(backend.client, worker)
            if worker is not None:
                worker.service = host.service
            backend.graph_host = host
        return backend.graph_host


def _trace_of(worker: Worker) -> Any:
    from mray._backends.timeline import trace_of  # noqa: PLC0415  (whoever asks waits for a picture)

    return trace_of(worker.client, worker)
