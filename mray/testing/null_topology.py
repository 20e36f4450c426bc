"""The place of pretended GPUs among the machine's CPUs. For the node, which loads neither numpy nor `null`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mray._common import settings
from mray._device.discovery import GpuId


def shares(count: int, allowed: Sequence[int]) -> list[tuple[int, ...]]:
    """For each of so many pretended GPUs a share of the CPUs of its own, or one CPU where there are fewer than GPUs."""
    total = len(allowed)
    found = [allowed[index * total // count : (index + 1) * total // count] for index in range(count)]
    return [tuple(share) or (allowed[index % total],) for index, share in enumerate(found)]


def cpus_near(ids: Iterable[GpuId], allowed: Sequence[int]) -> dict[GpuId, tuple[int, ...]]:
    """The CPUs near those of these GPUs that are pretended (MRAY_NULL_DEVICES)."""
    pretended = settings.NULL_DEVICES.get()
    near = shares(pretended.gpus, allowed) if pretended is not None else []
    return {name: near[name] for name in ids if isinstance(name, int) and name < len(near)}
