"""Who goes: a peer or the node that has hung up, because its process is dead or because one end cannot go on with the other.

In every client, in its reading thread. Nobody waits any more for what was said to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mray._ipc.connection import Connection
from mray._ipc.segment import unlink
from mray._runtime.client.deaths import node_error, note_break, note_end
from mray._runtime.client.protocol_errors import broken_error
from mray._runtime.client.refusals import end_conversation
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._runtime.client.client import Client


def peer_hung_up(client: Client, connection: Connection) -> None:
    """A driver or a worker has hung up, or this process on it."""
    with client.lock:
        # POINT peer gone
        if client.peers.get(connection.process) is connection:
            del client.peers[connection.process]
        error = broken_error(connection)
        if error is None:
            note_end(connection.process, f"the {connection.role}" if connection.role else "", connection.pid)
        else:
            note_break(connection.process, error)
        client.borrowing.peer_gone(connection, error)
        client.tensors.peer_gone(connection)
        client.on_peer_gone(connection.process, error)
        for name in connection.facts.get("freed", ()):
            unlink(name)
        client.requests.peer_gone(connection, error)
        if error is not None and client.fatal is None:
            end_conversation(client, connection, error)
            client.on_broken(connection)


def worker_gone(client: Client, _node: Connection, process: str, text: str, pid: int, status: int | None) -> None:
    """WORKER_GONE: the node has seen a process of the session end. Client's lock held."""
    note_end(process, text, pid, status)
    connection = client.peers.get(process)
    if connection is not None and not connection.closed:
        connection.read_rest()
        connection.hang_up()  # a child that it left behind may hold the other end
    client.borrowing.process_gone(process)
    client.bells.forget(process)
    client.store.forget_owner(process)
    if status != 0:
        client.segments.discard_unclaimed(process)


def node_hung_up(client: Client, node: Connection) -> None:
    """The node is dead, or ends the session, or listens to this process no more."""
    if node.refused and client.fatal is None:
        client.end_with(RaySystemError(f"The connection to the node broke: {node.refused}"))
    client.fail_everything(client.on_node_lost() or node_error("the node process has ended"))
