"""Instructions, in the imperative: what follows from an event. The client carries them out in order.

A `call` is a `PendingCall`, a `task` a `PendingTask`, a `lease` one of `mray._decide.caller.lease_pool`, and an `entry` a `BorrowedObject`;
an `item` and a `promise` are the client's.
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


class TellTaken(NamedTuple):
    """Tell the producer how many items were taken, over the machine's link."""

    taken: int


class Stop(NamedTuple):
    """Tell the producer that nobody reads, over the machine's link."""


class Gather(NamedTuple):
    """Make one value of all items."""


class Request(NamedTuple):
    """Ask the node for a lease; the task that waits longest names the request."""

    number: int
    task: Any


class CancelRequests(NamedTuple):
    """Tell the node that these requests are over; a grant that is under way is declined."""

    numbers: list[int]


class Decline(NamedTuple):
    """Return a lease that was granted and not begun."""

    lease_id: int


class Begin(NamedTuple):
    """Tell the worker of a granted lease of its terms."""

    lease: Any


class Push(NamedTuple):
    """Send tasks, which the link has noted, to the worker of a lease."""

    lease: Any
    tasks: list[Any]


class Reclaim(NamedTuple):
    """Ask the worker of a lease to give back so many tasks that it has not begun."""

    lease: Any
    tasks: int


class Return(NamedTuple):
    """Give a lease back to the node."""

    lease: Any


class Rest(NamedTuple):
    """Submit a task again after so many seconds: its worker was ended because memory ran low."""

    task: Any
    seconds: float


class FailLost(NamedTuple):
    """Fail a task whose worker has died."""

    task: Any
    cause: Any
    process: str


class FailRefused(NamedTuple):
    """Fail a task that no worker can run."""

    task: Any
    text: str


class FailUnreachable(NamedTuple):
    """Fail a task: of many granted workers none could be connected to. `process`: the last of them."""

    task: Any
    process: str


class WatchPipelines(NamedTuple):
    """Say when `STUCK_SECONDS` have passed."""


class WatchIdle(NamedTuple):
    """Say when `KEEP_SECONDS` have passed."""


class AwaitTurn(NamedTuple):
    """Say when the turn of a lease is over."""

    lease: Any
    seconds: float


class AwaitPause(NamedTuple):
    """Say when a lease without tasks has been idle for `PAUSE_SECONDS`."""

    lease: Any
    since: float


class Fetch(NamedTuple):
    """Ask the owner for a value, and perhaps whether it is there."""

    link: Any
    object_id: bytes
    asks: bool


class FailObjects(NamedTuple):
    """Fail borrowed objects that have no value with this error; None: their owner is gone."""

    entries: Any
    error: BaseException | None


class Hold(NamedTuple):
    """Tell the node that this process has handles of an actor."""

    number: int
    actor_id: bytes


class Drop(NamedTuple):
    """Tell the node that this process has no handle of an actor any more."""

    actor_id: bytes


class GoOn(NamedTuple):
    """Call back: what was waited for is counted."""

    then: Any


#: The answer to an event, in order.
Instructions = list[Any]
