"""`Transport`: how a process reaches the node and other processes of its session, and where it waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mray._common.record import Record

if TYPE_CHECKING:
    from mray._common.kept import socket
    from mray._ipc.connection import Connection, HangupCallback, Message, MessageCallback
    from mray._ipc.waiting_place import WaitingPlace
    from mray._runtime.connections.dispatch import Handler


#: Single awaited calls over one connection before a process offers a ring pair.
CALLS_BEFORE_RING = 64


class Callbacks(Record):
    """The functions that a connection calls in the reading thread."""

    on_message: MessageCallback
    on_hangup: HangupCallback


class Transport(Protocol):
    """The connections of one process."""

    @property
    def reactor(self) -> WaitingPlace:
        """Where the process waits."""

    def open_node(self, sock: socket.socket | None, callbacks: Callbacks) -> Connection:
        """A connection to the node: over this socket, or a new one. OSError if the node cannot be reached."""

    def enter(self, node: Any, hello: Message, callbacks: Callbacks) -> dict[str, Any] | None:
        """Join the session over the connection of `open_node`; `callbacks` are for connections of other processes.

        Returns the session's facts, or None after the node's callbacks have received its refusal or hang-up.
        """

    def open(self, process: str, callbacks: Callbacks) -> Connection:
        """Raises ConnectionError if the process has ended; another OSError if it cannot be reached."""

    def open_socket(self, process: str, timeout: float | None) -> socket.socket:
        """As `open`, but a socket that no thread reads yet. TimeoutError after `timeout` seconds. Any thread."""

    def knows(self, process: str) -> bool:
        """Whether a process has not ended, or the memory that it owned is not freed yet."""

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers of the transport's own messages."""

    def count_alone(self, connection: Any) -> None:
        """Count a single message over this connection for whose answer the caller waits."""

    def leave(self) -> None:
        """Open and accept no more connections."""

    def abandon(self) -> None:
        """In a forked child: release the parent's descriptors without a message."""
