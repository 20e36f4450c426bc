"""Objects that only Ray makes, as mray's: refs, and values of classes of Ray's.

In driver and workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import ray
from ray.util.placement_group import PlacementGroup

from mray._api.object_ref import ObjectRef
from mray._api.ref_generator import DynamicObjectRefGenerator
from mray._backends.ray.options import group_from


def ref_of(ref: Any) -> ObjectRef:
    """mray's ref of a ref of Ray's."""
    return ObjectRef(ref.binary(), ref)


def unknown(ref: ObjectRef) -> NoReturn:
    """The error of Ray's refs of former sessions, for ids that nobody made."""
    raise ValueError(f"Ray object whose owner is unknown: {ref!r}: no session made it.")


#: Types of values that only Ray makes, and what the user is to see of them.
RAYS_VALUES: dict[type, Callable[[Any], Any]] = {
    ray.DynamicObjectRefGenerator: lambda found: DynamicObjectRefGenerator([ref_of(ref) for ref in found]),
    PlacementGroup: group_from,
}


def value_of(value: Any) -> Any:
    """The value, or what the user is to see of it."""
    translate = RAYS_VALUES.get(type(value))
    return value if translate is None else translate(value)
