"""Numbers of objects in a process, by class, which reveal leaks better than the memory in use. In any process.

Counted are the objects that the garbage collector walks. Records retained for listings are invisible to it (`mray._common.history`), so
with the same pending work all numbers stay about equal.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from typing import Any

#: Their items are counted, too: the collector does not walk numbers and texts.
_CONTAINERS: tuple[type[Any], ...] = (dict, list, set, tuple, deque)

ITEMS = "items of containers"


def count_objects() -> dict[str, int]:
    """Class (module and name) -> number of its objects, after a collection."""
    gc.collect()
    counts: Counter[str] = Counter()
    for thing in gc.get_objects():
        kind = type(thing)  # `isinstance` would call the object's code
        counts[f"{kind.__module__}.{kind.__qualname__}"] += 1
        for base in _CONTAINERS:
            if issubclass(kind, base):
                counts[ITEMS] += base.__len__(thing)
    return dict(counts)
