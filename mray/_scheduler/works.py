"""The works of a session that are not over, and what goes when one ends (see `mray._scheduler.jobs` for what a work is)."""

from __future__ import annotations

from typing import Protocol

from mray._common.messages import CAUSE_OWNER
from mray._scheduler.jobs import work_of
from mray._scheduler.records import LEAVING, STARTING, WorkerRecord
from mray._scheduler.workers import WorkerPool

OWNER_GONE = "the driver, or the detached actor, that it worked for has ended"


class Floor(Protocol):
    """What the works need of the scheduler."""

    workers: WorkerPool

    def kill_process(self, process: str) -> None: ...


class Works:
    """Which works go on."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._alive: set[str] = set()

    def __contains__(self, work: str) -> bool:
        return work in self._alive

    def of_job(self, job: str) -> list[str]:
        """What goes on of a job: the driver's own work, its detached actors."""
        return [work for work in self._alive if work.partition("/")[0] == job]

    @property
    def jobs(self) -> int:
        """How many drivers are there."""
        return sum("/" not in work for work in self._alive)

    def begin(self, work: str) -> None:
        """A driver, or a detached actor, is there."""
        self._alive.add(work)

    def end(self, work: str, *, at_once: bool) -> None:
        """A driver or a detached actor is gone, and so is what was done for it. Without `at_once`, who is ending already ends in order."""
        if not work or work not in self._alive:
            return
        self._alive.discard(work)
        workers = self._floor.workers
        for worker in workers.of(work):
            if worker.intended is None or at_once:
                self._end(worker)
        workers.forget(work)

    def _end(self, worker: WorkerRecord) -> None:
        self._floor.workers.withdraw(worker)
        worker.intended = worker.intended or (CAUSE_OWNER, OWNER_GONE)
        if worker.state != STARTING:  # else it may have no process yet, and is ended once more when it joins
            worker.state = LEAVING
        self._floor.kill_process(worker.process)

    def ended_before(self, worker: WorkerRecord) -> bool:
        """Whether a worker that has nothing to do was asked for in the last moment of its work: then it ends."""
        work = work_of(worker.environment)
        if not work or work in self._alive:
            return False
        self._end(worker)
        return True

    def worker_died(self, worker: WorkerRecord) -> None:
        """The last worker of a work that is over takes with it what is remembered of its environments."""
        work = work_of(worker.environment)
        if work and work not in self._alive:
            self._floor.workers.forget(work)
