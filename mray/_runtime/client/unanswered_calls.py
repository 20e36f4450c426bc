"""The unanswered calls of this process, for observers. In the reading thread, with the client's lock held.

The caller knows of which calls it awaits the answers; the worker knows which of them it runs, but a call may begin and end between the
looks at both. So the oldest call that was sent to a process which is not known to run any counts as running: that process runs it now,
receives it now, or has just answered it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from mray._common.filters import Filter, columns_of, matches
from mray._runtime.client.calls import QUEUES_IN_ACTOR, RUNNING, SENT
from mray._runtime.connections import part

if TYPE_CHECKING:
    from mray._ipc.connection import Connection
    from mray._runtime.client.calls import Call
    from mray._runtime.connections.part import Part, Row, Unanswered

#: Process -> task ids of the calls that it runs -> the processes that made them.
Started = Mapping[str, Mapping[bytes, str]]


class UnansweredCalls:
    def __init__(self, process: str, parts: Callable[[], Iterable[Part]], peers: Mapping[str, Connection]) -> None:
        self._process = process
        self._parts = parts
        self._peers = peers

    def sections(self) -> dict[str, Callable[..., Any]]:
        return {"calls": self.rows, "call counts": self.counts}

    def rows(
        self,
        limit: int = part.MOST_ROWS,
        filters: Sequence[Filter] = (),
        calls: Collection[bytes] | None = None,
        started: Started | None = None,
        grouped: Collection[str] = (),
    ) -> dict[str, Any]:
        """How many pass the filters, and the first of them: those that run, then the others in the order of each queue.

        `calls`: only these task ids. `grouped`: processes that run several calls concurrently.
        """
        most = min(limit, part.MOST_ROWS)
        found = self._in_states(started or {}, frozenset(grouped))
        if calls is not None:
            only = frozenset(calls)
            found = (each for each in found if each[0].task_id in only)
        if filters:
            found = (each for each in found if _passes(*each, filters))
        if filters or calls is not None:
            every = list(found)
            return {"total": len(every), "rows": list(map(_row, every[:most]))}
        return {"total": sum(each.count_calls() for each in self._parts()), "rows": list(map(_row, islice(found, most)))}

    def counts(self, started: Started, grouped: Collection[str]) -> list[tuple[str, str, str, int]]:
        """How many calls of each name and type are in each state."""
        found = Counter(
            (call.names()[0], columns_of(call.task_id)["type"], state)
            for call, state, _process in self._in_states(started, frozenset(grouped))
        )
        return [(*kind, count) for kind, count in found.items()]

    def _in_states(self, started: Started, grouped: frozenset[str]) -> Iterator[Unanswered]:
        running: set[bytes] = set()
        for process, connection in self._peers.items():
            for call in self._running_there(connection.calls, started.get(process, {})):
                running.add(call.task_id)
                yield call, RUNNING, process
        for call, state, process in chain.from_iterable(each.calls() for each in self._parts()):
            if call.task_id not in running:
                yield call, QUEUES_IN_ACTOR if state == SENT and process in grouped else state, process

    def _running_there(self, calls: Mapping[bytes, Call], started: Mapping[bytes, str]) -> list[Call]:
        if not calls:
            return []
        found = [calls[task_id] for task_id in started if task_id in calls]
        if found or any(owner != self._process for owner in started.values()):
            return found
        return [next(iter(calls.values()))]


def _row(unanswered: Unanswered) -> Row:
    call, state, process = unanswered
    found: Row = call.row(state, process)
    return found


def _passes(call: Call, state: str, _process: str, filters: Sequence[Filter]) -> bool:
    name, function = call.names()
    names = {"name": name, "func_or_class_name": function}
    return matches({**columns_of(call.task_id), **names, "state": state, "error_type": None}, filters)
