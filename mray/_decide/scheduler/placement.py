"""Placement groups: reservations of resources, bundle by bundle, all or none.

    pending ──resources free──▶ created ──removed, or its creator died──▶ removed
       └──────────────────────────────────────────────────────────────────▲

A group waits for resources in the queue of demands. Once created, each bundle is a pool (`BundlePool`) cut out of the machine's, and
claimants that name the group draw from it. A bundle returns to the machine when the group is removed and the last process that drew from
it is dead, so that no GPU is granted while another process still has memory on it.

One machine satisfies PACK, SPREAD and STRICT_PACK alike. A group that it can never satisfy stays pending as on Ray, where a node might
join; its waiters are notified immediately.

All claimants of one group wait under one name, its scope.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

from mray._common.history import History
from mray._common.messages import ANSWER, CAUSE_GROUP, GROUP_REMOVED
from mray._decide.scheduler.policy import DEAD_RECORD_BYTES, DEAD_RECORDS, FREE_LEASES
from mray._decide.scheduler.records import ActorRecord, Claimant, GrantedLease, Member
from mray._decide.scheduler.resources import (
    FREE,
    GPU,
    UNIT,
    Amounts,
    DeviceAmounts,
    Holding,
    ResourcePool,
    describe,
    to_amounts,
    to_quantities,
)
from mray._decide.scheduler.root_names import job_of

PENDING = "PENDING"
CREATED = "CREATED"
REMOVED = "REMOVED"


class BundlePool(ResourcePool):
    def __init__(self, reserved: Holding, scope: str) -> None:
        machine = reserved.pool
        self.apart = machine.apart
        devices = {
            kind: DeviceAmounts(machine.ids_of(reserved, kind), tuple(units for _index, units in taken))
            for kind, taken in reserved.devices.items()
        }
        self._fill({**reserved.amounts, FREE: FREE_LEASES * UNIT}, devices)
        self.reserved = reserved
        self.scope = scope
        #: Claimants that draw from it.
        self.users = 0
        self._closing = False

    def take(self, amounts: Amounts, near: Sequence[int] = (), among: Collection[int] | None = None) -> Holding:
        self.users += 1
        return super().take(amounts, near, among)

    def give(self, holding: Holding) -> tuple[str, ...]:
        super().give(holding)
        self.users -= 1
        return self._return_if_over() or (self.scope,)

    def lend(self, holding: Holding) -> tuple[str, ...]:
        return (self.scope,) if super().lend(holding) else ()

    def close(self) -> tuple[str, ...]:
        """Return the names of the resources that this frees now."""
        self._closing = True
        return self._return_if_over()

    def _return_if_over(self) -> tuple[str, ...]:
        if not self._closing or self.users:
            return ()
        return self.reserved.pool.give(self.reserved)


class BundleSite:
    """One bundle of a group, or (index -1) any of them."""

    __slots__ = ("group", "index", "key", "scope")

    def __init__(self, group: GroupRecord, index: int) -> None:
        self.group = group
        self.index = index
        self.key = (group.id, index)
        self.scope = group.scope

    def lacking(self, claimant: Claimant) -> str | None:
        """The group's scope when no bundle has room now, or the group is not created yet."""
        return self.scope if self._open_to(claimant) is None else None

    def take(self, claimant: Claimant) -> Holding:
        pool = self._open_to(claimant)
        assert pool is not None
        return pool.take(claimant.amounts)

    def _open_to(self, claimant: Claimant) -> BundlePool | None:
        pools = self.group.pools
        for pool in pools if self.index < 0 else pools[self.index : self.index + 1]:
            if pool.has(claimant.needs) and pool.lacking(claimant.needs_free) is None:
                return pool
        return None

    def shortage(self, amounts: Amounts) -> str | None:
        group = self.group
        if group.state == REMOVED:
            return f"its {GROUP_REMOVED}"
        if group.impossible is not None:
            return group.impossible
        if not -1 <= self.index < len(group.bundles):
            return f"the {group.label} has no bundle {self.index}"
        bundles = group.bundles if self.index < 0 else [group.bundles[self.index]]
        wanted = {name: units for name, units in amounts.items() if name != FREE}
        if any(_fits(wanted, bundle) for bundle in bundles):
            return None
        return f"{describe(wanted)} does not fit into any of its bundles [{', '.join(map(describe, bundles))}]"


def _fits(wanted: Amounts, bundle: Amounts) -> bool:
    gpus = wanted.get(GPU, 0)
    return all(units <= bundle.get(name, 0) for name, units in wanted.items()) and (gpus <= UNIT or gpus % UNIT == 0)


class _Reservation:
    """The resource pool of the group: the machine, for all bundles together."""

    __slots__ = ("_group", "_machine", "key", "scope")

    def __init__(self, group: GroupRecord, machine: ResourcePool) -> None:
        self._group = group
        self._machine = machine
        self.key = group.id
        self.scope = ""

    def lacking(self, _claimant: Claimant) -> str | None:
        outcome = self._machine.try_take_all(self._group.bundles)
        if isinstance(outcome, str):
            return outcome
        for holding in outcome:
            self._machine.give(holding)
        return None

    def shortage(self, _amounts: Amounts) -> str | None:
        return self._group.impossible

    def take(self, _claimant: Claimant) -> Holding:
        """Cut the bundles out of the machine. Returns an empty holding that stands for them."""
        outcome = self._machine.try_take_all(self._group.bundles)
        assert isinstance(outcome, list)
        self._group.pools = [BundlePool(holding, self._group.scope) for holding in outcome]
        return Holding(self._machine, {}, {})


class GroupRecord(Claimant):
    def __init__(self, group_id: bytes, spec: dict[str, Any], owner: str, actor: bytes | None, machine: ResourcePool) -> None:
        self.id = group_id
        self.bundles: list[Amounts] = [to_amounts(bundle) for bundle in spec["bundles"]]
        self.name = str(spec.get("name") or "")
        self.namespace = str(spec.get("namespace") or "")
        self.strategy = str(spec["strategy"])
        self.detached = bool(spec.get("detached"))
        #: The driver that it ends with, or the actor that created it.
        self.owner = owner
        self.actor = actor
        self.job = str(spec.get("job") or "")
        self.state = PENDING
        #: Why it can never be created.
        self.impossible: str | None = None
        #: One per bundle while it is created.
        self.pools: list[BundlePool] = []
        self.waiting: list[tuple[str, int]] = []
        amounts: Amounts = {}
        for bundle in self.bundles:
            for name, units in bundle.items():
                amounts[name] = amounts.get(name, 0) + units
        label = f"placement group {self.name or group_id.hex()}"
        super().__init__(amounts, amounts, (), label, _Reservation(self, machine))

    @property
    def scope(self) -> str:
        return f"group {self.id.hex()}"


class PlacementContext(Protocol):
    pool: ResourcePool
    members: dict[str, Member]

    def tell(self, process: str, message: tuple[Any, ...]) -> None: ...
    def enqueue(self, claimant: Claimant) -> None: ...
    def withdraw(self, claimant: Claimant) -> None: ...
    def evict(self, claimant: Claimant, kind: str, text: str) -> None: ...
    def given_back(self, names: tuple[str, ...]) -> None: ...
    def claimants(self) -> list[Claimant]: ...
    def root_of(self, process: str) -> tuple[str, bytes | None]: ...


class Groups:
    def __init__(self, context: PlacementContext) -> None:
        self._context = context
        #: Groups that are not removed.
        self.records: dict[bytes, GroupRecord] = {}
        #: Invariant: exactly the named groups in `records`.
        self._names: dict[tuple[str, str], GroupRecord] = {}
        #: Removed groups that may have bundles in use.
        self._removed: dict[bytes, GroupRecord] = {}
        self._removed_rows = History(DEAD_RECORDS, DEAD_RECORD_BYTES)

    # ------------------------------------------------------------------------------------ their lives
    def create(self, member: Member, request: int, group_id: bytes, spec: dict[str, Any]) -> None:
        context = self._context
        owner, actor = context.root_of(member.process)
        if owner not in context.members:
            return  # the owner has exited, and the process that asks is about to be ended
        group = GroupRecord(group_id, {**spec, "job": job_of(member.root)}, owner, actor, context.pool)
        if group.name and (group.namespace, group.name) in self._names:
            text = f"Failed to create placement group '{group_id.hex()}' because name '{group.name}' already exists."
            context.tell(member.process, (ANSWER, request, False, text))
            return
        if group.name:
            self._names[group.namespace, group.name] = group
        self.records[group_id] = group
        group.impossible = self._why_impossible(group, spec)
        context.tell(member.process, (ANSWER, request, True, group.impossible))
        if group.impossible is None:
            context.enqueue(group)

    def _why_impossible(self, group: GroupRecord, spec: dict[str, Any]) -> str | None:
        reason = spec.get("impossible")
        if reason is None and group.strategy == "STRICT_SPREAD" and len(group.bundles) > 1:
            reason = f"STRICT_SPREAD asks for {len(group.bundles)} machines, and there is one"
        if reason is None:
            reason = self._context.pool.shortage_of_all(group.bundles)
            reason = reason and reason.replace("it has", "this machine has", 1)
        if reason is None:
            return None
        return f"The {group.label} with the bundles [{', '.join(map(describe, group.bundles))}] can never be created: {reason}."

    def created(self, group: GroupRecord) -> None:
        group.holding = None
        group.state = CREATED
        self._answer(group, True, True)
        self._context.given_back((group.scope,))

    def wait(self, member: Member, request: int, group_id: bytes) -> None:
        group = self.records.get(group_id)
        if group is None:
            self._context.tell(member.process, (ANSWER, request, False, f"{GROUP_REMOVED}: {group_id.hex()}"))
            return
        group.waiting.append((member.process, request))
        if group.state == CREATED:
            self._answer(group, True, True)
        elif group.impossible is not None:
            self._answer(group, False, group.impossible)

    def _answer(self, group: GroupRecord, ok: bool, value: Any) -> None:
        for process, request in group.waiting:
            self._context.tell(process, (ANSWER, request, ok, value))
        group.waiting.clear()

    def remove(self, group_id: bytes) -> None:
        group = self.records.pop(group_id, None)
        if group is None:
            return
        context = self._context
        if group.state == PENDING and group.impossible is None:
            context.withdraw(group)
        group.state = REMOVED
        group.over = True
        if group.name:
            del self._names[group.namespace, group.name]
        self._removed[group_id] = group
        self._answer(group, False, f"{GROUP_REMOVED}: {group_id.hex()}")
        for claimant in context.claimants():
            if isinstance(claimant.site, BundleSite) and claimant.site.group is group:
                who = "The actor is dead because" if isinstance(claimant, ActorRecord) else f"{claimant.label}:"
                context.evict(claimant, CAUSE_GROUP, f"{who} its {GROUP_REMOVED}, {group_id.hex()}.")
        for pool in group.pools:
            context.given_back(pool.close())
        self._bury_empty()

    def _bury_empty(self) -> None:
        for group in [group for group in self._removed.values() if not any(pool.users for pool in group.pools)]:
            del self._removed[group.id]
            self._removed_rows[group.id] = self._describe(group)

    def member_died(self, process: str) -> None:
        for group in list(self.records.values()):
            group.waiting = [waiting for waiting in group.waiting if waiting[0] != process]
            if group.owner == process and group.actor is None and not group.detached:
                self.remove(group.id)

    def actor_died(self, actor: bytes) -> None:
        for group in list(self.records.values()):
            if group.actor == actor and not group.detached:
                self.remove(group.id)

    # ------------------------------------------------------------------------------------ asking
    def site(self, where: Any) -> BundleSite | None:
        """The demand's site; None without a ``group``. An unknown group was removed."""
        if where is None:
            return None
        group_id, index = where
        group = self.records.get(group_id) or self._removed.get(group_id)
        if group is None:
            group = GroupRecord(group_id, {"bundles": [], "strategy": ""}, "", None, self._context.pool)
            group.state = REMOVED
        return BundleSite(group, index)

    def find(self, name: str, namespace: str) -> bytes | None:
        group = self._names.get((namespace, name))
        return None if group is None else group.id

    def all(self) -> Iterator[GroupRecord]:
        """Every group that has, or may have, bundles; the removed first."""
        yield from self._removed.values()
        yield from self.records.values()

    def totals(self) -> dict[str, float]:
        return _named((pool.total, index, group) for group in self.records.values() for index, pool in enumerate(group.pools))

    def free(self) -> dict[str, float]:
        named = _named((pool.free, index, group) for group in self.records.values() for index, pool in enumerate(group.pools))
        return {name: quantity for name, quantity in named.items() if quantity > 0}

    def listing(self) -> list[dict[str, Any]]:
        return [*self._removed_rows, *map(self._describe, self.all())]

    @staticmethod
    def _describe(group: GroupRecord) -> dict[str, Any]:
        return {
            "placement_group_id": group.id,
            "name": group.name,
            "namespace": group.namespace,
            "strategy": group.strategy,
            "state": group.state,
            "bundles": [to_quantities(bundle) for bundle in group.bundles],
            "free": [to_quantities({name: max(0, units) for name, units in pool.free.items() if name != FREE}) for pool in group.pools],
            "is_detached": group.detached,
            "creator_job_id": group.job,
            "impossible": group.impossible,
        }

    def reserved(self) -> list[Holding]:
        return [pool.reserved for group in self.all() for pool in group.pools]

    def validate(self, claimants: list[Claimant]) -> None:
        for key, named in self._names.items():
            assert self.records.get(named.id) is named and key == (named.namespace, named.name), key
        holdings = [claimant.holding for claimant in claimants if claimant.holding is not None]
        for group in self.all():
            assert (group.state == REMOVED) == (group.id not in self.records), group.label
            assert (group.state == CREATED) <= bool(group.pools), group.label
            assert not group.waiting or (group.state == PENDING and group.impossible is None), group.label
            for pool in group.pools:
                drawn = [holding for holding in holdings if holding.pool is pool]
                pool.validate(drawn)
                assert pool.users == len(drawn), group.label
                # A removed group reserves only what is in use.
                assert bool(pool.reserved.amounts) == (group.state == CREATED or bool(drawn)), group.label


def _named(pools: Iterator[tuple[Amounts, int, GroupRecord]]) -> dict[str, float]:
    """Amounts of bundles under Ray's names: ``CPU_group_<index>_<id>``, and their sum ``CPU_group_<id>``."""
    named: Amounts = {}
    for amounts, index, group in pools:
        for name, units in amounts.items():
            if name != FREE:
                for key in (f"{name}_group_{index}_{group.id.hex()}", f"{name}_group_{group.id.hex()}"):
                    named[key] = named.get(key, 0) + units
    return to_quantities(named)


def belongs_to(claimant: Claimant) -> bytes | None:
    return claimant.site.group.id if isinstance(claimant, (GrantedLease, ActorRecord)) and isinstance(claimant.site, BundleSite) else None
