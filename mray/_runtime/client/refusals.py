"""Refused: this process has connected to another one, which has no descriptor left to accept it with (see `mray._ipc.listener`).

In every client, in its reading thread. The other process lives, has read nothing of what was sent to it, and hangs up. Whoever waits
for it here gets the error, at once; what comes later connects again, and so meets it again or finds it mended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from mray._common import messages as m
from mray._ipc.connection import Connection
from mray._runtime.client.calls import ActorCaller

if TYPE_CHECKING:
    from mray._runtime.client.client import Client


def refused(client: Client) -> Callable[[Connection, int, str], None]:
    """What a client does with REFUSED."""
    return partial(_on_refused, client)


def _on_refused(client: Client, connection: Connection, number: int, text: str) -> None:
    """REFUSED. Client's lock held."""
    error = OSError(number, text)
    connection.close()
    if connection is client.node:
        client.fail_everything(error)
        return
    process = connection.process
    if client.peers.get(process) is connection:
        del client.peers[process]
    client.borrowing.peer_gone(connection, error)
    client.tensors.peer_gone(connection)
    end_calls(client, connection, error)
    client.requests.peer_gone(connection, error)
    client.on_peer_refused(process, error)


def end_conversation(client: Client, connection: Connection, error: Exception) -> None:
    """A peer that lives answers nothing of what was said to it; a worker whose lease this process has is to end. Client's lock held."""
    lease = connection.facts.get("lease")
    if lease is not None and not lease.lost:
        client.leases.forget(lease.lease_id)
        if not client.node.closed:  # the worker may not know of the lease
            client.node.send((m.LEASE_BREAK, lease.lease_id, str(error)))
        lease.pool.lost(lease, (m.CAUSE_CRASH, str(error), connection.pid, None, None))
    end_calls(client, connection, error)


def end_calls(client: Client, connection: Connection, error: Exception) -> None:
    """What was called over a connection is not answered, although the process at the other end lives. Client's lock held."""
    calls = list(connection.calls.values())
    connection.calls.clear()
    for call in calls:
        call.fail(error)
    for caller in list(client.actors.values()):
        if caller.connection is connection:
            _queue_refused(caller, error)
    lease = connection.facts.get("lease")
    if lease is not None and not lease.lost:
        lease.pool.give_back(lease)
        lease.pool.feed()


def _queue_refused(caller: ActorCaller, error: Exception) -> None:
    """What waits for its arguments was to follow the calls that are refused. The next call connects again."""
    caller.connection = None
    queue = list(caller.queue)
    caller.queue.clear()
    for call in queue:
        call.fail(error)
