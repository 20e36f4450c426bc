"""The client: the runtime of every process that can call, a driver or a worker.

user's threads --> Client --+-- node (leases, actors, names)
                            +-- peers (calls, replies, borrows: `mray._runtime.connections`)
                            +-- own entries and store (`mray._runtime.objects`)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common.beside import SNAPSHOT, TENSORS, loaded
from mray._common.kept import os
from mray._ipc.connection import Connection
from mray._ipc.interrupts import after_fork, before_fork
from mray._runtime.client import failed_calls, held_objects, reconstruction
from mray._runtime.client.actor_calls import ActorCallers
from mray._runtime.client.announcements import Announcements
from mray._runtime.client.arguments import Arguments
from mray._runtime.client.cancelling import Cancelling
from mray._runtime.client.leases import LeasePools
from mray._runtime.client.long_waits import LongWaits
from mray._runtime.client.objects import Objects
from mray._runtime.client.platform import Platform, own_platform
from mray._runtime.client.replies import Replies
from mray._runtime.client.unanswered_calls import UnansweredCalls
from mray._runtime.client.unschedulable import Unschedulable
from mray._runtime.connections.deaths import ended_error
from mray._runtime.connections.endpoint import Endpoint
from mray._runtime.objects.borrowing import Borrowing
from mray._runtime.objects.owner import Owner
from mray._runtime.objects.unhandled_errors import UnhandledErrors
from mray._runtime.processes.object_counts import count_objects

if TYPE_CHECKING:
    from mray._runtime.connections.part import Part
    from mray._runtime.objects.tensor_contract import Tensors


class Client(Endpoint):
    def __init__(self, session_dir: str, process: str, role: str, platform: Platform | None = None) -> None:
        platform = platform or own_platform(session_dir)
        super().__init__(session_dir, process, role, platform.transport, platform.memory.entry)
        self.announcements = Announcements()
        self.unschedulable = Unschedulable(self.announcements)
        unhandled = UnhandledErrors(self.reactor.defer, self.announcements.say)
        self.owner = Owner(self, platform.memory)
        self.borrowing = Borrowing(self.owner, lambda actor_id: self.actors.forget(actor_id))
        self.arguments = Arguments(self.owner, self.borrowing)
        self.leases = LeasePools(self, self.borrowing, self.arguments, self.unschedulable.warn, platform.clock)
        self.actors = ActorCallers(self, self.borrowing, self.unschedulable.warn)
        self.cancelling = Cancelling(self.owner, self.arguments, self.leases, self.actors)
        self.replies = Replies(self.owner, self.borrowing, lambda: self.tensors, unhandled)
        self.long_waits = LongWaits(self, self.owner.exported)
        self.objects = Objects(self.owner, self.borrowing, lambda: self.tensors, self.cancelling, unhandled, self.long_waits)
        # Borrowers' entries go first; calls fail before the queues that they came from.
        self.ends.followers = (self.borrowing.process_ended, self.owner.process_ended, self.requests.process_ended)
        self.hangup_followers = (
            self.borrowing.connection_ended,
            self.owner.connection_ended,
            self.requests.connection_ended,
            self.replies.connection_ended,
            self.actors.connection_ended,
            self.leases.connection_ended,
        )
        self.wakeups = platform.wakeups(self)
        self.parts = (
            self.borrowing,
            self.owner,
            self.requests,
            self.replies,
            self.actors,
            self.leases,
            self.wakeups,
            self.long_waits,
        )
        #: Parts created on demand, by their names in `late`.
        self.made: dict[str, Part] = {}
        #: For observers: functions that return builtin values, called with the client's lock.
        self.sections: dict[str, Callable[..., Any]] = {
            **UnansweredCalls(self.process, lambda: self.parts, self.peers).sections(),
            **failed_calls.sections(self.process),
            "inline bytes": partial(held_objects.inline_bytes, self),
            "reconstructed": partial(reconstruction.rows, self),
            "object counts": count_objects,
            "objects": partial(held_objects.rows, self, self.borrowing),
            "waits": self.objects.waits,
        }
        self.from_peers.on({m.ASK: self._on_ask}, {m.ASK: _fail_ask})
        _clients.add(self)

    def late(self, name: str) -> Any:
        part = self.made.get(name)
        if part is None:
            make = loaded(name)
            with self.lock:
                part = self.made.get(name)
                if part is None:
                    part = self.made[name] = make(self)
                    borrowing, *others = self.parts
                    self.parts = (borrowing, part, *others)
        return part

    @property
    def tensors(self) -> Tensors:
        found: Tensors = self.late(TENSORS)
        return found

    def _on_ask(self, connection: Connection, number: int, sections: dict[str, dict[str, Any]]) -> None:
        loaded(SNAPSHOT).on_ask(self, connection, number, sections)

    def close(self) -> None:
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
        for part in self.made.values():
            part.close()
        self.hang_up()


#: Clients, also of ended sessions if still referenced.
_clients: weakref.WeakSet[Client] = weakref.WeakSet()
#: Clients whose descriptors the program has closed. Never closed or collected, since the numbers may denote other files now.
_torn: list[Client] = []


def own_clients() -> tuple[Client, ...]:
    return tuple(_clients)


def _fail_ask(peer: Connection, failure: Exception, _payload: bytes, number: int, sections: dict[str, dict[str, Any]]) -> None:
    peer.send((m.TOLD, number, dict.fromkeys(sections, (False, str(failure)))))


def _after_fork() -> None:
    for client in _clients:
        client.abandon()


os.register_at_fork(after_in_child=_after_fork)
os.register_at_fork(before=before_fork, after_in_parent=after_fork, after_in_child=after_fork)
