"""What a driver or a worker does with each message that it hears: a table for what the node says, and one for what its peers say.

Who may say a message is declared in `mray._common.protocol`; here stands what is done then. Whoever handles messages enters them (`on`)
when it is made, the client's own parts first:

    messages of the node    ──▶ Endpoint.from_node  ──▶ client, leases, borrowing; worker: ACTOR_START, EXIT; session: ENDING, LEFT; output
    messages of its peers   ──▶ Endpoint.from_peers ──▶ client, leases, borrowing, tensors; worker: calls; graphs: GRAPH

A handler runs in the thread that reads, with the client's lock held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._common.protocol import MESSAGES, Ways
from mray._ipc.connection import ProtocolViolationError

#: The connection, then the fields of the message.
Handler = Callable[..., None]
#: The connection, the error, the error pickled, then the fields of the message whose handler has failed.
Failure = Callable[..., None]


class Dispatch(dict[int, Handler]):
    """By code: what is done with a message that comes one of these ways. Any other is nonsense."""

    def __init__(self, ways: Ways, handlers: dict[int, Handler]) -> None:
        super().__init__()
        self._ways = ways
        #: How whoever waits for such a message gets the error of its handler. Without an entry the conversation ends.
        self.failures: dict[int, Failure] = {}
        self.on(handlers)

    def __missing__(self, code: Any) -> Handler:
        raise ProtocolViolationError(f"the word {code!r} is not for this process")

    def on(self, handlers: dict[int, Handler], failures: dict[int, Failure] | None = None) -> None:
        """Enter what handles some messages, and what their failures do. ValueError for one that nobody may say, or
        that is handled already.
        """
        for code, handler in handlers.items():
            if code in self:
                raise ValueError(f"message {code} is handled already, by {self[code]}")
            if not MESSAGES[code].ways & self._ways:
                raise ValueError(f"message {code} is for others: it goes {sorted(MESSAGES[code].ways)}")
            self[code] = handler
        self.failures.update(failures or {})

    def replace(self, code: int, handler: Handler) -> None:
        """From now on something else is done with a message. ValueError if nothing was done with it so far."""
        if code not in self:
            raise ValueError(f"message {code} is not handled: there is nothing to replace")
        self[code] = handler
