"""What the machine has and who holds how much of it, in exact fixed-point numbers.

Quantities are whole numbers of 1/10000. GPUs are counted per device: a fraction is packed onto the device that
it fills most, a whole number takes whole devices, and no device is ever shared beyond 1.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mray._scheduler.policy import choose_device

UNIT = 10_000

CPU = "CPU"
GPU = "GPU"
#: A resource of ours: leases that hold nothing else hold one of it, so that their number is bounded.
FREE = "_free_lease"
#: What a blocked tenant gives back while it waits.
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
    """What one tenant has taken."""

    __slots__ = ("amounts", "devices", "lent")

    def __init__(self, amounts: Amounts, devices: tuple[tuple[int, int], ...]) -> None:
        self.amounts = amounts
        #: (index of the device, units of it) per GPU.
        self.devices = devices
        #: Whether the CPUs are given back for as long as the tenant is blocked.
        self.lent = False


class ResourcePool:
    """All resources of the machine."""

    def __init__(self, quantities: Mapping[str, float], gpu_ids: Iterable[GpuId] = ()) -> None:
        self.gpu_ids: tuple[GpuId, ...] = tuple(gpu_ids)
        self.total = to_amounts(quantities)
        self.total.pop(GPU, None)
        if self.gpu_ids:
            self.total[GPU] = len(self.gpu_ids) * UNIT
        #: Invariant: 0 <= free <= total, except that CPUs go below zero when a blocked tenant wakes up.
        self.free = dict(self.total)
        #: Invariant: 0 <= free <= UNIT, and the sum is ``free["GPU"]``.
        self.device_free = [UNIT] * len(self.gpu_ids)

    # ------------------------------------------------------------------------------------ asking
    def shortage(self, amounts: Mapping[str, int]) -> str | None:
        """Why these amounts can never be given, or ``None`` when they can."""
        for name, units in amounts.items():
            if units > self.total.get(name, 0):
                return f"it has {describe(self.total)}, and of {name!r} only {from_units(self.total.get(name, 0))}"
        gpus = amounts.get(GPU, 0)
        if gpus > UNIT and gpus % UNIT:
            return "more than one GPU must be asked for in whole numbers"
        return None

    def lacking(self, amounts: Mapping[str, int]) -> str | None:
        """The name of a resource of which not enough is free now, or ``None``."""
        free = self.free
        for name, units in amounts.items():
            if units > free.get(name, 0):
                return name
        gpus = amounts.get(GPU, 0)
        if gpus and choose_device(self.device_free, gpus, UNIT) is None:
            return GPU
        return None

    def quantities(self) -> dict[str, float]:
        """What the machine has."""
        return {name: from_units(units) for name, units in self.total.items() if name != FREE}

    def available(self) -> dict[str, float]:
        """What is free; a resource that is used up is absent."""
        return {name: from_units(units) for name, units in self.free.items() if units > 0 and name != FREE}

    def ids_of(self, holding: Holding) -> tuple[GpuId, ...]:
        return tuple(self.gpu_ids[index] for index, _units in holding.devices)

    # ------------------------------------------------------------------------------------ taking and giving
    def take(self, amounts: Amounts) -> Holding:
        """Take amounts of which nothing is `lacking`."""
        free = self.free
        for name, units in amounts.items():
            free[name] -= units
        devices: tuple[tuple[int, int], ...] = ()
        gpus = amounts.get(GPU, 0)
        if gpus:
            chosen = choose_device(self.device_free, gpus, UNIT)
            assert chosen is not None
            devices = tuple((index, min(gpus, UNIT)) for index in chosen)
            for index, units in devices:
                self.device_free[index] -= units
        return Holding(amounts, devices)

    def give(self, holding: Holding) -> None:
        """Give everything back."""
        free = self.free
        for name, units in holding.amounts.items():
            if not (holding.lent and name in LENDABLE):
                free[name] += units
        for index, units in holding.devices:
            self.device_free[index] += units
        holding.amounts = {}
        holding.devices = ()
        holding.lent = False

    def lend(self, holding: Holding) -> tuple[str, ...]:
        """The holder is blocked: others may use its CPUs. Returns the names of what that freed."""
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
        for holding in holdings:
            for name, units in holding.amounts.items():
                if not (holding.lent and name in LENDABLE):
                    used[name] = used.get(name, 0) + units
            for index, units in holding.devices:
                devices[index] += units
        for name, total in self.total.items():
            assert self.free[name] + used.get(name, 0) == total, (name, self.free[name], used.get(name, 0), total)
            assert name in LENDABLE or self.free[name] >= 0, (name, self.free[name])
        for index, units in enumerate(devices):
            assert self.device_free[index] + units == UNIT, (index, self.device_free[index], units)
            assert 0 <= self.device_free[index] <= UNIT, (index, self.device_free[index])
