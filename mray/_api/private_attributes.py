"""Ray's private attributes of handles, methods and remote functions that wrappers read; mray reads none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mray._api.blueprint import ActorBlueprint, ActorMethodSpec
from mray._common.language import Language
from mray._common.record import Record


class FunctionDescriptor(Record):
    """The constructor of a class of actors, as Ray describes functions."""

    module_name: str
    class_name: str
    function_name: str = "__init__"

    @property
    def repr(self) -> str:
        return ".".join(self)


def _parameters(spec: ActorMethodSpec) -> list[Any]:
    return list(spec.signature.signature().parameters.values())


def _decorated_returns(spec: ActorMethodSpec) -> int | str | None:
    return None if spec.num_returns == ("streaming" if spec.is_generator else 1) else spec.num_returns


def _option(name: str, default: Any) -> Callable[[ActorMethodSpec], Any]:
    return lambda spec: (spec.options or {}).get(name, default)


#: Options of methods, with their defaults.
_OPTIONS = {"max_task_retries": 0, "retry_exceptions": None, "generator_backpressure_num_objects": -1, "enable_task_events": True}
_KEYS = {name: f"_{name}" if name.startswith("generator") else name for name in _OPTIONS}

METHOD: Mapping[str, Callable[[ActorMethodSpec], Any]] = {
    "_method_name": lambda spec: spec.name,
    "_num_returns": lambda spec: spec.num_returns,
    "_is_generator": lambda spec: spec.is_generator,
    "_decorator": lambda spec: spec.decorator,
    "_signature": _parameters,
    **{f"_{name}": _option(_KEYS[name], default) for name, default in _OPTIONS.items()},
}


def _by_method(tell: Callable[[ActorMethodSpec], Any]) -> Callable[[ActorBlueprint], dict[str, Any]]:
    return lambda blueprint: {name: tell(spec) for name, spec in {"__init__": blueprint.init, **blueprint.methods}.items()}


def _where_set(option: str) -> Callable[[ActorBlueprint], dict[str, Any]]:
    def tell(blueprint: ActorBlueprint) -> dict[str, Any]:
        return {name: spec.options[option] for name, spec in blueprint.methods.items() if spec.options and option in spec.options}

    return tell


HANDLE: Mapping[str, Callable[[ActorBlueprint], Any]] = {
    "_ray_method_signatures": _by_method(_parameters),
    "_ray_method_num_returns": _by_method(_decorated_returns),
    "_ray_method_is_generator": _by_method(lambda spec: spec.is_generator),
    "_ray_method_decorators": lambda blueprint: {name: spec.decorator for name, spec in blueprint.methods.items() if spec.decorator},
    "_ray_method_name_to_tensor_transport": _where_set("tensor_transport"),
    **{f"_ray_method_{name}": _where_set(_KEYS[name]) for name in _OPTIONS},
    "_ray_actor_creation_function_descriptor": lambda blueprint: FunctionDescriptor(blueprint.module, blueprint.name),
    "_ray_actor_language": lambda _blueprint: Language.PYTHON,
    "_ray_is_cross_language": lambda _blueprint: False,
}
