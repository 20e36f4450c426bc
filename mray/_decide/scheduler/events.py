"""Events, in the past tense: the scheduler's input."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mray._common.causes import Cause
from mray._common.record import Record

Event = tuple[Any, ...]


class MemberJoined(Record):
    """A driver, or a worker that is ready for its first work, has joined."""

    process: str
    pid: int
    #: A driver's job; a worker belongs to the root it was started for.
    job: str = ""


class MemberDied(Record):
    """A member, or a worker that never joined, is dead."""

    process: str
    #: As the kernel reports it; the scheduler knows better if the death was ordered.
    cause: Cause
    #: Segments that it created for other processes, by owner.
    made: Mapping[str, list[str]] = MappingProxyType({})
    #: The process in words, if it was no worker.
    role: str = ""


class DriverReset(Record):
    """The driver drops everything that it has asked for, and will join again."""

    process: str
    #: Workers that own objects.
    owners: frozenset[str]


class WorkerLeft(Record):
    process: str
    kind: str
    text: str


class MemoryRanLow(Record):
    """These workers are to be ended."""

    processes: list[str]
    #: Error text for their callers.
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
    process: str
    request: int


class LeaseReturned(Record):
    process: str
    lease: int


class LeaseBroken(Record):
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
    process: str
    actor: bytes


class WatchExpired(Record):
    actor: bytes


class PlaceExpired(Record):
    """A fail-fast claimant (a lease's number, an actor's id) has waited long enough for idle leases to come back."""

    claimant: int | bytes


class ActorRested(Record):
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
    """A process called kill. A request is answered when the signal is sent."""

    actor: bytes
    no_restart: bool
    process: str = ""
    request: int = 0


class ActorConstructed(Record):
    process: str
    actor: bytes


class ActorFailed(Record):
    process: str
    actor: bytes
    #: A pickled exception.
    error: bytes


class GroupRequested(Record):
    process: str
    request: int
    group: bytes
    spec: dict[str, Any]


class GroupAwaited(Record):
    process: str
    request: int
    group: bytes


class GroupDismissed(Record):
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
