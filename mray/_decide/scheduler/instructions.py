"""Instructions, in the imperative: the scheduler's output. The node carries instructions out in order."""

from __future__ import annotations

from typing import Any

from mray._common.record import Record
from mray._decide.scheduler.root_names import Environment

#: One of the following.
Instruction = tuple[Any, ...]


class Tell(Record):
    """Send a message to a process; nothing happens when it is gone."""

    process: str
    message: tuple[Any, ...]


class SpawnWorker(Record):
    """Start a worker process with these variables in its environment."""

    process: str
    environment: Environment


class KillWorker(Record):
    """End a worker process at once (SIGKILL)."""

    process: str


class RemoveObjects(Record):
    """Remove the objects of an owner that is no process: a detached actor, by its id in hex digits."""

    owner: str


class AwaitPlace(Record):
    """Report `PlaceExpired` for this tenant (a lease's number, an actor's id) a little later: idle leases may be on their way back."""

    tenant: int | bytes


class AwaitRest(Record):
    """Report `ActorRested` for this actor and incarnation once the session's delay of retries has passed."""

    actor: bytes
    incarnation: int


class AwaitCreation(Record):
    """Report `WatchExpired` for this actor a little later: its creation may be in another socket."""

    actor: bytes
