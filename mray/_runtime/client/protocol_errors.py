"""Conversations that break although both ends live: one has heard what makes no sense, or has failed at it, and hangs up.

    who hears it                                               who has said it
    Connection.refuse:  logs why, says PROTOCOL_ERROR, hangs up ───▶ PROTOCOL_ERROR: hangs up, too
    Connection.give_up: logs why, says FAULT, hangs up ──────▶ FAULT: hangs up, too

Such a hang-up is no death, of which the node would tell: so both ends see to it themselves that nobody waits for what was said before.
Calls that were not answered fail; the next call makes a new connection. A worker whose tasks' caller is at the other end has nothing
left to do that anybody waits for, and ends (see `mray._runtime.worker.worker`), so that its lease is free again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mray._common import messages as m
from mray._ipc.connection import Connection
from mray._runtime.client.refusals import refused
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._runtime.client.client import Client


def ends_of_conversations(client: Client) -> dict[int, Callable[..., None]]:
    """What is done with the last message of a conversation."""
    return {m.REFUSED: refused(client), m.PROTOCOL_ERROR: on_nonsense, m.FAULT: on_fault}


def on_nonsense(connection: Connection, text: str) -> None:
    """PROTOCOL_ERROR: the peer listens no further."""
    connection.refused = f"it was told what makes no sense: {text}"
    connection.hang_up()


def on_fault(connection: Connection, text: str) -> None:
    """FAULT: the peer has failed at what it was told."""
    connection.refused = text
    connection.hang_up()


def broken_error(connection: Connection) -> RaySystemError | None:
    """What those get who wait for a peer that lives and listens no more; None when this was its end."""
    if not connection.refused:
        return None
    error = RaySystemError(f"The connection to process {connection.process} (pid {connection.pid}) broke: {connection.refused}")
    error.__cause__ = connection.cause
    return error
