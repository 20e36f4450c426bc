"""How many objects a process has: it shows that something is kept which nobody needs, where the memory in use says little.

In any process, when an observer asks. Counted is what the garbage collector walks, by class. What is kept on purpose for listings is
invisible to it (`mray._common.history`), so between two moments at which a process has the same to do all numbers are about equal.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from typing import Any

#: What lies in these is counted, too: numbers and texts are no business of the collector's, but the tables that hold them are.
_CONTAINERS: tuple[type[Any], ...] = (dict, list, set, tuple, deque)

#: Name under which that stands.
ITEMS = "items of containers"


def count_objects() -> dict[str, int]:
    """Class (module and name) to how many there are, after a collection."""
    gc.collect()
    counts: Counter[str] = Counter()
    for thing in gc.get_objects():
        kind = type(thing)  # `isinstance` would ask the object, which may say anything
        counts[f"{kind.__module__}.{kind.__qualname__}"] += 1
        for base in _CONTAINERS:
            if issubclass(kind, base):
                counts[ITEMS] += base.__len__(thing)
    return dict(counts)
