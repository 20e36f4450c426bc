"""Kills of measured workers: they get a moment to write their lines first (see `mray._runtime.processes.line_coverage`).

On the node's one thread, and only where the driver is measured.
"""

from __future__ import annotations

import contextlib

from mray._common import messages as m
from mray._common.clock import monotonic
from mray._decide.scheduler.records import LEAVING
from mray._decide.scheduler.scheduler import Scheduler
from mray._ipc.pidfd import PidFd
from mray._ipc.reactor import Reactor
from mray._runtime.node.members import Members
from mray._runtime.processes.line_coverage import SAVE_SECONDS
from mray._runtime.processes.supervisor import Supervisor


class GracefulKill:
    """Asks workers to write and exit, and kills those that do not."""

    def __init__(self, reactor: Reactor, scheduler: Scheduler, supervisor: Supervisor, members: Members) -> None:
        self._reactor = reactor
        self._scheduler = scheduler
        self._supervisor = supervisor
        self._members = members
        self._asked: set[str] = set()

    def kill(self, process: str) -> None:
        if process in self._asked:
            return
        if self._ask(process):
            self._reactor.call_later(SAVE_SECONDS, lambda: self._supervisor.kill(process))
        else:
            self._supervisor.kill(process)

    def _ask(self, process: str) -> bool:
        connection = self._members.connections.get(process)
        if connection is None or connection.closed or connection.role != m.ROLE_WORKER:
            return False
        self._asked.add(process)
        connection.send((m.SAVE, 0))
        return True

    def _leaves(self, process: str) -> bool:
        """Whether a worker has hung up: it writes, or is dead."""
        record = self._scheduler.workers.workers.get(process)
        return record is None or record.state == LEAVING

    def end_all(self) -> None:
        """Ask all workers, as the session ends, and wait until they are dead, or their time is over."""
        waiting = []
        for process, worker in self._supervisor.workers.items():
            if worker.pid and (process in self._asked or self._ask(process) or self._leaves(process)):
                with contextlib.suppress(OSError):
                    waiting.append(PidFd(worker.pid))
        deadline = monotonic() + SAVE_SECONDS
        for each in waiting:
            with each:
                each.wait(max(0.0, deadline - monotonic()))
