"""Requests that wait for resources whose holders do not release them by themselves. Pure.

A running task ends, so waiting for it needs no warning. An actor holds its resources while it lives, a placement group until it is
removed, and a waiting task its GPUs: a request for those waits until the program acts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from mray._common.amounts import readable
from mray._common.record import Record
from mray._decide.scheduler.records import ActorRecord, Claimant, GrantedLease
from mray._decide.scheduler.resources import FREE, describe, from_units

if TYPE_CHECKING:
    from mray._decide.scheduler.claimant_queue import DemandQueue
    from mray._decide.scheduler.placement import Groups
    from mray._decide.scheduler.resources import ResourcePool

#: Holders that a sentence names.
_MOST_NAMED = 5


class WaitsContext(Protocol):
    pool: ResourcePool
    queue: DemandQueue
    groups: Groups

    def claimants(self) -> list[Claimant]: ...


class Wait(Record):
    #: The resource that is not free, or the scope of a placement group.
    lacks: str
    claimants: list[Claimant]


def waits(scheduler: WaitsContext) -> Iterator[Wait]:
    for wait in map(Wait._make, scheduler.queue.asleep()):
        holders = _holders(scheduler, wait.lacks)
        if wait.lacks != FREE and not any(isinstance(each, GrantedLease) and each.holding and not each.holding.lent for each in holders):
            yield wait


def _holders(scheduler: WaitsContext, name: str) -> list[Claimant]:
    """Holders of a resource of the machine, or of a placement group."""
    found: list[Claimant] = [group for group in scheduler.groups.records.values() if group.pools and group.amounts.get(name)]
    for claimant in scheduler.claimants():
        holding = claimant.holding
        if holding is None:
            continue
        in_group = claimant.site is not None and claimant.site.scope == name
        if in_group or (holding.pool is scheduler.pool and holding.amounts.get(name)):
            found.append(claimant)
    return found


def lacking(scheduler: WaitsContext) -> dict[Claimant, tuple[str, list[str]]]:
    """The claimants of `waits`, each with the lacking resource and the processes of its holders, "" for one without."""
    found: dict[Claimant, tuple[str, list[str]]] = {}
    for wait in waits(scheduler):
        processes = ["" if holder.worker is None else holder.worker.process for holder in _holders(scheduler, wait.lacks)]
        found.update(dict.fromkeys(wait.claimants, (wait.lacks, processes)))
    return found


def sentence(scheduler: WaitsContext, wait: Wait) -> str:
    """A sentence: the claimant, its demand, and the holders."""
    lacks, (claimant, *others) = wait
    labels = Counter(other.label for other in others).most_common(_MOST_NAMED)
    behind = f" (nor can, behind it, {', '.join(f'{count} x {label}' for label, count in labels)})" if labels else ""
    wanted = describe({name: units for name, units in claimant.needs_free.items() if name != FREE})
    total = scheduler.pool.total.get(lacks)
    if total is None:  # in a placement group
        what = "its placement group does not have that much free"
    else:
        free = readable(lacks, from_units(scheduler.pool.free.get(lacks, 0)))
        what = f"{free} of {readable(lacks, from_units(total))} {lacks} are free"
    holders = [_described(each, lacks) for each in _holders(scheduler, lacks)]
    if len(holders) > _MOST_NAMED:
        holders[_MOST_NAMED:] = [f"{len(holders) - _MOST_NAMED} more"]
    by = f", and none is released until these end: {', '.join(holders)}" if holders else ""
    return f"{claimant.label} cannot be scheduled right now{behind}: it asks for {wanted}, {what}{by}."


def _described(holder: Claimant, name: str) -> str:
    pid = f" (pid {holder.worker.pid})" if holder.worker is not None and holder.worker.pid else ""
    # Only the caller knows which of the lease's tasks runs.
    lent = isinstance(holder, GrantedLease) and holder.holding is not None and holder.holding.lent
    what = "a task that waits" if lent else "a running task" if isinstance(holder, GrantedLease) else holder.label
    called = f" {holder.name!r}" if isinstance(holder, ActorRecord) and holder.name else ""
    units = holder.amounts.get(name)
    return f"{what}{called}{pid}{f' has {readable(name, from_units(units))}' if units else ''}"


def root_of_waiting(claimant: Claimant) -> str:
    """The root that a claimant waits for; "" for none."""
    if isinstance(claimant, GrantedLease):
        return claimant.client.root
    return claimant.root if isinstance(claimant, ActorRecord) else str(getattr(claimant, "job", ""))
