"""The live lifetime roots of a session, and the processes that end with each."""

from __future__ import annotations

from collections.abc import Callable

from mray._common.messages import CAUSE_OWNER
from mray._decide.scheduler.records import WorkerRecord
from mray._decide.scheduler.root_names import root_of
from mray._decide.scheduler.workers import WorkerPool

OWNER_GONE = "the driver, or the detached actor, that it worked for has ended"


class LifetimeRoots:
    def __init__(self, workers: WorkerPool, end_worker: Callable[[WorkerRecord, str, str], None]) -> None:
        self._workers = workers
        self._end_worker = end_worker
        self._alive: set[str] = set()

    def __contains__(self, root: str) -> bool:
        return root in self._alive

    def of_job(self, job: str) -> list[str]:
        return [root for root in self._alive if root.partition("/")[0] == job]

    @property
    def jobs(self) -> int:
        return sum("/" not in root for root in self._alive)

    def begin(self, root: str) -> None:
        self._alive.add(root)

    def end(self, root: str, *, at_once: bool) -> None:
        """End the root's workers. Without `at_once`, exiting workers exit in order."""
        if not root or root not in self._alive:
            return
        self._alive.discard(root)
        for worker in self._workers.of(root):
            if worker.intended is None or at_once:
                self._end_worker(worker, CAUSE_OWNER, OWNER_GONE)
        self._workers.forget(root)

    def ended_before(self, worker: WorkerRecord) -> bool:
        """Whether an idle worker was started just before its root ended; then it is ended."""
        root = root_of(worker.environment)
        if not root or root in self._alive:
            return False
        self._end_worker(worker, CAUSE_OWNER, OWNER_GONE)
        return True

    def worker_died(self, worker: WorkerRecord) -> None:
        root = root_of(worker.environment)
        if root and root not in self._alive:
            self._workers.forget(root)
