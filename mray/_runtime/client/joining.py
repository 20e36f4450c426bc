"""Welcome: the node has admitted this process to its session, and says what the session is.

In every client, once. With the message come the descriptors of the session's table, which has no name, and of two channels to the node (see
`mray._ipc.introductions`).
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common.ids import set_job
from mray._ipc.connection import encode, peer_pid
from mray._ipc.introductions import receive_welcome
from mray._ipc.table import SessionTable
from mray._runtime.objects.storing import open_store

if TYPE_CHECKING:
    from mray._runtime.client.client import Client


def await_welcome(client: Client, sock: socket.socket) -> None:
    """Say hello, and take part in the session once the node answers; `sock`: the connection to it, which nobody reads yet.

    OSError, ValueError for a node of another version, or how the node has ended, is why this process cannot.
    """
    node = client.node
    node.pid = peer_pid(sock)  # who has made its end: the node, or who has started it
    sock.setblocking(True)
    wishes = () if client.wishes is None else (client.wishes,)
    with contextlib.suppress(BrokenPipeError):  # it may have been refused before it has asked
        sock.sendall(encode((m.HELLO, client.role, client.process, os.getpid(), *wishes)))
    try:
        message, fds = receive_welcome(sock)
    except (ConnectionError, EOFError):
        node.hang_up()
    else:
        sock.setblocking(False)
        if message[0] == m.WELCOME:
            _enter(client, message[1], *fds)
        else:
            node.on_message(node, message)
    if client.fatal is not None:
        raise client.fatal


def _enter(client: Client, facts: dict[str, Any], table_fd: int, asking: int, door: int) -> None:
    client.admit(*(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fd) for fd in (asking, door)))
    table = SessionTable.of(facts["table"], table_fd)
    set_job(bytes.fromhex(facts["job_id"]))
    client.reactor.join_table(table, facts["row"])
    client.store = open_store(client, table, facts)
    client.facts = facts
