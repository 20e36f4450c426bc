"""Instructions, in the imperative: the scheduler's output. The node carries instructions out in order."""

from __future__ import annotations

from typing import Any

from mray._decide.scheduler.root_names import Environment


class Instruction:
    """Something to do."""

    __slots__ = ()


class Tell(Instruction):
    """Send a message to a process; nothing happens when it is gone."""

    __slots__ = ("message", "process")

    def __init__(self, process: str, message: tuple[Any, ...]) -> None:
        self.process = process
        self.message = message

    def __repr__(self) -> str:
        return f"Tell({self.process!r}, {self.message!r})"


class SpawnWorker(Instruction):
    """Start a worker process with these variables in its environment."""

    __slots__ = ("environment", "process")

    def __init__(self, process: str, environment: Environment) -> None:
        self.process = process
        self.environment = environment

    def __repr__(self) -> str:
        return f"SpawnWorker({self.process!r}, {self.environment!r})"


class KillWorker(Instruction):
    """End a worker process at once (SIGKILL)."""

    __slots__ = ("process",)

    def __init__(self, process: str) -> None:
        self.process = process

    def __repr__(self) -> str:
        return f"KillWorker({self.process!r})"


class RemoveObjects(Instruction):
    """Remove the objects of an owner that is no process: a detached actor, by its id in hex digits."""

    __slots__ = ("owner",)

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def __repr__(self) -> str:
        return f"RemoveObjects({self.owner!r})"


class AwaitPlace(Instruction):
    """Report `PlaceExpired` for this tenant (a lease's number, an actor's id) a little later: idle leases may be on their way back."""

    __slots__ = ("tenant",)

    def __init__(self, tenant: int | bytes) -> None:
        self.tenant = tenant

    def __repr__(self) -> str:
        return f"AwaitPlace({self.tenant!r})"


class AwaitCreation(Instruction):
    """Report `WatchExpired` for this actor a little later: its creation may be in another socket."""

    __slots__ = ("actor",)

    def __init__(self, actor: bytes) -> None:
        self.actor = actor

    def __repr__(self) -> str:
        return f"AwaitCreation({self.actor!r})"
