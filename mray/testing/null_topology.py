"""The placement of pretended GPUs among the CPUs, and their distances. For the node, which loads neither numpy nor `null`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from mray._common import settings
from mray._common.accelerator_kinds import GpuId
from mray._inside.topology import affinity


def uuid_of(number: int) -> str:
    """The name of the machine's pretended device of that number."""
    return f"GPU-null-{number}"


def shares(count: int, allowed: Sequence[int]) -> list[tuple[int, ...]]:
    """The share of the CPUs of each pretended GPU, or one CPU when there are fewer CPUs than GPUs."""
    total = len(allowed)
    found = [allowed[index * total // count : (index + 1) * total // count] for index in range(count)]
    return [tuple(share) or (allowed[index % total],) for index, share in enumerate(found)]


def cpus_near(ids: Iterable[GpuId], allowed: Sequence[int]) -> dict[GpuId, tuple[int, ...]]:
    """The CPUs near those GPUs that are pretended (MRAY_NULL_DEVICES)."""
    pretended = settings.NULL_DEVICES.get()
    near = shares(pretended.gpus, allowed) if pretended is not None else []
    return {name: near[name] for name in ids if isinstance(name, int) and name < len(near)}


def distances(ids: Sequence[GpuId]) -> dict[tuple[GpuId, GpuId], int]:
    """Distances between pretended GPUs: NVLink joins those of one island (``island=N``), nothing joins islands."""
    pretended = settings.NULL_DEVICES.get()
    numbers = [name for name in ids if isinstance(name, int)]
    if pretended is None or not pretended.island:
        return {}
    size = pretended.island
    return {
        (one, other): affinity.LINKED if one // size == other // size else affinity.FAR for one, other in itertools.combinations(numbers, 2)
    }
