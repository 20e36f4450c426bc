"""Collectives between actors and tasks, under Ray's names. For users; see `mray.util.collective.collective`.

Stands on `mray._channel.shared_memory_group`, as the communicator for graphs does. Rejected: torch.distributed with gloo as the backend.
Shared memory is faster on one host, needs no torch, and a waiting member is told who died.
"""

from __future__ import annotations

from mray.util.collective.collective import (
    allgather,
    allgather_multigpu,
    allreduce,
    allreduce_multigpu,
    barrier,
    broadcast,
    broadcast_multigpu,
    create_collective_group,
    destroy_collective_group,
    get_collective_group_size,
    get_group_handle,
    get_rank,
    gloo_available,
    init_collective_group,
    is_backend_available,
    is_group_initialized,
    nccl_available,
    recv,
    recv_multigpu,
    reduce,
    reduce_multigpu,
    reducescatter,
    reducescatter_multigpu,
    register_collective_backend,
    send,
    send_multigpu,
)

__all__ = [
    "allgather",
    "allgather_multigpu",
    "allreduce",
    "allreduce_multigpu",
    "barrier",
    "broadcast",
    "broadcast_multigpu",
    "create_collective_group",
    "destroy_collective_group",
    "get_collective_group_size",
    "get_group_handle",
    "get_rank",
    "gloo_available",
    "init_collective_group",
    "is_backend_available",
    "is_group_initialized",
    "nccl_available",
    "recv",
    "recv_multigpu",
    "reduce",
    "reduce_multigpu",
    "reducescatter",
    "reducescatter_multigpu",
    "register_collective_backend",
    "send",
    "send_multigpu",
]
