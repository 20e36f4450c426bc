"""The communicator over NCCL, for the actors of one host: `mray._gpu.nccl_member` under the contract of communicators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from mray._api.actor_handle import ids_of
from mray._api.communicator import ReduceOp, TorchTensorAllocator
from mray._gpu.nccl_member import Later, NcclMember, join_nccl
from mray._inside.transports import RankCommunicator


class NcclCommunicator(RankCommunicator[NcclMember]):
    """A group of actors that exchange tensors of their GPUs through NCCL.

    Created once, and handed to every member, where `initialize` makes the copy a member on the process's first GPU. All members must
    call in the same order. No call waits for the GPU; after the death of a member every call raises RayChannelError.
    """

    LIBRARY = "NCCL"

    def __init__(self, actor_handles: Sequence[Any], use_communication_streams: bool = False, communicator_id: str | None = None) -> None:
        """`actor_handles` of all members, by rank. Raises ValueError unless they are distinct."""
        super().__init__(actor_handles, communicator_id)
        self._use_communication_streams = use_communication_streams

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._actor_handles, self._use_communication_streams, self._id)

    def initialize(self, rank: int) -> None:
        """Become the member of this rank; waits until all members do. Raises as `join_nccl`."""
        self._refuse_second_rank()
        self._membership = join_nccl(
            f"nccl {self._id}",
            len(self._actor_handles),
            rank,
            use_communication_streams=self._use_communication_streams,
            actors=ids_of(self._actor_handles),
        )

    def send(self, value: Any, peer_rank: int) -> None:
        self.member.send(value, peer_rank)

    def recv(self, shape: Sequence[int], dtype: Any, peer_rank: int, allocator: TorchTensorAllocator | None = None) -> Any:
        """The next tensor of a member; `allocator` creates it on the GPU. `dtype` is torch's, or a name."""
        member = self.member

        def allocate() -> Any:
            if allocator is not None:
                return allocator(tuple(shape), dtype)
            return member.device.empty(_dtype_name(dtype), tuple(shape))

        return member.recv(allocate, peer_rank)

    def deferring(self) -> AbstractContextManager[Later]:
        return self.member.deferring()

    @property
    def recv_stream(self) -> Any:
        return self.member.device.on_stream(self.member.receive_stream)

    @property
    def send_stream(self) -> Any:
        return self.member.device.on_stream(self.member.send_stream)

    def allgather(self, send_buf: Any, recv_buf: Any) -> None:
        self.member.allgather(send_buf, recv_buf)

    def allreduce(self, send_buf: Any, recv_buf: Any, op: ReduceOp = ReduceOp.SUM) -> None:
        self.member.allreduce(send_buf, recv_buf, op)

    def reducescatter(self, send_buf: Any, recv_buf: Any, op: ReduceOp = ReduceOp.SUM) -> None:
        self.member.reducescatter(send_buf, recv_buf, op)

    def on_failure(self, callback: Callable[[], None]) -> None:
        self.member.on_failure(callback)

    def destroy(self) -> None:
        if self._membership is not None:
            self._membership.destroy()

    def get_transport_name(self) -> str:
        return "accelerator"


def _dtype_name(dtype: Any) -> str:
    return dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
