"""`PlacementGroup`: a reservation of resources as a user holds it. It keeps nothing alive."""

from __future__ import annotations

import math
from typing import Any

from mray._api.current import current_backend
from mray._api.object_ref import ObjectRef
from mray._common.ids import PlacementGroupID

#: Ray counts the seconds in 64 bits.
_LONGEST = 1 << 63


class PlacementGroup:
    """A reservation, created by `mray.util.placement_group`. Equal to every other one of the same id; hashable; picklable.

    Attributes: `id`, a `PlacementGroupID`.
    """

    def __init__(self, id: PlacementGroupID, bundle_cache: list[dict[str, float]] | None = None) -> None:  # Ray's names
        self.id = id
        self.bundle_cache = bundle_cache

    @staticmethod
    def empty() -> PlacementGroup:
        """The group that stands for none."""
        return PlacementGroup(PlacementGroupID.nil())

    @property
    def is_empty(self) -> bool:
        return self.id.is_nil()

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The demand: resource name to quantity, bundle by bundle. May ask the node, for at most a round trip."""
        if not self.bundle_cache:
            for row in current_backend().query("placement_groups"):
                if row["placement_group_id"] == self.id.binary():
                    self.bundle_cache = row["bundles"]
        return self.bundle_cache or []

    @property
    def bundle_count(self) -> int:
        return len(self.bundle_specs)

    def ready(self) -> ObjectRef:
        """A ref whose value is this group, as soon as all its bundles are reserved. Needs no resources; returns immediately. Any thread.

        `get` of it raises TaskPlacementGroupRemoved when the group is removed, and PlacementGroupUnschedulableError (a GetTimeoutError
        too) immediately when this machine can never satisfy it.
        """
        backend = current_backend()
        if self.is_empty:
            return backend.put(self)
        return backend.placement_group_ready(self.id.binary(), self)

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Wait until all bundles are reserved: True, or False after `timeout_seconds`.

        False immediately, with a warning, when this machine can never satisfy it; raises when the group is removed. A task that waits
        here returns its CPUs meanwhile. Any thread. Raises TypeError, ValueError for nan, OverflowError for invalid seconds.
        """
        if not -_LONGEST <= math.trunc(timeout_seconds) < _LONGEST:
            raise OverflowError("Python int too large to convert to C long")
        return current_backend().wait_placement_group(self.id.binary(), max(0, timeout_seconds))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, ...]:
        return PlacementGroup, (self.id, self.bundle_cache)


def current_group() -> PlacementGroup | None:
    """The group in which the calling task or actor runs."""
    group_id = current_backend().context().get("placement_group_id")
    return None if group_id is None else PlacementGroup(PlacementGroupID(group_id))
