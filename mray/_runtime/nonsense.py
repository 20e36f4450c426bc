"""Conversations between drivers and workers that break although both live: one has heard what makes no sense, and hangs up.

    who hears it                                              who has said it
    Connection.refuse: logs why, says NONSENSE, hangs up ───▶ NONSENSE: hangs up, too

Such a hang-up is no death, of which the node would tell: so both ends see to it themselves that nobody waits for what was said before.
Calls that were not answered fail; the next call makes a new connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._ipc.connection import Connection, NonsenseError
from mray._runtime.refusals import end_calls, refused
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._runtime.client import Client


class PeerWords(dict[int, Any]):
    """What a process does with each word of its peers; any other is nonsense."""

    def __init__(self, client: Client, words: dict[int, Any]) -> None:
        super().__init__({m.REFUSED: refused(client), m.NONSENSE: _on_nonsense, **words})

    def __missing__(self, word: Any) -> Any:
        raise NonsenseError(f"the word {word!r} is not for this process")


def _on_nonsense(connection: Connection, text: str) -> None:
    """NONSENSE: the peer listens no further."""
    connection.refused = f"it was told what makes no sense: {text}"
    connection.hang_up()


def end_if_refused(client: Client, connection: Connection) -> None:
    """A peer has hung up, or this process on it: if that was no death, nobody will answer what was sent. Client's lock held."""
    if connection.refused and client.fatal is None:
        text = f"The connection to process {connection.process} (pid {connection.pid}) broke: {connection.refused}"
        end_calls(client, connection, RaySystemError(text))
