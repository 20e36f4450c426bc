"""A session that begins anew for the driver whose own it is: what tests that share one do between each other.

In the node, on its one thread.

::

    driver (`mray._runtime.session.session.Session.renew`)               node
    gives back idle leases, RESET ────────────────────────────▶  ends all of its work (`mray._scheduler.session_reset`)
    reads until it is hung up on  ◀─── hang-up, no word ───────  once the last process that had to go is dead
    closes its client, makes another, HELLO ──────────────────▶  WELCOME, as to a driver that has come for the first time

For the node a driver has died and another one has come, except that session, zygote and idle workers stay: whatever is under way finds its
end as it does when a driver dies, and nothing of it can reach the new client. What the driver itself still holds, refs and handles, is the
old client's, whose end says why.

Rejected: a client that clears its own tables. It would have to know every place where something of before may still be, now and
whenever a feature is added; a new client is empty by construction.
"""

from __future__ import annotations

from collections.abc import Callable

from mray._ipc.connection import Connection
from mray._ipc.reactor import Reactor
from mray._ipc.reaper import objects_of
from mray._runtime.node.jobs import Job
from mray._runtime.node.members import Members
from mray._runtime.processes.supervisor import Supervisor
from mray._scheduler.events import DriverReset, Event, PrestartAllowed
from mray._scheduler.scheduler import Scheduler
from mray._scheduler.session_reset import leaving

#: How long the driver gets to take the last output, in seconds.
_LAST_WORDS = 2.0


class SessionReset:
    """One at a time."""

    def __init__(
        self,
        session_dir: str,
        reactor: Reactor,
        scheduler: Scheduler,
        supervisor: Supervisor,
        members: Members,
        *,
        apply: Callable[[Event], None],
        forget: Callable[[], None],
        prestarts: bool,
    ) -> None:
        """`apply` has the scheduler's answer to an event carried out; `forget` drops what the node keeps of workers that have died, and
        `prestarts` says whether workers are started before anybody asks for them.
        """
        self._session_dir = session_dir
        self._reactor = reactor
        self._scheduler = scheduler
        self._supervisor = supervisor
        self._members = members
        self._apply = apply
        self._forget = forget
        self._prestarts = prestarts
        self._job: Job | None = None
        #: Workers whose end it waits for.
        self._going: set[str] = set()

    def begin(self, job: Job, connection: Connection) -> None:
        """RESET: the driver at the other end of this connection wants nothing any more."""
        del self._members.connections[connection.process]
        self._apply(DriverReset(connection.process, frozenset(filter(self._owns, self._supervisor.workers))))
        self._job, self._going = job, leaving(self._scheduler)
        self._look()

    def _owns(self, process: str) -> bool:
        """Whether a worker has objects of its own."""
        return process in self._members and (self._members.is_lending(process) or bool(objects_of(self._session_dir, process)))

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
        self._supervisor.take_output()  # of workers that stay: the next client is not to show it
        self._forget()
        self._scheduler.actors.forget_graves()
        connection, job.connection = job.connection, None
        if connection is not None:
            self._reactor.flush()
            connection.drain(_LAST_WORDS)
            connection.close()
        # Now and no sooner: the processes that end need the cores.
        if self._prestarts:
            self._apply(PrestartAllowed(job.id))
