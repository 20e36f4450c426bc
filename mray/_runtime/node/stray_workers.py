"""Stray workers: their exit status does not explain their exit, or they hang up without exiting, or write where they should not.

On the node's one thread. A worker sends SETTING_UP when user code begins that need not return, such as a setup hook, and when it has
returned. A worker that hangs up is about to exit, unless it has executed another program, or its program has closed its descriptors;
then the node kills it, and reports the reason instead of its own SIGKILL. So it does with a worker whose row in the session's table has
an impossible word.
"""

from __future__ import annotations

from collections.abc import Callable

from mray._common import messages as m
from mray._common.causes import Cause
from mray._ipc import process as processes
from mray._ipc.reactor import Reactor
from mray._runtime.processes.supervisor import Supervisor
from mray.exceptions import describe_status

#: Seconds that a worker which has hung up may take to exit, for its exit handlers. One that has executed another program never exits:
#: after `_EXEC_LOOK` seconds the node checks that.
_EXIT_GRACE = 5.0
_EXEC_LOOK = 0.1
#: Characters of a command line in an error.
_SHOWN = 200


class StrayWorkers:
    def __init__(self, reactor: Reactor, supervisor: Supervisor, kill: Callable[[str], None], table: str) -> None:
        """`table` names memory that every worker has mapped, and no other program."""
        self._reactor = reactor
        self._supervisor = supervisor
        self._kill = kill
        self._table = table
        #: Worker -> the user code of its environment that it is running; -> why the node has killed it.
        self._setting_up: dict[str, str] = {}
        self._ended: dict[str, str] = {}

    def sets_up(self, process: str, what: str) -> None:
        self._setting_up[process] = what

    def hung_up(self, process: str, pid: int) -> None:
        """The worker is stray if it does not exit soon."""
        self._reactor.call_later(_EXEC_LOOK, lambda: self._look_after(process, pid))

    def _look_after(self, process: str, pid: int) -> None:
        if not self._supervisor.expects(process, pid):
            return
        program = processes.command_line(pid)
        if program and not processes.has_mapped(pid, self._table):
            self.end(process, pid, f"executed another program in its place: {program[:_SHOWN]!r}")
        else:
            text = f"hung up on the session and went on for {_EXIT_GRACE:g} s"
            self._reactor.call_later(_EXIT_GRACE, lambda: self.end(process, pid, text))

    def end(self, process: str, pid: int, what: str) -> None:
        """Kill a worker that still lives, for what it has done."""
        if self._supervisor.expects(process, pid):
            self._ended[process] = what
            self._kill(process)

    def explain(self, process: str, cause: Cause) -> Cause:
        """The cause of a worker's exit where its status does not suffice or the node has killed it, else the given one."""
        setting_up, astray = self._setting_up.pop(process, ""), self._ended.pop(process, "")
        who, status = f"process (pid {cause.pid})", cause.status
        if astray:
            cause = cause._replace(text=f"The {who} {astray}, and was ended.", status=None)
        if setting_up and (astray or (status or 0) >= 0):  # (a signal may come from elsewhere: another attempt may do better)
            how = astray or describe_status(status)
            text = f"{m.NO_PROCESS}: its {setting_up} did not return: the {who} {how}.{cause.last_output()}"
            return Cause(m.CAUSE_REFUSED, text, cause.pid, cause.status)
        return cause._replace(text=f"It was in its {setting_up}.") if setting_up else cause
