"""Calls and connections, as far as the state machines of a caller know them."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

#: Stands for the retries of a call that was cancelled: it is not sent again.
CANCELLED = -2


class PendingCall(Protocol):
    """A call that has not been answered."""

    #: Arguments whose values are not there yet.
    waiting: int
    #: Retries left; `CANCELLED` once it was cancelled.
    retries: int
    #: Whether it was sent before, to a process that is dead now or that has failed it.
    was_sent: bool

    def use_retry(self) -> None:
        """Count a retry."""


AnyCall = TypeVar("AnyCall", bound=PendingCall)


class PendingTask(PendingCall, Protocol):
    """A task that has not been answered."""

    task_id: bytes
    #: The `mray._decide.caller.lease_pool.Lease` that it was pushed to last.
    lease: Any
    #: How often its worker was ended because memory ran low.
    memory_kills: int


AnyTask = TypeVar("AnyTask", bound=PendingTask)


class Link(Protocol):
    """An open connection to a worker."""

    #: The calls sent over it that are not answered, in the order they were sent, by task id.
    calls: dict[bytes, Any]
    #: The process at the other end.
    process: str
    #: Whether it has ended. Messages that came before may still be unread.
    closed: bool


class BorrowedObject(Protocol):
    """An object that another process owns."""

    object_id: bytes
    #: The process that owns it.
    owner: str | None
    #: How its value is to be read; None while that is not there.
    form: int | None
    #: Whether its value has been asked for.
    fetching: bool
    #: Where the value lay in vain.
    missed: str


def goes_once(call: PendingCall) -> bool:
    """Whether the call only waits for a process, and may be sent to the one that it was made for only."""
    return call.waiting == 0 and call.retries == 0
