"""Tasks whose worker was ended because memory ran low: they rest before they are tried again, longer each time.

In the caller's process; `mray._decide.caller.lease_pool` decides which tasks rest, and for how long. These attempts are not counted against
``max_retries``: the machine's lack of memory is not the task's fault. But a task with ``max_retries=0`` is not tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mray._runtime.client.calls import Call

if TYPE_CHECKING:
    from mray._runtime.connections.endpoint import Endpoint


class MemoryRetries:
    """The resting tasks of a client. All methods need the client's lock."""

    def __init__(self, client: Endpoint) -> None:
        self._client = client
        self.resting: set[Call] = set()

    def rest(self, call: Call, seconds: float) -> None:
        """Submit a task again in a while."""
        self.resting.add(call)
        self._client.reactor.call_later(seconds, lambda: self._again(call))

    def _again(self, call: Call) -> None:
        with self._client.lock:
            if call in self.resting:
                self.resting.discard(call)
                call.source.submit(call)

    def cancel(self, call: Call) -> bool:
        """Take a task out that rests."""
        if call not in self.resting:
            return False
        self.resting.discard(call)
        return True
