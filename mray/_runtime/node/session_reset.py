"""The reset of a private session: its driver gets it as new, as tests that share a session do between each other.

On the node's one thread.

::

    driver (`mray._runtime.session.session.Session._reset`)               node
    returns idle leases, RESET ───────────────────────────────▶  ends all of its work (`mray._decide.scheduler.scheduler`)
    reads until the node hangs up  ◀─── hang-up, no message ───  once the last process that must exit is dead
    closes its client, creates another, HELLO ────────────────▶  WELCOME, as to a driver that joins for the first time

For the node a driver has died and another one has joined, except that session, zygote and idle workers stay: no message of pending work
can reach the new client. Refs and handles of the old client raise errors that name the reset.

Rejected: a client that clears its own tables. It would have to know every place that may hold something from before the reset.
"""

from __future__ import annotations

from collections.abc import Callable

from mray._decide.scheduler.events import DriverReset, Event, PrestartAllowed
from mray._decide.scheduler.scheduler import Scheduler
from mray._ipc.connection import Connection
from mray._ipc.reactor import Reactor
from mray._ipc.reaper import has_objects
from mray._runtime.node.jobs import Job
from mray._runtime.node.members import Members
from mray._runtime.processes.supervisor import Supervisor

_DRAIN_SECONDS = 2.0


class SessionReset:
    """The current reset, one at a time."""

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
        """`apply` passes an event to the scheduler and carries out its instructions; `forget` drops the node's records of dead workers, and
        `prestarts` says whether workers are started before a task needs them.
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
        #: Workers whose exit it waits for.
        self._going: set[str] = set()

    def begin(self, job: Job, connection: Connection) -> None:
        del self._members.connections[connection.process]
        self._apply(DriverReset(connection.process, frozenset(filter(self._owns, self._supervisor.workers))))
        self._job, self._going = job, self._scheduler.leaving()
        self._look()

    def _owns(self, process: str) -> bool:
        return process in self._members and (self._members.is_lending(process) or has_objects(self._session_dir, process))

    def worker_gone(self, process: str) -> None:
        if self._job is not None:
            self._going.discard(process)
            self._look()

    def _look(self) -> None:
        """Hang up once every process that had to exit is dead; then the driver may join again."""
        job = self._job
        if job is None or self._going:
            return
        self._job = None
        self._supervisor.take_output()  # of surviving workers: the next client must not show it
        self._forget()
        self._scheduler.actors.forget_dead()
        connection, job.connection = job.connection, None
        if connection is not None:
            self._reactor.flush()
            connection.drain(_DRAIN_SECONDS)
            connection.close()
        # Not sooner: the exiting processes need the cores.
        if self._prestarts:
            self._apply(PrestartAllowed(job.id))
