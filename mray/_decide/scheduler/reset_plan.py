"""The reset of a session for the same driver: everything ends but some idle workers.

All that the driver has asked for ends, by whatever process it was made: tasks, actors (detached ones too), placement groups. A worker stays
if nothing shows that it was ever there: it does nothing, leases no other, owns no actor and no object. So tests that share a session
find warm processes, and no trace of each other in the session's books.
"""

from __future__ import annotations

from typing import Any, Protocol

from mray._common.causes import Cause
from mray._common.messages import CAUSE_OWNER, WORKER_GONE
from mray._decide.scheduler.actors import Actors
from mray._decide.scheduler.events import DriverReset
from mray._decide.scheduler.placement import Groups
from mray._decide.scheduler.records import IDLE, STARTING, GrantedLease, Member, WorkerRecord
from mray._decide.scheduler.workers import WorkerPool

RESET_TEXT = "the session was reset since"
ACTOR_TEXT = "The actor is dead because its session was reset since."
DRIVER_ROLE = "the driver, before its session was reset,"


class ResetContext(Protocol):
    """The part of the scheduler that a reset needs."""

    workers: WorkerPool
    actors: Actors
    groups: Groups
    members: dict[str, Member]
    leases: dict[int, GrantedLease]

    def tell(self, process: str, message: tuple[Any, ...]) -> None: ...
    def abandon(self, lease: GrantedLease) -> None: ...
    def end_worker(self, worker: WorkerRecord, kind: str, text: str) -> None: ...


def reset(context: ResetContext, event: DriverReset) -> None:
    """End everything of the driver, which will join again under another name."""
    member = context.members.pop(event.process)
    for actor in list(context.actors.records.values()):
        context.actors.evict(actor, CAUSE_OWNER, ACTOR_TEXT)
    for group in list(context.groups.records):
        context.groups.remove(group)
    for lease in list(context.leases.values()):
        context.abandon(lease)
    member.owned.clear()  # they end already, and for another reason
    context.actors.member_died(member)
    context.groups.member_died(event.process)
    for process in context.members:
        context.tell(process, (WORKER_GONE, event.process, DRIVER_ROLE, Cause(CAUSE_OWNER, RESET_TEXT, member.pid).packed()))
    for worker in list(context.workers.workers.values()):
        if not _may_stay(context, worker, event.owners):
            context.end_worker(worker, CAUSE_OWNER, RESET_TEXT)


def leaving(context: ResetContext) -> set[str]:
    """Workers that are ending."""
    return {worker.process for worker in context.workers.workers.values() if worker.intended is not None}


def _may_stay(context: ResetContext, worker: WorkerRecord, owners: frozenset[str]) -> bool:
    if worker.state == STARTING:
        return worker.intended is None
    member = context.members.get(worker.process)
    idle = worker.state == IDLE and member is not None and not member.leases and not member.owned
    return idle and worker.process not in owners
