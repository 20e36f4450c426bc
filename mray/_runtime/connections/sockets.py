"""`Sockets`: a process's connections over unix sockets, behind the contract `mray._runtime.connections.transport.Transport`.

The node introduces processes to each other (`mray._ipc.introductions`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common.kept import socket
from mray._ipc.connection import Message, SocketConnection, encode, peer_pid
from mray._ipc.introductions import Introductions, connect_to_node, receive_welcome
from mray._ipc.own_row import keep_to
from mray._ipc.reactor import Reactor
from mray._ipc.reaper import segment_prefix
from mray._ipc.segment import new_nonce
from mray._ipc.table import SessionTable
from mray._runtime.connections.transport import CALLS_BEFORE_RING

if TYPE_CHECKING:
    from mray._runtime.connections.dispatch import Handler
    from mray._runtime.connections.transport import Callbacks

#: Calls after which a process offers a ring pair again to a peer without room for it.
CALLS_AFTER_REFUSAL = 1024


class Sockets:
    def __init__(self, session_dir: str) -> None:
        self.reactor = Reactor()
        self._session_dir = session_dir
        self._prefix = ""
        #: None until the node has admitted this process.
        self._introductions: Introductions | None = None

    def open_node(self, sock: socket.socket | None, callbacks: Callbacks) -> SocketConnection:
        sock = sock or connect_to_node(self._session_dir)
        node = self.reactor.register(sock, *callbacks)
        node.pid = peer_pid(sock)  # of the process that created the socket: the node, or the one that started it
        return node

    def enter(self, node: SocketConnection, hello: Message, callbacks: Callbacks) -> dict[str, Any] | None:
        sock = node.socket
        sock.setblocking(True)
        with contextlib.suppress(BrokenPipeError):  # it may have been refused before it has asked
            sock.sendall(encode(hello))
        try:
            message, fds = receive_welcome(sock)
        except (ConnectionError, EOFError):
            node.hang_up()
            return None
        sock.setblocking(False)
        if message[0] != m.WELCOME:
            node.deliver(message)
            return None
        info: dict[str, Any] = message[1]
        table_fd, *channels = fds
        asking, door = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fd) for fd in channels)
        reactor = self.reactor
        self._introductions = Introductions(asking, door, reactor.guard, reactor.closed_descriptors.found)
        reactor.serve(door, f"Process {info['process']}", *callbacks)
        table, row = SessionTable.of(info["table"], table_fd), info["row"]
        keep_to(table, row)
        reactor.join_table(table, row)
        self._prefix = segment_prefix(info["session"])
        return info

    def open(self, process: str, callbacks: Callbacks) -> SocketConnection:
        assert self._introductions is not None
        sock, pid = self._introductions.to(process)
        connection = self.reactor.register(sock, *callbacks)
        connection.pid = pid
        return connection

    def open_socket(self, process: str, timeout: float | None) -> socket.socket:
        assert self._introductions is not None
        return self._introductions.to(process, timeout)[0]

    def knows(self, process: str) -> bool:
        return self._introductions is not None and self._introductions.know(process)

    def leave(self) -> None:
        if self._introductions is not None:
            self._introductions.close()

    def abandon(self) -> None:
        self.reactor.abandon()
        if self.reactor.closed_descriptors.error is None:
            self.leave()

    # ------------------------------------------------------------------------------------ rings
    def handlers(self) -> Mapping[int, Handler]:
        return {
            m.OFFER_RING: self._on_offer_ring,
            m.TAKE_RING: self._on_ring_taken,
            m.RETIRE_RING: self._on_ring_retired,
            m.NUDGE: lambda _peer: None,
        }

    def count_alone(self, connection: SocketConnection) -> None:
        """Offer a ring pair after many awaited messages; count anew if there is no room for one."""
        connection.alone += 1
        if connection.alone != CALLS_BEFORE_RING or connection.has_ring:
            return
        reactor = self.reactor
        if reactor.has_room_for_ring():
            assert reactor.table is not None
            if connection.offer_ring(f"{self._prefix}ring-{new_nonce():x}", reactor.table, reactor.row):
                reactor.watch_ring(connection)
        else:
            connection.alone = 0
            reactor.retire_idle_ring()

    def _on_offer_ring(self, connection: SocketConnection, name: str, row: int) -> None:
        if self.reactor.has_room_for_ring():
            table = self.reactor.table
            assert table is not None
            if connection.take_ring(name, table, self.reactor.row, row):
                self.reactor.watch_ring(connection)
        else:
            connection.send((m.TAKE_RING, False, self.reactor.row))
            self.reactor.retire_idle_ring()

    def _on_ring_taken(self, connection: SocketConnection, taken: bool, row: int) -> None:
        if not connection.ring_taken(taken, row):
            connection.alone = -CALLS_AFTER_REFUSAL
            if not connection.has_ring:  # the peer's own remains, if both have offered one
                self.reactor.forget_ring(connection)

    def _on_ring_retired(self, connection: SocketConnection) -> None:
        connection.ring_retired()
        self.reactor.forget_ring(connection)
