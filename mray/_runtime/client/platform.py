"""`Platform`: what the runtime of a process stands on.

Four seams have two implementations each: the kernel's, and that of the engine in one process (`mray._backends.local`)::

    clock        Clock                                     time by which calls are queued and leases kept
    processes    Process, of a worker                      its threads, interrupts, variables, title and end
    transport    Transport, WaitingPlace, Doorbells        messages between processes, and waiting for them
    memory       Memory                                    the place of large values

Rejected: to derive another client, worker and executor for that engine. Each change of theirs had to be made with both in mind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mray._common.clock import Clock
from mray._runtime.client.doorbells import Doorbells
from mray._runtime.client.wakeups import Wakeups
from mray._runtime.connections.sockets import Sockets
from mray._runtime.connections.transport import Transport
from mray._runtime.objects.memory import Memory, SharedMemory

if TYPE_CHECKING:
    from mray._runtime.connections.endpoint import Endpoint


class Platform(NamedTuple):
    """The platform of one process. (A worker's `Process` is given to the worker.)"""

    clock: Clock
    transport: Transport
    memory: Memory
    #: Creates the doorbells of a client.
    wakeups: Callable[[Endpoint], Doorbells]


def own_platform(session_dir: str) -> Platform:
    """The kernel's, for a member of the session in this directory."""
    return Platform(Clock(), Sockets(session_dir), SharedMemory(), Wakeups)
