"""Instructions, in the imperative: the scheduler's output. The node carries them out in order."""

from __future__ import annotations

from typing import Any

from mray._common.record import Record
from mray._decide.scheduler.root_names import Environment

#: One of the following.
Instruction = tuple[Any, ...]


class Tell(Record):
    """Send a message to a process; ignored if it has exited."""

    process: str
    message: tuple[Any, ...]


class SpawnWorker(Record):
    """Start a worker process with these environment variables."""

    process: str
    environment: Environment


class KillWorker(Record):
    """Kill a worker process (SIGKILL)."""

    process: str


class RemoveObjects(Record):
    """Remove the objects whose owner is a detached actor, by its hexadecimal id."""

    owner: str


class AwaitPlace(Record):
    """Report `PlaceExpired` for this claimant (a lease's number, an actor's id) a little later: idle leases may be coming back."""

    claimant: int | bytes


class AwaitRest(Record):
    """Report `ActorRested` for this actor and incarnation after the session's retry delay."""

    actor: bytes
    incarnation: int


class AwaitCreation(Record):
    """Report `WatchExpired` for this actor a little later: its creation may be unread in another socket."""

    actor: bytes
