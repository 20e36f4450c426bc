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
    """A process said hello: a driver, or a worker that is ready for its first work."""

    process: str
    pid: int
    #: Of a driver; a worker belongs to what it was started for.
    job: str = ""


class MemberDied(Record):
    """A process is dead: a joined one, or a worker that never joined."""

    process: str
    #: How the kernel saw it; the scheduler knows better if the death was ordered.
    cause: Cause
    #: Segments that it has made for other processes, by their owner, who may never have heard of them.
    made: Mapping[str, list[str]] = MappingProxyType({})
    #: The process in words, if it was no worker.
    role: str = ""


class DriverReset(Record):
    """The driver wants nothing any more of all that it has asked for, and will join again."""

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
    #: The text for those that wait for them.
    text: str


class PrestartAllowed(Record):
    """Workers can be forked now: some may be started ahead of need, for a job whose tasks have these variables."""

    job: str = ""
    variables: dict[str, str] | None = None


class LeaseRequested(Record):
    process: str
    request: int
    demand: dict[str, Any]


class LeaseCancelled(Record):
    """The client needs what it requested no more; a grant may be on its way to it."""

    process: str
    request: int


class LeaseReturned(Record):
    process: str
    lease: int


class LeaseBroken(Record):
    """The client and the leased worker do not understand each other; what the worker computes reaches nobody."""

    process: str
    lease: int
    text: str


class TaskBlocked(Record):
    """The task in this worker waits for values; or a worker that ends waits until nobody needs what it owns."""

    process: str


class TaskUnblocked(Record):
    process: str


class ActorRequested(Record):
    process: str
    request: int
    actor: bytes
    spec: dict[str, Any]


class ActorWatched(Record):
    """A process wants to know the actor's state, now and whenever it changes."""

    process: str
    actor: bytes


class WatchExpired(Record):
    """Nobody created the watched actor in the time that its creation may be under way."""

    actor: bytes


class PlaceExpired(Record):
    """The time is over in which idle leases come back for a tenant (a lease's number, an actor's id) that does not wait for busy ones."""

    tenant: int | bytes


class ActorRested(Record):
    """The time is over that an actor rests before this incarnation of it, since the process of the one before died in the constructor."""

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
    """Somebody called kill, and is told when the signal is sent if there is a request."""

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
    """Somebody called remove_placement_group."""

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
