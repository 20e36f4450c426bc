"""The last calls of workers that left in order, which no other process remembers. On the node's one thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import Any

from mray._common.filters import Filter, columns_of, matches
from mray._common.history import History
from mray._decide.scheduler.policy import LAST_CALL_BYTES, LAST_CALLERS

#: A call as its worker records it: task id, name, begin, end (seconds of CLOCK_MONOTONIC), resources.
Call = Sequence[Any]


class LastCalls:
    def __init__(self) -> None:
        #: (number, end of the newest call, how many) -> pid and name of the worker, and its calls, oldest first.
        self._by_worker = History(LAST_CALLERS, LAST_CALL_BYTES)
        self._numbers = count()

    def append(self, pid: int, name: str, calls: Sequence[Call]) -> None:
        self._by_worker[next(self._numbers), calls[-1][3], len(calls)] = pid, name, list(map(list, calls))

    def clear(self) -> None:
        self._by_worker.clear()

    def all(self) -> list[tuple[Any, ...]]:
        """Pid and name of the worker, and a call of it."""
        return [(pid, name, *call) for pid, name, calls in self._by_worker for call in calls]

    def rows(
        self, limit: int, filters: Sequence[Filter] = (), without: Collection[bytes] = (), asked: Collection[bytes] = ()
    ) -> dict[str, Any]:
        """How many pass the filters, without some; the newest of them, each behind the pid of its worker; and which of the `asked` ones
        there are.
        """
        left_out, wanted = frozenset(without), frozenset(asked)
        known: list[bytes] = []
        newest: list[tuple[int, Call]] = []
        total = 0
        for end, size, record_of in self._newest_first():
            if len(newest) >= limit and not (filters or left_out or wanted) and (not limit or end < newest[limit - 1][1][3]):
                total += size  # none of them is newer than those found
                continue
            pid, _name, calls = record_of()
            known += [call[0] for call in calls if call[0] in wanted]
            passed = [(pid, call) for call in calls if call[0] not in left_out and (not filters or _passes(call, filters))]
            total += len(passed)
            newest = sorted([*newest, *passed], key=lambda each: -each[1][3])[:limit]
        return {"total": total, "rows": [(pid, *call) for pid, call in newest], "known": known}

    def counts(self, without: Collection[bytes] = (), asked: Collection[bytes] = ()) -> dict[str, Any]:
        """How many calls of each name and type have finished; and which of the `asked` ones there are."""
        left_out, wanted = frozenset(without), frozenset(asked)
        calls = [call for _pid, _name, calls in self._by_worker for call in calls]
        found = Counter((call[1] or "", columns_of(call[0])["type"]) for call in calls if call[0] not in left_out)
        counted = [(name, kind, "FINISHED", count) for (name, kind), count in found.items()]
        return {"counts": counted, "known": [call[0] for call in calls if call[0] in wanted]}

    def _newest_first(self) -> Iterator[tuple[float, int, Any]]:
        newest: list[Any] = list(self._by_worker.newest())
        for (_number, end, size), record_of in sorted(newest, key=lambda each: -each[0][1]):
            yield end, size, record_of


def _passes(call: Call, filters: Sequence[Filter]) -> bool:
    name = call[1] or ""
    how = {"name": name, "func_or_class_name": name, "state": "FINISHED", "error_type": None}
    return matches({**columns_of(call[0]), **how}, filters)
