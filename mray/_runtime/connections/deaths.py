"""The errors that callers and readers get when a process has died."""

from __future__ import annotations

import stat

from mray._common import messages as m
from mray._common.causes import Cause
from mray._common.invocations import short_name
from mray._common.kept import os
from mray._objects.remote_error import unpickle_error
from mray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RaySystemError,
    RayTaskError,
    RuntimeEnvSetupError,
    TaskPlacementGroupRemoved,
    TaskUnschedulableError,
    WorkerCrashedError,
    describe_status,
)

#: The error of refs older than a reset of the session.
RESET = "it was made before the session was reset, which has freed everything made before"

_UNKNOWN = Cause(m.CAUSE_CRASH)


def actor_error(actor_id: bytes, class_name: str, cause: Cause | None, method: str | None = None, doing: str = "") -> BaseException:
    """The error of a call to a dead actor; `method` was in flight when it died, or `doing` is a sentence about what it was doing."""
    kind, text, pid, status, pickled = cause = cause or _UNKNOWN
    if kind == m.CAUSE_MEMORY:
        return OutOfMemoryError(text)
    if kind == m.CAUSE_INIT and pickled is not None:
        failure = unpickle_error(pickled)
        if isinstance(failure, RayTaskError):
            return ActorDiedError(failure, actor_id=actor_id.hex(), class_name=class_name)
    if kind == m.CAUSE_GROUP and not pid:
        text = "Could not create the actor because its associated placement group was removed."  # it never ran
        return ActorUnschedulableError(text)
    if kind == m.CAUSE_REFUSED:
        return RuntimeEnvSetupError(text) if m.NO_PROCESS in text else ActorUnschedulableError(text)
    reason = cause.reason()
    how = describe_status(status)
    if kind == m.CAUSE_CRASH and status is not None and how not in reason:
        reason += f" The process (pid {pid}) {how}."
    if method is not None:
        reason += f" It was running, or about to run, {short_name(class_name)}.{method}."
    elif doing:
        reason += f" {doing}"
    reason += cause.last_output()
    return ActorDiedError.because(reason, actor_id=actor_id.hex(), class_name=class_name or None, pid=pid or None, status=status)


def unavailable_error(actor_id: bytes, class_name: str, cause: Cause | None, method: str | None = None) -> BaseException:
    """The error of a call that reached an actor during its restart and may not be sent again."""
    cause = cause or _UNKNOWN
    if cause.kind == m.CAUSE_MEMORY and method:
        return OutOfMemoryError(cause.text)
    doing = f", {short_name(class_name)}.{method} was in flight" if method else ""
    what = f"The actor is temporarily unavailable: its process {cause.how()}{doing}. The actor is restarting."
    what += f" {cause.text}" if cause.kind == m.CAUSE_CRASH else ""
    return ActorUnavailableError(what.rstrip(". "), actor_id)


def worker_error(task: str, cause: Cause | None) -> BaseException:
    """The error of a task whose worker died."""
    kind, text, pid, status, _payload = cause = cause or _UNKNOWN
    if kind == m.CAUSE_MEMORY:
        return OutOfMemoryError(text)
    if kind == m.CAUSE_GROUP:
        return TaskPlacementGroupRemoved()
    return WorkerCrashedError(task or None, pid or None, status, (text + cause.last_output()).lstrip())


def refused_error(text: str) -> BaseException:
    """The error of a task that this machine can never run, that gets no process, or whose placement group was removed."""
    if m.GROUP_REMOVED in text:
        return TaskPlacementGroupRemoved()
    return RuntimeEnvSetupError(text) if m.NO_PROCESS in text else TaskUnschedulableError(text)


def lost_error(object_id: bytes) -> BaseException:
    """The error of reading a ref that its owner does not know."""
    return ObjectLostError(object_id.hex())


def removed_error(place: str, object_id: bytes | None) -> BaseException:
    """The error of reading an object whose memory or file another program has removed, truncated or made inaccessible."""
    where = place if place.count("/") > 1 else f"/dev/shm{place}"
    text = f"Its value lay in {where}, which {_what_became_of(where)}."
    return ObjectLostError(object_id.hex() if object_id else "", detail=text)


def _what_became_of(path: str) -> str:
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return "no longer exists: another program has removed it"
    except OSError as error:
        return f"can no longer be reached: {error.strerror}"
    if info.st_uid != os.geteuid():
        return f"no longer belongs to this user ({os.geteuid()}), but to user {info.st_uid}"
    if not stat.S_ISREG(info.st_mode):
        return "is no longer a file: another program has replaced it"
    if not os.access(path, os.R_OK, effective_ids=True):
        return f"is no longer readable: its mode was changed (to {stat.S_IMODE(info.st_mode):04o})"
    return "is no longer whole: another program has truncated it"


def tensors_error(actor_id: bytes, class_name: str, pid: int, object_id: bytes) -> BaseException:
    """The error of reading tensors whose holder has exited, while its actor lives on in another process."""
    reason = (
        f"The process (pid {pid}) of {class_name} that held the tensors of ObjectRef({object_id.hex()}) has ended; the actor runs in "
        "another one, which does not have them. Call the method that made them again."
    )
    return ActorDiedError.because(reason, actor_id=actor_id.hex(), class_name=class_name or None, pid=pid or None, status=None)


def reset_error() -> BaseException:
    """The error of refs, handles and graphs older than a reset of the session."""
    return RaySystemError("The session was reset, which has freed everything made before. Make it again after the reset.")


def ended_error() -> RaySystemError:
    """The error of waiters when this process leaves its session."""
    return RaySystemError("Ray has not been started yet. The session was shut down.")


def node_error(text: str) -> BaseException:
    """The error of every operation after the node's death."""
    return NodeDiedError(f"{text}; its workers have exited and its objects are lost. Call shutdown() and init() to start again.")
