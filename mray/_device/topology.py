"""Which CPUs lie in which NUMA node, and which near which GPU: read from ``/sys``, without any library.

Runs in the node when somebody first asks for ``cpu_affinity="auto"``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Sequence

from mray._common import settings
from mray._device.discovery import Gpu, GpuId, is_named, machine_gpus
from mray._scheduler.affinity import Topology

_SYSTEM = "/sys"


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """``0-2,8`` as (0, 1, 2, 8); the kernel's way to write sets of CPUs. ValueError for what is none."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _dash, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


def _cpus_in(path: str, allowed: set[int]) -> tuple[int, ...]:
    """The CPUs that a file lists, as far as they may be used; none when it is not there."""
    try:
        with open(path, encoding="ascii") as file:
            return tuple(cpu for cpu in parse_cpu_list(file.read()) if cpu in allowed)
    except (OSError, ValueError):
        return ()


def numa_nodes(allowed: Iterable[int], root: str = _SYSTEM) -> list[tuple[int, ...]]:
    """The CPUs of each NUMA node that has any of those allowed, in the order of the nodes; one node where the kernel knows none."""
    usable = set(allowed)
    directory = os.path.join(root, "devices/system/node")
    try:
        numbers = sorted(int(name[4:]) for name in os.listdir(directory) if name.startswith("node") and name[4:].isdigit())
    except OSError:
        numbers = []
    nodes = [_cpus_in(os.path.join(directory, f"node{number}", "cpulist"), usable) for number in numbers]
    return [node for node in nodes if node] or [tuple(sorted(usable))]


def cpus_near(gpu: Gpu, allowed: Iterable[int], root: str = _SYSTEM) -> tuple[int, ...]:
    """The CPUs near a GPU's place on the PCI bus; none when the kernel does not say."""
    return _cpus_in(os.path.join(root, "bus/pci/devices", gpu.address.lower(), "local_cpulist"), set(allowed)) if gpu.address else ()


def read_topology(ids: Iterable[GpuId], allowed: Sequence[int], root: str = _SYSTEM) -> Topology:
    """The topology of the CPUs allowed and of the GPUs with these ids (indices or UUIDs)."""
    near: dict[GpuId, tuple[int, ...]] = {}
    if settings.NULL_DEVICES.get() is not None:
        near.update(importlib.import_module("mray.testing.null_topology").cpus_near(ids, allowed))
    gpus = machine_gpus()
    for name in ids:
        for gpu in gpus:
            if is_named(gpu, name):
                near.setdefault(name, cpus_near(gpu, allowed, root))
    return Topology(numa_nodes(allowed, root), near)
