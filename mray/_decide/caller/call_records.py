"""Calls and connections, as the state machines of a caller see them."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

#: The retries of a cancelled call, which is not sent again.
CANCELLED = -2


class PendingCall(Protocol):
    waiting: int
    #: `CANCELLED`, or the number left.
    retries: int
    #: Whether it was sent to a process that has died or has failed it.
    was_sent: bool

    def use_retry(self) -> None:
        """Consume a retry."""


AnyCall = TypeVar("AnyCall", bound=PendingCall)


class PendingTask(PendingCall, Protocol):
    task_id: bytes
    #: The `mray._decide.caller.lease_pool.Lease` that it was last pushed to.
    lease: Any
    #: How often `use_retry` was called.
    tries: int
    #: How often its worker was killed because memory ran low.
    memory_kills: int


AnyTask = TypeVar("AnyTask", bound=PendingTask)


class Link(Protocol):
    #: Unanswered calls by task id, in order.
    calls: dict[bytes, Any]
    #: The process at the other end.
    process: str
    #: Whether it is closed; earlier messages may still be unread.
    closed: bool


class BorrowedObject(Protocol):
    """An object that another process owns."""

    object_id: bytes
    owner: str | None
    #: The value's format; None while it is pending.
    form: int | None
    #: Whether the value was requested.
    fetching: bool
    #: The location where its value was not found.
    missed: str


def goes_once(call: PendingCall) -> bool:
    """Whether an unsent call may go only to the process that it was made for."""
    return call.waiting == 0 and call.retries == 0
