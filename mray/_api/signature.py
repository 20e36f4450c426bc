"""The signature of a function, of builtin values only, so that a handle can take it into processes that do not have the class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: name, kind (of `inspect.Parameter`), whether it has a default
ParameterInfo = tuple[str, int, bool]

_KINDS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_KEYWORD,
)
#: More than any call has.
_MANY = 1 << 30


class CallSignature:
    """The parameters of a function.

    A call with `low` to `high` positional arguments and no keywords is valid; for any other `check` decides.
    """

    __slots__ = ("_open", "_places", "_required", "_signature", "high", "low", "parameters")

    def __init__(self, parameters: Sequence[ParameterInfo] | None) -> None:
        #: None: everything is accepted.
        self.parameters = tuple(parameters) if parameters is not None else None
        self._signature: inspect.Signature | None = None
        self.low, self.high = 0, _MANY
        #: Whether any keyword is accepted.
        self._open = True
        #: Keyword -> position; `_MANY` when it is keyword-only.
        self._places: dict[str, int] = {}
        #: (keyword or None if positional-only, position) of required arguments.
        self._required: list[tuple[str | None, int]] = []
        if self.parameters is not None:
            self.low, self.high = _bounds(self.parameters)
            self._note_keywords(self.parameters)

    @classmethod
    def of(cls, function: Any, *, skip: int = 0) -> CallSignature:
        """The signature of a callable, without its first `skip` parameters (``self``)."""
        try:
            whole = inspect.signature(function)
        except (TypeError, ValueError):  # written in C
            return cls(None)
        parameters = list(whole.parameters.values())
        if parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
            parameters = parameters[skip:]
        made = cls([(p.name, int(p.kind), p.default is not p.empty) for p in parameters])
        made._signature = whole.replace(parameters=parameters)
        return made

    def signature(self) -> inspect.Signature:
        """As `inspect` has it; where the function itself is missing, defaults are ``...``."""
        if self._signature is None:
            parameters = self.parameters
            if parameters is None:
                parameters = (("args", 2, False), ("kwargs", 4, False))
            self._signature = inspect.Signature(
                [
                    inspect.Parameter(name, _KINDS[kind], default=... if default else inspect.Parameter.empty)
                    for name, kind, default in parameters
                ]
            )
        return self._signature

    def _note_keywords(self, parameters: Sequence[ParameterInfo]) -> None:
        self._open = any(kind == inspect.Parameter.VAR_KEYWORD for _name, kind, _default in parameters)
        for place, (name, kind, default) in enumerate(parameters):
            if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                continue
            if kind == inspect.Parameter.KEYWORD_ONLY:
                place = _MANY
            by_name = kind != inspect.Parameter.POSITIONAL_ONLY
            if by_name:
                self._places[name] = place
            if not default:
                self._required.append((name if by_name else None, place))

    def accepts(self, count: int, kwargs: Mapping[str, Any]) -> bool:
        """Whether a call with this number of positional arguments and these keywords is valid."""
        if count > self.high:
            return False
        places = self._places
        for name in kwargs:
            place = places.get(name)
            if place is None:
                if not self._open:
                    return False
            elif place < count:
                return False
        return all(place < count or name in kwargs for name, place in self._required)

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any], name: str = "") -> None:
        """Raise TypeError, with `inspect`'s text and the function's `name`, for an invalid call."""
        if not self.accepts(len(args), kwargs):
            try:
                self.signature().bind(*args, **kwargs)
            except TypeError as error:
                if not name:
                    raise
                raise TypeError(f"{error}, in a call of {name}{self.outline()}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return CallSignature, (self.parameters,)

    def outline(self) -> str:
        """The signature without types."""
        signature = self.signature()
        empty = inspect.Parameter.empty
        parameters = [each.replace(annotation=empty) for each in signature.parameters.values()]
        return str(signature.replace(parameters=parameters, return_annotation=empty))

    def __str__(self) -> str:
        """The signature for error texts: without the return type."""
        return str(self.signature().replace(return_annotation=inspect.Signature.empty))


def _bounds(parameters: Sequence[ParameterInfo]) -> tuple[int, int]:
    low = high = 0
    for _name, kind, default in parameters:
        if kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD:
            high += 1
            low += not default
        elif kind == inspect.Parameter.VAR_POSITIONAL:
            high = _MANY
        elif kind == inspect.Parameter.KEYWORD_ONLY and not default:
            low = _MANY  # never valid without keywords
    return low, high


def returns_generator(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
