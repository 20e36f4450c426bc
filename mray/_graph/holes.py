"""Arguments that hold DAG nodes inside of containers: the compiler replaces each node by a `Hole`, which the actor fills in each
execution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mray._api.dag_scan import ObjectScanner


class Hole:
    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple[type[Hole], tuple[int]]:
        return Hole, (self.index,)


def filler(template: Any, values: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    """A function that returns `template` with ``values[i]()`` in hole i."""
    kind = template.__class__
    if kind is Hole:
        value: Callable[[], Any] = values[template.index]
        return value
    if kind is list:
        parts = [filler(each, values) for each in template]
        return lambda: [part() for part in parts]
    if kind is tuple:
        parts = [filler(each, values) for each in template]
        return lambda: tuple([part() for part in parts])
    if kind is dict and not any(_has_holes(key) for key in template):
        items = [(key, filler(each, values)) for key, each in template.items()]
        return lambda: {key: part() for key, part in items}
    if not _has_holes(template):
        return lambda: template
    return _scanned(template, values)


def _has_holes(value: Any) -> bool:
    return bool(ObjectScanner(Hole).find_nodes(value))


def _scanned(template: Any, values: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    scanner = ObjectScanner(Hole)
    holes = scanner.find_nodes(template)
    return lambda: scanner.replace_nodes({hole: values[hole.index]() for hole in holes})
