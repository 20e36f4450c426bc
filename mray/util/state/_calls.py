"""The calls of a session: those that a listing shows, and how many there are of each kind. In the querying process.

::

    caller   unanswered calls, failed calls    ─┐
    worker   running calls, finished calls      ├──▶ each filters, orders, counts and cuts its own ──▶ the newest of all
    node     last calls of workers that left   ─┘

First all are asked for the running and the failed calls, and workers for about their shares of the limit. Callers, who cannot say by
themselves which of their calls run, are asked next, with workers of whose calls callers list failures, and workers that have more of the
newest. Then other processes complete the rows that are shown. A filter by something that a source does not know is applied here, to all
of its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from mray._common import messages as m
from mray._common.clock import perf_counter, time
from mray._common.filters import Filter, columns_of, matches
from mray._common.ids import JOB_SIZE, NO_ACTOR, is_from
from mray._common.invocations import short_name, shown_name
from mray._observe.observer import Interview, ask_node
from mray._observe.process_snapshot import Sections
from mray.util.state._select import newest
from mray.util.state._view import Row, View, made, worker_id
from mray.util.state.common import TaskState

#: Rows of a source where filters cannot be applied there: more than any of them has.
_ALL = 1 << 20
#: Rows that a worker tells of beyond its share of a listing.
_SPARE = 8
#: Columns that sources know; names of methods are completed here where instances have a repr of their own.
_KNOWN = frozenset({"task_id", "attempt_number", "job_id", "actor_id", "type", "name", "func_or_class_name", "state", "error_type"})
_CREATION_STATES = {"pending": "PENDING_NODE_ASSIGNMENT", "alive": "FINISHED", "restarting": "PENDING_NODE_ASSIGNMENT", "dead": "FINISHED"}
_CREATION_ERRORS = {m.CAUSE_INIT: "TASK_EXECUTION_EXCEPTION", m.CAUSE_REFUSED: "ACTOR_UNSCHEDULABLE_ERROR"}
_CONSTRUCTS = b"\xff" * 8
_DRIVER_TASK = (_CONSTRUCTS + NO_ACTOR).hex()
_NOTHING: Row = {"total": 0, "rows": [], "failures": []}

Count = tuple[str, str, str, int]


def calls(view: View) -> Iterator[TaskState]:
    """All of them."""
    yield from listed_calls(view, (), _ALL)[0]


def listed_calls(view: View, filters: Sequence[Filter], limit: int) -> tuple[list[TaskState], int]:
    """The calls that pass, as `newest` orders and cuts them, and their number without a limit."""
    with Interview(view.directory) as interview:
        return _Listing(view, interview, filters, limit).result()


def counted_calls(view: View) -> list[Count]:
    """How many calls of each name and type are in each state."""
    with Interview(view.directory) as interview:
        known = _Known(view, interview, {"finished counts": {}})
        if not known.has_own_reprs:
            return known.counts()
    found = Counter((row.name, row.type, row.state) for row in calls(view))
    return [(*kind, count) for kind, count in found.items()]


def states_of(view: View, works: dict[str, Row], task_ids: Collection[bytes]) -> dict[bytes, str]:
    """The states of those of these calls that are unanswered."""
    if not task_ids:
        return {}
    asked = {"calls": {"calls": list(task_ids), **_where(works)}}
    with Interview(view.directory) as interview:
        told = view.question(interview, dict.fromkeys(view.processes, asked))
    return {call["task_id"]: call["state"] for answers in told.values() for call in answers["calls"]["rows"]}


def _where(works: dict[str, Row]) -> Row:
    """From which callers conclude which of their calls run."""
    started = {process: {call[0]: call[5] for call in work["running"]} for process, work in works.items() if work}
    return {"started": started, "grouped": [process for process, work in works.items() if work.get("groups")]}


class _Known:
    """The running and the failed calls of the processes of a session, and the answers of workers to further sections."""

    def __init__(self, view: View, interview: Interview, of_workers: Sections) -> None:
        self.view = view
        self.interview = interview
        first: Sections = {"work": {}, "ids": {}, "failed calls": {}, "calls": {"limit": 0}}
        asked = {process: {**first, **of_workers} if view.is_worker(process) else first for process in view.in_order()}
        told = self.told = view.question(interview, asked)
        self.works: dict[str, Row] = {process: answers.get("work") or {} for process, answers in told.items()}
        #: Task ids of failed calls of which their callers tell, by the process that ran them.
        self.failed: dict[str, list[bytes]] = {}
        #: ... and of those that failed because their actor ended by itself: perhaps the call that ended it.
        self.exited: list[bytes] = []
        for answers in told.values():
            for task_id, process, exits in answers.get("failed calls") or ():
                if exits:
                    self.exited.append(task_id)
                else:
                    self.failed.setdefault(process, []).append(task_id)

    @cached_property
    def has_own_reprs(self) -> bool:
        return any(_shown(work["class_name"] + ".x", work) != work["class_name"] + ".x" for work in self.works.values() if work)

    def ask_the_node(self, what: str, **how: Any) -> Row:
        """About the last calls of workers that left. A call that ended its own actor has succeeded, and its worker tells of it."""
        gone = [task_id for process, failed in self.failed.items() if process not in self.view.processes for task_id in failed]
        found: Row = ask_node(self.view.directory, what, self.view.timeout, without=gone, asked=self.exited, **how)
        return found

    def ask_for(self, name: str, callers: Row, failed: Row, workers: Row, again: bool = False) -> dict[str, dict[str, Any]]:
        """Ask the callers of unanswered and of failed calls, and, of those that have answered, workers of whose calls callers list failures
        (`again`: all workers).
        """
        where = _where(self.works)
        finished, answered = f"finished{name}", {}
        wanted: dict[str, Row] = {}
        for process, answers in self.told.items():
            sections = wanted.setdefault(process, {})
            if (answers.get("calls") or _NOTHING)["total"]:
                sections[f"call{name}" if name else "calls"] = {**callers, **where}
            if answers.get("failed calls"):
                sections[f"failed{name}"] = failed
            if again or self.failed.get(process):
                if self.works[process]:
                    sections[finished] = {**workers, "known": self.failed.get(process, [])}
            elif answers.get(finished):
                answered[process] = answers[finished]
        told = self.view.question(self.interview, wanted)
        for process, found in answered.items():
            told.setdefault(process, {})[finished] = found
        return told

    def counts(self) -> list[Count]:
        of_node = self.ask_the_node("counts of last calls")
        told = self.ask_for(" counts", {}, {"without": of_node["known"]}, {})
        counted = [tuple(each) for answers in told.values() for found in answers.values() for each in found]
        counted += [tuple(each) for each in of_node["counts"]]
        counted += [(row["name"], row["type"], row["state"], 1) for row in constructors(self.view, self.works)]
        found: Counter[tuple[str, str, str]] = Counter()
        for name, kind, state, count in counted:
            found[name, kind, state] += count
        return [(*of_kind, count) for of_kind, count in found.items()]


class _Listing:
    def __init__(self, view: View, interview: Interview, filters: Sequence[Filter], limit: int) -> None:
        self._view = view
        self._interview = interview
        self._filters = filters
        self._limit = limit
        self._told_filters = [list(each) for each in filters if each[0] in _KNOWN]
        #: Whether the sources can apply all filters.
        self._is_decided = len(self._told_filters) == len(filters)
        workers = sum(map(view.is_worker, view.processes))
        self._share = min(limit, 2 * limit // max(workers, 1) + _SPARE) if self._is_decided else _ALL
        self._known = _Known(view, interview, {"finished": {"limit": self._share, "filters": self._told_filters}})
        #: Whether workers are asked again, for all rows: callers do not know the names of methods.
        self._again = self._is_decided and self._known.has_own_reprs and any(column == "name" for column, *_rest in filters)
        if self._again:
            self._is_decided, self._share = False, _ALL
            self._told_filters = [each for each in self._told_filters if each[0] != "name"]

    def result(self) -> tuple[list[TaskState], int]:
        rows, total = self._candidates()
        if self._is_decided:
            rows = newest(TaskState, rows, self._limit)
        self._complete(rows)
        now, epoch = perf_counter(), time() - perf_counter()
        records = [_record(self._view, row, now, epoch) for row in rows]
        if not self._is_decided:
            records = [each for each in records if matches(each, self._filters)]
            total = len(records)
        return newest(TaskState, records, self._limit), total

    # ------------------------------------------------------------------------------------ rows of the sources
    def _candidates(self) -> tuple[list[Row], int]:
        """Rows with the newest among them, those that are over from the newest on; and how many there are."""
        known, view = self._known, self._view
        limit = self._limit if self._is_decided else _ALL
        how = {"limit": limit, "filters": self._told_filters}
        of_node = known.ask_the_node("newest last calls", **how)
        failed = {**how, "without": of_node["known"], "texts": view.detail}
        told = known.ask_for("", how, failed, {**how, "limit": self._share}, self._again)
        finished = {process: answers["finished"] for process, answers in told.items() if answers.get("finished")}
        over = [each[4] for found in finished.values() for each in found["rows"]] + [call[4] for call in of_node["rows"]]
        least = sorted(over, reverse=True)[limit - 1] if 0 < limit <= len(over) else 0.0
        for process, found in finished.items():
            if len(found["rows"]) < min(found["total"], limit) and (not found["rows"] or found["rows"][-1][4] > least):
                asked = {"finished": {**how, "known": known.failed.get(process, [])}}
                finished[process] = view.question(self._interview, {process: asked}).get(process, {}).get("finished", found)
        rows = self._unanswered(told, limit)
        ended = [*self._failed(told, limit), *self._finished(finished, of_node)]
        constructed = [
            row for row in constructors(view, known.works) if not self._is_decided or matches({**row, **_ids(row)}, self._filters)
        ]
        total = sum(found["total"] for answers in told.values() for found in answers.values()) + of_node["total"] + len(constructed)
        begun = [row for row in self._begun(told, rows, limit) if not self._is_decided or matches({**row, **_ids(row)}, self._filters)]
        ended.sort(key=lambda row: -(row["end"] or 0.0))
        distinct: dict[bytes, Row] = {}
        every = [*rows, *ended, *begun, *constructed]
        for row in every:
            distinct.setdefault(row["task_id"], row)
        return list(distinct.values()), total + len(begun) - (len(every) - len(distinct))

    def _unanswered(self, told: dict[str, dict[str, Any]], limit: int) -> list[Row]:
        begun = {call[0]: call[3] for work in self._known.works.values() for call in work.get("running", ())}
        found = []
        for process in told:
            for call in self._view.rows_of(told, process, "calls", limit):
                name, begin = call["name"], None
                if call["state"] == "RUNNING":  # by an instance that has its repr
                    name = _shown(name, self._known.works.get(call["process"], {}), call["func_or_class_name"])
                    begin = begun.get(call["task_id"])
                waits = [each.hex() for each in call["waits_for"]]
                found.append({**call, **_times(begin, None), "name": name, "waits_for": waits, "owner": process})
        return found

    def _begun(self, told: dict[str, dict[str, Any]], unanswered: list[Row], limit: int) -> Iterator[Row]:
        """Calls that ran when their workers were asked, and were answered when their callers were, or whose callers have ended."""
        listed = {row["task_id"] for row in unanswered}.union(*self._known.failed.values(), self._known.exited)
        cut = {process for process, answers in told.items() if len((answers.get("calls") or _NOTHING)["rows"]) >= limit}
        for process, work in self._known.works.items():
            for task_id, name, function, begin, resources, owner in work.get("running", ()):
                if task_id[:8] != _CONSTRUCTS and task_id not in listed and owner not in cut:
                    row = {"task_id": task_id, "name": _shown(name, work, function), "func_or_class_name": function, "state": "RUNNING"}
                    yield {**row, **_times(begin, None), "required_resources": resources, "process": process, "owner": owner}

    def _failed(self, told: dict[str, dict[str, Any]], limit: int) -> Iterator[Row]:
        for process, answers in told.items():
            for failed in (answers.get("failed") or _NOTHING)["rows"]:
                work = self._known.works.get(failed["process"], {})
                name = _shown(failed["name"], work, failed["func_or_class_name"])
                times = _times(None, failed["end"])
                yield {**failed, **times, "name": name, "state": "FAILED", "owner": failed["owner"] or process}

    def _finished(self, finished: dict[str, Row], of_node: Row) -> Iterator[Row]:
        for process, found in finished.items():
            for task_id, name, function, begin, end, resources, kind, text in (*found["rows"], *found["failures"]):
                how = {"state": "FAILED" if kind else "FINISHED", "error_type": kind, "error_message": text}
                row = {"task_id": task_id, "name": name, "func_or_class_name": function, "required_resources": resources}
                yield {**row, **how, **_times(begin, end), "process": process, "owner": None}
        processes = {pid: process for process, pid in self._view.pids.items()}
        for pid, task_id, name, begin, end, resources in of_node["rows"]:
            row = {"task_id": task_id, "name": name or "", "func_or_class_name": name or "", "required_resources": resources or {}}
            yield {**row, **_times(begin, end), "state": "FINISHED", "process": processes.get(pid, ""), "owner": None}

    # ------------------------------------------------------------------------------------ completing the rows
    def _complete(self, rows: Iterable[Row]) -> None:
        """Add who made a call, and when a failed one began."""
        known, view = self._known, self._view
        wanted: dict[str, Row] = {}
        makers: dict[bytes, list[str]] = {}
        first = {process: answers["ids"] for process, answers in known.told.items() if answers.get("ids") is not None}
        rows = list(rows)
        for row in rows:
            task_id = row["task_id"]
            if row["owner"] is None:
                makers[task_id] = [process for process, number in first.items() if is_from(task_id, number)]
                for process in makers[task_id]:
                    if view.is_worker(process):
                        wanted.setdefault(process, {}).setdefault("made", {"calls": []})["calls"].append(task_id)
            elif row["state"] == "FAILED" and row["begin"] is None and known.works.get(row.get("process", "")):
                wanted.setdefault(row["process"], {}).setdefault("times", {"calls": []})["calls"].append(task_id)
        told = view.question(self._interview, wanted)
        times = {task_id: when for answers in told.values() for task_id, when in (answers.get("times") or {}).items()}
        parents = {task_id: (process, parent) for process, answers in told.items() for task_id, parent in answers.get("made") or ()}
        for row in rows:
            task_id = row["task_id"]
            if task_id in makers:
                drivers = [each for each in makers[task_id] if view.processes[each]["role"] == m.ROLE_DRIVER]
                own = drivers[0] if len(makers[task_id]) == len(drivers) == 1 else ""  # where processes share ids, it may be another's
                row["owner"], row["parent"] = parents.get(task_id, (own, b""))
            elif task_id in times and row["state"] == "FAILED":
                row.update(_times(*times[task_id]))


def constructors(view: View, works: dict[str, Row]) -> Iterator[Row]:
    """The constructors' calls, which no process remembers once they have returned."""
    for actor in view.node["actors"]:
        cause, function = actor["cause"], short_name(actor["class_name"]) + ".__init__"
        task_id, state = _CONSTRUCTS + actor["actor_id"], _CREATION_STATES[actor["state"]]
        begin = None
        if actor["announced"]:
            state = "PENDING_ARGS_AVAIL"
        elif actor["process"] and actor["state"] not in ("alive", "dead"):
            state = "RUNNING"
            begin = next((call[3] for call in works.get(actor["process"], {}).get("running", ()) if call[0] == task_id), None)
        elif actor["state"] == "dead" and cause is not None and (cause[0] in (m.CAUSE_INIT, m.CAUSE_REFUSED) or not cause[2]):
            state = "FAILED"
        kind, text = (_CREATION_ERRORS.get(cause[0], "ACTOR_DIED"), cause[1]) if state == "FAILED" else (None, None)
        yield {
            "task_id": task_id,
            "name": f"{actor['name']}:{function}" if actor["name"] else function,
            "func_or_class_name": function,
            "state": state,
            "type": "ACTOR_CREATION_TASK",
            "error_type": kind,
            "error_message": text,
            "required_resources": actor["required_resources"],
            "process": actor["process"],
            "worker_pid": actor["pid"] or None,
            "owner": actor["owner"],
            "parent": actor["parent"],
            **_times(begin, None),
        }


def _times(begin: float | None, end: float | None) -> Row:
    """In seconds of CLOCK_MONOTONIC; and in milliseconds of it, where they are known, by which rows are ordered."""
    found: Row = {"begin": begin, "end": end}
    for name, seconds in (("start_time_ms", begin), ("end_time_ms", end)):
        if seconds is not None:
            found[name] = int(seconds * 1000)
    return found


def _ids(row: Row) -> Row:
    return {**columns_of(row["task_id"]), **({"type": row["type"]} if "type" in row else {})}


def _shown(name: str, work: Row, function: str | None = None) -> str:
    """A method's name begins with the repr of the instance that runs it."""
    return shown_name(name, name if function is None else function, work.get("class_name") or "", work.get("repr") or "")


def _record(view: View, row: Row, now: float, epoch: float) -> TaskState:
    """A row by column names, with the process that runs the call and the one that made it, as a record; `epoch`: when the clock was 0."""
    task_id, process, owner = row["task_id"], row["process"], row["owner"]
    until = row["end"] if row["end"] is not None else now
    derived = {
        **_ids(row),
        "seconds": max(until - row["begin"], 0.0) if row["begin"] is not None else None,
        "parent_task_id": _parent(view, owner, row.get("parent") or b"", task_id) if owner else "",
        "node_id": view.node_id if process else None,
        "worker_id": worker_id(process) or None,
        "worker_pid": row["worker_pid"] if "worker_pid" in row else view.pids.get(process),
        "owner_id": worker_id(owner),
    }
    for name in ("start_time_ms", "end_time_ms"):
        if row.get(name) is not None:
            derived[name] = row[name] + int(epoch * 1000)
    return made(TaskState, {"retries_left": 0, "waits_for": [], "required_resources": {}, **row, **derived})


def _parent(view: View, owner: str, parent: bytes, task_id: bytes) -> str:
    """The task that made a call: the driver's; for an actor's code outside of any call, its constructor."""
    known = view.processes.get(owner)
    if known is not None and known["role"] == m.ROLE_DRIVER:
        return _DRIVER_TASK + task_id[-JOB_SIZE:].hex()
    actor = view.actor_in(owner)
    return parent.hex() or (_CONSTRUCTS.hex() + actor if actor else "")
