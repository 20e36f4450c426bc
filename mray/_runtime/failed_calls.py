"""Calls that failed, for listings: under which of Ray's names, and with which text.

In every process. A worker remembers the errors of what it ran (`mray._runtime.executor`); the caller, here, those of calls that no worker
answered: it died, the call was cancelled before it ran, or nothing can ever run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mray import exceptions
from mray._common.history import History

if TYPE_CHECKING:
    from mray._runtime.calls import Call

#: How many are remembered, and in how many bytes.
MOST = 1000
MOST_BYTES = 1 << 20
#: Characters of a text that are kept.
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

#: Task id, name, type and text of the error; the newest last.
_failed = History(MOST, MOST_BYTES)


def facts(error: BaseException) -> tuple[str, str]:
    """(type, text) of an error; a cancelled task has no text."""
    if isinstance(error, exceptions.TaskCancelledError) or isinstance(getattr(error, "cause", None), exceptions.TaskCancelledError):
        return "TASK_CANCELLED", ""
    kind = next((name for kind, name in _TYPES if isinstance(error, kind)), "TASK_EXECUTION_EXCEPTION")
    text = exceptions.RayTaskError.__str__(error) if isinstance(error, exceptions.RayTaskError) else str(error)
    return kind, text[:LONGEST]


def note(call: Call, error: BaseException) -> None:
    """This call has failed without an answer. Client's lock held."""
    class_name = getattr(call.source, "class_name", None)
    name = (call.options or {}).get("name") or (f"{class_name}.{call.method}" if class_name else call.name or call.method)
    _failed.append((call.task_id, name, *facts(error)))


def rows() -> list[tuple[bytes, str, str, str]]:
    """Those of this process and session."""
    return list(_failed)


def clear() -> None:
    """A new session begins."""
    _failed.clear()
