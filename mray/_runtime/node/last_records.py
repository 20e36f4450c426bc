"""The records of a session that is kept (see `mray._ipc.kept_sessions`): of its workers, which write theirs and exit, and of the node.

On the node's one thread, at the end of the session.
"""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from mray._common import messages as m
from mray._common.clock import monotonic, time
from mray._decide.scheduler.scheduler import Scheduler
from mray._ipc.kept_sessions import MOST_BYTES, NODE, write_record
from mray._ipc.pidfd import PidFd
from mray._runtime.node.members import Members
from mray._runtime.node.records import NodeRecords
from mray._runtime.processes.supervisor import Supervisor

#: Bytes of the node's record, of all workers' records, and of one at least.
_NODE_BYTES, _WORKER_BYTES, _LEAST_BYTES = 1 << 20, MOST_BYTES // 2, 8 << 10
#: Seconds that workers may take, and for each of them: one that is stopped, or whose interpreter is held by C code, writes nothing.
_SECONDS, _SECONDS_EACH = 0.05, 0.002
#: Actors that are found by their names.
_MOST_ACTORS = 1000


class SavingWorkers:
    """The workers that have done any work, while they write their records, after which they exit."""

    def __init__(self, supervisor: Supervisor, members: Members, scheduler: Scheduler) -> None:
        """Have them begin."""
        worked = {record.process for record in scheduler.workers.workers.values() if record.gpus is not None}
        connections = {process: connection for process, connection in members.connections.items() if process in worked}
        most = max(_LEAST_BYTES, _WORKER_BYTES // max(1, len(connections)))
        self.workers: dict[int, PidFd] = {}
        for process, connection in connections.items():
            if process in supervisor.workers:  # else a profiler's, which ends in its own way
                with contextlib.suppress(OSError):
                    self.workers[connection.pid] = PidFd(connection.pid)
                    connection.send((m.SAVE, most))

    def end(self) -> None:
        """Wait until they have exited, and kill those that do not in time."""
        deadline = monotonic() + _SECONDS + _SECONDS_EACH * len(self.workers)
        for each in self.workers.values():
            with each:
                if not each.wait(max(0.0, deadline - monotonic())):
                    each.signal(signal.SIGKILL)


def write_own(directory: str, records: NodeRecords, scheduler: Scheduler, why: str) -> None:
    """Write the node's record: the order of the output, the calls of workers that had left, and the names of actors."""
    actors = [_actor(each) for each in scheduler.actors.listing(dead=True)[-_MOST_ACTORS:]]
    record: dict[str, Any] = {
        "end": time(),
        "why": why,
        "jobs": [{name: job[name] for name in ("pid", "entrypoint")} for job in records.jobs.listing()],
        "written": records.written.rows(),
        "left": records.last_calls.all(),
        "actors": actors,
    }
    write_record(directory, NODE, record, _NODE_BYTES)


def _actor(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("actor_id", "name", "class_name", "pid", "process")}
