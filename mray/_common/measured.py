"""Metrics that user code has counted in this process. Any thread.

`mray metrics` asks each process for its `rows`; nothing is sent before.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Any

#: Sorted (name, value) pairs.
Tags = tuple[tuple[str, str], ...]


class Family:
    """One metric of this process, shared by all of its user objects."""

    def __init__(self, name: str, kind: str, description: str, boundaries: tuple[float, ...]) -> None:
        self.name = name
        self.kind = kind
        self.description = description
        #: Upper bounds of a histogram's buckets except the last.
        self.boundaries = boundaries
        #: Tags -> a number; for a histogram [observations per bucket] and their sum.
        self.values: dict[Tags, Any] = {}

    def add(self, tags: Tags, amount: float) -> None:
        with _lock:
            self.values[tags] = self.values.get(tags, 0.0) + amount

    def set(self, tags: Tags, value: float) -> None:
        self.values[tags] = value

    def plain(self, value: Any) -> Any:
        return (list(value[0]), value[1]) if self.kind == "histogram" else value

    def observe(self, tags: Tags, value: float) -> None:
        with _lock:
            found = self.values.get(tags)
            if found is None:
                found = self.values[tags] = [[0] * (len(self.boundaries) + 1), 0.0]
            found[0][bisect_left(self.boundaries, value)] += 1
            found[1] += value


_lock = threading.Lock()
_families: dict[tuple[str, str], Family] = {}


def family(name: str, kind: str, description: str, boundaries: tuple[float, ...] = ()) -> Family:
    """The family of this name and kind ("counter", "gauge", "histogram"); its creator sets the rest."""
    with _lock:
        return _families.setdefault((name, kind), Family(name, kind, description, boundaries))


def rows() -> list[dict[str, Any]]:
    """Every family with values, as builtin values."""
    with _lock:
        return [
            {
                "name": each.name,
                "kind": each.kind,
                "description": each.description,
                "boundaries": list(each.boundaries),
                "samples": [(tags, each.plain(value)) for tags, value in each.values.items()],
            }
            for each in _families.values()
            if each.values
        ]
