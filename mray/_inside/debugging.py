"""Workers that wait at a breakpoint.

====================  ==================================================================================================
BreakpointStop        A worker that waits at a breakpoint.
attach                Connect this terminal to a worker that waits.
current               Return the breakpoints of this process.
has_terminal          Whether this process talks to a person at a terminal.
stops                 Return the workers of a session that wait at a breakpoint.
====================  ==================================================================================================
"""

from mray._ipc.process import has_terminal
from mray._runtime.session.breakpoints import BreakpointStop, attach, current, stops

__all__ = ["BreakpointStop", "attach", "current", "has_terminal", "stops"]
