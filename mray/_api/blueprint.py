"""`ActorBlueprint`: what every process with a handle knows of an actor class.

It travels with handles as builtin values (`wire`), without the class. All handles of a class in a process share one, found by its
`uuid`.
"""

from __future__ import annotations

import inspect
import marshal
import types
import weakref
from collections.abc import Callable
from functools import partial, partialmethod
from typing import Any, cast

from mray._api.signature import CallSignature, is_async, returns_generator
from mray._common.kept import os

#: Where `mray.method` stores its options.
METHOD_ATTRIBUTE = "__mray_method_options__"
#: Ray's name for the attribute by which a decorator intercepts the calls of a function or method.
INVOCATION_DECORATOR = "__ray_invocation_decorator__"

_PLAIN_MEMBERS = (types.FunctionType, staticmethod, classmethod)
#: Names that `type` or `typing` calls, never a user.
_OF_THE_CLASS = frozenset({"__new__", "__init_subclass__", "__class_getitem__", "__subclasshook__", "__set_name__", "__prepare__"})


class ActorMethodSpec:
    """One method.

    `num_returns` is an int or "streaming" or "dynamic". `options` are the set ones of `mray.method`, or None. A list of
    ``retry_exceptions`` stays in the process that has the class; elsewhere it is "declared".
    """

    __slots__ = ("decorator", "high", "is_async", "is_generator", "low", "name", "num_returns", "options", "signature")

    def __init__(
        self,
        name: str,
        signature: CallSignature,
        num_returns: int | str | None = None,
        is_generator: bool = False,
        is_async: bool = False,
        options: dict[str, Any] | None = None,
        decorator: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        self.signature = signature
        self.num_returns = ("streaming" if is_generator else 1) if num_returns is None else num_returns
        self.is_generator = is_generator
        self.is_async = is_async
        self.options = options or None
        self.decorator = decorator
        #: Bounds of a call that needs no further check; none for a method whose calls are decorated.
        self.low, self.high = (signature.low, signature.high) if decorator is None else (1 << 30, 1 << 30)

    @classmethod
    def of(cls, name: str, member: Any, user_class: type) -> ActorMethodSpec:
        function = function_of(member, user_class)
        options = dict(getattr(member, METHOD_ATTRIBUTE, None) or getattr(function, METHOD_ATTRIBUTE, None) or {})
        num_returns = options.pop("num_returns", None)
        runs = _what_runs(member, function)
        return cls(
            name,
            CallSignature.of(function, skip=0 if isinstance(member, staticmethod) or inspect.ismethod(function) else 1),
            num_returns,
            returns_generator(runs),
            is_async(runs),
            options,
            getattr(function, INVOCATION_DECORATOR, None),
        )

    def info(self) -> tuple[Any, ...]:
        options = self.options
        if options is not None and isinstance(options.get("retry_exceptions"), (list, tuple)):
            options = {**options, "retry_exceptions": "declared"}
        return self.name, self.signature.parameters, self.num_returns, self.is_generator, self.is_async, options

    @classmethod
    def from_info(cls, info: tuple[Any, ...]) -> ActorMethodSpec:
        name, parameters, *rest = info
        return cls(name, CallSignature(parameters), *rest)


COMMON_METHODS = {
    "__ray_ready__": ActorMethodSpec("__ray_ready__", CallSignature([])),
    "__ray_call__": ActorMethodSpec("__ray_call__", CallSignature([("fn", 0, False), ("args", 2, False), ("kwargs", 4, False)])),
    "__ray_terminate__": ActorMethodSpec("__ray_terminate__", CallSignature([])),
}


class ActorBlueprint:
    """A class of actors.

    For backends: `cls` (None in processes that have only handles), `name` (qualified), `class_name`, `module`, `uuid`, `methods` (by
    name, with `COMMON_METHODS`), `init` (the constructor's spec), `is_async` (whether some method is), `wire`, `export_cache` (one
    backend's cache).
    """

    def __init__(
        self,
        cls: type | None,
        name: str,
        module: str,
        uuid: bytes,
        is_async: bool,
        init: ActorMethodSpec,
        methods: dict[str, ActorMethodSpec],
    ) -> None:
        self.cls = cls
        self.name = name
        self.module = module
        self.uuid = uuid
        self.is_async = is_async
        self.init = init
        self.methods = methods
        self.export_cache: tuple[Any, dict[str, Any]] = (None, {})
        #: A subclass of `ActorHandle`, created by `mray._api.actor`.
        self.handle_class: Any = None
        self._wire: bytes | None = None

    @property
    def class_name(self) -> str:
        return self.name.rpartition(".")[2]

    def groups(self) -> list[str]:
        groups = [(spec.options or {}).get("concurrency_group") for spec in self.methods.values()]
        return [group for group in groups if group]

    @classmethod
    def of(cls, user_class: type) -> ActorBlueprint:
        specs = {name: ActorMethodSpec.of(name, member, user_class) for name, member in _members(user_class).items()}
        blueprint = cls(
            user_class,
            user_class.__qualname__,
            user_class.__module__,
            os.urandom(16),
            any(spec.is_async for spec in specs.values()),
            _constructor(user_class, specs.pop("__init__", None)),
            {**specs, **COMMON_METHODS},
        )
        return _known.setdefault(blueprint.uuid, blueprint)

    def code(self) -> Any:
        """The class, to be pickled: by name where it has one, so methods that were added after its body go along."""
        user_class = cast(type, self.cls)
        names = {(base.__module__, base.__qualname__) for base in user_class.__mro__}
        later = {
            name: member
            for name, member in _members(user_class).items()
            if isinstance(member, types.FunctionType)
            if (member.__module__, member.__qualname__.removesuffix(f".{name}")) not in names
        }
        return _Altered(user_class, later) if later else user_class

    def wire(self) -> bytes:
        """Everything except the class and decorators of calls."""
        if self._wire is None:
            methods = [spec.info() for name, spec in self.methods.items() if name not in COMMON_METHODS]
            self._wire = marshal.dumps((self.name, self.module, self.uuid, self.is_async, self.init.info(), methods))
        return self._wire

    @classmethod
    def from_wire(cls, wire: bytes) -> ActorBlueprint:
        """The blueprint that `wire` came from, or one that has all except its class."""
        name, module, uuid, asynchronous, init, methods = marshal.loads(wire)
        known = _known.get(uuid)
        if known is not None:
            return known
        specs = {spec.name: spec for spec in map(ActorMethodSpec.from_info, methods)}
        blueprint = cls(None, name, module, uuid, asynchronous, ActorMethodSpec.from_info(init), {**specs, **COMMON_METHODS})
        return _known.setdefault(uuid, blueprint)

    @staticmethod
    def known(uuid: bytes) -> ActorBlueprint | None:
        return _known.get(uuid)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_blueprint, (self.wire(),), self.cls

    def __setstate__(self, user_class: type) -> None:
        # The class may be an empty shell yet: it is being unpickled, and this object is one of its methods' globals.
        if self.cls is None:
            self.cls = user_class


class _Altered:
    """A class unpickled with other methods: a subclass, since the class itself may be in use there."""

    def __init__(self, cls: type, methods: dict[str, Any]) -> None:
        self._parts = cls, methods

    def __reduce__(self) -> tuple[Any, ...]:
        return _alter, self._parts


def _alter(cls: type, methods: dict[str, Any]) -> type:
    names = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(cls)(cls.__name__, (cls,), {**names, **methods})


_known: weakref.WeakValueDictionary[bytes, ActorBlueprint] = weakref.WeakValueDictionary()


def _restore_blueprint(wire: bytes) -> ActorBlueprint:
    return ActorBlueprint.from_wire(wire)


def _members(user_class: type) -> dict[str, Any]:
    """The callables of an instance, as in the class's dict: functions, and descriptors that give the class a callable."""
    found: dict[str, Any] = {}
    for base in reversed(user_class.__mro__):
        if base is object or base.__module__ == "typing":
            continue
        for name, member in vars(base).items():
            if name in _OF_THE_CLASS:
                continue
            if isinstance(member, _PLAIN_MEMBERS) or _is_compiled(member) or _is_method(member, user_class):
                found[name] = member
            else:
                found.pop(name, None)
    return found


def _is_method(member: Any, user_class: type) -> bool:
    kind = type(member)
    if not hasattr(kind, "__get__") or hasattr(kind, "__set__") or kind.__module__ == "builtins":
        return False
    try:
        found = kind.__get__(member, None, user_class)
    except Exception:
        return False
    return callable(found) and not isinstance(found, type)


def function_of(member: Any, user_class: type | None) -> Any:
    """The function of a class's member, as in the class's dict: the class's attribute of that name."""
    if isinstance(member, (staticmethod, classmethod)):
        return member.__func__
    if user_class is None or isinstance(member, types.FunctionType) or not hasattr(type(member), "__get__"):
        return member
    return type(member).__get__(member, None, user_class)


def _what_runs(member: Any, function: Any) -> Any:
    """The function whose kind (coroutine, generator) is that of the calls."""
    while isinstance(member, (partial, partialmethod)):
        member = function = member.func
    return function


def bound_method(instance: Any, name: str, cls: type[Any]) -> Callable[..., Any]:
    """The class's method of this name: an attribute of the instance may have the same name."""
    return inspect.getattr_static(cls, name).__get__(instance, cls)  # type: ignore[no-any-return]


def _is_compiled(member: Any) -> bool:
    return type(member).__name__ == "cython_function_or_method"


def _constructor(user_class: type, spec: ActorMethodSpec | None) -> ActorMethodSpec:
    if spec is not None:
        return spec
    if cast("Any", user_class).__init__ is not object.__init__:
        return ActorMethodSpec("__init__", CallSignature.of(user_class))
    if cast("Any", user_class).__new__ is not object.__new__:
        return ActorMethodSpec("__init__", CallSignature.of(user_class.__new__, skip=1))
    return ActorMethodSpec("__init__", CallSignature([]))
