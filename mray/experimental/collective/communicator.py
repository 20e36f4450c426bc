"""Handles of groups of actors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Communicator", "CommunicatorHandle"]


@dataclass
class Communicator:
    """A group as one of its members knows it."""

    name: str
    #: The number of this member.
    rank: int
    backend: str


@dataclass(frozen=True, eq=False)
class CommunicatorHandle:
    """A group as the process knows it that made it."""

    #: The handles of the members, by rank.
    actors: list[Any]
    #: The name under which the members know the group.
    name: str
    #: The carrier of the tensors: ``"GLOO"`` (the CPU) or ``"NCCL"``.
    backend: str

    def get_rank(self, actor: Any) -> int:
        """The rank of an actor; -1 when it is no member."""
        return self.actors.index(actor) if actor in self.actors else -1
