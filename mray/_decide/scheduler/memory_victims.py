"""The choice of workers to end when the machine's memory runs low, as a pure function of the node's measurements.

Workers are ended in the order of what their end costs:

1. idle workers on which no actor, object or task depends;
2. workers whose task may be retried;
3. workers whose actor may be restarted: it loses its state;
4. workers whose task may not, then those whose actor may not.

Within each class the worker that began last goes first: it has the least to lose and most likely caused the shortage. A worker that
holds next to nothing is skipped while others hold enough. Ray 2.60 goes by the start time alone.

If the end of all of them would not suffice, other programs have the memory, and no worker is ended, since the next ones would be ended
too. (Ray ends one after the other.) In the last resort the kernel kills a process, a worker first (`mray._ipc.process`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mray._common.messages import DEAD
from mray._common.record import Record
from mray._decide.scheduler.records import BUSY, IDLE, ActorRecord, GrantedLease, Member, WorkerRecord

#: Costs of ending a worker, ascending.
IDLE_WORKER, TASK_AGAIN, ACTOR_AGAIN, TASK, ACTOR = range(5)


class Suspect(Record):
    process: str
    pid: int
    label: str
    #: One of the constants above.
    cost: int
    #: The number of its assignment: the highest began last.
    began: int
    #: Bytes that its end frees.
    held: int

    @property
    def runs_task(self) -> bool:
        """Whether it runs a task, perhaps a later one of its lease than its label names."""
        return self.began > 0 and self.cost in (TASK_AGAIN, TASK)

    @property
    def retriable(self) -> bool:
        return self.cost in (IDLE_WORKER, TASK_AGAIN, ACTOR_AGAIN)


def suspects(
    workers: Iterable[WorkerRecord], members: Mapping[str, Member], held: Callable[[int], int], is_lending: Callable[[str], bool]
) -> list[Suspect]:
    """The workers that can be ended; `held` returns the bytes of a pid, `is_lending` whether other processes hold objects that a process
    owns.

    Actors without holders are included: their received calls may run for long.
    """
    found = []
    for worker in workers:
        claimant = worker.claimant
        if worker.state == IDLE:
            member = members[worker.process]
            if member.owned or is_lending(worker.process):
                cost, label = ACTOR, "an idle worker that owns actors or objects"
            elif member.leases:
                cost, label = TASK, "an idle worker whose tasks run elsewhere"
            else:
                cost, label = IDLE_WORKER, "an idle worker"
            began = 0
        elif worker.state == BUSY and isinstance(claimant, GrantedLease):
            cost, label, began = TASK_AGAIN if claimant.retriable else TASK, claimant.label, claimant.began
        elif worker.state == BUSY and isinstance(claimant, ActorRecord) and claimant.state != DEAD:
            again = claimant.restarts_left and not claimant.leaving
            cost, label, began = ACTOR_AGAIN if again else ACTOR, claimant.label, claimant.began
        else:
            continue
        found.append(Suspect(worker.process, worker.pid, label, cost, began, held(worker.pid)))
    return found


def choose(there: Sequence[Suspect], needed: int) -> list[Suspect]:
    """The workers whose end frees `needed` bytes at the least cost; empty if all together do not."""
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
