"""`Platform`: the foundations of a process's runtime.

Four seams have two implementations each: the kernel's, and the single-process engine's (`mray._backends.local`)::

    clock        Clock                                     time by which calls are queued and leases retained
    processes    Process, of a worker                      its threads, interrupts, variables, title and end
    transport    Transport, WaitingPlace, Doorbells        messages between processes, and waiting for them
    memory       Memory                                    where large values are stored

Rejected: another client, worker and executor for that engine: every change would have to consider both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mray._common.clock import Clock
from mray._common.record import Record
from mray._runtime.client.doorbells import Doorbells
from mray._runtime.client.wakeups import Wakeups
from mray._runtime.connections.sockets import Sockets
from mray._runtime.connections.transport import Transport
from mray._runtime.objects.memory import Memory, SharedMemory

if TYPE_CHECKING:
    from mray._runtime.connections.endpoint import Endpoint


class Platform(Record):
    """A process's platform. (A worker's `Process` is given to the worker.)"""

    clock: Clock
    transport: Transport
    memory: Memory
    wakeups: Callable[[Endpoint], Doorbells]


def own_platform(session_dir: str) -> Platform:
    """The kernel's platform, for a member of the session in this directory."""
    return Platform(Clock(), Sockets(session_dir), SharedMemory(), Wakeups)
