"""Claimants that wait for resources: one FIFO queue per scheduling class.

Demands of one class are interchangeable: equal resources, environment, placement group and CPUs. Only the head of a class is tried, and
a class that did not fit sleeps until the resource it lacked is released, so that the cost of an event does not depend on the number of
waiting demands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from mray._decide.scheduler.records import Claimant, ClassKey, GrantedLease, Tally
from mray._decide.scheduler.resources import ResourcePool


class _Class:
    __slots__ = ("clients", "queue", "waits_for")

    def __init__(self) -> None:
        #: Claimants that are over are dropped at the head.
        self.queue: deque[Claimant] = deque()
        #: Claimants of `queue` that are not over, per client. Invariant: never empty.
        self.clients: Tally[str] = Tally()
        #: The resource (or the placement group's scope) that its head lacked; None: the head is to be tried.
        self.waits_for: str | None = None


class DemandQueue:
    """Invariant: a class is in `_ready` when its `waits_for` is None, and otherwise in `_asleep` under that resource."""

    def __init__(self) -> None:
        self._classes: dict[ClassKey, _Class] = {}
        self._ready: dict[ClassKey, _Class] = {}
        self._asleep: dict[str, dict[ClassKey, _Class]] = {}

    def __len__(self) -> int:
        return sum(sum(scheduling_class.clients.values()) for scheduling_class in self._classes.values())

    def push(self, claimant: Claimant) -> None:
        key = claimant.key
        scheduling_class = self._classes.get(key)
        if scheduling_class is None:
            scheduling_class = self._classes[key] = self._ready[key] = _Class()
        scheduling_class.queue.append(claimant)
        scheduling_class.clients.add(claimant.client_process)

    def drop(self, claimant: Claimant) -> None:
        key = claimant.key
        scheduling_class = self._classes[key]
        scheduling_class.clients.remove(claimant.client_process)
        if not scheduling_class.clients:
            self._forget(key, scheduling_class)

    def _forget(self, key: ClassKey, scheduling_class: _Class) -> None:
        del self._classes[key]
        self._ready.pop(key, None)
        if scheduling_class.waits_for is not None:
            asleep = self._asleep[scheduling_class.waits_for]
            del asleep[key]
            if not asleep:
                del self._asleep[scheduling_class.waits_for]

    def given_back(self, names: Iterable[str]) -> None:
        """Wake the classes that lacked these resources."""
        for name in names:
            asleep = self._asleep.pop(name, None)
            if asleep:
                for key, scheduling_class in asleep.items():
                    scheduling_class.waits_for = None
                    self._ready[key] = scheduling_class

    def next(self, pool: ResourcePool) -> Claimant | None:
        """Remove and return a claimant whose resources are free; classes take turns."""
        while self._ready:
            key, scheduling_class = next(iter(self._ready.items()))
            del self._ready[key]
            queue = scheduling_class.queue
            while queue[0].over:
                queue.popleft()
            claimant = queue[0]
            lacking = pool.lacking(claimant.needs_free) if claimant.site is None else claimant.site.lacking(claimant)
            if lacking is not None:
                scheduling_class.waits_for = lacking
                self._asleep.setdefault(lacking, {})[key] = scheduling_class
                continue
            queue.popleft()
            scheduling_class.clients.remove(claimant.client_process)
            if scheduling_class.clients:
                self._ready[key] = scheduling_class
            else:
                del self._classes[key]
            return claimant
        return None

    def lacked(self) -> dict[str, dict[ClassKey, _Class]]:
        return self._asleep

    def others_want(self, name: str, lease: GrantedLease) -> bool:
        """Whether a claimant waits for this resource that the lease's client cannot serve through the lease."""
        asleep = self._asleep[name]
        if len(asleep) > 1 or lease.key not in asleep:
            return True
        clients = asleep[lease.key].clients
        return len(clients) > 1 or lease.client.process not in clients

    def asleep(self) -> Iterator[tuple[str, list[Claimant]]]:
        for name, asleep in self._asleep.items():
            for scheduling_class in asleep.values():
                yield name, [claimant for claimant in scheduling_class.queue if not claimant.over]

    def waiting(self) -> list[Claimant]:
        return [claimant for scheduling_class in self._classes.values() for claimant in scheduling_class.queue if not claimant.over]

    def validate(self) -> None:
        assert len(self.waiting()) == len(self)
        for key, scheduling_class in self._classes.items():
            assert scheduling_class.clients, key
            if scheduling_class.waits_for is None:
                assert key in self._ready, key
            else:
                assert key in self._asleep[scheduling_class.waits_for], key
            assert all(claimant.holding is None and claimant.worker is None for claimant in scheduling_class.queue if not claimant.over)
