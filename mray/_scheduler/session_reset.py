"""The reset of a session for the same driver: everything ends but some idle workers.

All that the driver has asked for ends, by whatever process it was made: tasks, actors (detached ones too), placement groups. A worker stays
if nothing shows that it was ever there: it does nothing, leases no other, owns no actor and no object. So tests that share a session
find warm processes, and no trace of each other in the session's books.
"""

from __future__ import annotations

from typing import Any, Protocol

from mray._common.causes import Cause
from mray._common.messages import CAUSE_OWNER, WORKER_GONE
from mray._scheduler.actors import Actors
from mray._scheduler.events import DriverReset
from mray._scheduler.placement import Groups
from mray._scheduler.records import IDLE, LEAVING, STARTING, Lease, Member, WorkerRecord
from mray._scheduler.workers import WorkerPool

RESET_TEXT = "the session was reset since"
ACTOR_TEXT = "The actor is dead because its session was reset since."
DRIVER_ROLE = "the driver, before its session was reset,"


class Floor(Protocol):
    """The part of the scheduler that a reset needs."""

    workers: WorkerPool
    actors: Actors
    groups: Groups
    members: dict[str, Member]
    leases: dict[int, Lease]

    def tell(self, process: str, message: tuple[Any, ...]) -> None: ...
    def abandon(self, lease: Lease) -> None: ...
    def kill_process(self, process: str) -> None: ...


def reset(floor: Floor, event: DriverReset) -> None:
    """End everything of the driver, which will join again under another name."""
    member = floor.members.pop(event.process)
    for actor in list(floor.actors.records.values()):
        floor.actors.evict(actor, CAUSE_OWNER, ACTOR_TEXT)
    for group in list(floor.groups.records):
        floor.groups.remove(group)
    for lease in list(floor.leases.values()):
        floor.abandon(lease)
    member.owned.clear()  # they end already, and for another reason
    floor.actors.member_died(member)
    floor.groups.member_died(event.process)
    for process in floor.members:
        floor.tell(process, (WORKER_GONE, event.process, DRIVER_ROLE, Cause(CAUSE_OWNER, RESET_TEXT, member.pid).packed()))
    for worker in list(floor.workers.workers.values()):
        if not _may_stay(floor, worker, event.owners):
            _end(floor, worker)


def leaving(floor: Floor) -> set[str]:
    """Workers that are ending."""
    return {worker.process for worker in floor.workers.workers.values() if worker.intended is not None}


def _may_stay(floor: Floor, worker: WorkerRecord, owners: frozenset[str]) -> bool:
    if worker.state == STARTING:
        return worker.intended is None
    member = floor.members.get(worker.process)
    idle = worker.state == IDLE and member is not None and not member.leases and not member.owned
    return idle and worker.process not in owners


def _end(floor: Floor, worker: WorkerRecord) -> None:
    floor.workers.withdraw(worker)
    worker.intended = worker.intended or (CAUSE_OWNER, RESET_TEXT)
    worker.may_restart = False
    worker.state = LEAVING
    floor.kill_process(worker.process)
