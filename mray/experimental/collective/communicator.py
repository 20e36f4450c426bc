"""Handles of groups of actors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Communicator", "CommunicatorHandle"]


@dataclass
class Communicator:
    """A member's handle of its group."""

    name: str
    rank: int
    backend: str


@dataclass(frozen=True, eq=False)
class CommunicatorHandle:
    """A group, in the process that created it."""

    #: The members' handles, by rank.
    actors: list[Any]
    name: str
    #: ``"GLOO"`` (the CPU) or ``"NCCL"``.
    backend: str

    def get_rank(self, actor: Any) -> int:
        """The rank of an actor; -1 when it is no member."""
        return self.actors.index(actor) if actor in self.actors else -1
