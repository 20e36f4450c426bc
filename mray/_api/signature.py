"""What a function can be called with: checked at the call, carried by handles.

A signature here is builtin values only, so that a handle can take it into processes that do not have the class.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: name, kind (of `inspect.Parameter`), whether it has a default
ParameterFacts = tuple[str, int, bool]

#: More positional arguments than anybody passes.
_MANY = 1 << 30


class CallSignature:
    """The parameters of a function, quick to compare with a call.

    A call with `low` to `high` positional arguments and no keywords is right; for any other `check` decides.
    """

    __slots__ = ("_signature", "high", "low", "parameters")

    def __init__(self, parameters: Sequence[ParameterFacts] | None) -> None:
        #: ``None``: unknown, everything is accepted.
        self.parameters = tuple(parameters) if parameters is not None else None
        self._signature: inspect.Signature | None = None
        self.low, self.high = 0, _MANY
        if self.parameters is not None:
            self.low, self.high = _bounds(self.parameters)

    @classmethod
    def of(cls, function: Any, *, skip: int = 0) -> CallSignature:
        """Of a callable, without its first `skip` parameters (``self``)."""
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # written in C
            return cls(None)
        if not skip or (parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL):
            skip = 0
        return cls([(p.name, int(p.kind), p.default is not p.empty) for p in parameters[skip:]])

    def signature(self) -> inspect.Signature:
        """As `inspect` has it; defaults are ``...``."""
        if self._signature is None:
            parameters = self.parameters
            if parameters is None:
                parameters = (("args", 2, False), ("kwargs", 4, False))
            self._signature = inspect.Signature(
                [
                    inspect.Parameter(name, inspect._ParameterKind(kind), default=... if default else inspect.Parameter.empty)
                    for name, kind, default in parameters
                ]
            )
        return self._signature

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """TypeError, in `inspect`'s words, when the function cannot be called so."""
        self.signature().bind(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return CallSignature, (self.parameters,)

    def __str__(self) -> str:
        return str(self.signature())


def _bounds(parameters: Sequence[ParameterFacts]) -> tuple[int, int]:
    low = high = 0
    for _name, kind, default in parameters:
        if kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD:
            high += 1
            low += not default
        elif kind == inspect.Parameter.VAR_POSITIONAL:
            high = _MANY
        elif kind == inspect.Parameter.KEYWORD_ONLY and not default:
            return _MANY, _MANY  # never right without keywords
    return low, high


def returns_generator(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
