"""Finding objects of a kind inside other objects, and replacing them.

Walks lists, tuples, sets, dicts and the attributes of plain objects. Nothing is pickled, so unpicklable parts are allowed.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterable
from typing import Any

_LEAVES = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    bool,
    type(None),
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
)


class ObjectScanner:
    """Finds instances of `source_type`; first `find_nodes`, then `replace_nodes`."""

    def __init__(self, source_type: type | tuple[type, ...]) -> None:
        self._source_type = source_type
        self._root: Any = None
        self._found: dict[int, Any] = {}
        #: Id of each entered container -> whether something was found in it.
        self._entered: dict[int, bool] = {}

    def find_nodes(self, root: Any) -> list[Any]:
        """All distinct instances inside `root`, in the order of appearance; they are not entered."""
        self._root = root
        self._found.clear()
        self._entered.clear()
        self._find(root)
        return list(self._found.values())

    def replace_nodes(self, table: dict[Any, Any]) -> Any:
        return self._replace(self._root, table, {})

    def clear(self) -> None:
        self._root = None
        self._found.clear()
        self._entered.clear()

    def _find(self, value: Any) -> bool:
        if isinstance(value, self._source_type):
            self._found.setdefault(id(value), value)
            return True
        if isinstance(value, _LEAVES):
            return False
        known = self._entered.get(id(value))
        if known is not None:
            return known
        self._entered[id(value)] = False
        hits = [self._find(part) for part in _parts(value)]  # all of them: no short cut
        hit = True in hits
        self._entered[id(value)] = hit
        return hit

    def _replace(self, value: Any, table: dict[Any, Any], done: dict[int, Any]) -> Any:
        if isinstance(value, self._source_type):
            return table[value]
        if isinstance(value, _LEAVES) or not self._entered.get(id(value)):
            return value
        if id(value) not in done:
            done[id(value)] = _rebuild(value, lambda part: self._replace(part, table, done))
        return done[id(value)]


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    attributes = _attributes(value)
    return attributes.values() if attributes else ()


def _attributes(value: Any) -> dict[str, Any] | None:
    """The instance's own attributes, if it is an object of a class written in Python."""
    if type(value).__flags__ & (1 << 9):  # a heap type: created by a class statement
        try:
            found: dict[str, Any] = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return None
        return found
    return None


def _rebuild(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        pairs = [(change(key), change(part)) for key, part in value.items()]
        if type(value) is dict:
            return dict(pairs)
        rebuilt = copy.copy(value)
        rebuilt.clear()
        rebuilt.update(pairs)
        return rebuilt
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[change(part) for part in value])
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value)([change(part) for part in value])
    rebuilt = copy.copy(value)
    attributes = _attributes(value) or {}
    for name, part in attributes.items():
        object.__setattr__(rebuilt, name, change(part))
    return rebuilt
