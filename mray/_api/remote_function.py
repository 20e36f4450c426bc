"""`RemoteFunction`: a function that runs elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mray._api import current
from mray._api.blueprint import INVOCATION_DECORATOR
from mray._api.current import current_backend
from mray._api.dag_calls import FunctionNode
from mray._api.described import described, option_signature, shell_of, shown_only, subclass
from mray._api.signature import CallSignature, returns_generator
from mray._common.invocations import short_name
from mray._common.kept import os
from mray._common.options import TASK_OPTIONS, check_task_options, complete_task_options

_NEVER = 1 << 30
_STATE = ("function", "name", "module", "uuid", "is_generator", "signature", "given_options", "decorator", "__doc__")
#: Sets of options cached for each function.
MOST_KEPT = 32
#: Options completed with their defaults; others are None where not given.
_COMPLETED = ("max_calls", "max_retries", "retry_exceptions")
_SIMPLE = (int, float, str, bool, type(None))


class RemoteFunction:
    """The result of `remote` for a function. ``f.remote(...)`` starts a task and returns the ref of its result.

    For backends: `function`, `name` (qualified), `module`, `uuid` (the same in every copy), `default_options` (complete; always the same
    dict, whose identity may serve as a key; so may that of a call's own options), `export_cache` (one backend's cache).
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "completed_options",
        "decorator",
        "default_options",
        "export_cache",
        "function",
        "given_options",
        "high",
        "is_generator",
        "low",
        "module",
        "name",
        "signature",
        "uuid",
    )

    function: Callable[..., Any]
    name: str
    module: str
    uuid: bytes
    is_generator: bool
    signature: CallSignature
    #: A call with `low` to `high` positional arguments and no keywords needs no check.
    low: int
    high: int
    given_options: dict[str, Any]
    default_options: dict[str, Any]
    #: Complete options, by the names, types and values of the given ones.
    completed_options: dict[tuple[Any, ...], dict[str, Any]]
    export_cache: tuple[Any, dict[str, Any]]
    decorator: Callable[..., Any] | None

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        if inspect.iscoroutinefunction(function):
            raise ValueError(
                "'async def' should not be used for remote tasks. You can wrap the async function with `asyncio.run(f())`, or make it "
                "a method of an actor, where many calls run in one event loop."
            )
        is_generator = returns_generator(function)
        check_task_options(options, is_generator=is_generator)
        self.__setstate__(
            (
                function,
                getattr(function, "__qualname__", type(function).__name__),
                getattr(function, "__module__", "") or "",
                os.urandom(16),
                is_generator,
                CallSignature.of(function),
                dict(options),
                getattr(function, INVOCATION_DECORATOR, None),
                getattr(function, "__doc__", None),
            )
        )
        # For `inspect` here; copies in other processes go without.
        signature = self.signature.signature()
        self.__dict__.update(__signature__=signature, __wrapped__=function, __origin__=function)  # the last: `help` shows it alone
        info = shown_only(signature), shell_of(function), self.__doc__
        own = {name: described(vars(RemoteFunction)[name], *info) for name in ("remote", "__call__")}
        self.__class__ = subclass(RemoteFunction, **own, **({"__doc__": self.__doc__} if self.__doc__ else {}))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        # The function may be an empty shell: it is being unpickled, and this object is one of its globals.
        *fields, doc = state
        for name, value in zip(_STATE, fields, strict=False):
            setattr(self, name, value)
        self.default_options = complete_task_options(self.given_options, is_generator=self.is_generator)
        self.completed_options = {}
        self.export_cache = (None, {})
        self.low, self.high = self.signature.low, self.signature.high
        if self.decorator is not None:
            self.low = self.high = _NEVER
        self.__dict__.update(__doc__=doc, __name__=self.name.rpartition(".")[2], __qualname__=self.name, __module__=self.module)

    def __reduce__(self) -> tuple[Any, ...]:
        return _new_remote_function, (), tuple(getattr(self, name) for name in _STATE)

    def __copy__(self) -> RemoteFunction:
        return self

    def __deepcopy__(self, _memo: Any) -> RemoteFunction:
        return self

    @property
    def _function(self) -> Callable[..., Any]:
        """Ray's name for `function`, which programs use to call it here."""
        return self.function

    @property
    def _function_name(self) -> str:
        return f"{self.module}.{short_name(self.name)}"

    if not TYPE_CHECKING:  # which would accept any name

        def __getattr__(self, name: str) -> Any:
            """Ray's private attributes that wrappers read: `_default_options`, the given ones, and each option."""
            option = name.removeprefix("_")
            if name == "_default_options":
                return dict(self.given_options)
            if option == name or option not in TASK_OPTIONS:
                raise AttributeError(f"'RemoteFunction' object has no attribute {name!r}")
            return self.default_options[option] if option in _COMPLETED else self.given_options.get(option)

    def remote(self, /, *args: Any, **kwargs: Any) -> Any:
        """Start a task; returns immediately.

        Returns the ref of its value, a list of refs for ``num_returns`` above 1, None for 0. Arguments that are refs become values
        before the task starts; refs inside of arguments stay refs. Raises TypeError when the function cannot be called like this.
        """
        if kwargs or not self.low <= len(args) <= self.high:
            return _submit(self, args, kwargs, self.default_options)
        return (current.started or current_backend()).submit_task(self, args, kwargs, self.default_options)

    def _remote(self, args: Sequence[Any] | None = None, kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
        """As `remote`, arguments and options given as such."""
        merged = _merged(self, options) if options else self.default_options
        return _submit(self, args or (), kwargs or {}, merged)

    def options(self, **options: Any) -> RemoteFunctionWithOptions:
        """The function with other options: ``f.options(num_cpus=2).remote(...)``."""
        return RemoteFunctionWithOptions(self, options)

    options.__signature__ = option_signature(  # type: ignore[attr-defined]
        {name: option for name, option in TASK_OPTIONS.items() if name not in ("max_calls", "_num_objects_per_yield")}, bound=True
    )

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """A DAG node that calls the function."""
        options = dict(self.given_options)
        if self.default_options["max_calls"]:
            options["max_calls"] = self.default_options["max_calls"]
        return FunctionNode(self, args, kwargs, options)

    if not TYPE_CHECKING:  # to type checkers it is not callable

        def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
            name = self._function_name
            raise TypeError(f"Remote functions cannot be called directly. Instead of running '{name}()', try '{name}.remote()'.")

    def __repr__(self) -> str:
        return f"RemoteFunction({self._function_name})"


def _new_remote_function() -> RemoteFunction:
    return RemoteFunction.__new__(RemoteFunction)


def _submit(function: RemoteFunction, args: Sequence[Any], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
    """As `RemoteFunction.remote`, with every check."""

    def submit_checked(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        function.signature.check(args, kwargs, function.name.rpartition(".")[2])
        return current_backend().submit_task(function, tuple(args), kwargs, options)

    return submit_checked(args, kwargs) if function.decorator is None else function.decorator(submit_checked)(args, kwargs)


def _merged(function: RemoteFunction, options: Mapping[str, Any]) -> dict[str, Any]:
    """The complete options of a call; for equal ones the same dict, where that is cheap to see."""
    key = tuple([(name, type(value), value) for name, value in options.items() if type(value) in _SIMPLE])
    kept = function.completed_options
    merged = kept.get(key) if len(key) == len(options) else None
    if merged is None:
        check_task_options(options, is_generator=function.is_generator, in_options=True)
        given = {**function.given_options, **options}
        merged = complete_task_options(given, is_generator=function.is_generator)
        if len(key) == len(options):
            if len(kept) >= MOST_KEPT:
                kept.clear()
            kept[key] = merged
    return merged


class RemoteFunctionWithOptions:
    """The result of `RemoteFunction.options`."""

    __slots__ = ("_function", "_given", "_options")

    def __init__(self, function: RemoteFunction, options: Mapping[str, Any]) -> None:
        self._options = _merged(function, options)
        self._function = function
        self._given = {**function.given_options, **options}

    def remote(self, /, *args: Any, **kwargs: Any) -> Any:
        """As `RemoteFunction.remote`."""
        function = self._function
        if kwargs or not function.low <= len(args) <= function.high:
            return _submit(function, args, kwargs, self._options)
        return (current.started or current_backend()).submit_task(function, args, kwargs, self._options)

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """As `RemoteFunction.bind`."""
        return FunctionNode(self._function, args, kwargs, dict(self._given))

    def __reduce__(self) -> tuple[Any, ...]:
        options = {name: value for name, value in self._given.items() if name != "max_calls"}
        return RemoteFunctionWithOptions, (self._function, options)
