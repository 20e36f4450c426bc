"""The communicator over shared memory, for actors of one host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mray._api.actor_handle import ids_of
from mray._api.communicator import ReduceOp, TorchTensorAllocator
from mray._inside.transports import MemberOfGroup, RankCommunicator, join

__all__ = ["CPUCommunicator"]


class CPUCommunicator(RankCommunicator[MemberOfGroup]):
    """A group of actors that exchange tensors of the CPU through shared memory.

    Sent to every member; `initialize` makes the copy there a member. Tensors may be torch tensors or numpy arrays, and any writable
    buffer can receive. Blocking calls have no time limit and end with RayChannelError when a member dies or leaves. One thread of a
    process at a time.
    """

    LIBRARY = "CPUCommunicator"

    def __init__(self, world_size: int, actor_handles: Sequence[Any]) -> None:
        """`actor_handles` are those of all members, by rank. Raises ValueError unless they are `world_size` different ones."""
        if len(actor_handles) != world_size or len(set(actor_handles)) != world_size:
            raise ValueError(f"Expected {world_size} different actors, but got {list(actor_handles)}")
        super().__init__(actor_handles)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (len(self._actor_handles), self._actor_handles), self._id

    def __setstate__(self, communicator_id: str) -> None:
        self._id = communicator_id

    def initialize(self, rank: int) -> None:
        """Become the member with this rank; waits until all members have joined. Raises RayChannelError when one of them dies before."""
        self._refuse_second_rank()
        if not 0 <= rank < len(self._actor_handles):
            raise ValueError(f"rank {rank} is none of the {len(self._actor_handles)} of the group")
        size, members = len(self._actor_handles), ids_of(self._actor_handles)
        self._membership = join(f"communicator {self._id}", size, rank, actors=members, kind=MemberOfGroup)

    def send(self, tensor: Any, peer_rank: int) -> None:
        """Send a tensor to a member, without waiting for it to be received unless eight messages are in flight."""
        self.member.send(tensor, peer_rank)

    def recv(self, shape: Sequence[int], dtype: Any, peer_rank: int, allocator: TorchTensorAllocator | None = None) -> Any:
        """Return the next tensor from a member, in memory from `allocator` (or torch). ValueError when it has another dtype or size."""
        member = self.member
        with member.refusing(received=peer_rank):
            if allocator is None:
                import torch  # noqa: PLC0415

                tensor = torch.empty(tuple(shape), dtype=dtype)
            else:
                tensor = allocator(tuple(shape), dtype)
        member.recv(tensor, peer_rank)
        return tensor

    @property
    def recv_stream(self) -> None:
        """None: the CPU has no streams."""

    @property
    def send_stream(self) -> None:
        """None: the CPU has no streams."""

    def allgather(self, send_buf: Any, recv_buf: Any) -> None:
        self.member.allgather(send_buf, self._parts(recv_buf))

    def allreduce(self, send_buf: Any, recv_buf: Any, op: ReduceOp = ReduceOp.SUM) -> None:
        self.member.allreduce(send_buf, recv_buf, op)

    def reducescatter(self, send_buf: Any, recv_buf: Any, op: ReduceOp = ReduceOp.SUM) -> None:
        self.member.reducescatter(self._parts(send_buf), recv_buf, op)

    def _parts(self, tensor: Any) -> list[Any]:
        world_size = len(self._actor_handles)
        with self.member.refusing():
            if not tensor.shape or tensor.shape[0] % world_size:
                raise ValueError(
                    f"Expected the first dimension of the buffer for all members to be divisible by the world size {world_size}, "
                    f"but its shape is {tuple(tensor.shape)}"
                )
        rows = tensor.shape[0] // world_size
        return [tensor[rank * rows : (rank + 1) * rows] for rank in range(world_size)]

    def destroy(self) -> None:
        if self._membership is not None:
            self._membership.destroy()

    def get_transport_name(self) -> str:
        return "cpu"
