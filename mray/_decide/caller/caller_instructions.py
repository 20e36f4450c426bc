"""Instructions, which the client carries out in order.

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
    """Fail as cancelled."""

    call: Any


class Fail(Record):
    call: Any
    error: BaseException


class FailDead(Record):
    """The actor is dead for good. `process` may have run the call; "" if it was not sent, None if the actor was dead before."""

    call: Any
    process: str | None


class FailUnavailable(Record):
    """The call is not for the actor's next process. `process` may have run it; "" if it was not sent."""

    call: Any
    process: str


class Subscribe(Record):
    """Ask the node to send the actor's location and each change."""


class Connect(Record):
    process: str


class Announce(Record):
    """Notify the subscribers of the actor's new state."""


class Discard(Record):
    """Release an item that was known, or that has no reader."""

    number: int
    item: Any


class Fill(Record):
    number: int
    promise: Any
    item: Any


class Store(Record):
    """Make these items, numbered from `number` on, ready to take; report `stored`."""

    number: int
    items: Any


class Promise(Record):
    """Make `missing` promises; report `promised`."""

    missing: int


class FailPromised(Record):
    """Fail promises: these items do not arrive."""

    promises: Any


class TellTaken(Record):
    """Send the producer the count of taken items."""

    taken: int


class Stop(Record):
    """Notify the producer that the reader was dropped."""


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
    """Return a lease that was not begun."""

    lease_id: int


class Begin(Record):
    lease: Any


class Push(Record):
    """Send tasks, which the link has recorded, to the worker."""

    lease: Any
    tasks: list[Any]


class Reclaim(Record):
    """Ask the worker to give back `tasks` tasks that it has not begun."""

    lease: Any
    tasks: int


class Return(Record):
    lease: Any


class AwaitRest(Record):
    """Report `rested` after `seconds`."""

    calls: Any
    seconds: float


class Rest(Record):
    """Submit a task again after `seconds`."""

    task: Any
    seconds: float


class FailLost(Record):
    task: Any
    cause: Any
    process: str


class FailRefused(Record):
    task: Any
    text: str


class FailUnreachable(Record):
    """The client could connect to none of many granted workers, the last of them `process`."""

    task: Any
    process: str


class WatchPipelines(Record):
    """Report in `STUCK_SECONDS`."""


class WatchIdle(Record):
    """Report in `KEEP_SECONDS`."""


class AwaitTurn(Record):
    """Report when its turn is over."""

    lease: Any
    seconds: float


class AwaitPause(Record):
    """Report if it has no task for `PAUSE_SECONDS`."""

    lease: Any
    since: float


class Fetch(Record):
    """Ask the owner for a value, and optionally whether it is ready."""

    link: Any
    object_id: bytes
    asks: bool


class FailObjects(Record):
    """Fail objects without a value; None: their owner has exited."""

    entries: Any
    error: BaseException | None


class Hold(Record):
    """Tell the node that this process has handles of an actor."""

    number: int
    actor_id: bytes


class Drop(Record):
    """Tell the node that this process has no more handles of an actor."""

    actor_id: bytes


class GoOn(Record):
    """Call back: the awaited borrow is counted."""

    then: Any


Instructions = list[Any]
