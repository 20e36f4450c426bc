"""`ActorClassMetadata`: the content of ``A.__ray_metadata__``, which frameworks read. Created on demand; changing it has no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mray._api.blueprint import METHOD_ATTRIBUTE

if TYPE_CHECKING:
    from mray._api.blueprint import ActorBlueprint

_OPTIONS = (
    "num_cpus",
    "num_gpus",
    "memory",
    "object_store_memory",
    "resources",
    "label_selector",
    "fallback_strategy",
    "accelerator_type",
    "runtime_env",
    "concurrency_groups",
    "scheduling_strategy",
    "enable_tensor_transport",
)


class MethodMetadata:
    """Of the methods, each by name: `methods` (the functions), `num_returns` (as decorated, or None), `method_is_generator`."""

    def __init__(self, blueprint: ActorBlueprint) -> None:
        own = {"__init__": blueprint.init, **blueprint.methods}
        found = {name: getattr(blueprint.cls, name, None) for name in own}
        self.methods = {name: method for name, method in found.items() if method is not None}
        self.num_returns = {name: getattr(found[name], METHOD_ATTRIBUTE, {}).get("num_returns") for name in own}
        self.method_is_generator = {name: spec.is_generator for name, spec in own.items()}


class ActorClassMetadata:
    """Of a class of actors: `class_name` (qualified), `modified_class` (the user's class: nothing is modified), `max_restarts`,
    `max_task_retries`, the other given options of `remote`, `method_meta`.
    """

    is_cross_language = False

    def __init__(self, blueprint: ActorBlueprint, given: Mapping[str, Any]) -> None:
        self.class_name = blueprint.name
        self.modified_class = blueprint.cls
        self.max_restarts: int = given.get("max_restarts") or 0
        self.max_task_retries: int = given.get("max_task_retries") or 0
        for name in _OPTIONS:
            setattr(self, name, given.get(name))
        self.method_meta = MethodMetadata(blueprint)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.class_name})"
