"""The main function of a worker process: wires the runtime, the graphs and the user's API.

Called in a process that the zygote has forked (or that was started by exec), with its environment and output in place.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from mray._api.current import set_backend
from mray._backends.native import NativeBackend
from mray._common.messages import ROLE_WORKER
from mray._ipc.output import name_marker
from mray._runtime.client import Client
from mray._runtime.worker import Worker


class _NamedStream:
    """What user code sees as ``sys.stdout``: says under which name a line was printed before the first of it."""

    def __init__(self, stream: Any, worker: Worker) -> None:
        self._stream = stream
        self._worker = worker
        self._named = ""

    def write(self, text: str) -> int:
        name = self._worker.executor.output_name()
        if name != self._named:
            self._named = name
            self._stream.flush()
            os.write(self._stream.fileno(), name_marker(name))
        return self._stream.write(text)  # type: ignore[no-any-return]

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def worker_main(start: dict[str, Any]) -> int:
    """Join the session and serve until told to end."""
    client = Client(start["session_dir"], start["process"], ROLE_WORKER)
    worker = Worker(client)
    client.join()
    backend = NativeBackend(client, None, worker)
    set_backend(backend)
    host = backend.host()
    worker.service = host.service
    if host.service is not None:
        client.on_peer_gone = host.service.owner_gone
    sys.stdout = _NamedStream(sys.stdout, worker)
    sys.stderr = _NamedStream(sys.stderr, worker)
    os.register_at_fork(after_in_child=client.abandon)
    client.reactor.start_relief()
    worker.run()
    return 0
