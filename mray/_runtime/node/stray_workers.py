"""Workers that lose their way: whose end an exit status does not explain, or that have hung up and do not end.

In the node, on its one thread. A worker tells when code of the user's begins that need not return, such as a setup hook, and when it
has. One that hangs up is about to end, unless it has executed another program in its place, or its program has closed its descriptors;
then the node ends it, and says why: the SIGKILL is its own.
"""

from __future__ import annotations

from mray._common import messages as m
from mray._ipc import process as processes
from mray._ipc.reactor import Reactor
from mray._runtime.processes.supervisor import Supervisor
from mray._scheduler import events
from mray.exceptions import describe_status

#: How long a worker that has hung up may take to end, in seconds: it may still be running exit handlers. Whoever has executed another
#: program never will: when that is looked at.
_EXIT_GRACE = 5.0
_EXEC_LOOK = 0.1
#: How much of a command line an error shows.
_SHOWN = 200


class StrayWorkers:
    """What the node knows of them."""

    def __init__(self, reactor: Reactor, supervisor: Supervisor, table: str) -> None:
        """`table` names memory that every worker has mapped, and no other program."""
        self._reactor = reactor
        self._supervisor = supervisor
        self._table = table
        #: What user code of its environment a worker runs before it serves; and how those have gone astray that are ended for it.
        self._setting_up: dict[str, str] = {}
        self._ended: dict[str, str] = {}

    def sets_up(self, process: str, what: str) -> None:
        """SETTING_UP."""
        self._setting_up[process] = what

    def hung_up(self, process: str, pid: int) -> None:
        """Its end is near; if it does not come, the worker has lost its way."""
        self._reactor.call_later(_EXEC_LOOK, lambda: self._look_after(process, pid))

    def _look_after(self, process: str, pid: int) -> None:
        if not self._supervisor.expects(process, pid):
            return
        program = processes.command_line(pid)
        if program and not processes.has_mapped(pid, self._table):
            self._end(process, pid, f"executed another program in its place: {program[:_SHOWN]!r}")
        else:
            text = f"hung up on the session and went on for {_EXIT_GRACE:g} s"
            self._reactor.call_later(_EXIT_GRACE, lambda: self._end(process, pid, text))

    def _end(self, process: str, pid: int, what: str) -> None:
        if self._supervisor.expects(process, pid):
            self._ended[process] = what
            self._supervisor.kill(process)

    def explain(self, process: str, pid: int, status: int | None, last_lines: bytes) -> tuple[events.WorkerLeft | None, int | None]:
        """Of a worker that is dead: what its exit status does not tell, if anything, and the status, unless that is our doing."""
        setting_up, astray = self._setting_up.pop(process, ""), self._ended.pop(process, "")
        left = None
        if setting_up and (astray or (status or 0) >= 0):  # (a signal may come from elsewhere: another attempt may do better)
            text = f"its {setting_up} did not return: the process (pid {pid}) {astray or describe_status(status) or 'has ended'}"
            last = f". Its last output:\n{last_lines.decode('utf-8', 'replace')}" if last_lines else ""
            left = events.WorkerLeft(process, m.CAUSE_REFUSED, f"{m.NO_PROCESS}: {text}{last}")
        elif setting_up:
            left = events.WorkerLeft(process, m.CAUSE_CRASH, f"It was in its {setting_up}.")
        elif astray:
            left = events.WorkerLeft(process, m.CAUSE_CRASH, f"The process (pid {pid}) {astray}, and was ended.")
        return left, None if astray else status
