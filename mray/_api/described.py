"""Methods that `inspect`, `help` and completion see with the signature and the docstring of the user's function.

``f.remote`` is a bound method, whose metadata is its function's; so each object has a class of its own, whose ``remote`` is a copy
with its own code object: the interpreter stores specializations there, and code that sees many classes is not specialized.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import Any, TypeVar, cast

from mray._common.options import Option

_T = TypeVar("_T")


def copy_of(function: Callable[..., Any]) -> FunctionType:
    """The same function with its own code object."""
    assert isinstance(function, FunctionType)
    code = function.__code__.replace()
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    copy.__doc__ = function.__doc__
    return copy


def described(method: Callable[..., Any], signature: inspect.Signature, function: Any, doc: str | None) -> FunctionType:
    """A copy of a method (of mray) that is shown as the user's function, with this signature."""
    copy = copy_of(method)
    taken = set(signature.parameters)
    own = next(name for name in ("self", "_self", "__self") if name not in taken)
    this = inspect.Parameter(own, inspect.Parameter.POSITIONAL_ONLY)
    copy.__signature__ = signature.replace(parameters=[this, *signature.parameters.values()])  # type: ignore[attr-defined]
    copy.__doc__ = doc or method.__doc__
    copy.__wrapped__ = function  # type: ignore[attr-defined]
    return copy


def subclass(base: type[_T], **methods: Any) -> type[_T]:
    """A class that differs from its base only in these methods."""
    body = {"__slots__": (), "__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__, **methods}
    return cast("type[_T]", type(base.__name__, (base,), body))


class OfInstance:
    """Descriptor of a dunder attribute that only instances have: on the class `inspect` finds what it would find without it."""

    def __init__(self, ask: Callable[[Any], Any], of_class: Any = AttributeError) -> None:
        self._ask = ask
        self._of_class = of_class

    def __get__(self, instance: Any, _type: type | None = None) -> Any:
        if instance is not None:
            return self._ask(instance)
        if self._of_class is AttributeError:
            raise AttributeError
        return self._of_class


def option_signature(options: Mapping[str, Option], *, bound: bool) -> inspect.Signature:
    """Of a function that takes these options, all by keyword; `bound`: of a method, after self."""
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)] if bound else []
    parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=each.default) for name, each in options.items()]
    return inspect.Signature(parameters)


# ------------------------------------------------------------------------------------------------ what holds nothing of the program
#: Types of default values that may be retained: no array and no actor handle hangs on them.
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class _Shown:
    """Stands for a default value."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def shell_of(function: Any) -> Any:
    """The function's name, file and source, without what it refers to; itself if it is no Python function.

    A class lives until the garbage collector runs, and what a function refers to may have to be freed with its last reference.
    """
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__
    shell = FunctionType(code, {}, function.__name__, None, tuple(CellType() for _ in code.co_freevars))
    shell.__qualname__, shell.__module__, shell.__doc__ = function.__qualname__, function.__module__, function.__doc__
    return shell


def shown_only(signature: inspect.Signature) -> inspect.Signature:
    """The signature with the texts of default values other than numbers and texts."""
    parameters = [
        each if each.default is each.empty or type(each.default) in _PLAIN else each.replace(default=_Shown(_text_of(each.default)))
        for each in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def _text_of(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # of the user
        return "..."
