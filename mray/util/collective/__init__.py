"""Collectives between actors and tasks, under Ray's names. For users; see `mray.util.collective.collective`.

`allreduce`, `reduce`, `broadcast`, `allgather`, `reducescatter`, `send`, `recv` and `barrier`, and the groups they run in.
Built on `mray._channel.shared_memory_group`, like the communicator for graphs. Rejected: torch.distributed with gloo as the backend.
Shared memory is faster on one host and needs no torch, and a waiting member learns which one died.
"""

from __future__ import annotations

from mray.util.collective import collective
from mray.util.collective.collective import *  # noqa: F403

__all__ = collective.__all__
