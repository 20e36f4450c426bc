"""Instructions, in the imperative, which the node carries out in order."""

from __future__ import annotations

from typing import Any

from mray._common.record import Record
from mray._decide.scheduler.root_names import Environment

Instruction = tuple[Any, ...]


class Tell(Record):
    """Send a message; ignored if the process has exited."""

    process: str
    message: tuple[Any, ...]


class SpawnWorker(Record):
    process: str
    environment: Environment


class KillWorker(Record):
    """Send SIGKILL."""

    process: str


class RemoveObjects(Record):
    """Remove the objects of a detached actor, by its hexadecimal id."""

    owner: str


class AwaitPlace(Record):
    """Report `PlaceExpired` a little later: idle leases may be coming back."""

    claimant: int | bytes


class AwaitRest(Record):
    """Report `ActorRested` after the session's retry delay."""

    actor: bytes
    incarnation: int


class AwaitCreation(Record):
    """Report `WatchExpired` a little later: the actor's creation may be unread in another socket."""

    actor: bytes
