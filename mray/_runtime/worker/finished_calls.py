"""The calls that a worker has finished, for observers: the newest, of those that pass the filters. In the reading thread.

A listing asks for as many as it shows, so the others are neither copied nor sent. Calls that failed and of which their callers tell are
left out: only a caller remembers a failure when the worker has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from mray._common.filters import Filter, columns_of, matches
from mray._common.invocations import short_name, shown_name
from mray._runtime.worker.running import FinishedCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from mray._runtime.worker.executor import Executor
    from mray._runtime.worker.main_thread import MainThread
    from mray._runtime.worker.running import Done

#: The most that are listed.
LISTED = 1000

_NAME = itemgetter(1)
FINISHED, FAILED = "FINISHED", "FAILED"


class FinishedCalls:
    def __init__(self, main_thread: MainThread, executor: Executor) -> None:
        self._main = main_thread
        self._executor = executor

    def sections(self) -> dict[str, Callable[..., Any]]:
        return {"finished": self.rows, "finished counts": self.counts, "times": self.times}

    def rows(self, limit: int = LISTED, filters: Sequence[Filter] = (), known: Sequence[bytes] = ()) -> dict[str, Any]:
        """How many pass the filters; the newest of them; and, of the others, the newest failures."""
        calls = self._newest(known)
        errors = self._executor.packer.failed_calls()
        if filters:
            calls = self._filtered(calls, filters, errors)
        older = [call for call in calls[limit:] if call[0] in errors][:limit] if errors else []
        texts = {task_id: text for task_id, _kind, text in self._executor.packer.failures} if errors else {}
        named = dict(self._executor.named)

        def row(call: Done) -> tuple[Any, ...]:
            task_id, name, begin, end, resources = call
            function = named.get(task_id, name or "")
            shown = self._shown(name or "", function)
            kind = errors.get(task_id)
            return tuple(FinishedCall(task_id, shown, function, begin, end, resources or {}, kind, texts.get(task_id)))

        return {"total": len(calls), "rows": list(map(row, calls[:limit])), "failures": list(map(row, older))}

    def counts(self, known: Sequence[bytes] = ()) -> list[tuple[str, str, str, int]]:
        """How many calls of each name and type have finished, and have failed."""
        calls = self._newest(known)
        named = dict(self._executor.named)
        # One call of each name tells what a name stands for; calls with names of their own are few.
        names = list(map(_NAME, calls))
        kinds = dict(zip(names, map(itemgetter(0), calls), strict=True))
        total = Counter(names)
        errors = self._executor.packer.failed_calls()
        failed = Counter(call[1] for call in calls if call[0] in errors) if errors else Counter[str | None]()
        found = []
        for name, task_id in kinds.items():
            said, function = name or "", named.get(task_id, name or "")
            of_kind = self._shown(said, function), columns_of(task_id)["type"]
            found += [
                (*of_kind, state, count) for state, count in ((FINISHED, total[name] - failed[name]), (FAILED, failed[name])) if count
            ]
        return found

    def times(self, calls: Sequence[bytes]) -> dict[bytes, tuple[float, float]]:
        """When those of these calls that it remembers have begun and ended."""
        wanted = frozenset(calls)
        return {call[0]: (call[2], call[3]) for call in reversed(self._main.newest(LISTED)) if call[0] in wanted}

    def _newest(self, known: Sequence[bytes]) -> list[Done]:
        """The calls that are over, without attempts after which the caller was asked to repeat the call."""
        calls = self._main.newest(LISTED)
        left_out = frozenset(known)
        attempts = Counter(self._executor.packer.attempts)
        if not left_out and not attempts:
            return calls
        times = Counter(call[0] for call in calls if call[0] in attempts)
        found = []
        for call in calls:
            task_id = call[0]
            if task_id in left_out:
                continue
            if task_id in attempts:  # the newest, unless it was an attempt too
                times[task_id], is_over = 0, times[task_id] > attempts[task_id]
                if not is_over:
                    continue
            found.append(call)
        return found

    def _filtered(self, calls: list[Done], filters: Sequence[Filter], errors: dict[bytes, str]) -> list[Done]:
        """Calls of one name pass or fail together, unless the filters ask for an id or a call has something of its own."""
        named = dict(self._executor.named)

        def passes(call: Done) -> bool:
            task_id, name, *_rest = call
            function = named.get(task_id, name or "")
            kind = errors.get(task_id)
            names = {"name": self._shown(name or "", function), "func_or_class_name": function}
            state = {"state": FAILED if kind else FINISHED, "error_type": kind}
            return matches({**columns_of(task_id), **names, **state}, filters)

        columns = {column for column, *_rest in filters}
        if "task_id" in columns:
            return [call for call in calls if _has_id(call, filters) and passes(call)]
        key = _name_and_place if columns & {"job_id", "actor_id"} else _NAME
        own = named.keys() | errors.keys()
        kinds = list(map(key, calls))
        one_of_each = {kind: call for kind, call in zip(kinds, calls, strict=True) if not own or call[0] not in own}
        verdicts = {kind: passes(call) for kind, call in one_of_each.items()}
        found = zip(kinds, calls, strict=True)
        return [call for kind, call in found if (passes(call) if own and call[0] in own else verdicts[kind])]

    def _shown(self, name: str, function: str) -> str:
        executor = self._executor
        return shown_name(name, function, short_name(executor.context.class_name or ""), executor.actor.repr)


def _name_and_place(call: Done) -> tuple[str | None, bytes]:
    """The job, and the actor if there is one, stand behind the first bytes of an id."""
    return call[1], call[0][8:]


def _has_id(call: Done, filters: Sequence[Filter]) -> bool:
    """Whether it may be the call of this id; a cheap first test, of a thousand calls for one."""
    task_id = call[0].hex()
    return all(task_id == str(value).lower() for column, sign, value in filters if column == "task_id" and sign == "=")
