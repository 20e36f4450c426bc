"""Placement options: bundles of placement groups, scheduling strategies; and the placement that a request means.

Pure. `PlacementGroup` and the strategies live in a higher layer and are known here by their names and attributes. The texts are Ray's.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mray._common.ids import NodeID
from mray._common.labels import meets_expressions, selects, wrong_with_selector
from mray.exceptions import RaySystemError

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
NODE_ID_LABEL = "ray.io/node-id"
#: A bundle's own resource.
RESERVED = "bundle"


# ----------------------------------------------------------------------------------------- new groups
def check_group(
    bundles: Any, strategy: str | None, lifetime: str | None, label_selectors: Any, topology: Any, soft_node: str | None
) -> str:
    """The strategy of a new placement group with these arguments. Raises ValueError."""
    if topology is not None and strategy is not None:
        raise ValueError(
            "`strategy` and `topology_strategy` cannot both be specified. Pass node-level packing via "
            f"`topology_strategy['{NODE_ID_LABEL}']`."
        )
    if strategy is not None and strategy not in STRATEGIES:
        raise ValueError(f"Invalid placement group strategy {strategy}. Supported strategies are: {set(STRATEGIES)}.")
    if topology is not None:
        _check_topology(topology)
    chosen = str((topology or {}).get(NODE_ID_LABEL) or strategy or "PACK")
    if soft_node and chosen != "STRICT_PACK":
        raise ValueError(f"_soft_target_node_id currently only works with STRICT_PACK but got {chosen}")
    if soft_node and NodeID.from_hex(soft_node).is_nil():
        raise ValueError(f"Invalid hex ID of _soft_target_node_id, got {soft_node}")
    check_bundles(bundles)
    if label_selectors is not None:
        check_selector_list(label_selectors)
        if len(bundles) != len(label_selectors):
            raise ValueError(
                f"Invalid bundle label selector {label_selectors}. The length of `bundle_label_selector` should equal the length of "
                "`bundles`."
            )
    if lifetime not in (None, "detached"):
        raise ValueError(f"Placement group `lifetime` argument must be either `None` or 'detached'. Got {lifetime}.")
    return chosen


def _check_topology(topology: Any) -> None:
    if not isinstance(topology, dict):
        raise ValueError(f"`topology_strategy` must be a dict, got {type(topology).__name__}.")
    others = []
    for key, value in topology.items():
        if not isinstance(key, str) or not key:
            raise ValueError(f"`topology_strategy` keys must be non-empty strings, got {key!r}.")
        if value not in STRATEGIES:
            raise ValueError(f"Invalid topology strategy {value!r} for label {key!r}. Supported strategies are: {set(STRATEGIES)}.")
        if key != NODE_ID_LABEL:
            others.append(key)
            if value != "STRICT_PACK":
                raise ValueError(
                    f"Topology strategy {value!r} for label {key!r} is not supported yet; only 'STRICT_PACK' is supported for topology "
                    f"labels other than `{NODE_ID_LABEL}` for now."
                )
    if len(others) > 1:
        raise ValueError(f"`topology_strategy` currently supports at most one topology label other than `{NODE_ID_LABEL}`. Got {others}.")


def check_bundles(bundles: Any) -> None:
    """Raise ValueError for an invalid list of bundles, RaySystemError for a reserved resource name."""
    if not isinstance(bundles, list):
        raise ValueError(f"Placement group bundles must be a list, got {type(bundles)}.")
    example = 'Bundles must be a non-empty list of resource dictionaries. For example: `[{"CPU": 1.0}, {"GPU": 1.0}]`.'
    if not bundles:
        raise ValueError(f"{example} Got empty list instead.")
    for bundle in bundles:
        if not isinstance(bundle, dict) or not all(
            isinstance(name, str) and isinstance(amount, (int, float)) for name, amount in bundle.items()
        ):
            raise ValueError(example)
        if not any(bundle.values()):
            raise ValueError(f"Bundles cannot be an empty dictionary or resources with only 0 values. Bundles: {bundles}")
        if RESERVED in bundle:
            raise RaySystemError(f"{RESERVED} is a system reserved resource, which is not allowed to be used in placement group.")
        for name, amount in bundle.items():
            if amount < 0:
                raise ValueError(f"The quantity of resource {name} cannot be negative. Bundles: {bundles}")
            if not math.isfinite(amount):
                raise ValueError(f"The quantity of resource {name} must be a finite number. Bundles: {bundles}")
        if "object_store_memory" in bundle:
            warnings.warn(
                "Setting 'object_store_memory' for bundles is deprecated since it doesn't actually reserve the required object store "
                "memory.",
                DeprecationWarning,
                stacklevel=4,
            )


def check_selector_list(selectors: Any) -> None:
    """Raise ValueError."""
    if not isinstance(selectors, list):
        raise ValueError(f"Placement group bundle_label_selector must be a list, got {type(selectors)}.")
    for selector in selectors:
        if not isinstance(selector, dict) or not all(isinstance(text, str) for pair in selector.items() for text in pair):
            raise ValueError(
                "Bundle label selector must be a list of string dictionary label selectors. For example: "
                '`[{ray.io/market_type": "spot"}, {"ray.io/accelerator-type": "A100"}]`.'
            )
        if wrong := wrong_with_selector(selector):
            raise ValueError(f"Invalid label selector provided in bundle_label_selector list. Detailed error: '{wrong}'")


# ------------------------------------------------------------------------------------------- options
def wrong_with_strategy(_name: str, strategy: Any) -> str | None:
    if isinstance(strategy, str) and strategy not in ("DEFAULT", "SPREAD"):
        return (
            f"Invalid scheduling_strategy value {strategy}. Valid values are "
            '["DEFAULT" | "SPREAD" | PlacementGroupSchedulingStrategy | NodeAffinitySchedulingStrategy]'
        )
    return None


def wrong_with_affinity(name: str, cpus: Any) -> str | None:
    if cpus is None or cpus == "auto":
        return None
    if isinstance(cpus, str) or not cpus or any(type(cpu) is not int or cpu < 0 for cpu in cpus) or len(set(cpus)) < len(cpus):
        return f"The keyword '{name}' only accepts None, 'auto' or a non-empty list of different numbers of CPUs, got {cpus!r}."
    return None


def check_place_options(given: Mapping[str, Any]) -> None:
    """Raise ValueError when a placement is given in both ways; warn of the deprecated one."""
    group = given.get("placement_group", "default")
    if given.get("scheduling_strategy") is not None and group != "default":
        raise ValueError(
            "Placement groups should be specified via the scheduling_strategy option. The placement_group option is deprecated."
        )
    for name, unset in (
        ("placement_group", "default"),
        ("placement_group_bundle_index", -1),
        ("placement_group_capture_child_tasks", None),
    ):
        if given.get(name, unset) != unset:
            warnings.warn(
                f"{name} parameter is deprecated. Use scheduling_strategy=PlacementGroupSchedulingStrategy(...) of "
                "mray.util.scheduling_strategies instead.",
                DeprecationWarning,
                stacklevel=6,
            )


#: Called with the function or blueprint, the resources, the placement and the scheduling strategy of what this process launches, before the
#: first task of a function with some options and before each actor. The launch raises their exceptions.
launch_hooks: list[Callable[[Any, Mapping[str, float], Any, Any], None]] = []


def is_group_strategy(strategy: Any) -> bool:
    return type(strategy).__name__ == "PlacementGroupSchedulingStrategy"


def why_no_node(options: Mapping[str, Any], node_id: str, labels: Mapping[str, str]) -> str | None:
    """Why the node does not satisfy complete options, or None."""
    strategy = options["scheduling_strategy"]
    kind = type(strategy).__name__
    if kind == "NodeAffinitySchedulingStrategy" and strategy.node_id != node_id and not strategy.soft:
        return (
            "The node specified via NodeAffinitySchedulingStrategy doesn't exist any more or is infeasible, and soft=False was specified. "
            f"The session has one node, {node_id}."
        )
    if kind == "NodeLabelSchedulingStrategy" and not meets_expressions(strategy.hard, labels):
        return f"the session has one node, with the labels {dict(labels)}, which the NodeLabelSchedulingStrategy does not admit."
    selectors = [options["label_selector"], *(fallback.get("label_selector") for fallback in options["fallback_strategy"] or ())]
    if any(selects(selector, labels) for selector in selectors):
        return None
    return f"the session has one node, with the labels {dict(labels)}, and it meets none of the label selectors {selectors}."


# -------------------------------------------------------------------------------------- what fits where
def check_fit(what: str, resources: Mapping[str, float], placement: Mapping[str, float], index: int, bundles: Sequence[Any]) -> None:
    """Raise ValueError unless a task or actor fits into the bundle (-1: any) of its placement group."""
    candidates = bundles if index < 0 else [bundles[index]]
    where = f"any bundles for the placement group, {list(bundles)}."
    if index >= 0:
        where = f"the bundle {index} of the placement group, {candidates[0]}."
    if not fits(resources, candidates):
        raise ValueError(
            f"Cannot schedule {what} with the placement group because the resource request {_short(resources)} cannot fit into {where}"
        )
    if not fits(placement, candidates):
        raise ValueError(
            f"Cannot schedule {what} with the placement group because the actor requires {_short(placement).get('CPU', 0)} CPU for "
            f"creation, but it cannot fit into {where} Consider creating a placement group with CPU resources."
        )


def fits(wanted: Mapping[str, float], bundles: Sequence[Mapping[str, float]]) -> bool:
    return any(all(amount <= bundle.get(name, 0) for name, amount in wanted.items()) for bundle in bundles)


def _short(resources: Mapping[str, float]) -> dict[str, float]:
    return {name: int(amount) if amount == int(amount) else amount for name, amount in sorted(resources.items())}
