"""The calls of a session that has ended, from the records that its processes have left (`mray._ipc.kept_sessions`).

Only calls: what else a session has ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mray._common.causes import EXIT_ACTOR
from mray._common.filters import columns_of
from mray._common.ids import worker_id_of
from mray._inside.sessions import EndedSession
from mray.util.state.common import TaskState

Times = tuple[float | None, float | None]


def ended_tasks(session: EndedSession) -> Iterator[TaskState]:
    """A record for each call: those that ran when the session ended are RUNNING."""
    records, left = session.processes, session.node.get("left", ())
    pids = {process: record["pid"] for process, record in records.items()}
    over = [(call, record["epoch"], process) for process, record in records.items() for call in record.get("calls", ())]
    epoch = next((record["epoch"] for record in records.values() if "epoch" in record), 0.0)
    over += [(call, epoch, "") for _pid, _worker, *call in left]
    over.sort(key=lambda each: -each[0][3])  # of several attempts the last one counts
    times: dict[bytes, Times] = {}
    for (task_id, _name, begin, end, _resources), since, _process in over:
        times.setdefault(task_id, (begin + since, end + since))
    seen: set[bytes] = set()
    for record in records.values():
        for failed in record.get("failed", ()):
            task_id = failed["task_id"]
            if task_id not in seen:
                seen.add(task_id)
                exited = task_id in times and EXIT_ACTOR in failed["error_message"]
                how = {"state": "FINISHED"} if exited else {name: failed[name] for name in ("error_type", "error_message")}
                what = {name: failed[name] for name in ("name", "func_or_class_name", "required_resources")}
                owner = worker_id_of(failed["owner"]).hex() if failed["owner"] else ""
                when = times.get(task_id) or (None, failed["end"] + record["epoch"])
                yield _task(task_id, failed["process"], pids, when, owner_id=owner, **{"state": "FAILED", **what, **how})
    functions = {process: dict(record.get("functions", ())) for process, record in records.items()}
    errors = {process: dict(record.get("errors", ())) for process, record in records.items()}
    texts = {task_id: text for record in records.values() for task_id, _kind, text in record.get("failures", ())}
    left_pids = {call[0]: pid for pid, _worker, *call in left}
    for (task_id, name, _begin, _end, resources), _epoch, process in over:
        if task_id not in seen:
            seen.add(task_id)
            kind = errors.get(process, {}).get(task_id)
            function = functions.get(process, {}).get(task_id, name or "")
            what = {"name": name or "", "func_or_class_name": function, "required_resources": resources or {}}
            how = {"state": "FINISHED"} if kind is None else {"state": "FAILED", "error_type": kind, "error_message": texts.get(task_id)}
            pid = pids.get(process, left_pids.get(task_id))
            yield _task(task_id, process, pids, times[task_id], **{**what, **how, "worker_pid": pid})
    for process, record in records.items():
        for task_id, name, begin in record.get("running", ()):
            if task_id not in seen:
                seen.add(task_id)
                what = {"name": name, "func_or_class_name": functions[process].get(task_id, name), "state": "RUNNING"}
                yield _task(task_id, process, pids, (begin + record["epoch"], None), **what)


def _task(task_id: bytes, process: str, pids: dict[str, int], times: Times, **columns: Any) -> TaskState:
    begin, end = times
    known = {
        **columns_of(task_id),
        "parent_task_id": "",
        "worker_id": worker_id_of(process).hex() if process else None,
        "worker_pid": pids.get(process),
        "seconds": None if begin is None or end is None else end - begin,
        "start_time_ms": None if begin is None else int(begin * 1000),
        "end_time_ms": None if end is None else int(end * 1000),
    }
    return TaskState(**{**known, **columns})
