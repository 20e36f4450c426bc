"""Conversion of mray's options to Ray's.

mray's options are checked and complete; Ray is passed those that differ from mray's defaults, so that its own defaults apply
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
import ray.util.scheduling_strategies as strategies
from ray.util.placement_group import PlacementGroup as RayPlacementGroup

from mray._api.placement_group import PlacementGroup
from mray._common.ids import PlacementGroupID
from mray._common.options import ACTOR_OPTIONS, TASK_OPTIONS, Option

#: Options that Ray lacks.
_MISSING = {
    "cpu_affinity": "pins tasks and actors to CPUs",
    "retry_delay_s": "sets the pause before retries",
    "timeout_s": "limits the time of a task",
}
#: Options of a function, not of a call.
_OF_FUNCTIONS = ("max_calls", "_num_objects_per_yield")
#: Options of a class, not of an actor.
_OF_CLASSES = ("concurrency_groups", "enable_tensor_transport")


def function_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options for ``ray.remote``; `given` are the decorator's."""
    options = {name: given[name] for name in _OF_FUNCTIONS if given.get(name) is not None}
    if given.get("num_gpus"):
        options["num_gpus"] = given["num_gpus"]  # Ray derives max_calls from it
    return options


def task_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for ``.options``; 0 GPUs count as not asked for."""
    found = {name: value for name, value in _translated(options, TASK_OPTIONS).items() if name not in _OF_FUNCTIONS}
    return found if found.get("num_gpus") else {name: value for name, value in found.items() if name != "num_gpus"}


def class_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for ``ray.remote``, from complete `options`."""
    return {name: options[name] for name in _OF_CLASSES if options.get(name) is not None}


def actor_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for ``.options``, from complete `options`."""
    return {name: value for name, value in _translated(options, ACTOR_OPTIONS).items() if name not in _OF_CLASSES}


def method_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a call; ``retry_exceptions`` that only the class knows are left to it."""
    return {name: value for name, value in options.items() if value is not None and value != "declared"}


def _translated(options: Mapping[str, Any], declared: Mapping[str, Option]) -> dict[str, Any]:
    found = {}
    for name, value in options.items():
        option = declared.get(name)
        if value is None or option is None or (value is option.default or value == option.default):
            continue
        if name in _MISSING:
            raise NotImplementedError(
                f"the option {name!r}, which {_MISSING[name]}, does not exist on Ray (mray-on-Ray: {ray.__version__})."
            )
        if name == "scheduling_strategy":
            value = strategy_of(value)
        elif name == "placement_group" and isinstance(value, PlacementGroup):
            value = group_of(value)
        elif name == "retry_exceptions" and not isinstance(value, bool):
            value = list(value)
        found[name] = value
    return found


# ---------------------------------------------------------------------------------------------- places
def group_of(group: PlacementGroup) -> Any:
    return RayPlacementGroup(ray.PlacementGroupID(group.id.binary()), group.bundle_cache)


def group_from(group: Any) -> PlacementGroup:
    return PlacementGroup(PlacementGroupID(group.id.binary()), group.bundle_cache)


def strategy_of(value: Any) -> Any:
    """Ray's strategy; strings are unchanged."""
    kind = type(value).__name__
    if kind == "PlacementGroupSchedulingStrategy":
        group = value.placement_group
        return strategies.PlacementGroupSchedulingStrategy(
            None if group is None else group_of(group), value.placement_group_bundle_index, value.placement_group_capture_child_tasks
        )
    if kind == "NodeAffinitySchedulingStrategy":
        return strategies.NodeAffinitySchedulingStrategy(value.node_id, value.soft, value._spill_on_unavailable, value._fail_on_unavailable)
    if kind == "NodeLabelSchedulingStrategy":
        return strategies.NodeLabelSchedulingStrategy(_expressions(value.hard), soft=_expressions(value.soft))
    return value


def _expressions(found: list[Any]) -> dict[str, Any] | None:
    made = {}
    for expression in found:
        kind = getattr(strategies, type(expression.operator).__name__)
        made[expression.key] = kind(*getattr(expression.operator, "values", ()))
    return made or None
