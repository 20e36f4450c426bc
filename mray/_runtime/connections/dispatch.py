"""The handlers of a driver's or worker's messages: a table for messages of the node, and one for messages of its peers.

`mray._common.messages` declares which process may send a message.

    messages of the node    ──▶ Endpoint.from_node  ──▶ client, leases, borrowing; worker: ACTOR_START, EXIT; session: ENDING, LEFT;
    output
    messages of its peers   ──▶ Endpoint.from_peers ──▶ client, leases, borrowing, tensors; worker: calls; graphs: GRAPH

A handler runs in the reading thread, with the client's lock held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._common.messages import MESSAGES, Ways
from mray._ipc.connection import ProtocolViolationError

#: The connection, then the fields of the message.
Handler = Callable[..., object]
#: The connection, the error, the pickled error, then the fields of the message whose handler has failed.
Failure = Callable[..., None]


class Dispatch(dict[int, Handler]):
    """Handlers by code, for messages that travel in one of `ways`. Any other code is a protocol error."""

    def __init__(self, ways: Ways, handlers: dict[int, Handler]) -> None:
        super().__init__()
        self._ways = ways
        #: Code -> the function that passes the error of a failed handler to the waiting side. Without one the connection ends.
        self.failures: dict[int, Failure] = {}
        self.on(handlers)

    def __missing__(self, code: Any) -> Handler:
        raise ProtocolViolationError(f"message {code!r} is not for this process")

    def on(self, handlers: dict[int, Handler], failures: dict[int, Failure] | None = None) -> None:
        """Register handlers of messages, and of their failures. ValueError for a message that does not travel in these ways, or has a
        handler.
        """
        for code, handler in handlers.items():
            if code in self:
                raise ValueError(f"message {code} is handled already, by {self[code]}")
            if not MESSAGES[code].ways & self._ways:
                raise ValueError(f"message {code} cannot be handled here: it goes {sorted(MESSAGES[code].ways)}")
            self[code] = handler
        self.failures.update(failures or {})

    def replace(self, code: int, handler: Handler) -> None:
        """Replace a message's handler. ValueError if it has none."""
        if code not in self:
            raise ValueError(f"message {code} is not handled: there is nothing to replace")
        self[code] = handler
