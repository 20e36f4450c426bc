"""Tenants that wait for resources: one first-in-first-out queue per scheduling class.

A class is what makes two demands interchangeable: resources, environment, placement group, CPUs. Only the head of a class is ever
tried, and a class that did not fit sleeps until the resource it lacked is given back, so an event costs the same whether one demand
waits or 100,000.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from mray._decide.scheduler.records import ClassKey, GrantedLease, Tally, Tenant
from mray._decide.scheduler.resources import ResourcePool


class _Class:
    __slots__ = ("clients", "queue", "waits_for")

    def __init__(self) -> None:
        #: May hold tenants that are over: they are dropped when they reach the head.
        self.queue: deque[Tenant] = deque()
        #: How many in `queue` are not over, per client. Invariant: never empty.
        self.clients: Tally[str] = Tally()
        #: The resource (or the scope of the placement group) that its head lacked, or ``None`` when it should be tried.
        self.waits_for: str | None = None


class DemandQueue:
    """All tenants that wait for resources.

    Invariant: a class is in `_ready` when its `waits_for` is None, and otherwise in `_asleep` under that resource.
    """

    def __init__(self) -> None:
        self._classes: dict[ClassKey, _Class] = {}
        self._ready: dict[ClassKey, _Class] = {}
        self._asleep: dict[str, dict[ClassKey, _Class]] = {}

    def __len__(self) -> int:
        return sum(sum(scheduling_class.clients.values()) for scheduling_class in self._classes.values())

    def push(self, tenant: Tenant) -> None:
        """Queue a tenant behind its like."""
        key = tenant.key
        scheduling_class = self._classes.get(key)
        if scheduling_class is None:
            scheduling_class = self._classes[key] = self._ready[key] = _Class()
        scheduling_class.queue.append(tenant)
        scheduling_class.clients.add(tenant.client_process)

    def drop(self, tenant: Tenant) -> None:
        """A tenant that is queued here is over."""
        key = tenant.key
        scheduling_class = self._classes[key]
        scheduling_class.clients.remove(tenant.client_process)
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
        """These resources were given back: wake the classes that lacked them."""
        for name in names:
            asleep = self._asleep.pop(name, None)
            if asleep:
                for key, scheduling_class in asleep.items():
                    scheduling_class.waits_for = None
                    self._ready[key] = scheduling_class

    def next(self, pool: ResourcePool) -> Tenant | None:
        """Take out a tenant whose resources are free now; classes take turns."""
        while self._ready:
            key, scheduling_class = next(iter(self._ready.items()))
            del self._ready[key]
            queue = scheduling_class.queue
            while queue[0].over:
                queue.popleft()
            tenant = queue[0]
            lacking = pool.lacking(tenant.needs_free) if tenant.site is None else tenant.site.lacking(tenant)
            if lacking is not None:
                scheduling_class.waits_for = lacking
                self._asleep.setdefault(lacking, {})[key] = scheduling_class
                continue
            queue.popleft()
            scheduling_class.clients.remove(tenant.client_process)
            if scheduling_class.clients:
                self._ready[key] = scheduling_class
            else:
                del self._classes[key]
            return tenant
        return None

    def lacked(self) -> dict[str, dict[ClassKey, _Class]]:
        """The resources that some tenant waits for (as keys)."""
        return self._asleep

    def others_want(self, name: str, lease: GrantedLease) -> bool:
        """Whether somebody waits for this resource whom the lease's client cannot serve through the lease itself."""
        asleep = self._asleep[name]
        if len(asleep) > 1 or lease.key not in asleep:
            return True
        clients = asleep[lease.key].clients
        return len(clients) > 1 or lease.client.process not in clients

    def asleep(self) -> Iterator[tuple[str, list[Tenant]]]:
        """Of each class that waits for a resource: which one, and the tenants in their order (walks everything)."""
        for name, asleep in self._asleep.items():
            for scheduling_class in asleep.values():
                yield name, [tenant for tenant in scheduling_class.queue if not tenant.over]

    def waiting(self) -> list[Tenant]:
        """Every tenant that waits (for listings and tests; walks everything)."""
        return [tenant for scheduling_class in self._classes.values() for tenant in scheduling_class.queue if not tenant.over]

    def validate(self) -> None:
        assert len(self.waiting()) == len(self)
        for key, scheduling_class in self._classes.items():
            assert scheduling_class.clients, key
            if scheduling_class.waits_for is None:
                assert key in self._ready, key
            else:
                assert key in self._asleep[scheduling_class.waits_for], key
            assert all(tenant.holding is None and tenant.worker is None for tenant in scheduling_class.queue if not tenant.over)
