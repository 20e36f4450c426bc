"""Actors as a user holds them: the class made remote, handles, and methods of handles.

`handle.m` creates an `ActorMethod` each time: one stored on the handle would point back to it, and the actor lives as long as its
handle does. For speed each class of actors has its own subclass of `ActorHandle`, with a property per method.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, cast, overload

from mray._api import current, private_attributes
from mray._api.actor_handle import ActorHandle
from mray._api.actor_metadata import ActorClassMetadata
from mray._api.blueprint import METHOD_ATTRIBUTE, ActorBlueprint, ActorMethodSpec, function_of
from mray._api.current import backend_if_started, current_backend, started_backend
from mray._api.dag_calls import ClassNode, bind_method
from mray._api.described import OfInstance, copy_of, described, option_signature, subclass
from mray._api.signature import returns_generator
from mray._api.type_variables import T
from mray._api.typed import ActorOptions, ActorProxy, Unpack
from mray._common.messages import ACTOR_STATES
from mray._common.nearest import nearest
from mray._common.options import (
    ACTOR_OPTIONS,
    METHOD_OPTIONS,
    carried_method_options,
    check_actor_options,
    check_generator_returns,
    check_grouping,
    check_method_options,
    check_namespace,
    complete_actor_options,
)
from mray.exceptions import ActorHandleNotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Concatenate, Literal, ParamSpec, TypeVar

    from mray._api.backend import Backend
    from mray._api.typed import DecoratedMethod, MethodDecorator, Several, SeveralMethodDecorator

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = [
    "ActorClass",
    "ActorClassInheritanceException",
    "ActorHandle",
    "ActorMethod",
    "ActorMethodSpec",
    "ActorProxy",
    "exit_actor",
    "make_handle",
    "method",
]


class ActorClassInheritanceException(TypeError):
    """A class was derived from an actor class."""


# ---------------------------------------------------------------------------------------------- classes
class ActorClass(Generic[T]):
    """The result of `remote` for a class. ``A.remote(...)`` starts an actor and returns its handle.

    For backends: `_blueprint` (an `ActorBlueprint`), `_default_options` (complete; always the same dict).
    """

    __slots__ = ("__dict__", "__weakref__", "_blueprint", "_default_options", "_given_options")

    _blueprint: ActorBlueprint
    _default_options: dict[str, Any]
    _given_options: dict[str, Any]

    def __init__(self, user_class: Any, options: Mapping[str, Any], _namespace: object = None) -> None:
        if not isinstance(user_class, type):
            # ``class B(A)``: Python calls the type of A with a name, the bases and the body.
            bases = ", ".join(repr(base._blueprint.name) for base in options if isinstance(base, ActorClass))
            raise ActorClassInheritanceException(
                f"Attempted to define subclass '{user_class}' of actor class {bases}. Inheriting from actor classes is not currently "
                "supported. You can instead inherit from a non-actor base class and make the derived class an actor class "
                "(with @ray.remote)."
            )
        check_actor_options(options, warn=True)
        self.__setstate__((ActorBlueprint.of(user_class), dict(options), user_class.__doc__))
        # For `inspect` here; copies in other processes go without.
        signature = self._blueprint.init.signature.signature()
        self.__dict__.update(__signature__=signature, __wrapped__=user_class, __origin__=user_class)  # the last: `help` shows it alone
        doc = "\n\n".join(filter(None, (user_class.__doc__, _own_doc(user_class))))
        own = {name: described(vars(ActorClass)[name], signature, user_class, doc) for name in ("remote", "__call__")}
        self.__class__ = subclass(ActorClass, **own, **({"__doc__": user_class.__doc__} if user_class.__doc__ else {}))

    def __setstate__(self, state: tuple[ActorBlueprint, dict[str, Any], str | None]) -> None:
        self._blueprint, self._given_options, doc = state
        self._default_options = _complete(self._blueprint, self._given_options)
        self.__dict__.update(__doc__=doc, __module__=self._blueprint.module)

    def __reduce__(self) -> tuple[Any, ...]:
        return _new_actor_class, (), (self._blueprint, self._given_options, self.__doc__)

    def __copy__(self) -> ActorClass[T]:
        return self

    def __deepcopy__(self, _memo: Any) -> ActorClass[T]:
        return self

    __class_getitem__: Any = classmethod(types.GenericAlias)

    def remote(self, /, *args: Any, **kwargs: Any) -> ActorProxy[T]:
        """Start an actor and return its handle immediately. Raises TypeError when the constructor cannot be called like this."""
        return _create(self, self._blueprint, args, kwargs, self._default_options)

    def _remote(self, args: Sequence[Any] | None = None, kwargs: dict[str, Any] | None = None, **options: Any) -> ActorProxy[T]:
        """As `remote`, arguments and options given as such."""
        complete = _complete(self._blueprint, self._given_options, options) if options else self._default_options
        return _create(self, self._blueprint, args or (), kwargs or {}, complete)

    def options(self, **options: Unpack[ActorOptions]) -> ActorClass[T]:
        """The class with other options: ``A.options(num_cpus=2).remote(...)``."""
        return cast("ActorClass[T]", ActorClassWithOptions(self, self._blueprint, self._given_options, options))

    options.__signature__ = option_signature(  # type: ignore[attr-defined]
        {name: option for name, option in ACTOR_OPTIONS.items() if name != "concurrency_groups"}, bound=True
    )

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """A DAG node that creates an actor."""
        return ClassNode(self, args, kwargs, dict(self._given_options))

    @property
    def __ray_actor_class__(self) -> type:
        if self._blueprint.cls is None:
            raise AttributeError(f"the class of {self!r} is not in this process")
        return self._blueprint.cls

    @property
    def __ray_metadata__(self) -> ActorClassMetadata:
        """The options of the decorator; a new object each time."""
        return ActorClassMetadata(self._blueprint, self._given_options)

    def __getattr__(self, name: str) -> Any:
        # Protocols (copy, pickle, inspect) must see this object, not the class.
        if not (name.startswith("__") and name.endswith("__")) and (user_class := self._blueprint.cls) is not None:
            try:
                return getattr(user_class, name)
            except AttributeError:
                pass
        raise AttributeError(f"'ActorClass({self._blueprint.name})' object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *(dir(self._blueprint.cls) if self._blueprint.cls is not None else ())})

    if not TYPE_CHECKING:  # to type checkers it is not callable

        def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
            name = self._blueprint.name
            raise TypeError(f"Actors cannot be instantiated directly. Instead of '{name}()', use '{name}.remote()'.")

    def __repr__(self) -> str:
        return f"ActorClass({self._blueprint.name})"


def _own_doc(user_class: type) -> str | None:
    constructor = user_class.__init__  # type: ignore[misc]
    return None if constructor is object.__init__ else constructor.__doc__


def _new_actor_class() -> ActorClass:
    return ActorClass.__new__(ActorClass)


class ActorClassWithOptions(Generic[T]):
    """The result of `ActorClass.options`."""

    __slots__ = ("_actor_class", "_blueprint", "_given", "_options")

    def __init__(
        self, actor_class: ActorClass[T], blueprint: ActorBlueprint, of_class: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        self._actor_class = actor_class
        self._blueprint = blueprint
        self._options = _complete(blueprint, of_class, options)
        self._given = {**of_class, **options}

    def remote(self, /, *args: Any, **kwargs: Any) -> ActorProxy[T]:
        """As `ActorClass.remote`."""
        return _create(self._actor_class, self._blueprint, args, kwargs, self._options)

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """As `ActorClass.bind`."""
        return ClassNode(self._actor_class, args, kwargs, dict(self._given))

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_options, (self._actor_class, self._given)


def _with_options(actor_class: ActorClass[T], options: dict[str, Any]) -> ActorClass[T]:
    return actor_class.options(**options)


def _complete(blueprint: ActorBlueprint, of_class: Mapping[str, Any], in_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    if in_options is not None:
        if "concurrency_groups" in in_options:
            raise ValueError("Setting 'concurrency_groups' is not supported in '.options()'.")
        check_actor_options(in_options, warn=True)
        check_actor_options({**of_class, **in_options})
    options = complete_actor_options({**of_class, **(in_options or {})})
    if any(spec.options and spec.options.get("tensor_transport") for spec in blueprint.methods.values()):
        if options["enable_tensor_transport"] is False:
            raise ValueError(
                "Actor class has methods with @ray.method(tensor_transport=...) decorator but "
                "@ray.remote(enable_tensor_transport=False). Either set enable_tensor_transport=True or remove the "
                "@ray.method(tensor_transport=...) decorator from the methods."
            )
        options["enable_tensor_transport"] = True
    return options


def _create(
    actor_class: ActorClass[T], blueprint: ActorBlueprint, args: Sequence[Any], kwargs: dict[str, Any], options: dict[str, Any]
) -> ActorProxy[T]:
    blueprint.init.signature.check(args, kwargs, blueprint.class_name)
    if options["name"] == "":
        raise ValueError("Actor name cannot be an empty string.")
    check_namespace(options["namespace"])
    return cast("ActorProxy[T]", current_backend().create_actor(actor_class, tuple(args), kwargs, options))


# ---------------------------------------------------------------------------------------------- handles
_STATES = ("waiting for arguments", *ACTOR_STATES)


class _ActorHandle(ActorHandle[T]):
    """An `ActorHandle` with callable methods and pickling."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        spec = self._blueprint.methods.get(name)
        if spec is not None:
            return ActorMethod(spec, self)
        if name in private_attributes.HANDLE:
            return private_attributes.HANDLE[name](self._blueprint)
        raise AttributeError(f"'ActorHandle' object has no attribute {name!r}", name=name, obj=self)

    def _get_local_state(self) -> int | None:
        """The state of the actor as this process knows it, by Ray's number; None before it has called a method of it."""
        state = started_backend().actor_state(self)
        return None if state is None else _STATES.index(state)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._token is not None:
            current_backend().export_handle(self)
        return _restore_handle, self.__actor_info__()


class _FirstProperty(property):
    def __init__(self, get: Callable[[Any], Any], tell: Callable[[], str]) -> None:
        super().__init__(get)
        vars(self).pop("__doc__", None)
        self.tell = tell

    __doc__: Any = OfInstance(lambda this: this.tell(), "The property of a method.")


def _method_of_handle(name: str, spec: ActorMethodSpec, blueprint: ActorBlueprint) -> property:
    """The attribute of handles that is the method: an `ActorMethod` subclass, created on first use."""

    def first(handle: ActorHandle) -> ActorMethod:
        made = _described_method(name, spec, blueprint.cls)
        setattr(blueprint.handle_class, name, property(partial(made, spec), doc=doc()))
        return made(spec, handle)

    def doc() -> str:
        # IPython shows this, where it does not evaluate properties.
        function = _users(name, blueprint.cls)
        return f"{name}{spec.signature}\n\n{inspect.cleandoc(getattr(function, '__doc__', None) or '')}".rstrip()

    return _FirstProperty(first, doc)


def _users(name: str, user_class: type | None) -> Any:
    """The user's function behind a method; None in processes that have only handles."""
    return function_of(inspect.getattr_static(user_class, name, None), user_class)


def _described_method(name: str, spec: ActorMethodSpec, user_class: type | None) -> type[ActorMethod]:
    function = _users(name, user_class)
    remote = described(ActorMethod.remote, spec.signature.signature(), function, getattr(function, "__doc__", None))
    if function is None:  # only handles are in this process
        del remote.__wrapped__  # type: ignore[attr-defined]
    return subclass(
        ActorMethod,
        __init__=copy_of(ActorMethod.__init__),
        remote=remote,
        __signature__=OfInstance(lambda _method: spec.signature.signature()),
        __doc__=OfInstance(lambda _method: getattr(function, "__doc__", None) or ActorMethod.__doc__, ActorMethod.__doc__),
    )


def _handle_class(blueprint: ActorBlueprint) -> type[ActorHandle]:
    made: type[ActorHandle] | None = blueprint.handle_class
    if made is None:
        # Methods that Python itself calls on a handle (`__repr__`, ...) stay the handle's own; `__getattr__` finds the rest.
        body: dict[str, Any] = {
            name: _method_of_handle(name, spec, blueprint)
            for name, spec in blueprint.methods.items()
            if not hasattr(ActorHandle, name) and (name.startswith("__ray_") or not (name.startswith("__") and name.endswith("__")))
        }
        body.update(__slots__=(), __module__="mray.actor", __doc__=ActorHandle.__doc__, _blueprint=blueprint)
        made = blueprint.handle_class = type("ActorHandle", (_ActorHandle,), body)
    return made


def make_handle(
    blueprint: ActorBlueprint, actor_id: bytes, token: Any, options: Mapping[str, Any] | None = None, carried: Any = None
) -> ActorHandle:
    """A handle of an actor, for backends. `token`: None for a weak one; `options`: the actor's complete ones or another handle's;
    `carried`: the engine's data that travels with it.
    """
    return _handle_class(blueprint)(actor_id, token, options or {}, backend_if_started(), carried)


def check_session(handle: ActorHandle) -> None:
    """Raise ActorHandleNotFoundError for a handle of another session, or of the time before this one was reset."""
    now = backend_if_started()
    if now is None or not handle.__was_made_with__((now, now.outer)):
        raise ActorHandleNotFoundError(
            f"ActorHandle objects are not valid across Ray sessions. {handle!r} belongs to another session, perhaps one that has ended, "
            "or to this one before it was reset: create the actor, or get it by its name, in this one."
        )


def backend_of_handle(handle: ActorHandle) -> Backend:
    """The backend of this process. Starts nothing: a handle that there is without a session belongs to an ended one."""
    if current.started is None:
        current.check_start()
        check_session(handle)
    return current_backend()


def _restore_handle(actor_id: bytes, uuid: bytes, wire: bytes, options: dict[str, Any], weak: bool, carried: Any = None) -> ActorHandle:
    blueprint = ActorBlueprint.known(uuid) or ActorBlueprint.from_wire(wire)
    backend = backend_if_started() if weak else current_backend()
    if backend is not None and not backend.has_made(actor_id):
        return _handle_class(blueprint)(actor_id, None, options, _AnotherSession(), None)
    token = None if weak else current_backend().hold_actor(actor_id) if carried is None else carried
    handle = make_handle(blueprint, actor_id, token, options, carried)
    vars(handle)["_came"] = True  # it is not the one that an actor was started with
    return handle


class _AnotherSession:
    """Stands for a backend that this process does not have."""


# ---------------------------------------------------------------------------------------------- methods
class ActorMethod:
    """``handle.m``: ``handle.m.remote(...)`` calls the method. Keeps the handle alive."""

    __slots__ = ("__weakref__", "_handle", "_spec")

    def __init__(self, spec: ActorMethodSpec, handle: ActorHandle) -> None:
        self._spec = spec
        self._handle = handle

    def remote(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the method; returns immediately.

        Returns the ref of its value, a list of refs for ``num_returns`` above 1, None for 0. Calls through one handle run in the order
        of submission. Raises TypeError when the method cannot be called like this.
        """
        spec = self._spec
        if kwargs or not spec.low <= len(args) <= spec.high:
            return _submit(self._handle, spec, args, kwargs, spec.num_returns, spec.options)
        return (current.started or backend_of_handle(self._handle)).submit_method(
            self._handle, spec, args, kwargs, spec.num_returns, spec.options
        )

    def _remote(self, args: Sequence[Any] | None = None, kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
        """As `remote`, arguments and options given as such."""
        num_returns, merged = _merged_method_options(self._spec, options)
        return _submit(self._handle, self._spec, args or (), kwargs or {}, num_returns, merged)

    def options(self, **options: Any) -> ActorMethodWithOptions:
        """The method with other options: ``handle.m.options(num_returns=2).remote(...)``."""
        return ActorMethodWithOptions(self._spec, self._handle, options)

    options.__signature__ = option_signature(METHOD_OPTIONS, bound=True)  # type: ignore[attr-defined]

    if not TYPE_CHECKING:  # which would accept any name

        def __getattr__(self, name: str) -> Any:
            if name == "_actor":
                return self._handle
            if name in private_attributes.METHOD:
                return private_attributes.METHOD[name](self._spec)
            raise AttributeError(f"'ActorMethod' object has no attribute {name!r}")

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """A DAG node that calls the method; a tuple with one per value when it returns several."""
        return bind_method(self._handle, self._spec, args, kwargs, {})

    if not TYPE_CHECKING:  # to type checkers it is not callable

        def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
            name = self._spec.name
            raise TypeError(f"Actor methods cannot be called directly. Instead of running 'object.{name}()', try 'object.{name}.remote()'.")

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._handle, self._spec.name)

    def __repr__(self) -> str:
        return f"ActorMethod({self._handle!r}, {self._spec.name})"


class ActorMethodWithOptions:
    """The result of `ActorMethod.options`."""

    __slots__ = ("_given", "_handle", "_merged", "_num_returns", "_spec")

    def __init__(self, spec: ActorMethodSpec, handle: ActorHandle, options: dict[str, Any]) -> None:
        self._spec = spec
        self._handle = handle
        self._given = options
        self._num_returns, self._merged = _merged_method_options(spec, options)

    def remote(self, /, *args: Any, **kwargs: Any) -> Any:
        """As `ActorMethod.remote`."""
        return _submit(self._handle, self._spec, args, kwargs, self._num_returns, self._merged)

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """As `ActorMethod.bind`."""
        return bind_method(self._handle, self._spec, args, kwargs, self._given)


def _submit(
    handle: ActorHandle,
    spec: ActorMethodSpec,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    num_returns: Any,
    options: dict[str, Any] | None,
) -> Any:
    """As `ActorMethod.remote`, with every check."""

    def submit_checked(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        spec.signature.check(args, kwargs, f"{handle._blueprint.class_name}.{spec.name}")
        return backend_of_handle(handle).submit_method(handle, spec, tuple(args), kwargs, num_returns, options)

    return submit_checked(args, kwargs) if spec.decorator is None else spec.decorator(submit_checked)(args, kwargs)


def _merged_method_options(spec: ActorMethodSpec, options: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
    check_method_options(options, named=True)
    check_grouping(options)
    check_generator_returns(options.get("num_returns"), spec.is_generator)
    given = carried_method_options(options)
    num_returns = given.pop("num_returns", spec.num_returns)
    return num_returns, ({**(spec.options or {}), **given} or None)


@overload
def method(method: Callable[Concatenate[Any, P], Awaitable[R]], /) -> DecoratedMethod[P, Awaitable[R], R]: ...


@overload
def method(method: Callable[Concatenate[Any, P], R], /) -> DecoratedMethod[P, R, R]: ...


@overload
def method(
    *,
    num_returns: Several,
    concurrency_group: str | None = None,
    max_task_retries: int | None = None,
    retry_exceptions: bool | list[type[BaseException]] | tuple[type[BaseException], ...] | None = None,
    enable_task_events: bool | None = None,
    tensor_transport: str | None = None,
) -> SeveralMethodDecorator: ...


@overload
def method(
    *,
    num_returns: int | Literal["streaming", "dynamic"] | None = None,
    concurrency_group: str | None = None,
    max_task_retries: int | None = None,
    retry_exceptions: bool | list[type[BaseException]] | tuple[type[BaseException], ...] | None = None,
    _generator_backpressure_num_objects: int | None = None,
    _num_objects_per_yield: int | None = None,
    enable_task_events: bool | None = None,
    tensor_transport: str | None = None,
) -> MethodDecorator: ...


def method(*args: Any, **options: Any) -> Any:
    """Decorate a method of an actor class with options: ``@mray.method(num_returns=2)``.

    Options: num_returns, concurrency_group, max_task_retries, retry_exceptions, enable_task_events, tensor_transport,
    _generator_backpressure_num_objects.

    ``tensor_transport`` leaves the returned tensors with their actor until they are needed; they go straight to the actor that is given
    the ref, to the same one by reference. ``"gloo"`` and ``"shm"`` are for CPU tensors, ``"cuda_ipc"`` and ``"nccl"`` for GPU tensors,
    which stay there; ``"object_store"`` is the default. Until all refs are dropped, receivers get the tensor as it is when they ask: see
    `mray.experimental.wait_tensor_freed`. With `options`, the class needs ``enable_tensor_transport=True``.
    """
    if len(args) == 1 and not options and callable(args[0]):
        return args[0]
    if args:
        raise AssertionError("The @ray.method decorator takes keyword arguments only.")
    for name in options:
        if name not in METHOD_OPTIONS:
            raise AssertionError(
                f"Unexpected keyword argument to @ray.method: '{name}'.{nearest(name, METHOD_OPTIONS)} The supported keyword arguments are "
                f"{list(METHOD_OPTIONS)}."
            )
    check_method_options(options)

    def annotate(function: Callable[..., Any]) -> Callable[..., Any]:
        set_options = carried_method_options(options)
        check_generator_returns(options.get("num_returns"), returns_generator(function))
        setattr(function, METHOD_ATTRIBUTE, set_options)
        return function

    return annotate


method.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter("method", inspect.Parameter.POSITIONAL_ONLY, default=None),
        *option_signature(METHOD_OPTIONS, bound=False).parameters.values(),
    ]
)


def exit_actor() -> None:
    """End the actor this is called in after the current call. Does not return; user code cannot catch it for good.

    Raises TypeError outside an actor.
    """
    backend = backend_if_started()
    if backend is None:
        raise TypeError(
            "exit_actor API is called on a non-actor worker, None. Call this API inside an actor method to exit the actor gracefully."
        )
    backend.exit_actor()
