"""The numbers of DAG nodes in pictures: Ray's, so that names in programs for Ray mean the same here. Pure.

Breadth first from the input, downstream before upstream, in the order of binding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def in_order(upstream: Mapping[T, Sequence[T]], starts: Iterable[T], bound: Callable[[T], Any], ends: Callable[[T], bool]) -> list[T]:
    """The nodes in the order of their numbers.

    `upstream`: each node and what it uses; `starts`: where to begin, one after the other; `bound`: when a node was bound; `ends`: whether
    the search goes no further there.
    """
    downstream: dict[T, list[T]] = {node: [] for node in upstream}
    for node in sorted(upstream, key=bound):
        for source in dict.fromkeys(upstream[node]):
            downstream[source].append(node)
    found: dict[T, None] = {}
    queue: list[T] = []
    for start in starts:
        queue.append(start)
        for node in queue:
            if node not in found:
                found[node] = None
                if not ends(node):
                    queue += [*downstream[node], *upstream[node]]
        queue.clear()
    return list(found)
