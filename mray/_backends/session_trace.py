"""One trace of a whole session: the last calls of every worker, and what profiles have left.

    whoever asks ──section "trace"──▶ driver, workers (their reading threads answer while their main threads compute)

In the driver (`mray.timeline`), or in a process that looks on at the session (``mray timeline``). Every worker remembers its last calls,
always: two readings of the clock and a tuple for each. The parts of calls, and the operations of graphs, are there for the time in which a
graph was profiled (`mray._graph.watch.profile`). A worker that leaves in order tells the node its last calls; who has died has taken them
along.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mray._backends.lazy_graphs import TRACE
from mray._common import messages as m
from mray._common.clock import time_ns
from mray._common.kept import os
from mray._common.places import frame_of
from mray._common.uncollected import uncollected
from mray._observe.observer import ask_node, ask_processes
from mray._trace.chrome import Recording, Trace
from mray._trace.digest import spans_of
from mray._trace.span import CALL, RUNNING, Span, clock, span_buffers

if TYPE_CHECKING:
    from mray._runtime.client.client import Client
    from mray._runtime.worker.worker import Worker

#: Seconds that they have to answer.
PATIENCE = 10.0


def trace_of(client: Client, worker: Worker | None) -> dict[str, Any]:
    """The calls that this process remembers, as builtin values. Any thread."""
    calls: list[tuple[str, str, int, int]] = []
    name = client.role
    if worker is not None:
        calls = [_told(*call) for call in worker.main_thread.recent.copy()]
        name = worker.name
    detail = span_buffers.get().calls
    return {
        "pid": os.getpid(),
        "name": name,
        "calls": calls,
        "running": [] if worker is None else _running(worker),
        "detail": None if detail is None else detail.sheet(),
        "graphs": span_buffers.get().sheets(),
    }


def _told(task: bytes, label: str | None, begin: float, end: float, _resources: Any) -> tuple[str, str, int, int]:
    return task.hex(), label or "", int(begin * 1e9), int(end * 1e9)


def _running(worker: Worker) -> list[tuple[str, str, int]]:
    """The calls that this worker runs now: task, name, begin. Any thread."""
    found = [(call.task_id.hex(), call.name, int(call.began * 1e9)) for call in list(worker.groups.running.values())]
    running, began = worker.context.running, _begun_on_main(worker)
    if running is not None and began is not None:
        found.append((running.task_id.hex(), running.name, int(began * 1e9)))
    return found


def _begun_on_main(worker: Worker) -> float | None:
    """When the call on the main thread began. It stands in a variable of the loop that serves calls: a call costs nothing for it."""
    code = type(worker).serve_all.__code__
    with uncollected:
        for frame in sys._current_frames().values():
            place = frame_of(code, frame)
            if place is not None:
                began = place.f_locals.get("began")
                return float(began) if began is not None else None
    return None


def timeline(directory: str, timeout: float = PATIENCE, *, with_running: bool = False) -> Trace:
    """The trace of the session in that directory; `with_running`: calls that are not over are in it up to now, and their names say so.

    Raises SessionGoneError, or TimeoutError when its node does not answer.
    """
    snapshot = ask_node(directory, "snapshot", timeout)
    roles = {row["process"]: row["role"] for row in snapshot["processes"]}
    lost: dict[str, str] = {}
    recordings: list[Recording] = []
    answers = ask_processes(directory, roles, [TRACE], timeout)
    for process in sorted(answers, key=lambda each: roles[each] != m.ROLE_DRIVER):
        told = answers[process]
        if isinstance(told, str):
            lost[f"{roles[process]} {process}"] = told
            continue
        well, found = told[TRACE]
        if not well:
            lost[f"{roles[process]} {process}"] = str(found)
        elif found is not None:
            if with_running:
                now = clock()
                found = {**found, "calls": [*found["calls"], *((task, name + RUNNING, at, now) for task, name, at in found["running"])]}
            recordings += _recordings(found)
    left: dict[int, dict[str, Any]] = {}
    for pid, name, *call in ask_node(directory, "last calls", timeout):
        left.setdefault(pid, {"pid": pid, "name": name, "calls": [], "detail": None, "graphs": ()})["calls"].append(_told(*call))
    alive = {each.pid for each in recordings}  # who has left since has told both
    for recorded in left.values():
        if recorded["pid"] not in alive:
            recordings += _recordings(recorded)
    for dead in snapshot["dead_workers"]:
        if dead["pid"] not in left:
            lost[f"worker {dead['process']}"] = "has ended"
    facts = {"session": snapshot["session_name"], "lost": lost, "unix_nanoseconds": time_ns() - clock()}
    began = {each.pid: min(span.begin for span in each.spans) for each in reversed(recordings) if each.spans}
    drivers = {each.pid for each in recordings if each.name == m.ROLE_DRIVER}
    recordings.sort(key=lambda each: (each.pid not in drivers, began.get(each.pid, 0)))
    return Trace([each for each in recordings if each.spans], [], facts)


def _recordings(told: Mapping[str, Any]) -> list[Recording]:
    pid, name = told["pid"], told["name"]
    detail = told["detail"]
    spans = [] if detail is None else spans_of(detail)
    known = {span.place for span in spans if span.kind == CALL}
    spans += [Span(CALL, begin, end, "calls, MainThread", label, task) for task, label, begin, end in told["calls"] if task not in known]
    spans.sort(key=lambda span: (span.begin, -span.end))
    found = [Recording(pid, name, spans, dropped=0 if detail is None else detail["dropped"])]
    return found + [Recording(pid, name, spans_of(sheet), sheet["graph"], sheet["endpoint"], sheet["dropped"]) for sheet in told["graphs"]]
