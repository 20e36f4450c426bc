"""Instructions, in the imperative: what follows from an event. The client carries them out in order.

A `call` is a `PendingCall`, a `task` a `PendingTask`, a `lease` one of `mray._decide.caller.lease_pool`, and an `entry` a `BorrowedObject`;
an `item` and a `promise` are the client's.
"""

from __future__ import annotations

from typing import Any

from mray._common.record import Record


class Send(Record):
    """Send a call over the machine's link."""

    call: Any


class Cancel(Record):
    """Fail a call as cancelled."""

    call: Any


class Fail(Record):
    """Fail a call with an error of this process."""

    call: Any
    error: BaseException


class FailDead(Record):
    """Fail a call: its actor is dead for good. `process` may have run it; "" if it was not sent, None if the actor was dead before."""

    call: Any
    process: str | None


class FailUnavailable(Record):
    """Fail a call that is not for the actor's next process. `process` may have run it; "" if it was not sent."""

    call: Any
    process: str


class Subscribe(Record):
    """Have the node send the actor's place, and each change."""


class Connect(Record):
    """Connect to the actor's process."""

    process: str


class Announce(Record):
    """Tell everybody who watches the actor of its new state."""


class Discard(Record):
    """Let go of the refs and memory of an item that was known, or that nobody reads."""

    number: int
    item: Any


class Fill(Record):
    """Give what was promised the value of the item."""

    number: int
    promise: Any
    item: Any


class Store(Record):
    """Make these items, of which the first has this number, ready to be taken, and report them as `stored`."""

    number: int
    items: Any


class Promise(Record):
    """Make so many promises, and report them as `promised`."""

    missing: int


class FailPromised(Record):
    """Fail what was promised: these items do not come."""

    promises: Any


class TellTaken(Record):
    """Tell the producer how many items were taken, over the machine's link."""

    taken: int


class Stop(Record):
    """Tell the producer that nobody reads, over the machine's link."""


class Gather(Record):
    """Make one value of all items."""


class Request(Record):
    """Ask the node for a lease; the task that waits longest names the request."""

    number: int
    task: Any


class CancelRequests(Record):
    """Tell the node that these requests are over; a grant that is under way is declined."""

    numbers: list[int]


class Decline(Record):
    """Return a lease that was granted and not begun."""

    lease_id: int


class Begin(Record):
    """Tell the worker of a granted lease of its terms."""

    lease: Any


class Push(Record):
    """Send tasks, which the link has noted, to the worker of a lease."""

    lease: Any
    tasks: list[Any]


class Reclaim(Record):
    """Ask the worker of a lease to give back so many tasks that it has not begun."""

    lease: Any
    tasks: int


class Return(Record):
    """Give a lease back to the node."""

    lease: Any


class AwaitRest(Record):
    """Say when these calls, which were to be sent again or to fail, have rested for so many seconds."""

    calls: Any
    seconds: float


class Rest(Record):
    """Submit a task again after so many seconds: it has failed, or its worker was ended because memory ran low."""

    task: Any
    seconds: float


class FailLost(Record):
    """Fail a task whose worker has died."""

    task: Any
    cause: Any
    process: str


class FailRefused(Record):
    """Fail a task that no worker can run."""

    task: Any
    text: str


class FailUnreachable(Record):
    """Fail a task: of many granted workers none could be connected to. `process`: the last of them."""

    task: Any
    process: str


class WatchPipelines(Record):
    """Say when `STUCK_SECONDS` have passed."""


class WatchIdle(Record):
    """Say when `KEEP_SECONDS` have passed."""


class AwaitTurn(Record):
    """Say when the turn of a lease is over."""

    lease: Any
    seconds: float


class AwaitPause(Record):
    """Say when a lease without tasks has been idle for `PAUSE_SECONDS`."""

    lease: Any
    since: float


class Fetch(Record):
    """Ask the owner for a value, and perhaps whether it is there."""

    link: Any
    object_id: bytes
    asks: bool


class FailObjects(Record):
    """Fail borrowed objects that have no value with this error; None: their owner is gone."""

    entries: Any
    error: BaseException | None


class Hold(Record):
    """Tell the node that this process has handles of an actor."""

    number: int
    actor_id: bytes


class Drop(Record):
    """Tell the node that this process has no handle of an actor any more."""

    actor_id: bytes


class GoOn(Record):
    """Call back: what was waited for is counted."""

    then: Any


#: The answer to an event, in order.
Instructions = list[Any]
