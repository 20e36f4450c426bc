"""The choice of workers to end when the machine's memory runs low, as a pure function of the node's measurements.

The one to go is whose end costs least and helps, in this order:

1. idle workers: nobody loses anything, unless actors, objects or tasks depend on the worker's life; it counts as one of those then;
2. workers whose task may be tried again;
3. workers whose actor may be restarted: it loses its state;
4. workers whose task may not, then those whose actor may not.

Within each, who began last has the least to lose (and most likely is what was too much). A worker that holds next to nothing is passed over
as long as others hold enough: to end it would gain nothing, and its next attempt would be ended again while the one that grows goes on to
grow. Ray 2.60 goes by the time of the start alone; its older policy, by the size of an owner's group, is not here.

Where the end of all of them would not suffice, others have the memory, and nobody is ended: the next workers would be ended as well, and
no work would ever be done. (Ray ends one after the other.) If memory gets so short that it must, the kernel ends a process, a worker
first (`mray._ipc.process` sees to that), and callers get the error of a worker that has crashed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mray._common.messages import DEAD
from mray._common.record import Record
from mray._decide.scheduler.records import BUSY, IDLE, ActorRecord, GrantedLease, Member, WorkerRecord

#: The cost of ending a worker, the least first.
IDLE_WORKER, TASK_AGAIN, ACTOR_AGAIN, TASK, ACTOR = range(5)


class Suspect(Record):
    """A worker that may be ended."""

    process: str
    pid: int
    #: A description of its activity.
    label: str
    #: One of the words above.
    cost: int
    #: Number of its assignment: the highest began last.
    began: int
    #: Bytes that its end gives back.
    held: int

    @property
    def runs_task(self) -> bool:
        """Whether what it runs is a task, perhaps a later one of its lease than the one it is called by."""
        return self.began > 0 and self.cost in (TASK_AGAIN, TASK)

    @property
    def retriable(self) -> bool:
        return self.cost in (IDLE_WORKER, TASK_AGAIN, ACTOR_AGAIN)


def suspects(
    workers: Iterable[WorkerRecord], members: Mapping[str, Member], held: Callable[[int], int], is_lending: Callable[[str], bool]
) -> list[Suspect]:
    """The workers that can be ended; `held` tells the bytes of a pid, `is_lending` whether others hold objects that a process owns.

    An actor that nobody holds any more is among them: calls that it has got already may run for long.
    """
    found = []
    for worker in workers:
        tenant = worker.tenant
        if worker.state == IDLE:
            member = members[worker.process]
            if member.owned or is_lending(worker.process):
                cost, label = ACTOR, "an idle worker that owns actors or objects"
            elif member.leases:
                cost, label = TASK, "an idle worker whose tasks run elsewhere"
            else:
                cost, label = IDLE_WORKER, "an idle worker"
            began = 0
        elif worker.state == BUSY and isinstance(tenant, GrantedLease):
            cost, label, began = TASK_AGAIN if tenant.retriable else TASK, tenant.label, tenant.began
        elif worker.state == BUSY and isinstance(tenant, ActorRecord) and tenant.state != DEAD:
            again = tenant.restarts_left and not tenant.leaving
            cost, label, began = ACTOR_AGAIN if again else ACTOR, tenant.label, tenant.began
        else:
            continue
        found.append(Suspect(worker.process, worker.pid, label, cost, began, held(worker.pid)))
    return found


def choose(there: Sequence[Suspect], needed: int) -> list[Suspect]:
    """Those whose end gives `needed` bytes back at the least cost; nobody if all together do not.

    Nobody is ended whose end the others' makes superfluous.
    """
    order = sorted(there, key=lambda suspect: (suspect.cost, -suspect.began))
    chosen: list[Suspect] = []
    total = 0
    for suspect in order:
        if total >= needed:
            break
        chosen.append(suspect)
        total += suspect.held
    if total < needed:
        return []
    for suspect in tuple(chosen):
        if total - suspect.held >= needed:
            chosen.remove(suspect)
            total -= suspect.held
    return chosen
