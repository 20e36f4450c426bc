"""Worker processes: starting, idle, and the claimants that wait for one.

A worker belongs to one environment for life, and after its first work to its GPUs: a process that ran with GPUs is never reused without,
nor the reverse, nor with other GPUs, nor a client of MPS as none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mray._common.accelerator_kinds import GpuId
from mray._decide.scheduler.policy import SPAWN_ATTEMPTS
from mray._decide.scheduler.records import BUSY, IDLE, STARTING, Claimant, Tally, WorkerRecord
from mray._decide.scheduler.root_names import Environment, root_of

_Gpus = tuple[GpuId, ...] | None


class WorkerPool:
    def __init__(self, new_process: Callable[[], str]) -> None:
        self._new_process = new_process
        self.workers: dict[str, WorkerRecord] = {}
        #: Idle workers by use; the most recently busy is taken first.
        self._idle: dict[tuple[Environment, _Gpus], dict[str, WorkerRecord]] = {}
        #: Idle workers, the longest idle first.
        self._idle_order: dict[str, WorkerRecord] = {}
        #: The number of starting workers; of failed starts in a row.
        self._starting: Tally[Environment] = Tally()
        self._failures: Tally[Environment] = Tally()
        #: Claimants with resources and without a worker, and how many of them are not over; no queue has none. Claimants that are over are
        #: dropped at the head.
        self._waiting: dict[Environment, deque[Claimant]] = {}
        self._waiting_count: Tally[Environment] = Tally()

    # ------------------------------------------------------------------------------------ finding one
    def take(self, claimant: Claimant, gpus: tuple[GpuId, ...], suits: Callable[[WorkerRecord, Claimant], bool]) -> WorkerRecord | None:
        for past in (gpus, None):
            for worker in reversed(self._idle.get((claimant.environment, past), {}).values()):
                if suits(worker, claimant):
                    self._no_longer_idle(worker)
                    worker.state = BUSY
                    worker.gpus = gpus
                    return worker
        return None

    def wait(self, claimant: Claimant) -> None:
        self._waiting.setdefault(claimant.environment, deque()).append(claimant)
        self._waiting_count.add(claimant.environment)

    def drop(self, claimant: Claimant) -> None:
        self._no_longer_waiting(claimant.environment)

    def _no_longer_waiting(self, environment: Environment) -> None:
        self._waiting_count.remove(environment)
        if environment not in self._waiting_count:
            del self._waiting[environment]

    def missing(self, environment: Environment) -> int:
        return max(0, self._waiting_count.get(environment, 0) - self._starting.get(environment, 0))

    def start(self, environment: Environment) -> WorkerRecord:
        worker = WorkerRecord(self._new_process(), environment)
        self.workers[worker.process] = worker
        self._starting.add(environment)
        return worker

    def next_claimant(
        self, worker: WorkerRecord, gpus_of: Callable[[Claimant], tuple[GpuId, ...]], suits: Callable[[WorkerRecord, Claimant], bool]
    ) -> Claimant | None:
        queue = self._waiting.get(worker.environment)
        while queue:
            claimant = queue[0]
            if claimant.over:
                queue.popleft()
                continue
            if (worker.gpus is not None and worker.gpus != gpus_of(claimant)) or not suits(worker, claimant):
                return None
            queue.popleft()
            self._no_longer_waiting(worker.environment)
            worker.state = BUSY
            worker.gpus = gpus_of(claimant)
            return claimant
        return None

    def of(self, root: str) -> list[WorkerRecord]:
        return [worker for worker in self.workers.values() if root_of(worker.environment) == root]

    def forget(self, root: str) -> None:
        if self.of(root):
            return
        for environment in [environment for environment in self._failures if root_of(environment) == root]:
            if environment not in self._waiting:
                del self._failures[environment]

    # ------------------------------------------------------------------------------------ their lives
    def joined(self, worker: WorkerRecord, pid: int) -> None:
        worker.pid = pid
        self._no_longer_starting(worker)
        self._failures.pop(worker.environment, None)

    def _no_longer_starting(self, worker: WorkerRecord) -> None:
        if worker.state == STARTING:
            worker.state = BUSY
            self._starting.remove(worker.environment)

    def rest(self, worker: WorkerRecord) -> None:
        worker.state = IDLE
        worker.claimant = None
        self._idle.setdefault((worker.environment, worker.gpus), {})[worker.process] = worker
        self._idle_order[worker.process] = worker

    def surplus(self, limit: int, may_go: Callable[[WorkerRecord], bool]) -> list[WorkerRecord]:
        excess = len(self._idle_order) - limit
        found = [worker for worker in self._idle_order.values() if may_go(worker)][:excess] if excess > 0 else []
        for worker in found:
            self._no_longer_idle(worker)
        return found

    def rivals(self, gpus: tuple[GpuId, ...]) -> list[WorkerRecord]:
        """Remove and return idle workers that may still hold memory of these GPUs."""
        found = [worker for worker in self._idle_order.values() if worker.gpus and not set(gpus).isdisjoint(worker.gpus)]
        for worker in found:
            self._no_longer_idle(worker)
        return found

    def withdraw(self, worker: WorkerRecord) -> None:
        if worker.state == IDLE:
            self._no_longer_idle(worker)

    def _no_longer_idle(self, worker: WorkerRecord) -> None:
        del self._idle_order[worker.process]
        key = (worker.environment, worker.gpus)
        group = self._idle[key]
        del group[worker.process]
        if not group:
            del self._idle[key]

    def died(self, worker: WorkerRecord, *, for_good: bool = False) -> bool:
        """Return True if the worker's environment cannot start workers, so that waiting claimants are to be refused. `for_good`: another
        attempt would fail too.
        """
        del self.workers[worker.process]
        if worker.state == IDLE:
            self._no_longer_idle(worker)
        if worker.state != STARTING:
            return False
        self._no_longer_starting(worker)
        self._failures.add(worker.environment)
        if self._failures[worker.environment] < SPAWN_ATTEMPTS and not for_good:
            return False
        del self._failures[worker.environment]
        return True

    def give_up(self, environment: Environment) -> list[Claimant]:
        queue = self._waiting.pop(environment, deque())
        self._waiting_count.pop(environment, None)
        return [claimant for claimant in queue if not claimant.over]

    @property
    def idle_count(self) -> int:
        return len(self._idle_order)

    def waiting(self) -> list[Claimant]:
        return [claimant for queue in self._waiting.values() for claimant in queue if not claimant.over]

    def validate(self) -> None:
        idle = {process for group in self._idle.values() for process in group}
        assert idle == set(self._idle_order) == {worker.process for worker in self.workers.values() if worker.state == IDLE}
        starting: Tally[Environment] = Tally()
        for worker in self.workers.values():
            if worker.state == STARTING:
                starting.add(worker.environment)
            if worker.state in (STARTING, IDLE):
                assert worker.claimant is None, worker.process
        assert starting == self._starting
        assert all(self._waiting_count.values())
        assert self._waiting_count.keys() == self._waiting.keys()
        for environment, count in self._waiting_count.items():
            assert count == sum(not claimant.over for claimant in self._waiting.get(environment, ())), environment
            assert count <= self._starting.get(environment, 0), environment
        for claimant in self.waiting():
            assert claimant.holding is not None
            assert claimant.worker is None
