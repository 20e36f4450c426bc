"""Collectives between actors and tasks, under Ray's names. For users; see `mray.util.collective.collective`.

`allreduce`, `reduce`, `broadcast`, `allgather`, `reducescatter`, `send`, `recv` and `barrier`, and the groups in which they are called.

Stands on `mray._channel.shared_memory_group`, as the communicator for graphs does. Rejected: torch.distributed with gloo as the backend.
Shared memory is faster on one host, needs no torch, and a waiting member is told who died.
"""

from __future__ import annotations

from mray.util.collective import collective
from mray.util.collective.collective import *  # noqa: F403

__all__ = collective.__all__
