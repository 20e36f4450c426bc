"""Wrappers: functions and classes that Ray receives instead of the user's.

To Ray a wrapper looks like the user's own (names, signature, kind, options); it has the user's code in a cell, as a `Shipped`. It is
pickled by value: the functions below must not use globals.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import ray
import ray.cloudpickle

from mray._api.blueprint import COMMON_METHODS, ActorBlueprint, ActorMethodSpec
from mray._api.signature import CallSignature
from mray._backends.ray.shipped_code import Arrival, Shipped
from mray._inside.values import UNPICKLABLE, serialization_error


def shipped(owner: Any, kind: str, value: Any, arrival: Arrival) -> Shipped:
    """The user's function or class with its bytes; TypeError if it cannot be pickled (see `serialization_error`)."""
    try:
        payload = ray.cloudpickle.dumps(owner.code() if kind == "actor class" else value)
    except UNPICKLABLE as error:
        name = f"{owner.module}.{owner.name}" + (".__init__" if kind == "actor class" else "")
        raise serialization_error(error, value, f"the {kind} {name}") from error
    return Shipped(value, payload, arrival)


# Ray sends values into generators, which ``yield from`` of a user's iterator would not accept: wrappers iterate.


# ------------------------------------------------------------------------------------------- functions
def function_wrapper(function: Any, arrival: Arrival) -> Any:
    code = shipped(function, "function", function.function, arrival)
    wrapper = _generator_task(code) if function.is_generator else _task(code)
    return _disguised(wrapper, function.name, function.module, function.signature)


def _task(code: Shipped) -> Callable[..., Any]:
    def task(*args: Any, **kwargs: Any) -> Any:
        return code.target(*code.arrived(args), **kwargs)

    return task


def _generator_task(code: Shipped) -> Callable[..., Any]:
    def task(*args: Any, **kwargs: Any) -> Any:
        items = code.target(*code.arrived(args), **kwargs)
        try:
            for item in items:  # noqa: UP028
                yield item
        finally:
            items.close()

    return task


def _disguised(wrapper: Any, name: str, module: str, signature: CallSignature, bound: bool = False) -> Any:
    wrapper.__name__ = name.rpartition(".")[2]
    wrapper.__qualname__ = name
    wrapper.__module__ = _module_name(module)
    parameters = list(signature.signature().parameters.values())
    parameters = [parameter.replace(annotation=parameter.empty, default=_default(parameter)) for parameter in parameters]
    if bound:
        parameters.insert(0, inspect.Parameter(_unused({parameter.name for parameter in parameters}), inspect.Parameter.POSITIONAL_ONLY))
    wrapper.__signature__ = inspect.Signature(parameters)
    return wrapper


def _module_name(module: str | None) -> str:
    """A module's name for Ray: for the program its file; by itself Ray would use the wrapper's file."""
    if module and module != "__main__":
        return module
    file = getattr(sys.modules["__main__"], "__file__", None)
    return os.path.splitext(os.path.basename(file))[0] if file else "__main__"


def _default(parameter: inspect.Parameter) -> Any:
    """A placeholder for a default, which is the user's value: the wrapper must unpickle before user code."""
    return parameter.empty if parameter.default is parameter.empty else None


def _unused(names: set[str]) -> str:
    name = "self"
    while name in names:
        name += "_"
    return name


# --------------------------------------------------------------------------------------------- classes
#: Options that ``ray.method`` takes.
_METHOD_OPTIONS = (
    "concurrency_group",
    "max_task_retries",
    "retry_exceptions",
    "_generator_backpressure_num_objects",
    "_num_objects_per_yield",
    "enable_task_events",
    "tensor_transport",
)


def class_wrapper(blueprint: ActorBlueprint, arrival: Arrival) -> type:
    user_class: Any = blueprint.cls
    code = shipped(blueprint, "actor class", user_class, arrival)
    body: dict[str, Any] = {"__module__": blueprint.module or "__main__", "__qualname__": blueprint.name, "__doc__": None}
    for name, spec in blueprint.methods.items():
        if name not in COMMON_METHODS and name not in _OF_THE_WRAPPER:
            body[name] = _method_wrapper(user_class, spec, blueprint, code)
    construct = _async_constructor if blueprint.init.is_async else _constructor
    body["__init__"] = _disguised(construct(code), "__init__", blueprint.module, blueprint.init.signature, bound=True)
    body.update(_common_methods())
    names = {name: body[name] for name in ("__module__", "__qualname__", "__doc__")}
    if user_class.__repr__ is not object.__repr__:
        body["__repr__"] = names["__repr__"] = _representation(code)
    # Ray uses a class with this attribute unchanged, and takes the name and whether there is a `__repr__` from its value.
    body["__ray_actor_class__"] = type(blueprint.class_name, (), names)
    return type(blueprint.class_name, (), body)


#: Methods that Python calls on the instance; the wrapper's `__repr__` calls the user's.
_OF_THE_WRAPPER = frozenset({"__init__", "__repr__", "__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__del__",
                             "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__eq__", "__hash__", "__bool__",
                             "__len__"})  # fmt: skip


def _method_wrapper(user_class: Any, spec: ActorMethodSpec, blueprint: ActorBlueprint, code: Shipped) -> Any:
    function = inspect.unwrap(getattr(user_class, spec.name))
    if inspect.isasyncgenfunction(function):
        make = _async_generator_method
    elif spec.is_generator:
        make = _generator_method
    elif inspect.iscoroutinefunction(function) or spec.is_async:
        make = _async_method
    else:
        make = _method
    wrapper = _disguised(make(spec.name, code), spec.name, blueprint.module, spec.signature, bound=True)
    given = {name: value for name, value in (spec.options or {}).items() if name in _METHOD_OPTIONS}
    if spec.num_returns != ("streaming" if spec.is_generator else 1):
        given["num_returns"] = spec.num_returns
    return ray.method(**given)(wrapper) if given else wrapper


def _constructor(code: Shipped) -> Callable[..., Any]:
    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        self.mray_instance = code.target(*code.arrived(args), **kwargs)

    return __init__


def _async_constructor(code: Shipped) -> Callable[..., Any]:
    async def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        instance = code.target.__new__(code.target)
        await instance.__init__(*code.arrived(args), **kwargs)
        self.mray_instance = instance

    return __init__


def _method(name: str, code: Shipped) -> Callable[..., Any]:
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return code.bound_method(self.mray_instance, name)(*code.arrived(args), **kwargs)

    return method


def _async_method(name: str, code: Shipped) -> Callable[..., Any]:
    async def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return await code.bound_method(self.mray_instance, name)(*code.arrived(args), **kwargs)

    return method


def _generator_method(name: str, code: Shipped) -> Callable[..., Any]:
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        items = code.bound_method(self.mray_instance, name)(*code.arrived(args), **kwargs)
        try:
            for item in items:  # noqa: UP028
                yield item
        finally:
            items.close()

    return method


def _async_generator_method(name: str, code: Shipped) -> Callable[..., Any]:
    async def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        items = code.bound_method(self.mray_instance, name)(*code.arrived(args), **kwargs)
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()

    return method


def _common_methods() -> dict[str, Any]:
    def __ray_ready__(self: Any) -> bool:  # noqa: N807
        return True

    def __ray_call__(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        return fn(self.mray_instance, *args, **kwargs)

    def __ray_terminate__(self: Any) -> None:  # noqa: N807
        import ray.actor  # noqa: PLC0415  (wrappers have no globals)

        ray.actor.exit_actor()

    return {"__ray_ready__": __ray_ready__, "__ray_call__": __ray_call__, "__ray_terminate__": __ray_terminate__}


def _representation(code: Shipped) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:  # noqa: N807
        # Ray asks before the constructor has run.
        instance = self.__dict__.get("mray_instance")
        return repr(code.target.__new__(code.target) if instance is None else instance)

    return __repr__


# ------------------------------------------------------------------------------- classes known by a handle
def blueprint_of(handle: Any) -> ActorBlueprint:
    """A blueprint from Ray's handle, for actors known by name only."""
    descriptor = handle._ray_actor_creation_function_descriptor
    returns, generators = handle._ray_method_num_returns, handle._ray_method_is_generator
    specs: dict[str, ActorMethodSpec] = {}
    for name, parameters in handle._ray_method_signatures.items():
        signature = CallSignature([(p.name, int(p.kind), p.default is not p.empty) for p in parameters])
        specs[name] = ActorMethodSpec(name, signature, returns.get(name), bool(generators.get(name)))
    init = specs.pop("__init__", ActorMethodSpec("__init__", CallSignature(None)))
    uuid = handle._actor_id.binary()
    known = ActorBlueprint.known(uuid)
    if known is not None:
        return known
    wire = ActorBlueprint(None, descriptor.class_name, descriptor.module_name, uuid, False, init, {**specs, **COMMON_METHODS}).wire()
    return ActorBlueprint.from_wire(wire)
