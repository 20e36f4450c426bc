"""The machine's resources and their holders, in fixed-point numbers.

Quantities are whole numbers of 1/10000. GPUs are counted per device: a fraction goes to the fullest device with room, a whole number
takes whole devices, and no device is shared beyond 1.0. Where there is a choice, devices taken together (by one claimant, or by the
bundles of a placement group) are as close to each other as the topology allows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from mray._common.accelerator_kinds import KINDS, GpuId
from mray._common.amounts import BYTES, readable
from mray._decide.scheduler.policy import choose_device

UNIT = 10_000

CPU = "CPU"
GPU = "GPU"
#: mray's own resource, of which a lease without resources holds one.
FREE = "_free_lease"
#: Resources that a blocked claimant returns while it waits.
LENDABLE = (CPU, FREE)

#: Resource -> positive units.
Amounts = dict[str, int]


def to_units(quantity: float) -> int:
    return round(quantity * UNIT)


def from_units(units: int) -> float:
    return units / UNIT


def to_amounts(quantities: Mapping[str, float]) -> Amounts:
    return {name: units for name, quantity in quantities.items() if (units := to_units(quantity)) > 0}


def to_quantities(amounts: Mapping[str, int]) -> dict[str, float]:
    return {name: from_units(units) for name, units in amounts.items()}


def describe(amounts: Mapping[str, int]) -> str:
    """Format as ``{'CPU': 1.0, 'memory': 1.500 GiB}``."""
    shown = (f"{name!r}: {readable(name, units) if name in BYTES else units}" for name, units in to_quantities(amounts).items())
    return f"{{{', '.join(shown)}}}"


class Holding:
    __slots__ = ("amounts", "devices", "lent", "pool")

    def __init__(self, pool: ResourcePool, amounts: Amounts, devices: dict[str, tuple[tuple[int, int], ...]]) -> None:
        self.pool = pool
        self.amounts = amounts
        #: Kind (`GPU`, another accelerator) -> index and units of each device.
        self.devices = devices
        #: The CPUs are returned while the claimant is blocked.
        self.lent = False


class DeviceAmounts:
    """The GPUs, or the accelerators of another kind, counted per device."""

    __slots__ = ("free", "ids", "total")

    def __init__(self, ids: tuple[GpuId, ...], total: tuple[int, ...]) -> None:
        self.ids = ids
        #: The size of each device (`UNIT`, or less in a bundle with a fraction), and its free part. Invariant: 0 <= free <= total, and the
        #: sum is the free amount of the resource.
        self.total = total
        self.free = list(total)


def _together(_one: GpuId, _other: GpuId) -> int:
    return 0


class ResourcePool:
    """All resources of the machine, or (`mray._decide.scheduler.placement.BundlePool`) of one bundle."""

    #: The distance of two GPUs; called only where there is a choice.
    apart: Callable[[GpuId, GpuId], int] = staticmethod(_together)

    def __init__(
        self, quantities: Mapping[str, float], gpu_ids: Iterable[GpuId] = (), apart: Callable[[GpuId, GpuId], int] = _together
    ) -> None:
        ids = tuple(gpu_ids)
        self.apart = apart
        total = to_amounts(quantities)
        total.pop(GPU, None)
        devices = {GPU: DeviceAmounts(ids, (UNIT,) * len(ids))} if ids else {}
        total.update({kind: len(each.ids) * UNIT for kind, each in devices.items()})
        for kind in KINDS:
            if kind in total:
                count = total[kind] // UNIT
                devices[kind] = DeviceAmounts(tuple(range(count)), (UNIT,) * count)
        self._fill(total, devices)

    def _fill(self, total: Amounts, devices: dict[str, DeviceAmounts]) -> None:
        self.total = total
        #: Invariant: 0 <= free <= total, except that CPUs fall below zero when a blocked claimant resumes.
        self.free = dict(total)
        #: Devices by kind, GPUs first.
        self.devices = devices

    # ------------------------------------------------------------------------------------ asking
    def shortage(self, amounts: Mapping[str, int]) -> str | None:
        """Why these amounts can never be granted, or None."""
        for name, units in amounts.items():
            if units > self.total.get(name, 0):
                return f"it has {describe(self._declared())}, and of {name!r} only {readable(name, from_units(self.total.get(name, 0)))}"
        gpus = amounts.get(GPU, 0)
        if gpus > UNIT and gpus % UNIT:
            return "more than one GPU must be asked for in whole numbers"
        for kind, devices in self.devices.items():
            units = amounts.get(kind, 0)
            if units and choose_device(devices.total, units, UNIT) is None:
                if kind == GPU:
                    return f"its share of a GPU is smaller than {from_units(units)}"
                return f"of {kind} it has {[from_units(each) for each in devices.total]}, which does not give {from_units(units)}"
        return None

    def has(self, amounts: Mapping[str, int]) -> bool:
        """Whether these amounts exist, free or not."""
        return all(units <= self.total.get(name, 0) for name, units in amounts.items())

    def shortage_of_all(self, wanted: Sequence[Amounts]) -> str | None:
        """Why these can never be granted together, or None."""
        for amounts in wanted:
            shortage = self.shortage(amounts)
            if shortage is not None:
                return shortage
        empty = ResourcePool({}, apart=self.apart)
        empty._fill(dict(self.total), {kind: DeviceAmounts(each.ids, each.total) for kind, each in self.devices.items()})
        outcome = empty.try_take_all(wanted)
        return None if isinstance(outcome, list) else f"it has {describe(self._declared())}, not enough {outcome} for all of them"

    def lacking(self, amounts: Mapping[str, int]) -> str | None:
        """A resource of which not enough is free now, or None."""
        free = self.free
        for name, units in amounts.items():
            if units > free.get(name, 0):
                return name
        for kind, devices in self.devices.items():
            units = amounts.get(kind, 0)
            if units and choose_device(devices.free, units, UNIT) is None:
                return kind
        return None

    def quantities(self) -> dict[str, float]:
        return to_quantities(self._declared())

    def _declared(self) -> dict[str, int]:
        return {name: units for name, units in self.total.items() if name != FREE}

    def available(self) -> dict[str, float]:
        return {name: from_units(units) for name, units in self.free.items() if units > 0 and name != FREE}

    def _distance(self, one: int, other: int) -> int:
        ids = self.devices[GPU].ids
        return self.apart(ids[one], ids[other])

    def ids_of(self, holding: Holding, kind: str = GPU) -> tuple[GpuId, ...]:
        return tuple(self.devices[kind].ids[index] for index, _units in holding.devices.get(kind, ()))

    def accelerators_of(self, holding: Holding) -> dict[str, list[GpuId]]:
        """Accelerators besides GPUs, by kind."""
        return {kind: list(self.ids_of(holding, kind)) for kind in holding.devices if kind != GPU}

    # ------------------------------------------------------------------------------------ taking and giving
    def take(self, amounts: Amounts, near: Sequence[int] = (), among: Collection[int] | None = None) -> Holding:
        """Take amounts of which nothing is `lacking`; GPUs close to the devices `near`, whole ones `among` these."""
        free = self.free
        for name, units in amounts.items():
            free[name] -= units
        taken: dict[str, tuple[tuple[int, int], ...]] = {}
        for kind, devices in self.devices.items():
            wanted = amounts.get(kind, 0)
            if wanted:
                where = (self._distance, near, among) if kind == GPU else ()
                chosen = choose_device(devices.free, wanted, UNIT, *where)
                assert chosen is not None
                taken[kind] = tuple((index, min(wanted, UNIT)) for index in chosen)
                for index, units in taken[kind]:
                    devices.free[index] -= units
        return Holding(self, amounts, taken)

    def try_take_all(self, wanted: Sequence[Amounts]) -> list[Holding] | str:
        """Take all of these or none. Returns the holdings in the same order, or the name of a lacking resource.

        Large shares of GPUs go first, each onto the fullest device with room. (That does not always pack optimally; what it cannot pack
        into an empty machine counts as impossible.)
        """
        taken: dict[int, Holding] = {}
        near: list[int] = []
        whole = sum(amounts.get(GPU, 0) for amounts in wanted if amounts.get(GPU, 0) >= UNIT)
        gpus = self.devices.get(GPU)
        among = choose_device(gpus.free, whole, UNIT, self._distance) if whole and gpus else None
        for index in sorted(range(len(wanted)), key=lambda index: -wanted[index].get(GPU, 0)):
            lacking = self.lacking(wanted[index])
            if lacking is not None:
                for holding in taken.values():
                    self.give(holding)
                return lacking
            taken[index] = self.take(wanted[index], near, among)
            near += [device for device, _units in taken[index].devices.get(GPU, ())]
        return [taken[index] for index in range(len(wanted))]

    def give(self, holding: Holding) -> tuple[str, ...]:
        """Return the names under which claimants wait for the holding's resources."""
        names = tuple(holding.amounts)
        free = self.free
        for name, units in holding.amounts.items():
            if not (holding.lent and name in LENDABLE):
                free[name] += units
        for kind, taken in holding.devices.items():
            for index, units in taken:
                self.devices[kind].free[index] += units
        holding.amounts = {}
        holding.devices = {}
        holding.lent = False
        return names

    def lend(self, holding: Holding) -> tuple[str, ...]:
        """The holder is blocked: others may use its CPUs. Returns the names under which claimants wait for them."""
        if holding.lent:
            return ()
        names = tuple(name for name in LENDABLE if name in holding.amounts)
        holding.lent = bool(names)
        for name in names:
            self.free[name] += holding.amounts[name]
        return names

    def take_back(self, holding: Holding) -> None:
        """The holder resumes; free CPUs may fall below zero until another claimant ends."""
        if holding.lent:
            holding.lent = False
            for name in LENDABLE:
                if name in holding.amounts:
                    self.free[name] -= holding.amounts[name]

    def validate(self, holdings: Iterable[Holding]) -> None:
        used: dict[str, int] = {}
        held = {kind: [0] * len(devices.ids) for kind, devices in self.devices.items()}
        for holding in holdings:
            for kind, taken in holding.devices.items():
                for index, units in taken:
                    held[kind][index] += units
            for name, units in holding.amounts.items():
                if not (holding.lent and name in LENDABLE):
                    used[name] = used.get(name, 0) + units
        for name, total in self.total.items():
            assert self.free[name] + used.get(name, 0) == total, (name, self.free[name], used.get(name, 0), total)
            assert name in LENDABLE or self.free[name] >= 0, (name, self.free[name])
        for kind, devices in self.devices.items():
            there = [free + units for free, units in zip(devices.free, held[kind], strict=True)]
            assert there == list(devices.total), (kind, devices.free, held)
            assert min(devices.free, default=0) >= 0, (kind, devices.free)
