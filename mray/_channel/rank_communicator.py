"""The part of a communicator that is independent of the library."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from mray._api.communicator import Communicator
from mray.exceptions import RayChannelError


class Ranked(Protocol):
    """A process's membership in a group."""

    @property
    def rank(self) -> int:
        """This process's rank."""


Member = TypeVar("Member", bound=Ranked)


class RankCommunicator(Communicator, Generic[Member]):
    """A group of actors. Created once and handed to every member, where `initialize` makes the copy a member."""

    LIBRARY: str

    def __init__(self, actor_handles: Sequence[Any], communicator_id: str | None = None) -> None:
        """`actor_handles`: all members, by rank. Raises ValueError unless they are distinct."""
        if not actor_handles or len(set(actor_handles)) != len(actor_handles):
            raise ValueError(f"Expected different actors, but got {list(actor_handles)}")
        self._actor_handles = list(actor_handles)
        self._id = communicator_id or self.generate_communicator_id()
        self._membership: Member | None = None

    @property
    def member(self) -> Member:
        """Raises RayChannelError without one."""
        if self._membership is None:
            raise RayChannelError(f"This process is not a member of the {self.LIBRARY} group: initialize(rank) has not been called here.")
        return self._membership

    def _refuse_second_rank(self) -> None:
        if self._membership is not None:
            raise RuntimeError(f"This process is rank {self._membership.rank} of this group already.")

    def get_actor_handles(self) -> list[Any]:
        return list(self._actor_handles)

    def get_rank(self, actor: Any) -> int:
        try:
            return self._actor_handles.index(actor)
        except ValueError:
            raise ValueError(f"Actor is not in the {self.LIBRARY} group.") from None

    def get_self_rank(self) -> int | None:
        return None if self._membership is None else self._membership.rank

    @classmethod
    def generate_communicator_id(cls) -> str:
        return str(uuid.uuid4())
