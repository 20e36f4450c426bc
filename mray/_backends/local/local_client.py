"""`LocalClient`: the client of one simulated process (see `mray._runtime.client.client`), and its leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mray._backends.local.local_memory import Heap, HeapSegments, HeapStore, LocalEntry
from mray._backends.local.run_token import RunToken
from mray._backends.local.transport import End, LocalConnection, LocalReactor, connect
from mray._common.ids import set_job
from mray._common.kept import socket
from mray._ipc.connection import Connection
from mray._runtime.client.client import Client
from mray._runtime.client.leases import LeasePools
from mray._runtime.objects.owner import Owner

if TYPE_CHECKING:
    from mray._objects.serializer import Serialized
    from mray._runtime.connections.endpoint import Endpoint
    from mray._runtime.node.jobs import Job


class NodeOfClients(Protocol):
    """The part of the node that clients need."""

    run_token: RunToken
    directory: str
    entry: type[LocalEntry]
    job: Job
    facts: dict[str, Any]
    listening: dict[str, End]

    def admit(self, client: LocalClient, end: End) -> LocalConnection: ...


class LocalLeases(LeasePools):
    """All pools of a client, by the session's clock; measuring how short tasks are would make the order the machine's."""

    timed = False

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.clock = lambda: self.client.reactor.run_token.clock  # type: ignore[attr-defined]


class LocalOwner(Owner):
    """The objects that a simulated process owns: their values are on the heap."""

    client: LocalClient

    def __init__(self, client: Endpoint) -> None:
        super().__init__(client)
        self.segments = HeapSegments()  # type: ignore[assignment]

    def joined(self, facts: dict[str, Any], _table: object) -> None:
        self.store = HeapStore(facts["object_store_memory"])  # type: ignore[assignment]

    def store_value(self, value: Serialized, owner: str) -> tuple[str, int, str]:
        return Heap.of(value), value.size, self.client.process

    def hung_up(self, *_connection: object) -> None:
        """Nobody has to free segments: there are none."""


class LocalClient(Client):
    """The runtime of one simulated process."""

    reactor: LocalReactor
    leases_class = LocalLeases
    owner_class = LocalOwner

    def __init__(self, node: NodeOfClients, process: str, role: str) -> None:
        super().__init__(node.directory, process, role, LocalReactor(node.run_token))
        # Messages are delivered at each decision: an event loop need not watch for them.
        self.objects.reads_always = True
        self._local_node = node
        #: One for all processes: a ref that reaches another one by reference, through a global, is as good there.
        self.entry = node.entry

    def is_of(self, node: NodeOfClients) -> bool:
        """Whether it is a process of this node's session."""
        return self._local_node is node

    def join(self, sock: socket.socket | None = None) -> None:
        node = self._local_node
        set_job(bytes.fromhex(node.job.id))
        self.facts = {**node.facts, **node.job.facts, "process": self.process, "row": 0}
        self.owner.joined(self.facts, None)  # type: ignore[arg-type]
        home = self.reactor.process
        node.listening[self.process] = (self._on_peer_message, self._on_peer_hangup, home)
        self.node = node.admit(self, (self._on_node_message, self._on_node_hangup, home))

    def _connect_peer(self, process: str) -> Connection:
        there = self._local_node.listening.get(process)
        if there is None:
            raise ConnectionRefusedError(f"there is no process {process} in this session any more")
        return connect(self.reactor.run_token, (self._on_peer_message, self._on_peer_hangup, self.reactor.process), there)

    def hang_up(self) -> None:
        """Nobody reaches this process any more."""
        self._local_node.listening.pop(self.process, None)
        for connection in (*self.peers.values(), self.node):
            connection.close()
        self.peers.clear()

    def leave_introductions(self) -> None:
        """There are none: processes of one process find each other by name."""

    def abandon(self) -> None:
        super().abandon()
        self.reactor.run_token.abandon()
