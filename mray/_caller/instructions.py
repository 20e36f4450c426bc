"""Instructions, in the imperative: what follows from an event. The client carries them out in order.

A `call` is a `PendingCall`.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Send(NamedTuple):
    """Send a call over the machine's link."""

    call: Any


class Cancel(NamedTuple):
    """Fail a call as cancelled."""

    call: Any


class Fail(NamedTuple):
    """Fail a call with an error of this process."""

    call: Any
    error: BaseException


class FailDead(NamedTuple):
    """Fail a call: its actor is dead for good. `process` may have run it; "" if it was not sent, None if the actor was dead before."""

    call: Any
    process: str | None


class FailUnavailable(NamedTuple):
    """Fail a call that is not for the actor's next process. `process` may have run it; "" if it was not sent."""

    call: Any
    process: str


class Subscribe(NamedTuple):
    """Have the node send the actor's place, and each change."""


class Connect(NamedTuple):
    """Connect to the actor's process."""

    process: str


class Announce(NamedTuple):
    """Tell everybody who watches the actor of its new state."""


#: The answer to an event, in order.
Instructions = list[Any]
