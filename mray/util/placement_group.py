"""Placement groups: resources reserved together, in bundles, for the tasks and actors that name the group.

::

    group = placement_group([{"CPU": 1, "GPU": 1}, {"CPU": 2}])
    mray.get(group.ready())
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    actor = Trainer.options(num_gpus=1, scheduling_strategy=strategy).remote()
    remove_placement_group(group)

PACK, SPREAD and STRICT_PACK mean the same. STRICT_SPREAD of several bundles stays pending forever, as does a group that needs more
than the machine has: `wait` returns False and `ready()` raises, both immediately.
"""

from __future__ import annotations

from typing import Any

from mray._api.current import current_backend
from mray._api.placement_group import PlacementGroup, current_group
from mray._common.ids import PlacementGroupID
from mray._common.options import plain, plain_inside
from mray._common.placement_options import STRATEGIES, check_group

__all__ = [
    "VALID_PLACEMENT_GROUP_STRATEGIES",
    "PlacementGroup",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
    "validate_placement_group",
]

VALID_PLACEMENT_GROUP_STRATEGIES = set(STRATEGIES)


def validate_placement_group(
    bundles: list[dict[str, float]],
    strategy: str | None = None,
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
    topology_strategy: dict[str, str] | None = None,
) -> bool:
    """Return True; ValueError for invalid arguments of `placement_group`."""
    check_group(bundles, strategy, lifetime, bundle_label_selector, topology_strategy, _soft_target_node_id)
    return True


def placement_group(
    bundles: list[dict[str, float]],
    strategy: str | None = None,
    name: str = "",
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
    topology_strategy: dict[str, str] | None = None,
) -> PlacementGroup:
    """Reserve resources as soon as all bundles fit; the call does not wait for that.

    `bundles`: resource name to quantity, at least one. `strategy`: PACK (default), SPREAD, STRICT_PACK or STRICT_SPREAD. `name` is
    unique in the namespace. The group ends with the actor that created it, or else with the driver, unless ``lifetime="detached"``.
    `bundle_label_selector`: the node labels that each bundle requires. `topology_strategy`: a strategy under the label
    ``ray.io/node-id``; one machine satisfies all others.

    ValueError for invalid arguments, RaySystemError when the name is taken.
    """
    backend = current_backend()
    chosen = check_group(bundles, strategy, lifetime, bundle_label_selector, topology_strategy, _soft_target_node_id)
    _check_name(name or "")
    amounts = [{plain(resource): float(amount) for resource, amount in bundle.items()} for bundle in bundles]
    selectors = plain_inside(bundle_label_selector)
    group_id = backend.create_placement_group(amounts, chosen, plain(name or ""), lifetime == "detached", selectors)
    return PlacementGroup(PlacementGroupID(group_id), amounts)


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """End a reservation: waiting work of the group fails with TaskPlacementGroupRemoved or ActorUnschedulableError, running work is killed.

    A bundle is free once its processes are dead. Idempotent.
    """
    assert placement_group is not None
    current_backend().remove_placement_group(placement_group.id.binary())


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"The name of a placement group must be a string. Got {name!r}.")


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """The group with this name in the session's namespace; ValueError for an unknown name."""
    _check_name(placement_group_name)
    if not placement_group_name:
        raise ValueError("Please supply a non-empty value to get_placement_group")
    backend = current_backend()
    found = backend.query("named_placement_group", plain(placement_group_name), backend.info()["namespace"])
    if found is None:
        raise ValueError(f"Failed to look up placement group with name: {placement_group_name}")
    return PlacementGroup(PlacementGroupID(found))


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """State and bundles of a group ({} for an unknown one), or of all groups by hex id."""
    backend = current_backend()
    node_id = str(backend.info()["node_id"])
    table = {row["placement_group_id"].hex(): _described(row, node_id) for row in backend.query("placement_groups")}
    return table if placement_group is None else table.get(placement_group.id.hex(), {})


def get_current_placement_group() -> PlacementGroup | None:
    """The group in which the caller runs; ``None`` outside of groups and in the driver."""
    return current_group()


def _described(row: dict[str, Any], node_id: str) -> dict[str, Any]:
    if "described" in row:  # by Ray itself
        return dict(row["described"])
    created = row["state"] == "CREATED"
    return {
        "placement_group_id": row["placement_group_id"].hex(),
        "name": row["name"],
        "bundles": dict(enumerate(row["bundles"])),
        "bundles_to_node_id": dict.fromkeys(range(len(row["bundles"])), node_id if created else ""),
        "strategy": row["strategy"],
        "state": row["state"],
        "stats": {"scheduling_state": scheduling_state(row)},
    }


def scheduling_state(row: dict[str, Any]) -> str:
    if row["impossible"] and row["state"] == "PENDING":
        return "INFEASIBLE"
    return {"PENDING": "QUEUED", "CREATED": "FINISHED", "REMOVED": "REMOVED"}[row["state"]]
