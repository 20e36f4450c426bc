"""The backend GLOO: the collectives of `mray._channel.shared_memory_group`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from mray._inside.transports import MemberOfGroup, join
from mray.util.collective import types
from mray.util.collective.collective_group.base_collective_group import BaseGroup

__all__ = ["SharedMemoryGroup"]


class SharedMemoryGroup(BaseGroup):
    """Torch tensors on the CPU and numpy arrays."""

    def __init__(
        self, world_size: int, rank: int, group_name: str, gloo_timeout: float | None = None, actors: Sequence[bytes] = ()
    ) -> None:
        """Join; waits at most `gloo_timeout` milliseconds for all members. `actors`: their ids by rank, where known."""
        super().__init__(world_size, rank, group_name)
        timeout = None if gloo_timeout is None else gloo_timeout / 1000
        kind = MemberOfGroup
        self._group = join(f"collective {group_name}", world_size, rank, timeout=timeout, actors=actors, kind=kind)

    def refusing(self, sent: int = -1, received: int = -1) -> AbstractContextManager[Any]:
        return self._group.refusing(sent, received)

    def destroy_group(self) -> None:
        self._group.destroy()

    @classmethod
    def backend(cls) -> str:
        return types.Backend.GLOO

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def allreduce(self, tensor: list[Any], allreduce_options: types.AllReduceOptions) -> None:
        (only,) = tensor
        self._group.allreduce(only, only, self._operation(allreduce_options.reduceOp))

    def barrier(self, barrier_options: types.BarrierOptions) -> None:
        self._group.barrier()

    def reduce(self, tensor: list[Any], reduce_options: types.ReduceOptions) -> None:
        (only,) = tensor
        self._group.reduce(only, reduce_options.root_rank, self._operation(reduce_options.reduceOp))

    def allgather(self, tensor_list: list[list[Any]], tensor: list[Any], allgather_options: types.AllGatherOptions) -> None:
        (only,), (into,) = tensor, tensor_list
        self._group.allgather(only, into)

    def broadcast(self, tensor: list[Any], broadcast_options: types.BroadcastOptions) -> None:
        (only,) = tensor
        self._group.broadcast(only, broadcast_options.root_rank)

    def reducescatter(self, tensor: list[Any], tensor_list: list[list[Any]], reducescatter_options: types.ReduceScatterOptions) -> None:
        (into,), (parts,) = tensor, tensor_list
        with self.refusing():
            if tuple(into.shape) != tuple(parts[self.rank].shape):
                raise ValueError(f"Output tensor has wrong shape {tuple(into.shape)}, expected {tuple(parts[self.rank].shape)}")
        self._group.reducescatter(parts, into, self._operation(reducescatter_options.reduceOp))

    def send(self, tensor: list[Any], send_options: types.SendOptions) -> None:
        (only,) = tensor
        self._group.send(only, send_options.dst_rank)

    def recv(self, tensor: list[Any], recv_options: types.RecvOptions) -> None:
        (only,) = tensor
        self._group.recv(only, recv_options.src_rank)
