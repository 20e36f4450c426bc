"""Collectives between actors and tasks, under Ray's names: `allreduce`, `reduce`, `broadcast`, `allgather`, `reducescatter`, `send`,
`recv`, `barrier`, and their groups.

Rejected: torch.distributed with gloo: shared memory is faster and needs no torch, and a waiting member learns which one died.
"""

from __future__ import annotations

from mray.util.collective import collective
from mray.util.collective.collective import *  # noqa: F403

__all__ = collective.__all__
