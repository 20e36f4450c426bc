"""The hooks ``ray.actor._actor_launch_hook`` and ``ray.remote_function._task_launch_hook``.

Ray Tune sets them in trials, to refuse a task or actor that does not fit the bundles of its trial. They are called with the descriptor,
the resources and the scheduling strategy of a launch, once for each function and set of options, and for every actor.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from mray._api.blueprint import ActorBlueprint
from mray._api.placement_group import PlacementGroup
from mray._common.ids import PlacementGroupID
from mray._common.placement_options import is_group_strategy, launch_hooks

NONE = None


def install() -> None:
    launch_hooks.append(_ask)


def _ask(launched: Any, resources: Mapping[str, float], place: Any, wanted: Any) -> None:
    """Call Ray's launch hook. `launched`: a remote function or an actor's blueprint; `wanted`: its scheduling strategy."""
    is_actor = isinstance(launched, ActorBlueprint)
    module, name = ("ray.actor", "_actor_launch_hook") if is_actor else ("ray.remote_function", "_task_launch_hook")
    hook = getattr(sys.modules.get(module), name, None)
    if hook is None:
        return
    from mray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: PLC0415  (20 ms, without any hook)

    strategy: Any = "DEFAULT" if wanted is None or is_group_strategy(wanted) else wanted
    if place is not None:
        (group_id, index), (_group_id, captures, bundles) = place
        strategy = PlacementGroupSchedulingStrategy(PlacementGroup(PlacementGroupID(group_id), bundles), index, captures)
    class_name, function_name = (launched.class_name, "__init__") if is_actor else ("", launched.name)
    hook(SimpleNamespace(module_name=launched.module, class_name=class_name, function_name=function_name), dict(resources), strategy)
