"""A session that begins anew for the driver whose own it is: what tests that share one do between each other.

In the node, on its one thread.

::

    driver (`mray._runtime.session.Session.renew`)               node
    gives back idle leases, RENEW ────────────────────────────▶  ends all of its work (`mray._scheduler.renewal`)
    reads until it is hung up on  ◀─── hang-up, no word ───────  once the last process that had to go is dead
    closes its client, makes another, HELLO ──────────────────▶  WELCOME, as to a driver that has come for the first time

For the node a driver has died and another one has come, except that session, zygote and idle workers stay: whatever is under way finds its
end as it does when a driver dies, and nothing of it can reach the new client. What the driver itself still holds, refs and handles, is the
old client's, whose end says why.

Rejected: a client that clears its own tables. It would have to know every place where something of before may still be, now and
whenever a feature is added; a new client is empty by construction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mray._ipc.reaper import objects_of
from mray._ipc.table import LENT, ROW_WORDS
from mray._runtime.key_values import KeyValues
from mray._scheduler.events import DriverRenewed, PrestartAllowed
from mray._scheduler.renewal import leaving

if TYPE_CHECKING:
    from mray._ipc.connection import Connection
    from mray._runtime.jobs import Job
    from mray._runtime.node import Node

#: How long the driver gets to take the last output, in seconds.
_LAST_WORDS = 2.0


class Renewal:
    """One at a time."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._job: Job | None = None
        #: Workers whose end it waits for.
        self._going: set[str] = set()

    def begin(self, job: Job, connection: Connection) -> None:
        """RENEW: the driver at the other end of this connection wants nothing any more."""
        node = self._node
        del node._connections[connection.process]
        node._key_values = KeyValues()
        node._apply(DriverRenewed(connection.process, frozenset(filter(self._owns, node._supervisor.workers))))
        self._job, self._going = job, leaving(node._scheduler)
        self._look()

    def _owns(self, process: str) -> bool:
        """Whether a worker has objects of its own."""
        row = self._node._row_of.get(process)
        return row is not None and (
            bool(self._node._table.words[ROW_WORDS * row + LENT]) or bool(objects_of(self._node._session_dir, process))
        )

    def worker_gone(self, process: str) -> None:
        """A worker is dead, and the scheduler knows."""
        if self._job is not None:
            self._going.discard(process)
            self._look()

    def _look(self) -> None:
        """Hang up once nothing of before is left: from then on the driver may come again."""
        job = self._job
        if job is None or self._going:
            return
        self._job = None
        node = self._node
        node._supervisor.take_output()  # of workers that stay: the next client is not to show it
        node.graves.clear()
        node.last_calls.clear()
        node._scheduler.actors.forget_graves()
        connection, job.connection = job.connection, None
        if connection is not None:
            node.reactor.flush()
            connection.drain(_LAST_WORDS)
            connection.close()
        # Now and no sooner: the processes that end need the cores.
        if node._options["job"]["eager_install"]:
            node._apply(PrestartAllowed(job.id))
