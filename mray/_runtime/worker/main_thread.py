"""`MainThread`: the main thread of a worker, as its other threads see it.

The inbox is a deque; both sides use single C calls on it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mray._ipc.connection import Connection
    from mray._runtime.worker.running import Done

#: A message's connection, code, and fields (the record for CALL and TASK).
Arrived = tuple["Connection", int, Any]
#: Finished calls that a timeline shows.
RECENT = 10_000


class GraphRunner(Protocol):
    """Runs graphs in a worker (see `mray._graph.actor.loop`)."""

    def handle(self, verb: str, payload: bytes, instance: Any) -> bytes: ...

    def ready(self) -> bool: ...

    def run(self, pending: Callable[[], object]) -> bool: ...

    @property
    def is_active(self) -> bool:
        """Whether there is any graph."""


class MainThread:
    def __init__(self) -> None:
        self.inbox: deque[Arrived] = deque()
        #: The graphs of this worker's actor; set from outside.
        self.service: GraphRunner | None = None
        self.ident = 0
        #: The number of finished calls, and the last of them, for observers.
        self.served = 0
        self.recent: deque[Done] = deque(maxlen=RECENT)

    def newest(self, most: int) -> list[Done]:
        """The last finished calls, the newest first. Any thread."""
        while True:
            try:
                return list(islice(reversed(self.recent), most))
            except RuntimeError:  # a call has ended meanwhile
                continue

    def is_current(self) -> bool:
        return threading.get_ident() == self.ident

    def enqueuing(self, code: int) -> Callable[..., None]:
        """The handler of a message that the main thread serves."""
        append = self.inbox.append

        def enqueue(connection: Connection, *fields: Any) -> None:
            append((connection, code, fields))

        return enqueue
