"""Handles of groups of actors."""

from __future__ import annotations

from collections.abc import Sequence
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


class CommunicatorHandle:
    """A group as the process knows it that made it: the actors, by rank."""

    def __init__(self, actors: Sequence[Any], name: str, backend: str) -> None:
        self._actors = list(actors)
        self._name = name
        self._backend = backend

    def get_rank(self, actor: Any) -> int:
        """The rank of an actor; -1 when it is no member."""
        return self._actors.index(actor) if actor in self._actors else -1

    @property
    def actors(self) -> list[Any]:
        """The handles of the members, by rank."""
        return list(self._actors)

    @property
    def name(self) -> str:
        """The name under which the members know the group."""
        return self._name

    @property
    def backend(self) -> str:
        """The carrier of the tensors: ``"GLOO"`` (the CPU) or ``"NCCL"``."""
        return self._backend

    def __repr__(self) -> str:
        return f"CommunicatorHandle(name={self._name!r}, backend={self._backend!r}, actors={self._actors})"
