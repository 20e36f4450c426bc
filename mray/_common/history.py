"""Records of the past, for listings: bounded in number and in bytes, the oldest forgotten first.

Records are marshalled: one small block each, invisible to the garbage collector, so that long-lived processes grow neither larger nor
slower.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any


class History:
    """Records of builtin values by key, oldest first. Not thread-safe."""

    __slots__ = ("_number", "_records", "bytes", "most", "most_bytes")

    def __init__(self, most: int, most_bytes: int) -> None:
        """The newest record is retained however large it is."""
        self.most = most
        self.most_bytes = most_bytes
        self.bytes = 0
        self._records: dict[Hashable, bytes] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._records

    def __getitem__(self, key: Hashable) -> Any:
        return marshal.loads(self._records[key])

    def __setitem__(self, key: Hashable, record: Any) -> None:
        records = self._records
        packed = marshal.dumps(record)
        self.bytes += len(packed) - len(records.pop(key, b""))
        records[key] = packed
        while len(records) > self.most or (self.bytes > self.most_bytes and len(records) > 1):
            self.bytes -= len(records.pop(next(iter(records))))

    def append(self, record: Any) -> None:
        self._number += 1
        self[self._number] = record

    def __iter__(self) -> Iterator[Any]:
        return map(marshal.loads, tuple(self._records.values()))

    def newest(self) -> Iterator[tuple[Any, Callable[[], Any]]]:
        """The keys, the newest first, each with a function that returns its record."""
        for key, packed in reversed(tuple(self._records.items())):
            yield key, partial(marshal.loads, packed)

    def all_keys(self) -> tuple[Any, ...]:
        return tuple(self._records)

    def clear(self) -> None:
        self._records.clear()
        self.bytes = 0
