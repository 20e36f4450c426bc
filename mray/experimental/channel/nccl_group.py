"""The communicator over NCCL with Ray's interface, to derive from, and for ``register_accelerator_context("cuda", ...)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mray._gpu.nccl import NcclCommunicator

__all__ = ["_NcclGroup"]


class _NcclGroup(NcclCommunicator):
    """See `mray._gpu.nccl.NcclCommunicator`."""

    def __init__(
        self,
        world_size: int,
        comm_id: str,
        rank: int | None,
        actor_handles: Sequence[Any],
        cuda_stream: Any = None,
        use_communication_streams: bool = False,
    ) -> None:
        """With a rank, become that member and wait until all members have joined; errors as `mray._gpu.nccl_member.join_nccl`.

        `comm_id` is from `generate_communicator_id`, the same for all. `cuda_stream` is ignored: calls are queued on the current stream.
        """
        if world_size != len(actor_handles):
            raise ValueError(f"Expected {world_size} actors, but got {list(actor_handles)}")
        super().__init__(actor_handles, use_communication_streams, comm_id)
        if rank is not None:
            super().initialize(rank)

    def __reduce__(self) -> tuple[Any, ...]:
        handles = self.get_actor_handles()
        return type(self), (len(handles), self._id, None, handles, None, self._use_communication_streams)

    def initialize(self, rank: int) -> None:
        """No-op in a member; elsewhere as the constructor with a rank."""
        if self.get_self_rank() is None:
            super().initialize(rank)
