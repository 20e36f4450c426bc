"""The machine's resources and their holders, in exact fixed-point numbers.

Quantities are whole numbers of 1/10000. GPUs are counted per device: a fraction is packed onto the device that
it fills most, a whole number takes whole devices, and no device is ever shared beyond 1.0. Where there is a choice, those that are taken
together (by one tenant, or by the bundles of a placement group) are as close to each other as the machine's topology allows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from mray._common.accelerator_kinds import KINDS
from mray._decide.scheduler.policy import choose_device

UNIT = 10_000

CPU = "CPU"
GPU = "GPU"
#: A resource of ours: leases that hold nothing else hold one of it, so that their number is bounded.
FREE = "_free_lease"
#: Resources that a blocked tenant gives back while it waits.
LENDABLE = (CPU, FREE)

#: Resource name to units; entries are positive.
Amounts = dict[str, int]
GpuId = int | str


def to_units(quantity: float) -> int:
    """A quantity as Ray's users write it, in units."""
    return round(quantity * UNIT)


def from_units(units: int) -> float:
    return units / UNIT


def to_amounts(quantities: Mapping[str, float]) -> Amounts:
    """Units of every resource of which more than nothing is asked."""
    return {name: units for name, quantity in quantities.items() if (units := to_units(quantity)) > 0}


def to_quantities(amounts: Mapping[str, int]) -> dict[str, float]:
    return {name: from_units(units) for name, units in amounts.items()}


def describe(amounts: Mapping[str, int]) -> str:
    """``{'CPU': 1.0, 'GPU': 0.5}``."""
    return repr(to_quantities(amounts))


class Holding:
    """The resources that one tenant has taken."""

    __slots__ = ("amounts", "devices", "lent", "pool", "slots")

    def __init__(
        self,
        pool: ResourcePool,
        amounts: Amounts,
        devices: tuple[tuple[int, int], ...],
        slots: dict[str, tuple[tuple[int, int], ...]] | None = None,
    ) -> None:
        #: Where it goes back to.
        self.pool = pool
        self.amounts = amounts
        #: (index of the device, units of it) per GPU.
        self.devices = devices
        #: The same per other accelerator, by kind.
        self.slots = slots or {}
        #: Whether the CPUs are given back for as long as the tenant is blocked.
        self.lent = False


class Slots:
    """The accelerators of one kind, which are counted one by one as GPUs are."""

    __slots__ = ("free", "ids", "total")

    def __init__(self, ids: tuple[int, ...], total: tuple[int, ...]) -> None:
        self.ids = ids
        #: The total of each resource, and the free part: 0 <= free <= total.
        self.total = total
        self.free = list(total)


def _together(_one: GpuId, _other: GpuId) -> int:
    return 0


class ResourcePool:
    """All resources of the machine, or (`mray._decide.scheduler.placement.BundlePool`) of one bundle."""

    #: How far two GPUs are apart; asked only where there is a choice.
    apart: Callable[[GpuId, GpuId], int] = staticmethod(_together)

    def __init__(
        self, quantities: Mapping[str, float], gpu_ids: Iterable[GpuId] = (), apart: Callable[[GpuId, GpuId], int] = _together
    ) -> None:
        ids = tuple(gpu_ids)
        self.apart = apart
        total = to_amounts(quantities)
        total.pop(GPU, None)
        if ids:
            total[GPU] = len(ids) * UNIT
        counts = {kind: total[kind] // UNIT for kind in KINDS if kind in total}
        self._fill(total, ids, (UNIT,) * len(ids), {kind: Slots(tuple(range(count)), (UNIT,) * count) for kind, count in counts.items()})

    def _fill(self, total: Amounts, gpu_ids: tuple[GpuId, ...], devices: tuple[int, ...], slots: dict[str, Slots]) -> None:
        self.gpu_ids = gpu_ids
        self.total = total
        #: Invariant: 0 <= free <= total, except that CPUs go below zero when a blocked tenant wakes up.
        self.free = dict(total)
        #: The size of each device: `UNIT`, or less when a bundle has a fraction.
        self.device_total = devices
        #: Invariant: 0 <= free <= total, and the sum is ``free["GPU"]``.
        self.device_free = list(devices)
        #: Other accelerators, by kind.
        self.slots = slots

    # ------------------------------------------------------------------------------------ asking
    def shortage(self, amounts: Mapping[str, int]) -> str | None:
        """Why these amounts can never be given, or ``None`` when they can."""
        for name, units in amounts.items():
            if units > self.total.get(name, 0):
                return f"it has {describe(self._declared())}, and of {name!r} only {from_units(self.total.get(name, 0))}"
        gpus = amounts.get(GPU, 0)
        if gpus > UNIT and gpus % UNIT:
            return "more than one GPU must be asked for in whole numbers"
        if gpus and choose_device(self.device_total, gpus, UNIT) is None:
            return f"its share of a GPU is smaller than {from_units(gpus)}"
        for kind, slots in self.slots.items():
            units = amounts.get(kind, 0)
            if units and choose_device(slots.total, units, UNIT) is None:
                return f"of {kind} it has {[from_units(each) for each in slots.total]}, which does not give {from_units(units)}"
        return None

    def shortage_of_all(self, wanted: Sequence[Amounts]) -> str | None:
        """Why these can never be given all at once, or ``None``."""
        for amounts in wanted:
            shortage = self.shortage(amounts)
            if shortage is not None:
                return shortage
        empty = ResourcePool({}, apart=self.apart)
        slots = {kind: Slots(each.ids, each.total) for kind, each in self.slots.items()}
        empty._fill(dict(self.total), self.gpu_ids, self.device_total, slots)
        outcome = empty.try_take_all(wanted)
        return None if isinstance(outcome, list) else f"it has {describe(self._declared())}, not enough {outcome} for all of them"

    def lacking(self, amounts: Mapping[str, int]) -> str | None:
        """The name of a resource of which not enough is free now, or ``None``."""
        free = self.free
        for name, units in amounts.items():
            if units > free.get(name, 0):
                return name
        gpus = amounts.get(GPU, 0)
        if gpus and choose_device(self.device_free, gpus, UNIT) is None:
            return GPU
        for kind, slots in self.slots.items():
            units = amounts.get(kind, 0)
            if units and choose_device(slots.free, units, UNIT) is None:
                return kind
        return None

    def quantities(self) -> dict[str, float]:
        """Resources of the machine."""
        return to_quantities(self._declared())

    def _declared(self) -> dict[str, int]:
        """All there is, without what is counted here only."""
        return {name: units for name, units in self.total.items() if name != FREE}

    def available(self) -> dict[str, float]:
        """Free resources; a resource that is used up is absent."""
        return {name: from_units(units) for name, units in self.free.items() if units > 0 and name != FREE}

    def _distance(self, one: int, other: int) -> int:
        return self.apart(self.gpu_ids[one], self.gpu_ids[other])

    def ids_of(self, holding: Holding) -> tuple[GpuId, ...]:
        return tuple(self.gpu_ids[index] for index, _units in holding.devices)

    def accelerators_of(self, holding: Holding) -> dict[str, list[int]]:
        """The accelerators besides GPUs, by kind."""
        return {kind: [self.slots[kind].ids[index] for index, _units in taken] for kind, taken in holding.slots.items()}

    # ------------------------------------------------------------------------------------ taking and giving
    def take(self, amounts: Amounts, near: Sequence[int] = (), among: Collection[int] | None = None) -> Holding:
        """Take amounts of which nothing is `lacking`; GPUs close to the devices `near`, whole ones out of those `among`."""
        free = self.free
        for name, units in amounts.items():
            free[name] -= units
        devices: tuple[tuple[int, int], ...] = ()
        gpus = amounts.get(GPU, 0)
        if gpus:
            chosen = choose_device(self.device_free, gpus, UNIT, self._distance, near, among)
            assert chosen is not None
            devices = tuple((index, min(gpus, UNIT)) for index in chosen)
            for index, units in devices:
                self.device_free[index] -= units
        taken: dict[str, tuple[tuple[int, int], ...]] = {}
        for kind, slots in self.slots.items():
            wanted = amounts.get(kind, 0)
            if wanted:
                chosen = choose_device(slots.free, wanted, UNIT)
                assert chosen is not None
                taken[kind] = tuple((index, min(wanted, UNIT)) for index in chosen)
                for index, units in taken[kind]:
                    slots.free[index] -= units
        return Holding(self, amounts, devices, taken)

    def try_take_all(self, wanted: Sequence[Amounts]) -> list[Holding] | str:
        """Take all of these or nothing: the holdings in the same order, or the name of a resource that is lacking.

        Large shares of GPUs go first and each onto the fullest device that has room. (That packs fractions well and not always perfectly;
        what it cannot pack into an empty machine counts as impossible.)
        """
        taken: dict[int, Holding] = {}
        near: list[int] = []
        whole = sum(amounts.get(GPU, 0) for amounts in wanted if amounts.get(GPU, 0) >= UNIT)
        among = choose_device(self.device_free, whole, UNIT, self._distance) if whole else None
        for index in sorted(range(len(wanted)), key=lambda index: -wanted[index].get(GPU, 0)):
            lacking = self.lacking(wanted[index])
            if lacking is not None:
                for holding in taken.values():
                    self.give(holding)
                return lacking
            taken[index] = self.take(wanted[index], near, among)
            near += [device for device, _units in taken[index].devices]
        return [taken[index] for index in range(len(wanted))]

    def give(self, holding: Holding) -> tuple[str, ...]:
        """Give everything back; the names under which tenants wait for it."""
        names = tuple(holding.amounts)
        free = self.free
        for name, units in holding.amounts.items():
            if not (holding.lent and name in LENDABLE):
                free[name] += units
        for index, units in holding.devices:
            self.device_free[index] += units
        for kind, taken in holding.slots.items():
            for index, units in taken:
                self.slots[kind].free[index] += units
        holding.amounts = {}
        holding.devices = ()
        holding.slots = {}
        holding.lent = False
        return names

    def lend(self, holding: Holding) -> tuple[str, ...]:
        """The holder is blocked: others may use its CPUs. Returns the names under which tenants wait for it."""
        if holding.lent:
            return ()
        names = tuple(name for name in LENDABLE if name in holding.amounts)
        holding.lent = bool(names)
        for name in names:
            self.free[name] += holding.amounts[name]
        return names

    def take_back(self, holding: Holding) -> None:
        """The holder goes on; the free CPUs may fall below zero until somebody else ends."""
        if holding.lent:
            holding.lent = False
            for name in LENDABLE:
                if name in holding.amounts:
                    self.free[name] -= holding.amounts[name]

    def validate(self, holdings: Iterable[Holding]) -> None:
        """Assert that what is free and what is held make the whole."""
        used: dict[str, int] = {}
        devices = [0] * len(self.gpu_ids)
        held = {kind: [0] * len(slots.ids) for kind, slots in self.slots.items()}
        for holding in holdings:
            for kind, taken in holding.slots.items():
                for index, units in taken:
                    held[kind][index] += units
            for name, units in holding.amounts.items():
                if not (holding.lent and name in LENDABLE):
                    used[name] = used.get(name, 0) + units
            for index, units in holding.devices:
                devices[index] += units
        for name, total in self.total.items():
            assert self.free[name] + used.get(name, 0) == total, (name, self.free[name], used.get(name, 0), total)
            assert name in LENDABLE or self.free[name] >= 0, (name, self.free[name])
        for index, units in enumerate(devices):
            assert self.device_free[index] + units == self.device_total[index], (index, self.device_free[index], units)
            assert 0 <= self.device_free[index] <= self.device_total[index], (index, self.device_free[index])
        for kind, slots in self.slots.items():
            assert [free + used for free, used in zip(slots.free, held[kind], strict=True)] == list(slots.total), (kind, slots.free, held)
            assert min(slots.free, default=0) >= 0, (kind, slots.free)
