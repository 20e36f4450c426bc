"""Communicators: how the actors of a group exchange tensors directly.

An object is pickled to every member, where `initialize` makes it one of the group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any


class ReduceOp(Enum):
    """How a collective combines the values of its members."""

    SUM = 0
    PRODUCT = 1
    MAX = 2
    MIN = 3
    AVG = 4


#: Creates the tensor to receive into: ``(shape, dtype) -> tensor``.
TorchTensorAllocator = Callable[[Sequence[int], Any], Any]


class Communicator(ABC):
    """A group of actors, ranks 0 to world size - 1, that exchange torch tensors.

    Every member calls the same collectives in the same order; they block until the member's part is done.
    """

    @abstractmethod
    def initialize(self, rank: int) -> None:
        """Become the member of this rank. Called in its actor, once, first."""

    @abstractmethod
    def get_actor_handles(self) -> list[Any]:
        """The handles of all members, by rank."""

    @abstractmethod
    def get_rank(self, actor: Any) -> int:
        """The rank of an actor. Raises ValueError when it is no member."""

    @abstractmethod
    def get_self_rank(self) -> int | None:
        """The rank of this process; None before `initialize` and in the driver."""

    def get_world_size(self) -> int:
        """The number of members."""
        return len(self.get_actor_handles())

    @abstractmethod
    def send(self, value: Any, peer_rank: int) -> None:
        """Send a tensor to a member, which calls `recv`."""

    @abstractmethod
    def recv(self, shape: Sequence[int], dtype: Any, peer_rank: int, allocator: TorchTensorAllocator | None = None) -> Any:
        """The tensor of this shape and dtype from a member. Raises RayChannelError when it cannot arrive."""

    @property
    @abstractmethod
    def recv_stream(self) -> Any:
        """The stream as a context manager; None on the CPU."""

    @property
    @abstractmethod
    def send_stream(self) -> Any:
        """The stream as a context manager; None on the CPU."""

    @abstractmethod
    def allgather(self, send_buf: Any, recv_buf: Any) -> None:
        """Concatenate every member's `send_buf` along the first dimension into every `recv_buf`."""

    @abstractmethod
    def allreduce(self, send_buf: Any, recv_buf: Any, op: ReduceOp) -> None:
        """Reduce all `send_buf`, element by element, into every `recv_buf`."""

    @abstractmethod
    def reducescatter(self, send_buf: Any, recv_buf: Any, op: ReduceOp) -> None:
        """Reduce all `send_buf`, and write part r along the first dimension into `recv_buf` of member r."""

    @abstractmethod
    def destroy(self) -> None:
        """Leave the group; members that wait for this one get RayChannelError. Idempotent."""

    @abstractmethod
    def get_transport_name(self) -> str:
        """``"accelerator"`` or ``"cpu"``."""

    @classmethod
    @abstractmethod
    def generate_communicator_id(cls) -> Any:
        """A new id for a group."""
