"""Failed calls of this process, for listings: Ray's name of the error, and its text.

The caller's record outlives the worker. (`mray._runtime.worker.packer` remembers errors of generators, whose callers go on, and of calls
whose callers have exited.)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from mray import exceptions
from mray._common.causes import EXIT_ACTOR
from mray._common.filters import Filter, columns_of, matches
from mray._common.history import History
from mray._common.record import Record
from mray._objects.remote_error import OURS, is_cancelled, text_of

#: Records, and their bytes.
MOST = 1000
MOST_BYTES = 1 << 20
LONGEST = 10_000

_TYPES: tuple[tuple[type[BaseException], str], ...] = (
    (exceptions.RayTaskError, "TASK_EXECUTION_EXCEPTION"),
    (exceptions.TaskCancelledError, "TASK_CANCELLED"),
    (exceptions.WorkerCrashedError, "WORKER_DIED"),
    (exceptions.ActorUnavailableError, "ACTOR_UNAVAILABLE"),
    (exceptions.RayActorError, "ACTOR_DIED"),
    (exceptions.TaskUnschedulableError, "TASK_UNSCHEDULABLE_ERROR"),
    (exceptions.ActorUnschedulableError, "ACTOR_UNSCHEDULABLE_ERROR"),
    (exceptions.TaskPlacementGroupRemoved, "TASK_PLACEMENT_GROUP_REMOVED"),
    (exceptions.RuntimeEnvSetupError, "RUNTIME_ENV_SETUP_FAILED"),
    (exceptions.OutOfMemoryError, "OUT_OF_MEMORY"),
    (exceptions.OwnerDiedError, "OWNER_DIED"),
    (exceptions.NodeDiedError, "NODE_DIED"),
)

#: The newest last.
_failed = History(MOST, MOST_BYTES)


class FailedCall(Record):
    task_id: bytes
    name: str
    func_or_class_name: str
    #: The calling task; empty for none.
    parent: bytes
    owner: str
    process: str
    required_resources: dict[str, float]
    error_type: str
    error_message: str
    #: When the caller learned of it, in seconds of CLOCK_MONOTONIC.
    end: float


#: Ray's texts, for errors of user code and for SystemExit in a worker.
USERS = "User exception:\n"
_EXITS = "Worker exits with an exit code {}."
_RAISED = "raised SystemExit("
#: Lines that repeat the columns of the row.
_HEADER = re.compile(rf"{re.escape(exceptions.ActorDiedError.BASE_ERROR_MSG)}\n(?:\t.*\n)*")


def info(error: BaseException) -> tuple[str, str]:
    """(type, text) of an error; a cancelled task has no text."""
    if isinstance(error, exceptions.TaskCancelledError) or isinstance(getattr(error, "cause", None), exceptions.TaskCancelledError):
        return "TASK_CANCELLED", ""
    kind = next((name for kind, name in _TYPES if isinstance(error, kind)), "TASK_EXECUTION_EXCEPTION")
    if isinstance(error, exceptions.RayTaskError):
        text = USERS + exceptions.RayTaskError.__str__(error)
    elif isinstance(error, exceptions.ActorDiedError):
        text = _HEADER.sub("", str(error), count=1)
        if _RAISED in text and error.exit_code:
            text = f"{text} {_EXITS.format(error.exit_code)}"
    else:
        text = str(error)
        if isinstance(error, exceptions.WorkerCrashedError) and _RAISED in error.detail:
            text = f"UnexpectedSystemExit: {_EXITS.format(error.exit_code)} {text}"
    return kind, text[:LONGEST]


def info_of_answer(payload: bytes) -> tuple[str, str]:
    """(type, text) of the pickled error of a worker's answer."""
    text = text_of(payload)
    if is_cancelled(text):
        return "TASK_CANCELLED", ""
    kind = next((word for error, word in _TYPES if text.startswith(f"{OURS}{error.__name__}: ")), _TYPES[0][1])
    text = text.partition(": ")[2]
    return kind, (USERS + text if kind == _TYPES[0][1] else text)[:LONGEST]


def remember(failed: FailedCall) -> None:
    """Store a failed call. Client's lock held."""
    _failed[failed.task_id, failed.process, failed.owner, EXIT_ACTOR in failed.error_message] = tuple(failed)


def sections(process: str) -> dict[str, Callable[..., Any]]:
    """For observers, about the calls of one process; several may share an interpreter."""
    return {"failed": partial(rows, process), "failed calls": partial(names, process), "failed counts": partial(counts, process)}


def names(process: str) -> list[tuple[bytes, str, bool]]:
    """Each failed call, the process that has run it ("" if none has), and whether its actor has ended by itself."""
    return [(task_id, ran, exits) for task_id, ran, owner, exits in _failed.all_keys() if owner in (process, "")]


def rows(
    process: str, limit: int = MOST, filters: Sequence[Filter] = (), without: Sequence[bytes] = (), texts: bool = True
) -> dict[str, Any]:
    """How many failed calls pass the filters, without some; and the newest of them."""
    found: list[dict[str, Any]] = []
    total = 0
    for record_of in _newest(process, without):
        if filters or total < limit:
            row = dict(zip(FailedCall._fields, record_of(), strict=True))
            if not matches({**row, **columns_of(row["task_id"]), "state": "FAILED"}, filters):
                continue
            if total < limit:
                found.append(row if texts else {**row, "error_message": None})
        total += 1
    return {"total": total, "rows": found}


def counts(process: str, without: Sequence[bytes] = ()) -> list[tuple[str, str, str, int]]:
    """How many calls of each name and type have failed."""
    failed = (FailedCall(*record_of()) for record_of in _newest(process, without))
    found = Counter((each.name, columns_of(each.task_id)["type"]) for each in failed)
    return [(name, kind, "FAILED", count) for (name, kind), count in found.items()]


def _newest(process: str, without: Sequence[bytes]) -> Iterator[Callable[[], Any]]:
    left_out = frozenset(without)
    for key, record_of in _failed.newest():
        task_id, _ran, owner, _exits = key
        if owner in (process, "") and task_id not in left_out:
            yield record_of


def clear() -> None:
    _failed.clear()
