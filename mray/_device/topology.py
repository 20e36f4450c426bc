"""Which CPUs lie in which NUMA node, which near which GPU, and how far GPUs are apart: read from ``/sys``, without any library.

Runs in the node when somebody first asks for ``cpu_affinity="auto"``, or for fewer of several GPUs than are free. NVLink only NVIDIA's
management library knows: a process of its own asks that (`mray._device.nvml`), and only on a machine of more than two GPUs.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Container, Iterable, Sequence

from mray._common import settings
from mray._common.kept import io, os
from mray._decide.scheduler.affinity import FAR, LINKED, NODE, ROOT, SWITCH, Topology
from mray._device.nvml import ask_links
from mray._ipc.discovery import ORDER, Gpu, GpuId, is_named, machine_gpus

_SYSTEM = "/sys"


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """``0-2,8`` as (0, 1, 2, 8); the kernel's way to write sets of CPUs. ValueError for what is none."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _dash, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


def uuids(ids: Sequence[GpuId]) -> dict[GpuId, str]:
    """The names of these GPUs that mean the same whatever else a process sees; those are left out whose place among all is not known.

    Numbers are places on the bus where the user has said so or nothing (`mray._ipc.discovery.with_order`), else CUDA may count otherwise.
    """
    found: dict[GpuId, str] = {name: name for name in ids if isinstance(name, str)}
    numbers = [name for name in ids if isinstance(name, int)]
    if settings.NULL_DEVICES.get() is not None:
        uuid_of = importlib.import_module("mray.testing.null_topology").uuid_of
        return {**found, **{number: uuid_of(number) for number in numbers}}
    gpus = machine_gpus()
    if settings.of_library(ORDER) == "PCI_BUS_ID" or len({gpu.model for gpu in gpus}) == 1:
        found.update({number: gpus[number].uuid for number in numbers if number < len(gpus) and gpus[number].uuid})
    return found


def _cpus_in(path: str, allowed: Container[int]) -> tuple[int, ...]:
    """The CPUs that a file lists, as far as they may be used; none when it is not there."""
    try:
        with io.open(path, encoding="ascii") as file:
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


def cpus_near(gpu: Gpu, allowed: Container[int], root: str = _SYSTEM) -> tuple[int, ...]:
    """The CPUs near a GPU's place on the PCI bus; none when the kernel does not say."""
    return _cpus_in(os.path.join(root, "bus/pci/devices", gpu.address.lower(), "local_cpulist"), allowed) if gpu.address else ()


def bus_distance(one: Gpu, other: Gpu, root: str = _SYSTEM) -> int:
    """How far two GPUs are apart on the PCI bus, by the bridges above them that the kernel lists in the paths of devices."""
    places = []
    for gpu in (one, other):
        folder = os.path.join(root, "bus/pci/devices", gpu.address.lower())
        if not gpu.address or not os.path.exists(folder):
            return FAR
        places.append(os.path.realpath(folder).split("/"))
    shared = [one for one, other in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*places, strict=False))]
    if shared and shared[-1].count(":") == 2:  # a bridge: 0000:01:00.0
        return SWITCH
    if shared and shared[-1].startswith("pci"):  # a root of the bus: pci0000:00
        return ROOT
    everything = range(1 << 16)
    near = [cpus_near(gpu, everything, root) for gpu in (one, other)]
    return NODE if near[0] and near[0] == near[1] else FAR


def gpu_distances(gpus: Sequence[Gpu], linked: Iterable[tuple[str, str]], root: str = _SYSTEM) -> dict[tuple[int, int], int]:
    """How far each pair of GPUs is apart, by their numbers; `linked`: the uuids of those with NVLink between them."""
    links = {frozenset(pair) for pair in linked}
    return {
        (one.index, other.index): LINKED if frozenset((one.uuid, other.uuid)) in links else bus_distance(one, other, root)
        for one, other in itertools.combinations(gpus, 2)
    }


def read_topology(ids: Iterable[GpuId], allowed: Sequence[int], root: str = _SYSTEM) -> Topology:
    """The topology of the CPUs allowed and of the GPUs with these ids (indices or UUIDs)."""
    ids = list(ids)
    if settings.NULL_DEVICES.get() is not None:
        pretended = importlib.import_module("mray.testing.null_topology")
        return Topology(numa_nodes(allowed, root), pretended.cpus_near(ids, allowed), pretended.distances(ids))
    gpus = machine_gpus()
    named = {name: gpu for name in ids for gpu in gpus if is_named(gpu, name)}
    near = {name: cpus_near(gpu, allowed, root) for name, gpu in named.items()}
    used = list({gpu.index: gpu for gpu in named.values()}.values())
    known = gpu_distances(used, ask_links([gpu.uuid for gpu in used]) if len(used) > 2 else (), root)
    apart: dict[tuple[GpuId, GpuId], int] = {}
    for one, other in itertools.combinations(named, 2):
        pair = sorted((named[one].index, named[other].index))
        apart[one, other] = known.get((pair[0], pair[1]), LINKED)  # parts of one GPU
    return Topology(numa_nodes(allowed, root), near, apart)
