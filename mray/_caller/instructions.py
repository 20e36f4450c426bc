"""Instructions, in the imperative: what follows from an event. The client carries them out in order.

A `call` is a `PendingCall`; an `item` and a `promise` are the client's.
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


class Discard(NamedTuple):
    """Let go of the refs and memory of an item that was known, or that nobody reads."""

    number: int
    item: Any


class Fill(NamedTuple):
    """Give what was promised the value of the item."""

    number: int
    promise: Any
    item: Any


class Store(NamedTuple):
    """Make these items, of which the first has this number, ready to be taken, and report them as `stored`."""

    number: int
    items: Any


class Promise(NamedTuple):
    """Make so many promises, and report them as `promised`."""

    missing: int


class FailPromised(NamedTuple):
    """Fail what was promised: these items do not come."""

    promises: Any


class Tell(NamedTuple):
    """Tell the producer how many items were taken, over the machine's link."""

    taken: int


class Stop(NamedTuple):
    """Tell the producer that nobody reads, over the machine's link."""


class Gather(NamedTuple):
    """Make one value of all items."""


#: The answer to an event, in order.
Instructions = list[Any]
