"""Instructions, in the imperative, which the client carries out in order.

A `call` is a `PendingCall`, a `task` a `PendingTask`, a `lease` one of `mray._decide.caller.lease_pool`, and an `entry` a
`BorrowedObject`; an `item` and a `promise` are the client's.
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
    """Ask the node to send the actor's location and each change."""


class Connect(Record):
    """Connect to the actor's process."""

    process: str


class Announce(Record):
    """Notify the subscribers of the actor's new state."""


class Discard(Record):
    """Release the refs and the memory of an item that was known, or that has no reader."""

    number: int
    item: Any


class Fill(Record):
    """Give the promise the value of the item."""

    number: int
    promise: Any
    item: Any


class Store(Record):
    """Make these items, numbered from `number` on, ready to take, and report them as `stored`."""

    number: int
    items: Any


class Promise(Record):
    """Make `missing` promises, and report them as `promised`."""

    missing: int


class FailPromised(Record):
    """Fail promises: these items do not arrive."""

    promises: Any


class TellTaken(Record):
    """Send the producer the count of taken items, over the machine's link."""

    taken: int


class Stop(Record):
    """Notify the producer that the reader was dropped, over the machine's link."""


class Gather(Record):
    """Create one value from all items."""


class Request(Record):
    """Ask the node for a lease, in the name of the task that waits longest."""

    number: int
    task: Any


class CancelRequests(Record):
    """Cancel requests at the node; a grant in flight is declined."""

    numbers: list[int]


class Decline(Record):
    """Return a granted lease that was not begun."""

    lease_id: int


class Begin(Record):
    """Send the terms of a granted lease to its worker."""

    lease: Any


class Push(Record):
    """Send tasks, which the link has recorded, to the worker of a lease."""

    lease: Any
    tasks: list[Any]


class Reclaim(Record):
    """Ask the worker of a lease to give back `tasks` tasks that it has not begun."""

    lease: Any
    tasks: int


class Return(Record):
    """Give a lease back to the node."""

    lease: Any


class AwaitRest(Record):
    """Report when these calls have rested for `seconds`."""

    calls: Any
    seconds: float


class Rest(Record):
    """Submit a task again after `seconds`: it failed, or its worker was killed because memory ran low."""

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
    """Fail a task: the client could connect to none of many granted workers, the last of them `process`."""

    task: Any
    process: str


class WatchPipelines(Record):
    """Report when `STUCK_SECONDS` have passed."""


class WatchIdle(Record):
    """Report when `KEEP_SECONDS` have passed."""


class AwaitTurn(Record):
    """Report when the turn of a lease is over."""

    lease: Any
    seconds: float


class AwaitPause(Record):
    """Report when a lease without tasks has been idle for `PAUSE_SECONDS`."""

    lease: Any
    since: float


class Fetch(Record):
    """Ask the owner for a value, and optionally whether it is ready."""

    link: Any
    object_id: bytes
    asks: bool


class FailObjects(Record):
    """Fail borrowed objects without a value with this error; None: their owner has exited."""

    entries: Any
    error: BaseException | None


class Hold(Record):
    """Notify the node that this process has handles of an actor."""

    number: int
    actor_id: bytes


class Drop(Record):
    """Notify the node that this process has no more handles of an actor."""

    actor_id: bytes


class GoOn(Record):
    """Call back: the awaited borrow is counted."""

    then: Any


#: The response to an event, in order.
Instructions = list[Any]
