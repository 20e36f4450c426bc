"""Translation of Ray's exceptions to mray's: same name, same attributes, readable text.

An mray exception that user code raises in a worker travels unchanged, as the cause of Ray's error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ray

from mray import exceptions
from mray._common.ids import TaskID

#: Classes of ``ray.exceptions`` without a counterpart here.
WITHOUT_COUNTERPART: frozenset[str] = frozenset()

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: The first line of a failed task: ``ray::Name.method() (pid=1, ip=1.2.3.4, actor_id=..., repr=...)``.
_HEADER = re.compile(r"^(?P<title>.*)\(\) \(pid=(?P<pid>\d+), ip=(?P<ip>[^,)\s]+)(?:, actor_id=(?P<actor>[^,]*), repr=(?P<repr>.*))?\)$")
_TRACEBACK = "Traceback (most recent call last):"
#: Files whose frames do not help the user.
_OURS = re.compile(
    r'File "(.*/mray/(_backends/ray|_api)/[^"]*|python/ray/_raylet\.pyx'
    r'|.*/ray/(_private/(function_manager|async_compat)|util/tracing/[^"]*)\.py|.*/concurrent/futures/_base\.py)"'
)
#: The prefix of a line in an exception group.
_BARS = re.compile(r"(?: *\| )?")
_FRAME = re.compile(r'File "[^"]*", line \d+, in (\S+)')
#: Lines that begin a stack. Ray may leave a line of a hidden frame below them.
_ABOVE_FRAMES = re.compile(r"Traceback \(most recent call last\):$|^ray::.*\(pid=")


def translated(error: BaseException) -> BaseException:
    """mray's exception for one of Ray's; any other is returned unchanged."""
    if not isinstance(error, ray.exceptions.RayError):
        return error
    for kind in type(error).__mro__:
        if kind.__module__ != "ray.exceptions":
            continue
        make = _MAKERS.get(kind.__name__)
        if make is not None:
            return make(error)
        counterpart = getattr(exceptions, kind.__name__, None)
        if counterpart is not None:
            return _alike(counterpart, error)
    return exceptions.RayError(plain(str(error)))


class _Translating:
    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, ray.exceptions.RayError):
            raise translated(error) from None


translating = _Translating()


def plain(text: str) -> str:
    """The text without colours and without the frames of this package."""
    lines: list[str] = []
    ours = False
    for line in _COLOURS.sub("", text).split("\n"):
        bars = _BARS.match(line).end()  # type: ignore[union-attr]  # it always matches
        rest = line[bars:]
        if rest.startswith("  File "):
            ours = _OURS.search(rest) is not None
        elif not rest.startswith("    "):
            ours = _ABOVE_FRAMES.search(rest) is not None
            lines.append(line)
            continue
        elif not rest.strip(" ^~") and not (lines and lines[-1][bars:].startswith("    ")):
            continue  # under a line that Ray has removed
        if not ours:
            lines.append(line)
    return "\n".join(lines).replace("mray.exceptions.", "ray.exceptions.")  # the name that programs search for


def _alike(kind: type[Exception], error: Any) -> Exception:
    return kind(plain(str(error.args[0])) if len(error.args) == 1 else plain(str(error)))


def _task_error(error: Any) -> exceptions.RayTaskError:
    """Rebuild a failed task's error from its text; Ray's instance retains only the cause and the text."""
    cause = translated(error.cause)
    if isinstance(cause, exceptions.RayTaskError):
        cause = cause.cause  # raised by `get` inside a task: its text has both stacks
    text = plain(ray.exceptions.RayTaskError.__str__(error) if "traceback_str" in vars(error) else str(error))
    header, _, rest = text.partition("\n")
    info = _HEADER.match(header)
    title = header.partition("() (pid=")[0]
    name = title.removeprefix("ray::")
    if info is None:
        # An exception group, without Ray's header.
        frame = _FRAME.search(text)
        return exceptions.RayTaskError(name if frame is None else frame[1], text, cause).as_instanceof_cause()
    return exceptions.RayTaskError(
        name, f"{_TRACEBACK}\n{rest}", cause, title, int(info["pid"]), info["ip"], info["repr"], info["actor"]
    ).as_instanceof_cause()


def _cancelled(error: Any) -> exceptions.TaskCancelledError:
    task = error.task_id
    return exceptions.TaskCancelledError(None if task is None else TaskID(task.binary()), error.error_message)


def _actor_error(error: Any) -> exceptions.RayActorError:
    return exceptions.RayActorError(error.actor_id, plain(error.error_msg), error.actor_init_failed, error.preempted)


def _actor_died(error: Any) -> exceptions.ActorDiedError:
    given = error.args[0] if error.args else None
    cause = class_name = pid = None
    if isinstance(given, ray.exceptions.RayTaskError):
        cause = _task_error(given)
    elif given is not None:
        class_name, pid = getattr(given, "class_name", None) or None, getattr(given, "pid", None) or None
    made = exceptions.ActorDiedError(cause, actor_id=error.actor_id, error_msg=plain(error.error_msg), class_name=class_name, pid=pid)
    made.actor_init_failed = error.actor_init_failed
    made.preempted = error.preempted
    return made


def _actor_unavailable(error: Any) -> exceptions.ActorUnavailableError:
    message, actor_id = error.args if len(error.args) == 2 else (error.error_msg, None)
    return exceptions.ActorUnavailableError(message, actor_id)


def _system(kind: type[exceptions.RaySystemError]) -> Callable[[Any], exceptions.RaySystemError]:
    return lambda error: kind(plain(str(error.client_exc)), error.traceback_str)


def _lost(kind: type[exceptions.ObjectLostError]) -> Callable[[Any], exceptions.ObjectLostError]:
    return lambda error: kind(error.object_ref_hex, error.owner_address, error.call_site)


def _not_reconstructed(error: Any) -> exceptions.ObjectReconstructionFailedError:
    return exceptions.ObjectReconstructionFailedError(
        error.object_ref_hex, error.reason, error.reason_message, error.owner_address, error.call_site
    )


def _message(kind: type[Exception], name: str = "error_message") -> Callable[[Any], Exception]:
    return lambda error: kind(getattr(error, name))


_MAKERS: dict[str, Callable[[Any], BaseException]] = {
    "RayTaskError": _task_error,
    "TaskCancelledError": _cancelled,
    "RayActorError": _actor_error,
    "ActorDiedError": _actor_died,
    "ActorUnavailableError": _actor_unavailable,
    "ObjectReconstructionFailedError": _not_reconstructed,
    "WorkerCrashedError": lambda error: exceptions.WorkerCrashedError(detail="Logs of the worker: python-core-worker-*.log."),
    "UnserializableException": _message(exceptions.UnserializableException, "_original_stack_trace"),
    "RpcError": lambda error: exceptions.RpcError(error.message, error.rpc_code),
    **{
        kind.__name__: _lost(kind)
        for kind in (
            exceptions.ObjectLostError,
            exceptions.OwnerDiedError,
            exceptions.ObjectFreedError,
            exceptions.ReferenceCountingAssertionError,
            exceptions.ObjectFetchTimedOutError,
        )
    },
    **{
        kind.__name__: _system(kind)
        for kind in (
            exceptions.RaySystemError,
            exceptions.RayChannelError,
            exceptions.RayChannelTimeoutError,
            exceptions.RayCgraphCapacityExceeded,
            exceptions.RayDirectTransportError,
            exceptions.StreamingGeneratorReplayInconsistentError,
        )
    },
    **{
        kind.__name__: _message(kind)
        for kind in (
            exceptions.TaskUnschedulableError,
            exceptions.ActorUnschedulableError,
            exceptions.ActorAlreadyExistsError,
            exceptions.ActorHandleNotFoundError,
            exceptions.RuntimeEnvSetupError,
        )
    },
    **{
        kind.__name__: _message(kind, "message")
        for kind in (exceptions.OutOfMemoryError, exceptions.NodeDiedError, exceptions.AuthenticationError)
    },
}
