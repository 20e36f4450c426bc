"""Joining a group over shared memory as the process that calls."""

from __future__ import annotations

from collections.abc import Sequence

from mray._channel import membership
from mray._channel.cpu_communicator import SharedMemoryGroup


def join(name: str, world_size: int, rank: int, *, timeout: float | None = None, actors: Sequence[bytes] = ()) -> SharedMemoryGroup:
    """As `mray._channel.membership.join`."""
    return membership.join(name, world_size, rank, timeout=timeout, actors=actors, kind=SharedMemoryGroup)
