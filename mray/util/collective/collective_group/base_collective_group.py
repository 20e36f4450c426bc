"""The contract of a backend: one process's membership of a group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from mray._api.communicator import ReduceOp
from mray.util.collective.types import (
    AllGatherOptions,
    AllReduceOptions,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
)

__all__ = ["BaseGroup"]


class BaseGroup(ABC):
    """A process's membership; the constructor joins. Tensors are passed in lists of one, lists of tensors in a list of one list."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        self._world_size = world_size
        self._rank = rank
        self._group_name = group_name

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world_size(self) -> int:
        return self._world_size

    @property
    def group_name(self) -> str:
        return self._group_name

    def refusing(self, sent: int = -1, received: int = -1) -> AbstractContextManager[Any]:
        """While entered, an error refuses a message to or from `rank`, or else a collective.

        A backend may then notify the members that wait for this one; others need not have this method.
        """
        return nullcontext()

    def _operation(self, op: Any) -> ReduceOp:
        """The communicator's operation of the same name; those of collectives are numbered differently."""
        with self.refusing():
            return ReduceOp[op.name]

    def destroy_group(self) -> None:  # noqa: B027  (a backend may have nothing to release)
        """Leave the group."""

    @classmethod
    def backend(cls) -> str:
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def check_backend_availability(cls) -> bool:
        """Whether it can be used here."""

    @classmethod
    def why_unavailable(cls) -> str:
        """The advice when it cannot be used."""
        return "Please check the installation."

    @abstractmethod
    def allreduce(self, tensor: list[Any], allreduce_options: AllReduceOptions) -> None:
        """Reduce the tensor in place, on every rank."""

    @abstractmethod
    def barrier(self, barrier_options: BarrierOptions) -> None:
        """Wait for all members."""

    @abstractmethod
    def reduce(self, tensor: list[Any], reduce_options: ReduceOptions) -> None:
        """Reduce the tensor in place, on the root."""

    @abstractmethod
    def allgather(self, tensor_list: list[list[Any]], tensor: list[Any], allgather_options: AllGatherOptions) -> None:
        """Copy every member's tensor into the list, by rank."""

    @abstractmethod
    def broadcast(self, tensor: list[Any], broadcast_options: BroadcastOptions) -> None:
        """Copy the root's tensor into every member's."""

    @abstractmethod
    def reducescatter(self, tensor: list[Any], tensor_list: list[list[Any]], reducescatter_options: ReduceScatterOptions) -> None:
        """Reduce the lists of all members; this rank gets its own tensor of the reduction."""

    @abstractmethod
    def send(self, tensor: list[Any], send_options: SendOptions) -> None:
        """Send the tensor to a member."""

    @abstractmethod
    def recv(self, tensor: list[Any], recv_options: RecvOptions) -> None:
        """Receive a member's message into the tensor."""
