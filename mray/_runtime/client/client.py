"""The client: the runtime of every process that can call, a driver or a worker.

    user's threads --> Client --+-- node (leases, actors, names)
                                +-- peers (calls, replies, borrows: `mray._runtime.connections`)
                                +-- own entries and store (`mray._runtime.objects`)

It has its parts, which do the work, and ends them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from mray._common.kept import os
from mray._ipc.interrupts import after_fork, before_fork
from mray._ipc.reactor import Reactor
from mray._runtime.client.actor_calls import ActorCallers
from mray._runtime.client.announcements import Announcements
from mray._runtime.client.arguments import Arguments
from mray._runtime.client.cancelling import Cancelling
from mray._runtime.client.leases import LeasePools
from mray._runtime.client.objects import Objects
from mray._runtime.client.replies import Replies
from mray._runtime.client.unschedulable import Unschedulable
from mray._runtime.client.wakeups import Wakeups
from mray._runtime.connections.deaths import ended_error
from mray._runtime.connections.endpoint import Endpoint
from mray._runtime.objects.borrowing import Borrowing
from mray._runtime.objects.owner import Owner
from mray._runtime.objects.tensor_transport import TensorStore
from mray._runtime.objects.unhandled_errors import UnhandledErrors


class Client(Endpoint):
    """The runtime of one process: its connections, and its parts."""

    #: The in-process engine has others.
    owner_class: type[Owner] = Owner
    leases_class: type[LeasePools] = LeasePools

    def __init__(self, session_dir: str, process: str, role: str, reactor: Reactor | None = None) -> None:
        super().__init__(session_dir, process, role, reactor)
        self.announcements = Announcements()
        self.unschedulable = Unschedulable(self.announcements)
        unhandled = UnhandledErrors(self.reactor.defer, self.announcements.say)
        self.owner = self.owner_class(self)
        self.borrowing = Borrowing(self.owner, lambda actor_id: self.actors.forget(actor_id))
        self.arguments = Arguments(self.owner, self.borrowing)
        self.leases = self.leases_class(self, self.borrowing, self.arguments, self.unschedulable.warn)
        self.actors = ActorCallers(self, self.borrowing, self.unschedulable.warn)
        self.tensors = TensorStore(self.owner, self.borrowing, self.actors.end_of_process)
        self.cancelling = Cancelling(self.owner, self.arguments, self.leases, self.actors)
        self.replies = Replies(self.owner, self.borrowing, self.tensors, unhandled)
        self.objects = Objects(self.owner, self.borrowing, self.tensors, self.cancelling, unhandled)
        self.wakeups = Wakeups(self)
        self.parts = (
            self.borrowing,
            self.tensors,
            self.owner,
            self.requests,
            self.replies,
            self.actors,
            self.leases,
            self.wakeups,
        )
        #: Sections that observers may ask this process for, besides those of `mray._runtime.observe.process_snapshot`.
        self.sections: dict[str, Callable[[], Any]] = {}
        _clients.add(self)

    def close(self) -> None:
        """Leave the session: all waiters fail, connections end, own segments are freed."""
        self.fail_everything(ended_error())
        reactor = self.reactor
        self.objects.long_lists.clear()
        for awaited in tuple(self.objects.awaited.values()):
            awaited.close()
        self.wakeups.end_relays()
        reactor.close()
        self.announcements.close()
        if reactor.closed_descriptors.error is not None:
            _torn.append(self)
            return
        self.tensors.close()
        self.hang_up()


#: The clients of this process: one, and those of ended sessions that are still referenced.
_clients: weakref.WeakSet[Client] = weakref.WeakSet()
#: Clients whose descriptors the program has closed. They are never closed or collected: the numbers may be other files' by now.
_torn: list[Client] = []


def _after_fork() -> None:
    for client in _clients:
        client.abandon()


os.register_at_fork(after_in_child=_after_fork)
os.register_at_fork(before=before_fork, after_in_parent=after_fork, after_in_child=after_fork)
