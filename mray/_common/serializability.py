"""The part that keeps a value from being pickled, and the path to it.

The walk descends from a value that fails to the parts that fail: items of containers, attributes, globals and closures of functions,
members of classes.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mray._common.reducers import cloud_dumps

#: Depth of the walk; findings after which it ends.
_DEPTH = 8
_ENOUGH = 5


@dataclass(frozen=True, eq=False)
class FailTuple:
    """An object that cannot be pickled: its container (`parent`), the `path` from the top, and why."""

    obj: Any
    name: str
    parent: Any
    path: str = ""
    reason: str = ""

    def __repr__(self) -> str:
        return f"FailTuple({self.name} [path={self.path}, obj={shorten(self.obj)}, parent={shorten(self.parent)}])"


def shorten(value: Any, length: int = 200) -> str:
    """A short repr; never raises."""
    try:
        text = repr(value)
    except Exception:
        text = object.__repr__(value)
    return text if len(text) <= length else f"{text[:length]}..."


def why_not(value: Any) -> str | None:
    """Why a value cannot be pickled, or None."""
    try:
        cloud_dumps(value)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return f"{type(error).__name__}: {error}" if not isinstance(error, TypeError) else str(error)
    return None


def find_unpicklable(value: Any, name: str = "") -> list[FailTuple]:
    """The innermost parts of a value that cannot be pickled, at most a few."""
    reason = why_not(value)
    if reason is None:
        return []
    found: list[FailTuple] = []
    _search(value, name, None, name, reason, found, {id(value)}, 0)
    return found


def _search(value: Any, name: str, parent: Any, path: str, reason: str, found: list[FailTuple], seen: set[int], depth: int) -> None:
    failing = []
    if depth < _DEPTH:
        for step, part_name, part in _parts(value):
            if id(part) in seen or _is_plain(part):
                continue
            seen.add(id(part))
            why = why_not(part)
            if why is not None:
                failing.append((step, part_name, part, why))
    if not failing:
        found.append(FailTuple(value, name or "unknown", parent, path, reason))
    for step, part_name, part, why in failing:
        if len(found) >= _ENOUGH:
            return
        _search(part, part_name, value, f"{path} -> {step}" if path else step, why, found, seen, depth + 1)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, bytes, int, float, complex, bool, type(None), types.ModuleType))


def _parts(value: Any) -> Iterator[tuple[str, str, Any]]:
    """(step of the path, name, part)"""
    if isinstance(value, dict):
        for key, part in list(value.items()):
            yield f"[{shorten(key, 40)}]", shorten(key, 40), part
            yield f"key {shorten(key, 40)}", shorten(key, 40), key
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, part in enumerate(list(value)):
            yield f"[{index}]", f"[{index}]", part
    elif inspect.isfunction(value):
        yield from _parts_of_function(value)
    elif inspect.ismethod(value):
        yield "__self__", "__self__", value.__self__
        yield "__func__", "__func__", value.__func__
    elif isinstance(value, type):
        for name, part in list(vars(value).items()):
            if isinstance(part, (staticmethod, classmethod)):
                part = part.__func__
            if not name.startswith("__") or inspect.isfunction(part):
                yield name, name, part
    elif isinstance(value, tuple(_HELD)):
        for name in next(names for kind, names in _HELD.items() if isinstance(value, kind)):
            yield name, name, getattr(value, name)
    elif not _refuses(value):
        yield from _fields_of(value)


#: Attributes that `vars` does not have, or that are pickled another way.
_HELD = {property: ("fget", "fset", "fdel"), functools.partial: ("func", "args", "keywords"), functools.cached_property: ("func",)}


def _fields_of(value: Any) -> Iterator[tuple[str, str, Any]]:
    fields = dict(getattr(value, "__dict__", None) or {})
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in fields and hasattr(value, name):
                fields[name] = getattr(value, name)
    for name, part in fields.items():
        yield name, name, part


def _refuses(value: Any) -> bool:
    reduce: Any = type(value).__reduce__
    if reduce is object.__reduce__:
        return False
    try:
        reduce(value)
    except Exception:
        return True
    return False


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, str, Any]]:
    try:
        closure = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return
    for variables in (closure.nonlocals, closure.globals):
        for name, part in variables.items():
            yield name, name, part
    for index, part in enumerate(function.__defaults__ or ()):
        yield f"default {index}", f"default {index}", part
    for name, part in (function.__kwdefaults__ or {}).items():
        yield f"default {name}", name, part


def blame(value: Any, error: BaseException, name: str, whose: str, remedy: str) -> str:
    """The innermost part that cannot be pickled, in one line: ```x['a']` of f, a `_thread.lock`, cannot be pickled: remedy``.

    `name` is that of the value, `whose` follows the part.
    """
    found = find_unpicklable(value, name)
    part, path, reason = (found[0].obj, found[0].path, found[0].reason) if found else (value, name, str(error))
    shown = path.replace(" -> [", "[").replace(" -> ", ".") or shorten(part)
    kind = type(part)
    of_kind = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    return f"`{shown}`{whose}, {'an' if of_kind[0] in 'aeioAEIO' else 'a'} `{of_kind}`, cannot be pickled: {remedy} ({reason})"


def explain(value: Any, error: BaseException | None = None, name: str = "") -> str:
    found = find_unpicklable(value, name)
    line = "=" * min(len(shorten(value)) + len("Checking Serializability of "), 100)
    lines = [line, f"Checking Serializability of {shorten(value)}", line]
    if not found:
        if error is not None:
            lines.append(f"!!! FAIL serialization: {error}")
        return "\n".join(lines) + "\n"
    for failure in found:
        lines.append(f"!!! FAIL serialization: {failure.reason}")
        where = failure.path or failure.name
        lines.append(f"    '{where}' is {shorten(failure.obj)} of type {type(failure.obj).__module__}.{type(failure.obj).__qualname__}")
        if failure.parent is not None:
            lines.append(f"    held by {shorten(failure.parent)}")
    lines += [
        line,
        "Variable: ",
        *(f"\n\t{failure!r}" for failure in found),
        "",
        "was found to be non-serializable. Leave it out, create it where it is used, or register a serializer for its type.",
        line,
    ]
    return "\n".join(lines) + "\n"
