"""The reset of a session for the same driver: everything ends but some idle workers.

All that the driver has asked for ends, by whatever process it was made: tasks, actors (detached ones too), placement groups. A worker stays
if nothing shows that it was ever there: it does nothing, leases no other, owns no actor and no object. So tests that share a session
find warm processes, and no trace of each other in the session's books.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mray._common.messages import CAUSE_OWNER, WORKER_GONE
from mray._scheduler.records import IDLE, LEAVING, STARTING, WorkerRecord

if TYPE_CHECKING:
    from mray._scheduler.events import DriverReset
    from mray._scheduler.scheduler import Scheduler

RESET_TEXT = "the session was reset since"
ACTOR_TEXT = "The actor is dead because its session was reset since."
DRIVER_TEXT = "the driver, before its session was reset,"


def reset(scheduler: Scheduler, event: DriverReset) -> None:
    """End everything of the driver, which will join again under another name."""
    member = scheduler.members.pop(event.process)
    for actor in list(scheduler.actors.records.values()):
        scheduler.actors.evict(actor, CAUSE_OWNER, ACTOR_TEXT)
    for group in list(scheduler.groups.records):
        scheduler.groups.remove(group)
    for lease in list(scheduler.leases.values()):
        scheduler.abandon(lease)
    member.owned.clear()  # they end already, and for another reason
    scheduler.actors.member_died(member)
    scheduler.groups.member_died(event.process)
    for process in scheduler.members:
        scheduler.tell(process, (WORKER_GONE, event.process, DRIVER_TEXT, member.pid, None))
    for worker in list(scheduler.workers.workers.values()):
        if not _may_stay(scheduler, worker, event.owners):
            _end(scheduler, worker)


def leaving(scheduler: Scheduler) -> set[str]:
    """Workers that are ending."""
    return {worker.process for worker in scheduler.workers.workers.values() if worker.intended is not None}


def _may_stay(scheduler: Scheduler, worker: WorkerRecord, owners: frozenset[str]) -> bool:
    if worker.state == STARTING:
        return worker.intended is None
    member = scheduler.members.get(worker.process)
    idle = worker.state == IDLE and member is not None and not member.leases and not member.owned
    return idle and worker.process not in owners


def _end(scheduler: Scheduler, worker: WorkerRecord) -> None:
    scheduler.workers.withdraw(worker)
    worker.intended = worker.intended or (CAUSE_OWNER, RESET_TEXT)
    worker.may_restart = False
    worker.state = LEAVING
    scheduler.kill_process(worker.process)
