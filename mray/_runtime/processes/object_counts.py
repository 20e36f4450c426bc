"""Numbers of objects in a process: they show that unused objects are kept, where the memory in use says little.

In any process, when an observer asks. Counted are the objects that the garbage collector walks, by class. Records kept on purpose for
listings are invisible to it (`mray._common.history`), so at two moments with the same work pending all numbers are about equal.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from typing import Any

#: The items of these are counted, too: the collector does not walk numbers and texts, but it walks the tables that hold them.
_CONTAINERS: tuple[type[Any], ...] = (dict, list, set, tuple, deque)

#: The name of that count.
ITEMS = "items of containers"


def count_objects() -> dict[str, int]:
    """Class (module and name) to how many there are, after a collection."""
    gc.collect()
    counts: Counter[str] = Counter()
    for thing in gc.get_objects():
        kind = type(thing)  # `isinstance` would ask the object, which may answer anything
        counts[f"{kind.__module__}.{kind.__qualname__}"] += 1
        for base in _CONTAINERS:
            if issubclass(kind, base):
                counts[ITEMS] += base.__len__(thing)
    return dict(counts)
