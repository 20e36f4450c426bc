"""CPU and GPU topology: which CPUs a worker is pinned to, and how far GPUs are apart.

``cpu_affinity="auto"`` takes all CPUs near the claimant's GPUs. Without a GPU it takes as many CPUs as the claimant holds, at least one,
with the fewest pinned workers, in one NUMA node if one is large enough. A list is taken as it is. Memory follows, since the kernel
allocates a page near the CPU that touches it first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mray._common.accelerator_kinds import GpuId
from mray._decide.scheduler.records import Tally
from mray._decide.scheduler.resources import UNIT

AUTO = "auto"

#: Distance of two GPUs: NVLink, one PCIe switch, one PCI root, one NUMA node, further or unknown.
LINKED, SWITCH, ROOT, NODE, FAR = range(5)


class Topology:
    __slots__ = ("_apart", "near", "nodes")

    def __init__(
        self,
        nodes: Sequence[Sequence[int]],
        near: Mapping[GpuId, Sequence[int]],
        apart: Mapping[tuple[GpuId, GpuId], int] | None = None,
    ) -> None:
        #: CPUs of each NUMA node; none is empty.
        self.nodes = [tuple(node) for node in nodes]
        #: CPUs near each GPU, where known.
        self.near = {gpu: tuple(cpus) for gpu, cpus in near.items()}
        self._apart = dict(apart or {})

    def apart(self, one: GpuId, other: GpuId) -> int:
        """The distance of two GPUs, from `LINKED` to `FAR`."""
        return 0 if one == other else self._apart.get((one, other), self._apart.get((other, one), FAR))


class CpuLoads:
    def __init__(self, read: Callable[[], Topology]) -> None:
        self._read = read
        self._topology: Topology | None = None
        self.loads: Tally[int] = Tally()

    @property
    def topology(self) -> Topology:
        """Read on first use, since few sessions need it."""
        if self._topology is None:
            self._topology = self._read()
        return self._topology

    def take(self, wanted: str | Iterable[int], gpus: Sequence[GpuId], units: int) -> tuple[int, ...]:
        cpus = self._automatic(gpus, max(1, -(-units // UNIT))) if wanted == AUTO else tuple(int(cpu) for cpu in wanted)
        for cpu in cpus:
            self.loads.add(cpu)
        return cpus

    def _automatic(self, gpus: Sequence[GpuId], count: int) -> tuple[int, ...]:
        near = {cpu for gpu in gpus for cpu in self.topology.near.get(gpu, ())}
        if near:
            return tuple(sorted(near))
        nodes = self.topology.nodes
        rows = [self._least_loaded(node)[:count] for node in nodes]
        roomy = [row for row in rows if len(row) == count]
        row = min(roomy, key=self._load) if roomy else self._least_loaded([cpu for node in nodes for cpu in node])[:count]
        return tuple(sorted(row))

    def _least_loaded(self, cpus: Sequence[int]) -> list[int]:
        return sorted(cpus, key=lambda cpu: self.loads.get(cpu, 0))

    def _load(self, cpus: Sequence[int]) -> int:
        return sum(self.loads.get(cpu, 0) for cpu in cpus)

    def give(self, cpus: Sequence[int]) -> None:
        for cpu in cpus:
            self.loads.remove(cpu)
