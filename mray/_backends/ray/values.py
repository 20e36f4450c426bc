"""Conversion of objects that only Ray creates to mray's: refs, and values of Ray's classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup

from mray._api.actor_handle import ActorHandle
from mray._api.object_ref import ObjectRef
from mray._api.ref_generator import DynamicObjectRefGenerator
from mray._backends.ray.ray_options import group_from


def ref_of(ref: Any) -> ObjectRef:
    return ObjectRef(ref.binary(), ref)


def rays_own(thing: ObjectRef | ActorHandle) -> Any:
    """Ray's ref or handle inside one of mray's; None for an unknown id, and for objects of no cluster."""
    return thing._entry if isinstance(thing, ObjectRef) else thing._carried  # noqa: SLF001  (the engine's, which this is)


def rays_ref(ref: ObjectRef) -> Any:
    """ValueError for an unknown id, as for Ray's refs of former sessions."""
    found = rays_own(ref)
    if found is None:
        raise ValueError(f"Ray object whose owner is unknown: {ref!r}: no session created it.")
    return found


#: Types that only Ray creates -> conversions.
RAYS_VALUES: dict[type, Callable[[Any], Any]] = {
    ray.DynamicObjectRefGenerator: lambda found: DynamicObjectRefGenerator([ref_of(ref) for ref in found]),
    PlacementGroup: group_from,
}


def value_of(value: Any) -> Any:
    translate = RAYS_VALUES.get(type(value))
    return value if translate is None else translate(value)
