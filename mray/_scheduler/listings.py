"""Listings that processes may ask the scheduler for: lists of builtin values, made on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mray._scheduler.policy import shown_variables
from mray._scheduler.resources import to_quantities

if TYPE_CHECKING:
    from mray._scheduler.scheduler import Scheduler


class Listings:
    """One method per listing, by its name."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def cluster_resources(self) -> dict[str, float]:
        return {**self._scheduler.pool.quantities(), **self._scheduler.groups.totals()}

    def available_resources(self) -> dict[str, float]:
        return {**self._scheduler.pool.available(), **self._scheduler.groups.free()}

    def placement_groups(self) -> list[dict[str, Any]]:
        return self._scheduler.groups.listing()

    def named_placement_group(self, name: str, namespace: str) -> bytes | None:
        return self._scheduler.groups.find(name, namespace)

    def named_actors(self, all_namespaces: bool, namespace: str) -> list[dict[str, str]]:
        return self._scheduler.actors.named(all_namespaces, namespace)

    def actors(self) -> list[dict[str, Any]]:
        return self._scheduler.actors.listing()

    def workers(self) -> list[dict[str, Any]]:
        return [
            {
                "process": worker.process,
                "pid": worker.pid,
                "state": worker.state,
                "environment": shown_variables(worker.environment),
                "tenant": worker.tenant.label if worker.tenant is not None else "",
            }
            for worker in self._scheduler.workers.workers.values()
        ]

    def demands(self) -> list[dict[str, Any]]:
        return [{"label": tenant.label, "resources": to_quantities(tenant.placement)} for tenant in self._scheduler.queue.waiting()]


def listing_of(scheduler: Scheduler, name: str) -> Callable[..., Any] | None:
    """The listing of this name, or ``None`` when there is none."""
    return None if name.startswith("_") else getattr(Listings(scheduler), name, None)
