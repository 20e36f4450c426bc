"""The seams of the runtime of a process, for engines that hand in their own, and the parts that they compose.

====================  ====================================================================================================
AdaptiveSpinner       Decides whether a wait spins.
Callbacks             The functions that a connection calls.
Claimable             Memory that code may write to after it has claimed it.
ClosedDescriptors     Finds descriptors of the runtime that the program has closed.
Doorbells             The contract of what wakes other processes through graphs.
Entry                 An object as a process sees it.
InterruptGuard        Runs handlers of signals where they may raise.
Message               The type of a message.
Platform              The platform of a process: its clock, transport, memory and doorbells.
ProcessEnded          Raised in a thread of a simulated process that has ended.
Spinner               The `AdaptiveSpinner` of a process, which counts the processes that are awake.
WaitingPlace          The contract of the place where the threads of a process wait.
Worker                A worker, in a `Process`.
main_loop             The event loop that an async actor has on its main thread.
offered               The descriptor of a segment that a process of this program offers.
reading_of            A view of memory that keeps the object which it belongs to alive.
====================  ====================================================================================================
"""

from mray._ipc.closed_descriptors import ClosedDescriptors
from mray._ipc.connection import Message
from mray._ipc.event_loop import main_loop
from mray._ipc.interrupts import InterruptGuard
from mray._ipc.mapped import Claimable
from mray._ipc.segment import offered
from mray._ipc.spin import AdaptiveSpinner, Spinner
from mray._ipc.waiting_place import WaitingPlace
from mray._objects.ownership import Entry
from mray._objects.store import reading_of
from mray._runtime.client.doorbells import Doorbells
from mray._runtime.client.platform import Platform
from mray._runtime.connections.transport import Callbacks
from mray._runtime.processes.process import ProcessEnded
from mray._runtime.worker.worker import Worker

__all__ = [
    "AdaptiveSpinner",
    "Callbacks",
    "Claimable",
    "ClosedDescriptors",
    "Doorbells",
    "Entry",
    "InterruptGuard",
    "Message",
    "Platform",
    "ProcessEnded",
    "Spinner",
    "WaitingPlace",
    "Worker",
    "main_loop",
    "offered",
    "reading_of",
]
