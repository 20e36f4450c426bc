"""Processes of this machine.

====================  ==================================================================================================
IDLE_TITLE            The title of a worker that runs no call.
PidFd                 A process by its pidfd: wait for its end, send it signals.
all_pids              Return the pids of all processes that can be seen from here.
carrying              Return the processes whose environment has a variable with this value.
command_line          Return the command line of a process.
interpreter           Return the interpreter that processes of a session are started with.
parent_of             Return the pid of the parent of a process.
shown_title           Return the title that a process of a session shows.
stacks_by_signal      Return the stacks of a worker whose interpreter is held by C code.
start_of              Return when a process was started, in clock ticks since the machine was.
stat_of               Return the fields of a process in /proc that follow its name.
status_of_dead        Return the exit status of a process that is dead and not reaped.
====================  ==================================================================================================
"""

from mray._ipc.pidfd import PidFd
from mray._ipc.process import IDLE_TITLE, all_pids, carrying, command_line, parent_of, shown_title, start_of, stat_of, status_of_dead
from mray._runtime.processes.host_program import interpreter
from mray._runtime.processes.stack_signal import ask as stacks_by_signal

__all__ = [
    "IDLE_TITLE",
    "PidFd",
    "all_pids",
    "carrying",
    "command_line",
    "interpreter",
    "parent_of",
    "shown_title",
    "stacks_by_signal",
    "start_of",
    "stat_of",
    "status_of_dead",
]
