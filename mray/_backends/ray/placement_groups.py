"""Placement groups on Ray."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from mray._api.object_ref import ObjectRef
from mray._backends.ray.errors import translating


def _group(group_id: bytes) -> Any:
    return PlacementGroup(ray.PlacementGroupID(group_id))


class PlacementGroupCalls:
    def create_placement_group(
        self, bundles: list[dict[str, float]], strategy: str, name: str, detached: bool, selectors: list[dict[str, str]] | None
    ) -> bytes:
        given: dict[str, Any] = {} if selectors is None else {"bundle_label_selector": selectors}
        with translating:
            group = placement_group(bundles, strategy, name, "detached" if detached else None, **given)
        found: bytes = group.id.binary()
        return found

    def remove_placement_group(self, group_id: bytes) -> None:
        with translating:
            remove_placement_group(_group(group_id))

    def placement_group_ready(self, group_id: bytes, value: Any) -> ObjectRef:
        """Ray's ref: its value is translated by `get`."""
        ref = _group(group_id).ready()
        return ObjectRef(ref.binary(), ref)

    def wait_placement_group(self, group_id: bytes, timeout: float) -> bool:
        with translating:
            return bool(_group(group_id).wait(timeout))
