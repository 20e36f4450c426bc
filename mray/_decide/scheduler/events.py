"""Events, in the past tense: the scheduler's input."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mray._common.causes import Cause
from mray._common.record import Record

#: One of the following.
Event = tuple[Any, ...]


class MemberJoined(Record):
    """A process has joined: a driver, or a worker that is ready for its first work."""

    process: str
    pid: int
    #: Of a driver; a worker belongs to the root it was started for.
    job: str = ""


class MemberDied(Record):
    """A process is dead: a member, or a worker that never joined."""

    process: str
    #: As the kernel reported it; the scheduler knows better if the death was ordered.
    cause: Cause
    #: Segments that it created for other processes, by owner. An owner may not know of them.
    made: Mapping[str, list[str]] = MappingProxyType({})
    #: The process in words, if it was no worker.
    role: str = ""


class DriverReset(Record):
    """The driver drops everything that it has asked for, and will join again."""

    process: str
    #: Workers that own objects.
    owners: frozenset[str]


class WorkerLeft(Record):
    """A worker announced that it ends on purpose."""

    process: str
    kind: str
    text: str


class MemoryRanLow(Record):
    """The machine's memory is nearly full: these workers are to be ended."""

    processes: list[str]
    #: The error text for their callers.
    text: str


class PrestartAllowed(Record):
    """Workers can be forked now, some of them ahead of need, for a job whose tasks have these variables."""

    job: str = ""
    variables: dict[str, str] | None = None


class LeaseRequested(Record):
    process: str
    request: int
    demand: dict[str, Any]


class LeaseCancelled(Record):
    """The client drops a request; its grant may be in flight."""

    process: str
    request: int


class LeaseReturned(Record):
    process: str
    lease: int


class LeaseBroken(Record):
    """The client and the leased worker refuse each other's messages, so the worker's results reach no process."""

    process: str
    lease: int
    text: str


class TaskBlocked(Record):
    """The task in this worker waits for values; or an exiting worker waits until other processes release what it owns."""

    process: str


class TaskUnblocked(Record):
    process: str


class ActorRequested(Record):
    process: str
    request: int
    actor: bytes
    spec: dict[str, Any]


class ActorWatched(Record):
    """A process wants to know the actor's state, now and at each change."""

    process: str
    actor: bytes


class WatchExpired(Record):
    """The watched actor was not created in time."""

    actor: bytes


class PlaceExpired(Record):
    """A fail-fast claimant (a lease's number, an actor's id) has waited long enough for idle leases to come back."""

    claimant: int | bytes


class ActorRested(Record):
    """The actor has rested before this incarnation: the previous process died in the constructor."""

    actor: bytes
    incarnation: int


class HandlesHeld(Record):
    process: str
    number: int
    actors: list[bytes]


class HandlesDropped(Record):
    process: str
    actors: list[bytes]


class ActorKilled(Record):
    """A process called kill. With a request, it is answered when the signal is sent."""

    actor: bytes
    no_restart: bool
    process: str = ""
    request: int = 0


class ActorConstructed(Record):
    process: str
    actor: bytes


class ActorFailed(Record):
    """The constructor raised."""

    process: str
    actor: bytes
    #: The pickled exception.
    error: bytes


class GroupRequested(Record):
    """A process asked for a placement group."""

    process: str
    request: int
    group: bytes
    spec: dict[str, Any]


class GroupAwaited(Record):
    """A process wants to know when the placement group is created."""

    process: str
    request: int
    group: bytes


class GroupDismissed(Record):
    """A process called remove_placement_group."""

    process: str
    request: int
    group: bytes


class NameLookedUp(Record):
    process: str
    request: int
    name: str
    namespace: str


class Queried(Record):
    process: str
    request: int
    what: str
    arguments: tuple[Any, ...]
