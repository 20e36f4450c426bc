"""Steps: what a client asks of an interpreter, as it travels, and what each operation does.

A step is a flat tuple of builtin values, so that the C pickler suffices::

    (operation, kinds, operands, names)

    operation  a key of `OPERATIONS`, or one of the interpreter's own
    kinds      one letter for each operand:
               LITERAL itself; SAME the result of an earlier step of this stream (its number); OTHER the result of a step of another stream
               (stream, number); NESTED a container with such results inside, as `At`; FOREIGN a ref of the engine to another interpreter's
               value; MODULE a module's name
    names      of the last operands, when a call has keyword arguments

The number of a step is its position in its stream, and a result is known by (stream, number), which tells a future result from a
released one. STATEMENTS have no result.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from mray.proxy._operators import ANSWERED, BINARY, COMPARISONS, IN_PLACE, UNARY, dunder

LITERAL, SAME, OTHER, NESTED, FOREIGN, MODULE = "vsonfm"

#: (stream, number)
Place = tuple[int, int]
Step = tuple[str, str, tuple[Any, ...], tuple[str, ...]]


class At(NamedTuple):
    stream: int
    number: int


class ForeignAt(NamedTuple):
    ref: Any


class NamedModule(NamedTuple):
    name: str


class Chunk(list[Any]):
    """Items of an iterator. `end`: None if it has not ended, else the exception."""

    end: BaseException | None = None


#: Iterators over existing items: reading ahead has no effect.
_SEQUENCES: tuple[Any, ...] = ([], (), "", b"", bytearray(), range(0), range(1 << 70, 1 << 70), {}, {}.values(), {}.items(), set())
_EAGER = frozenset(type(iter(sequence)) for sequence in _SEQUENCES)
#: items that are requested together, at most
CHUNK = 256


def advance(iterator: Iterator[Any], count: int) -> Chunk:
    """Up to `count` items, but only one of an iterator that computes them."""
    chunk = Chunk()
    try:
        chunk.extend(islice(iterator, count if type(iterator) in _EAGER else 1))
        if not chunk:
            chunk.end = StopIteration()
    except Exception as error:
        chunk.end = error
    return chunk


def _end(chunk: Chunk) -> tuple[int, bool]:
    if chunk.end is not None and not isinstance(chunk.end, StopIteration):
        raise chunk.end
    return len(chunk), chunk.end is not None


def _call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _text_of(value: Any, method: str) -> Any:
    """The value of ``value._repr_html_()`` and the like; None without such a method."""
    found = getattr(value, method, None)
    return found() if callable(found) else None


def _mime_bundle(value: Any, include: Any, exclude: Any) -> Any:
    found = getattr(value, "_repr_mimebundle_", None)
    return found(include=include, exclude=exclude) if callable(found) else None


def _has(value: Any, operation: str) -> bool:
    return hasattr(type(value), dunder(operation))


def _ufunc(ufunc: Any, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
    return getattr(ufunc, method)(*inputs, **kwargs)


def _array(value: Any) -> Any:
    """A tensor is copied from its GPU first."""
    import numpy  # noqa: PLC0415  (optional, and slow to import)

    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return numpy.asarray(value)


def by_name(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _call_named(module: str, name: str, /, *args: Any, **kwargs: Any) -> Any:
    return by_name(module, name)(*args, **kwargs)


def _enter(value: Any) -> Any:
    return type(value).__enter__(value)


def _exit(value: Any, error: BaseException | None) -> Any:
    return bool(type(value).__exit__(value, type(error) if error is not None else None, error, None))


#: Operations that run in the order of their stream, without a result.
STATEMENTS = frozenset({"setattr", "delattr", "setitem", "delitem", "adopt", "close"})

OPERATIONS: dict[str, Callable[..., Any]] = {
    **BINARY,
    **IN_PLACE,
    **COMPARISONS,
    **UNARY,
    **ANSWERED,
    "call": _call,
    "call_named": _call_named,
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "repr": repr,
    "format": format,
    "dir": dir,
    "is_none": lambda value: value is None,
    "type": type,
    "has": _has,
    "text": _text_of,
    "mime": _mime_bundle,
    "iter": iter,
    "next": next,
    "aiter": aiter,
    "reversed": reversed,
    "advance": advance,
    "end": _end,
    "close": lambda iterator: getattr(iterator, "close", bool)(),
    "module": importlib.import_module,
    "enter": _enter,
    "exit": _exit,
    "ufunc": _ufunc,
    "array": _array,
}


def described(operation: str, operands: tuple[Any, ...], names: tuple[str, ...]) -> str:
    """`operands` as far as they are known."""
    kinds = [type(operand).__name__ for operand in operands]
    first = kinds[0] if kinds else ""
    if operation in ("getattr", "setattr", "delattr"):
        return f"{operation[:-4]} .{operands[1]} of a {first}" if len(operands) > 1 else operation
    if operation in ("getitem", "setitem", "delitem"):
        return f"{operation[:-4]} [{_short(operands[1])}] of a {first}" if len(operands) > 1 else operation
    if operation == "call":
        function = getattr(operands[0], "__qualname__", first) if operands else ""
        plain = [_short(operand) for operand in operands[1 : len(operands) - len(names)]]
        named = [f"{name}={_short(operand)}" for name, operand in zip(names, operands[len(operands) - len(names) :], strict=True)]
        return f"call {function}({', '.join(plain + named)})"
    return f"{operation}({', '.join(map(_short, operands))})"


def _short(value: Any) -> str:
    if isinstance(value, int | float | str | bool | None) and len(text := repr(value)) <= 40:
        return text
    return f"<{type(value).__name__}>"
