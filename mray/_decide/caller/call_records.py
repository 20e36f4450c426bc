"""Calls and connections, as the state machines of a caller see them."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

#: The retries of a cancelled call, which is not sent again.
CANCELLED = -2


class PendingCall(Protocol):
    """An unanswered call."""

    #: Arguments that have not arrived.
    waiting: int
    #: Retries left, or `CANCELLED`.
    retries: int
    #: Whether it was sent before, to a process that has died or has failed it.
    was_sent: bool

    def use_retry(self) -> None:
        """Consume a retry."""


AnyCall = TypeVar("AnyCall", bound=PendingCall)


class PendingTask(PendingCall, Protocol):
    """An unanswered task."""

    task_id: bytes
    #: The `mray._decide.caller.lease_pool.Lease` that it was last pushed to.
    lease: Any
    #: How often its worker was killed because memory ran low.
    memory_kills: int


AnyTask = TypeVar("AnyTask", bound=PendingTask)


class Link(Protocol):
    """An open connection to a worker."""

    #: Unanswered calls that were sent over it, by task id, in order.
    calls: dict[bytes, Any]
    #: The process at the other end.
    process: str
    #: Whether it is closed. Earlier messages may still be unread.
    closed: bool


class BorrowedObject(Protocol):
    """An object that another process owns."""

    object_id: bytes
    #: The process that owns it.
    owner: str | None
    #: The format of its value; None until the value is ready.
    form: int | None
    #: Whether its value was requested.
    fetching: bool
    #: The location at which its value was not found.
    missed: str


def goes_once(call: PendingCall) -> bool:
    """Whether an unsent call may go only to the process that it was made for."""
    return call.waiting == 0 and call.retries == 0
