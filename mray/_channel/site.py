"""The offer of one end of an edge to a transport: its devices, the devices that they reach, its NCCL. Plain data."""

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
    """A GPU as one process sees it."""

    #: Its number in that process.
    index: int
    #: Unique on the machine.
    uuid: str
    model: str
    #: The uuids of devices whose memory it reaches.
    reaches: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.model}, {self.uuid})"


@dataclass(frozen=True)
class Site:
    """One process of a graph; by default an unknown one without a device."""

    #: The platform's name, or "". Only processes of one platform understand each other's handles.
    platform: str = ""
    gpus: tuple[SiteGpu, ...] = ()
    #: NCCL's version, as it counts (22705 is 2.27.5); 0 without.
    nccl: int = 0
    #: Whether several ranks of its NCCL may share a GPU.
    shares_gpus: bool = False
    pid: int = 0
    #: Its name in messages: ``Worker(0123abcd)``.
    name: str = "an actor"
    is_driver: bool = False
    #: Whether it was given GPUs (``num_gpus``).
    owns: bool = False
    #: Whether its devices are unused, so that further checks would create a context.
    is_idle: bool = False
    #: None: unknown.
    is_mps_client: bool | None = None
    #: Obstacles by pid, where opening memory or timelines was tried (`mray._graph.trials`).
    obstacles: Mapping[int, Obstacle] = field(default_factory=dict)

    def reach(self, other: Site) -> list[tuple[SiteGpu, SiteGpu]]:
        """Pairs of an own device and one of `other`, the same or with memory that the own one reaches."""
        if other.pid in self.obstacles:
            return []
        return [(own, its) for its in other.gpus for own in self.gpus if own.uuid == its.uuid or its.uuid in own.reaches]

    def reaches_all(self, other: Site) -> bool:
        return {its.uuid for _own, its in self.reach(other)} == {its.uuid for its in other.gpus}
