"""One trace of a whole session: the latest calls of every worker, and the spans that profiles have left.

    observer ──section "trace"──▶ driver, workers (their reading threads answer while their main threads compute)

In the driver (`mray.timeline`), or in an observer (``mray timeline``). Parts of calls and operations of graphs exist only for times
in which a graph was profiled. A worker that leaves in order sends the node its latest calls; those of a dead one are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mray._common import messages as m
from mray._common.clock import monotonic_ns, time_ns
from mray._common.kept import os
from mray._inside.sessions import EndedSession
from mray._inside.spans import RUNNING, Recording, Span, Trace, kinds, span_buffers, spans_of
from mray._observe.observer import ask_node, ask_processes

#: Seconds to wait for answers.
PATIENCE = 10.0
#: The place of a span's end.
_END = Span._fields.index("end")


class Working(Protocol):
    name: str

    def last_calls(self) -> list[tuple[bytes, str | None, float, float, Any]]:
        """Task, name, begin, end and resources."""

    def running_calls(self) -> list[tuple[bytes, str, float]]:
        """Task, name and begin."""


def trace_of(role: str, worker: Working | None, since: int = 0) -> dict[str, Any]:
    """The calls that this process remembers and that were not over at a time of `clock`, as builtin values. Any thread.

    And of each function among all that it remembers, when it was called first.
    """
    detail = span_buffers.get().calls
    running = [] if worker is None else worker.running_calls()
    calls = [] if worker is None else worker.last_calls()
    first: dict[str, int] = {}
    for _task, name, began, _end, _resources in calls:
        if name is not None and name not in first:
            first[name] = int(began * 1e9)
    return {
        "pid": os.getpid(),
        "name": role if worker is None else worker.name,
        "calls": [_told(*call) for call in calls if call[3] * 1e9 > since],
        "running": [(task.hex(), name, int(began * 1e9)) for task, name, began in running],
        "detail": None if detail is None else _since(detail.sheet(), since),
        "graphs": [_since(sheet, since) for sheet in span_buffers.get().sheets()],
        "functions": first,
    }


def _since(sheet: dict[str, Any], since: int) -> dict[str, Any]:
    return {**sheet, "spans": [span for span in sheet["spans"] if span[_END] > since]} if since else sheet


def _told(task: bytes, label: str | None, begin: float, end: float, _resources: Any) -> tuple[str, str, int, int]:
    return task.hex(), label or "", int(begin * 1e9), int(end * 1e9)


def timeline(directory: str, timeout: float = PATIENCE, *, with_running: bool = False, since: int = 0) -> Trace:
    """`with_running` includes running calls up to now, marked in their names. `since` leaves out what was over at this time of `clock`: the
    processes do, so that a short time costs little however many calls they remember.

    Raises SessionGoneError, or TimeoutError if its node does not answer.
    """
    snapshot = ask_node(directory, "snapshot", timeout)
    roles = {row["process"]: row["role"] for row in snapshot["processes"]}
    named = {row["process"]: f"the {row['role']} of pid {row['pid']}" for row in snapshot["processes"]}
    lost: dict[str, str] = {}
    recordings: list[Recording] = []
    functions: dict[str, int] = {}
    answers = ask_processes(directory, roles, {"trace": {"since": since}}, timeout)
    for process in sorted(answers, key=lambda each: roles[each] != m.ROLE_DRIVER):
        told = answers[process]
        if isinstance(told, str):
            lost[named[process]] = told
            continue
        well, found = told["trace"]
        if not well:
            lost[named[process]] = str(found)
        elif found is not None:
            for function, begin in found["functions"].items():
                functions[function] = min(functions.get(function, begin), begin)
            if with_running:
                now = monotonic_ns()
                found = {**found, "calls": [*found["calls"], *((task, name + RUNNING, at, now) for task, name, at in found["running"])]}
            recordings += _recordings(found)
    left: dict[int, dict[str, Any]] = {}
    for pid, name, *call in ask_node(directory, "last calls", timeout):
        recorded = left.setdefault(pid, {"pid": pid, "name": name, "calls": [], "detail": None, "graphs": ()})
        if call[3] * 1e9 > since:
            recorded["calls"].append(_told(*call))
    alive = {each.pid for each in recordings}  # a worker that has left meanwhile has answered to both
    for recorded in left.values():
        if recorded["pid"] not in alive:
            recordings += _recordings(recorded)
    for dead in snapshot["dead_workers"]:
        if dead["pid"] not in left:
            lost[f"the worker of pid {dead['pid']}"] = "has ended"
    info = {"session": snapshot["session_name"], "lost": lost, "unix_nanoseconds": time_ns() - monotonic_ns()}
    began = {each.pid: min(span.begin for span in each.spans) for each in reversed(recordings) if each.spans}
    drivers = {each.pid for each in recordings if each.name == m.ROLE_DRIVER}
    recordings.sort(key=lambda each: (each.pid not in drivers, began.get(each.pid, 0)))
    return Trace([each for each in recordings if each.spans], [], info, functions)


def ended_timeline(session: EndedSession) -> Trace:
    """The last calls of a session that has ended, of the workers that were alive at its end or had left in order."""
    records, node = session.processes, session.node
    told: dict[int, dict[str, Any]] = {}
    for record in records.values():
        if "calls" in record:
            end = node.get("end", record["epoch"]) - record["epoch"]
            calls = [*record["calls"], *((task, name + RUNNING, begin, max(begin, end), None) for task, name, begin in record["running"])]
            told[record["pid"]] = _ended(record["pid"], record["name"], calls)
    left: dict[int, list[Any]] = {}
    for pid, _name, *call in node.get("left", ()):
        left.setdefault(pid, []).append(call)
    names = {pid: name for pid, name, *_call in node.get("left", ())}
    told.update((pid, _ended(pid, names[pid], calls)) for pid, calls in left.items() if pid not in told)
    recordings = [each for record in told.values() for each in _recordings(record) if each.spans]
    recordings.sort(key=lambda each: min(span.begin for span in each.spans))
    epoch = next((record["epoch"] for record in records.values() if "epoch" in record), 0.0)
    return Trace(recordings, [], {"session": session.name, "lost": {}, "unix_nanoseconds": int(epoch * 1e9)})


def _ended(pid: int, name: str, calls: list[Any]) -> dict[str, Any]:
    return {"pid": pid, "name": name, "calls": [_told(*call) for call in calls], "detail": None, "graphs": ()}


def _recordings(told: Mapping[str, Any]) -> list[Recording]:
    pid, name = told["pid"], told["name"]
    detail = told["detail"]
    spans = [] if detail is None else spans_of(detail)
    known = {span.place for span in spans if span.kind == kinds.CALL}
    spans += [
        Span(kinds.CALL, begin, end, "calls, MainThread", label, task) for task, label, begin, end in told["calls"] if task not in known
    ]
    spans.sort(key=lambda span: (span.begin, -span.end))
    found = [Recording(pid, name, spans, dropped=0 if detail is None else detail["dropped"])]
    return found + [Recording(pid, name, spans_of(sheet), sheet["graph"], sheet["endpoint"], sheet["dropped"]) for sheet in told["graphs"]]
