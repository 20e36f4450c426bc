"""Listings that processes may ask the scheduler for: lists of builtin values, made on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mray._decide.scheduler.actors import Actors
from mray._decide.scheduler.placement import Groups
from mray._decide.scheduler.records import Tenant
from mray._decide.scheduler.resources import ResourcePool
from mray._decide.scheduler.tenant_queue import DemandQueue


class ListingsContext(Protocol):
    """The part of the scheduler that listings show."""

    pool: ResourcePool
    queue: DemandQueue
    actors: Actors
    groups: Groups

    def tenants(self) -> list[Tenant]: ...


class Listings:
    """One method per listing, by its name."""

    def __init__(self, context: ListingsContext) -> None:
        self._context = context

    def cluster_resources(self) -> dict[str, float]:
        return {**self._context.pool.quantities(), **self._context.groups.totals()}

    def available_resources(self) -> dict[str, float]:
        return {**self._context.pool.available(), **self._context.groups.free()}

    def placement_groups(self) -> list[dict[str, Any]]:
        return self._context.groups.listing()

    def named_placement_group(self, name: str, namespace: str) -> bytes | None:
        return self._context.groups.find(name, namespace)

    def named_actors(self, all_namespaces: bool, namespace: str) -> list[dict[str, str]]:
        return self._context.actors.named(all_namespaces, namespace)

    def actors(self) -> list[dict[str, Any]]:
        return self._context.actors.listing()

    def waits(self) -> list[str]:
        """Sentences about what waits for resources, and who has these."""
        from mray._decide.scheduler.waits import Wait, sentence  # noqa: PLC0415  (not on the way to the first answer of a session)

        return [sentence(self._context, wait) for wait in map(Wait._make, self._context.queue.asleep()) if wait.tenants]


def listing_of(context: ListingsContext, name: str) -> Callable[..., Any] | None:
    """The listing of this name, or ``None`` when there is none."""
    return None if name.startswith("_") else getattr(Listings(context), name, None)
