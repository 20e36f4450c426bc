"""Trees of tasks that only start deeper tasks: each waits for the next, in a process of its own. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mray._decide.scheduler.records import GrantedLease

if TYPE_CHECKING:
    from mray._decide.scheduler.workers import WorkerPool

#: Tasks that a sentence names at the beginning, and at the end, of a chain.
_FIRST, _LAST = 3, 2


class TreesContext(Protocol):
    workers: WorkerPool


def deepest_chain(scheduler: TreesContext) -> list[GrantedLease]:
    """The longest chain of tasks of which each was started by the one before, that waits for it or holds no CPU; the root first."""
    tasks = {name: worker.claimant for name, worker in scheduler.workers.workers.items() if isinstance(worker.claimant, GrantedLease)}
    depths: dict[str, int] = {}
    for name in tasks:
        path: dict[str, None] = {}
        while name in tasks and name not in depths and name not in path:
            path[name] = None
            name = _parent(tasks[name])
        for each in reversed(path):
            parent = _parent(tasks[each])
            depths[each] = 1 + (depths.get(parent, 0) if parent in tasks and _waits(tasks[parent]) else 0)
    chain = []
    name = max(depths, key=depths.__getitem__, default="")
    for _ in range(depths.get(name, 0)):
        chain.append(tasks[name])
        name = _parent(tasks[name])
    return chain[::-1]


def _parent(task: GrantedLease) -> str:
    return task.client.process


def _waits(task: GrantedLease) -> bool:
    return task.holding is not None and (task.holding.lent or "CPU" not in task.amounts)


def sentence(chain: list[GrantedLease], workers: int) -> str:
    named = [f"{task.label} (pid {task.worker.pid if task.worker is not None else 0})" for task in chain]
    if len(named) > _FIRST + _LAST:
        named[_FIRST:-_LAST] = [f"... ({len(named) - _FIRST - _LAST} more)"]
    what = f"Tasks start tasks and wait for them, {len(chain)} deep, each in a process of its own; there are {workers} workers by now"
    return f"{what}: {', which started '.join(named)}."
