"""Events, in the past tense: the scheduler's input.

Plain slotted classes and no dataclasses: the node imports this on the way to the first answer of a session, and generating twenty
classes would take longer than starting it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mray._common.causes import Cause


class Event:
    """Something that happened."""

    __slots__: tuple[str, ...] = ()

    def __repr__(self) -> str:
        fields = (f"{name}={reprlib.repr(getattr(self, name))}" for name in self.__slots__)
        return f"{type(self).__name__}({', '.join(fields)})"


class MemberJoined(Event):
    """A process said hello: a driver, or a worker that is ready for its first work."""

    __slots__ = ("job", "pid", "process")

    def __init__(self, process: str, pid: int, job: str = "") -> None:
        self.process = process
        self.pid = pid
        #: Of a driver; a worker belongs to what it was started for.
        self.job = job


class MemberDied(Event):
    """A process is dead: a joined one, or a worker that never joined."""

    __slots__ = ("cause", "made", "process", "role")

    def __init__(self, process: str, cause: Cause, made: Mapping[str, list[str]] = MappingProxyType({}), role: str = "") -> None:
        self.process = process
        #: How the kernel saw it; the scheduler knows better if the death was ordered.
        self.cause = cause
        #: Segments that it has made for other processes, by their owner, who may never have heard of them.
        self.made = made
        #: The process in words, if it was no worker.
        self.role = role


class DriverReset(Event):
    """The driver wants nothing any more of all that it has asked for, and will join again."""

    __slots__ = ("owners", "process")

    def __init__(self, process: str, owners: frozenset[str]) -> None:
        self.process = process
        #: Workers that own objects.
        self.owners = owners


class WorkerLeft(Event):
    """A worker announced that it ends on purpose."""

    __slots__ = ("kind", "process", "text")

    def __init__(self, process: str, kind: str, text: str) -> None:
        self.process = process
        self.kind = kind
        self.text = text


class MemoryRanLow(Event):
    """The machine's memory is nearly full: these workers are to be ended."""

    __slots__ = ("processes", "text")

    def __init__(self, processes: list[str], text: str) -> None:
        self.processes = processes
        #: The text for those that wait for them.
        self.text = text


class PrestartAllowed(Event):
    """Workers can be forked now: some may be started ahead of need, for a job whose tasks have these variables."""

    __slots__ = ("job", "variables")

    def __init__(self, job: str = "", variables: dict[str, str] | None = None) -> None:
        self.job = job
        self.variables = variables


class LeaseRequested(Event):
    __slots__ = ("demand", "process", "request")

    def __init__(self, process: str, request: int, demand: dict[str, Any]) -> None:
        self.process = process
        self.request = request
        self.demand = demand


class LeaseCancelled(Event):
    """The client needs what it requested no more; a grant may be on its way to it."""

    __slots__ = ("process", "request")

    def __init__(self, process: str, request: int) -> None:
        self.process = process
        self.request = request


class LeaseReturned(Event):
    __slots__ = ("lease", "process")

    def __init__(self, process: str, lease: int) -> None:
        self.process = process
        self.lease = lease


class LeaseBroken(Event):
    """The client and the leased worker do not understand each other; what the worker computes reaches nobody."""

    __slots__ = ("lease", "process", "text")

    def __init__(self, process: str, lease: int, text: str) -> None:
        self.process = process
        self.lease = lease
        self.text = text


class TaskBlocked(Event):
    """The task in this worker waits for values."""

    __slots__ = ("process",)

    def __init__(self, process: str) -> None:
        self.process = process


class TaskUnblocked(Event):
    __slots__ = ("process",)

    def __init__(self, process: str) -> None:
        self.process = process


class ActorRequested(Event):
    __slots__ = ("actor", "process", "request", "spec")

    def __init__(self, process: str, request: int, actor: bytes, spec: dict[str, Any]) -> None:
        self.process = process
        self.request = request
        self.actor = actor
        self.spec = spec


class ActorWatched(Event):
    """A process wants to know the actor's state, now and whenever it changes."""

    __slots__ = ("actor", "process")

    def __init__(self, process: str, actor: bytes) -> None:
        self.process = process
        self.actor = actor


class WatchExpired(Event):
    """Nobody created the watched actor in the time that its creation may be under way."""

    __slots__ = ("actor",)

    def __init__(self, actor: bytes) -> None:
        self.actor = actor


class PlaceExpired(Event):
    """The time is over in which idle leases come back for a tenant (a lease's number, an actor's id) that does not wait for busy ones."""

    __slots__ = ("tenant",)

    def __init__(self, tenant: int | bytes) -> None:
        self.tenant = tenant


class HandlesHeld(Event):
    __slots__ = ("actors", "number", "process")

    def __init__(self, process: str, number: int, actors: list[bytes]) -> None:
        self.process = process
        self.number = number
        self.actors = actors


class HandlesDropped(Event):
    __slots__ = ("actors", "process")

    def __init__(self, process: str, actors: list[bytes]) -> None:
        self.process = process
        self.actors = actors


class ActorKilled(Event):
    """Somebody called kill, and is told when the signal is sent if there is a request."""

    __slots__ = ("actor", "no_restart", "process", "request")

    def __init__(self, actor: bytes, no_restart: bool, process: str = "", request: int = 0) -> None:
        self.actor = actor
        self.no_restart = no_restart
        self.process = process
        self.request = request


class ActorConstructed(Event):
    __slots__ = ("actor", "process")

    def __init__(self, process: str, actor: bytes) -> None:
        self.process = process
        self.actor = actor


class ActorFailed(Event):
    """The constructor raised."""

    __slots__ = ("actor", "error", "process")

    def __init__(self, process: str, actor: bytes, error: bytes) -> None:
        self.process = process
        self.actor = actor
        #: The pickled exception.
        self.error = error


class GroupRequested(Event):
    """A process asked for a placement group."""

    __slots__ = ("group", "process", "request", "spec")

    def __init__(self, process: str, request: int, group: bytes, spec: dict[str, Any]) -> None:
        self.process = process
        self.request = request
        self.group = group
        self.spec = spec


class GroupAwaited(Event):
    """A process wants to know when the placement group is created."""

    __slots__ = ("group", "process", "request")

    def __init__(self, process: str, request: int, group: bytes) -> None:
        self.process = process
        self.request = request
        self.group = group


class GroupDismissed(Event):
    """Somebody called remove_placement_group."""

    __slots__ = ("group", "process", "request")

    def __init__(self, process: str, request: int, group: bytes) -> None:
        self.process = process
        self.request = request
        self.group = group


class NameLookedUp(Event):
    __slots__ = ("name", "namespace", "process", "request")

    def __init__(self, process: str, request: int, name: str, namespace: str) -> None:
        self.process = process
        self.request = request
        self.name = name
        self.namespace = namespace


class Queried(Event):
    __slots__ = ("arguments", "process", "request", "what")

    def __init__(self, process: str, request: int, what: str, arguments: tuple[Any, ...]) -> None:
        self.process = process
        self.request = request
        self.what = what
        self.arguments = arguments
