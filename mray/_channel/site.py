"""The offer of one end of an edge to a transport: its devices, the devices that they reach, its NCCL. Plain data, for
`mray._channel.select`.

Each process reports its own (`mray._graph.sites`); the compiler of a graph adds its name and role in the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Obstacle(NamedTuple):
    """Why tensors of one process cannot be opened in another one."""

    #: A clause without a full stop.
    reason: str
    #: Whether timelines cannot be opened either; without them nothing orders copies through host memory.
    of_timelines: bool


@dataclass(frozen=True)
class SiteGpu:
    """A device as one process sees it."""

    #: Its number in that process.
    index: int
    #: Unique on the machine.
    uuid: str
    #: The model.
    model: str
    #: The uuids of devices whose memory its kernels and copies reach.
    reaches: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.model}, {self.uuid})"


@dataclass(frozen=True)
class Site:
    """One process that takes part in a graph; by default an unknown one without a device."""

    #: The name of its platform, or "". Only processes of one platform understand each other's handles.
    platform: str = ""
    gpus: tuple[SiteGpu, ...] = ()
    #: The version of its NCCL, as NCCL counts (22705 is 2.27.5); 0 without.
    nccl: int = 0
    #: Whether several ranks of its NCCL may share a GPU.
    shares_gpus: bool = False
    pid: int = 0
    #: Its name in messages: ``Worker(0123abcd)``.
    name: str = "an actor"
    is_driver: bool = False
    #: Whether it was given GPUs of its own (``num_gpus``).
    owns: bool = False
    #: Whether it has not used its devices yet, so that further checks would create a context.
    is_idle: bool = False
    #: Whether it is a client of MPS; None: unknown.
    is_mps_client: bool | None = None
    #: Its failures to open memory or timelines of other processes, by their pids, where that was tried (`mray._graph.trials`).
    obstacles: Mapping[int, Obstacle] = field(default_factory=dict)

    def reach(self, other: Site) -> list[tuple[SiteGpu, SiteGpu]]:
        """Pairs of an own device and one of `other` that is the same, or whose memory the own one reaches."""
        if other.pid in self.obstacles:
            return []
        return [(own, its) for its in other.gpus for own in self.gpus if own.uuid == its.uuid or its.uuid in own.reaches]

    def reaches_all(self, other: Site) -> bool:
        """Whether every device of `other` is in such a pair."""
        return {its.uuid for _own, its in self.reach(other)} == {its.uuid for its in other.gpus}
