"""Topology: the CPUs of each NUMA node, the CPUs near each GPU, and the distance of GPUs; read from ``/sys``.

Only NVIDIA's management library knows NVLink: a separate process asks it (`mray._device.nvml`), on machines of more than two GPUs.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Container, Iterable, Sequence

from mray._common import settings
from mray._common.accelerator_kinds import GpuId
from mray._common.kept import io, os
from mray._device.nvml import ask_links
from mray._inside.topology import affinity, discovery

_SYSTEM = "/sys"


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """``0-2,8`` as (0, 1, 2, 8). Raises ValueError."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _dash, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


def uuids(ids: Sequence[GpuId]) -> dict[GpuId, str]:
    """The uuids of these GPUs, independent of visibility; GPUs whose index among all is unknown are left out.

    Numbers are bus positions where the user has said so or nothing (`mray._ipc.discovery.with_order`), else CUDA may count otherwise.
    """
    found: dict[GpuId, str] = {name: name for name in ids if isinstance(name, str)}
    numbers = [name for name in ids if isinstance(name, int)]
    if settings.NULL_DEVICES.get() is not None:
        uuid_of = importlib.import_module("mray.testing.null_topology").uuid_of
        return {**found, **{number: uuid_of(number) for number in numbers}}
    gpus = discovery.machine_gpus()
    if settings.of_library(discovery.ORDER) == "PCI_BUS_ID" or len({gpu.model for gpu in gpus}) == 1:
        found.update({number: gpus[number].uuid for number in numbers if number < len(gpus) and gpus[number].uuid})
    return found


def _cpus_in(path: str, allowed: Container[int]) -> tuple[int, ...]:
    """Allowed CPUs in a file's list; none when it does not exist."""
    try:
        with io.open(path, encoding="ascii") as file:
            return tuple(cpu for cpu in parse_cpu_list(file.read()) if cpu in allowed)
    except (OSError, ValueError):
        return ()


def numa_nodes(allowed: Iterable[int], root: str = _SYSTEM) -> list[tuple[int, ...]]:
    """Allowed CPUs of each node; one node where the kernel knows none."""
    usable = set(allowed)
    directory = os.path.join(root, "devices/system/node")
    try:
        numbers = sorted(int(name[4:]) for name in os.listdir(directory) if name.startswith("node") and name[4:].isdigit())
    except OSError:
        numbers = []
    nodes = [_cpus_in(os.path.join(directory, f"node{number}", "cpulist"), usable) for number in numbers]
    return [node for node in nodes if node] or [tuple(sorted(usable))]


def cpus_near(gpu: discovery.Gpu, allowed: Container[int], root: str = _SYSTEM) -> tuple[int, ...]:
    """CPUs near a PCI address; none when unknown."""
    return _cpus_in(os.path.join(root, "bus/pci/devices", gpu.address.lower(), "local_cpulist"), allowed) if gpu.address else ()


def bus_distance(one: discovery.Gpu, other: discovery.Gpu, root: str = _SYSTEM) -> int:
    """Distance of two GPUs by the bridges in the kernel's device paths."""
    places = []
    for gpu in (one, other):
        folder = os.path.join(root, "bus/pci/devices", gpu.address.lower())
        if not gpu.address or not os.path.exists(folder):
            return affinity.FAR
        places.append(os.path.realpath(folder).split("/"))
    shared = [one for one, other in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*places, strict=False))]
    if shared and shared[-1].count(":") == 2:  # a bridge: 0000:01:00.0
        return affinity.SWITCH
    if shared and shared[-1].startswith("pci"):  # a root of the bus: pci0000:00
        return affinity.ROOT
    everything = range(1 << 16)
    near = [cpus_near(gpu, everything, root) for gpu in (one, other)]
    return affinity.NODE if near[0] and near[0] == near[1] else affinity.FAR


def gpu_distances(gpus: Sequence[discovery.Gpu], linked: Iterable[tuple[str, str]], root: str = _SYSTEM) -> dict[tuple[int, int], int]:
    """Of each pair of GPUs, by their numbers; `linked`: the uuids of pairs with NVLink."""
    links = {frozenset(pair) for pair in linked}
    return {
        (one.index, other.index): affinity.LINKED if frozenset((one.uuid, other.uuid)) in links else bus_distance(one, other, root)
        for one, other in itertools.combinations(gpus, 2)
    }


def read_topology(ids: Iterable[GpuId], allowed: Sequence[int], root: str = _SYSTEM) -> affinity.Topology:
    """The topology of the allowed CPUs and of the GPUs with these ids (indices or UUIDs)."""
    ids = list(ids)
    if settings.NULL_DEVICES.get() is not None:
        pretended = importlib.import_module("mray.testing.null_topology")
        return affinity.Topology(numa_nodes(allowed, root), pretended.cpus_near(ids, allowed), pretended.distances(ids))
    gpus = discovery.machine_gpus()
    named = {name: gpu for name in ids for gpu in gpus if discovery.is_named(gpu, name)}
    near = {name: cpus_near(gpu, allowed, root) for name, gpu in named.items()}
    used = list({gpu.index: gpu for gpu in named.values()}.values())
    known = gpu_distances(used, ask_links([gpu.uuid for gpu in used]) if len(used) > 2 else (), root)
    apart: dict[tuple[GpuId, GpuId], int] = {}
    for one, other in itertools.combinations(named, 2):
        pair = sorted((named[one].index, named[other].index))
        apart[one, other] = known.get((pair[0], pair[1]), affinity.LINKED)  # parts of one GPU
    return affinity.Topology(numa_nodes(allowed, root), near, apart)
