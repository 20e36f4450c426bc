"""Every error that a caller of mray can catch, under Ray's names and with Ray's inheritance.

Each pickles, with its information in attributes (the dead process, its pid, signal or exit code). Programs written for Ray search for
the beginnings of the texts.

The error of a task arrives as a `RayTaskError` that is an instance of the task's own exception class too, so that both
``except RayTaskError`` and ``except ValueError`` catch it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary, ref


class _Id(Protocol):
    """A task's id, as object or as bytes."""

    def hex(self) -> str: ...


_TRACEBACK = "Traceback (most recent call last):"
#: A frame of Ray Data between a task and the user's function, with its lines of source.
_LIBRARYS_FRAME = re.compile(r'^  File "[^"]*ray/data/_internal/.*\n(?:    .*\n)*', re.MULTILINE)


def _logger() -> Any:
    import logging  # noqa: PLC0415  (5 ms of the start of every session, whose node imports this module)

    # Programs silence or capture this logger by its name in Ray.
    return logging.getLogger("ray.exceptions")


class RayError(Exception):
    """The base class of all errors in this module."""


# ------------------------------------------------------------------------------------------------ tasks
class RayTaskError(RayError):
    """A task or a method raised an exception; `cause` is that exception.

    `traceback_str` is the traceback in the process that ran it, reduced to the frames of user code.
    """

    def __init__(
        self,
        function_name: str,
        traceback_str: str,
        cause: BaseException,
        proctitle: str | None = None,
        pid: int | None = None,
        ip: str | None = None,
        actor_repr: str | None = None,
        actor_id: str | None = None,
    ) -> None:
        super().__init__(function_name, traceback_str, cause, proctitle, pid, ip)
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause = cause
        self.proctitle = proctitle
        self.pid = pid
        self.ip = ip
        self.actor_repr = actor_repr
        self._actor_id = actor_id

    @property
    def actor_id(self) -> str | None:
        """The id in hex digits of the actor whose method it was."""
        return self._actor_id

    def make_dual_exception_instance(self) -> RayTaskError:
        """Return an error with the same content that is an instance of the cause's class as well.

        TypeError when no such class is possible (the cause's class refuses to be subclassed).
        """
        kind = type(self.cause)
        return _fill_dual(_new_dual(_dual_class(cast("Any", kind)), self.cause), self.cause, self._info())

    def as_instanceof_cause(self) -> RayTaskError:
        """Return `make_dual_exception_instance()`, or this error itself if it is one already or none is possible."""
        kind = type(self.cause)
        if issubclass(RayTaskError, kind) or isinstance(self, kind):
            return self
        try:
            return self.make_dual_exception_instance()
        except Exception as error:
            _logger().warning(
                "User exception type %s in RayTaskError can't be subclassed! This exception is raised as RayTaskError only. "
                "You can use `ray_task_error.cause` to access the user exception. Failure in subclassing: %s",
                kind,
                error,
            )
            return self

    def _header(self) -> str:
        parts = [f"pid={self.pid}", f"ip={self.ip}"]
        if self._actor_id is not None:
            parts.append(f"actor_id={self._actor_id}")
        if self.actor_repr is not None:
            parts.append(f"repr={self.actor_repr}")
        return f"{self.proctitle or f'ray::{self.function_name}'}() ({', '.join(parts)})"

    def _info(self) -> tuple[Any, ...]:
        return tuple(self.__dict__[name] for name in _ATTRIBUTES)

    def __str__(self) -> str:
        text = self.traceback_str.strip("\n")
        if isinstance(self.cause, UserCodeException):
            text = _LIBRARYS_FRAME.sub("", text)
        header = self._header()
        lines = text.split("\n")
        if _TRACEBACK not in lines:
            return f"{header}\n{text}" if text else header
        return "\n".join(header if line == _TRACEBACK else line for line in lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return RayTaskError, self._info()


_ATTRIBUTES = ("function_name", "traceback_str", "cause", "proctitle", "pid", "ip", "actor_repr", "_actor_id")


#: Bypasses a `__setattr__` of the cause's class.
_set_args = BaseException.__dict__["args"].__set__


def _attribute(name: str) -> Any:
    return lambda self: self.__dict__[name]


def _dual_repr(self: RayTaskError) -> str:
    return f"{type(self).__name__}({self.cause!r})"


def _dual_init(self: RayTaskError, *_args: object, **_kwargs: object) -> None:
    """Do nothing: `_fill_dual` sets the attributes, and the cause's own constructor must not run."""


def _dual_getattr(self: RayTaskError, name: str) -> Any:
    cause = self.__dict__.get("cause")
    if cause is None or name.startswith("__"):
        raise AttributeError(name)
    return getattr(cause, name)


def _dual_reduce(self: RayTaskError, *_protocol: object) -> tuple[Any, ...]:
    return _restore_dual, self._info()


#: Keyed by the class of their cause. Both weak: a class that cloudpickle has created in a call holds what its methods capture.
_duals: WeakKeyDictionary[type[BaseException], ref[type[RayTaskError]]] = WeakKeyDictionary()


def _dual_class(kind: type[BaseException]) -> type[RayTaskError]:
    known = _duals.get(kind)
    dual = None if known is None else known()
    if dual is None:
        dual = _new_dual_class(kind)
        _duals[kind] = ref(dual)
    return dual


def _new_dual_class(kind: type[BaseException]) -> type[RayTaskError]:
    name = f"RayTaskError({kind.__name__})"
    body = {
        "__module__": RayTaskError.__module__,
        "__qualname__": name,
        "__init__": _dual_init,
        "__str__": RayTaskError.__str__,
        "__repr__": _dual_repr,
        "__getattr__": _dual_getattr,
        "__reduce__": _dual_reduce,
        "__reduce_ex__": _dual_reduce,
        # The cause's class may define something else under these names.
        "args": BaseException.args,
        **{name: property(_attribute(name)) for name in _ATTRIBUTES if hasattr(kind, name)},
    }
    # A cause that is a RayError (TaskCancelledError) must not precede RayError's other subclass.
    metaclass: Any = type(kind)
    return cast("type[RayTaskError]", metaclass(name, (RayTaskError, kind), body))


def _new_dual(dual: type[RayTaskError], cause: BaseException) -> RayTaskError:
    """Create an instance by the builtin base of the cause's class, whose own `__new__` and `__init__` must not run."""
    # Along the layout, and not the order of lookup: only that base's `__new__` accepts this class (MemoryError's accepts no other).
    # Classes made by a class statement have this flag.
    base: Any = dual
    while base.__flags__ & (1 << 9):
        base = base.__base__
    made: RayTaskError
    if base.__name__ in ("ExceptionGroup", "BaseExceptionGroup"):
        # The members of a group can only be set by the constructor.
        made = base.__new__(dual, cause.message, cause.exceptions)  # type: ignore[attr-defined]
    else:
        made = base.__new__(dual)
    return made


def _fill_dual(dual: RayTaskError, cause: BaseException, info: tuple[Any, ...]) -> RayTaskError:
    for base in type(cause).__mro__:
        if base in (Exception, BaseException, object):
            continue
        for name, member in vars(base).items():
            # Attributes in the C structure or a slot: errno, filename, code, ...
            if type(member).__name__ in ("member_descriptor", "getset_descriptor") and not name.startswith("__"):
                try:
                    member.__set__(dual, member.__get__(cause))
                except (AttributeError, TypeError):
                    pass
    fields = dual.__dict__
    fields.update(getattr(cause, "__dict__", {}))
    fields.update(zip(_ATTRIBUTES, info, strict=True))
    _set_args(dual, (cause,))
    return dual


def _restore_dual(*info: Any) -> RayTaskError:
    return RayTaskError(*info).as_instanceof_cause()


class TaskCancelledError(RayError):
    """The task was cancelled by `cancel`, or interrupted."""

    def __init__(self, task_id: _Id | None = None, error_message: str | None = None) -> None:
        super().__init__(task_id, error_message)
        self.task_id = task_id
        self.error_message = error_message

    def __str__(self) -> str:
        task = f"TaskID({self.task_id.hex()})" if isinstance(self.task_id, bytes) else self.task_id
        what = "This task or its dependency" if task is None else f"Task: {task}"
        return f"{what} was cancelled. {self.error_message or ''}".rstrip()


class WorkerCrashedError(RayError):
    """The worker that ran the task died. `task`, `pid`, `signal` and `exit_code` describe its death, ``None`` where unknown."""

    def __init__(self, task: str | None = None, pid: int | None = None, status: int | None = None, detail: str = "") -> None:
        super().__init__(task, pid, status, detail)
        self.task = task
        self.pid = pid
        self.signal, self.exit_code = split_status(status)
        self.detail = detail

    def __str__(self) -> str:
        text = "The worker died unexpectedly while executing this task."
        if self.task:
            text += f" It was running {self.task}."
        status = self.args[2] if len(self.args) > 2 else None
        if self.pid or status is not None:
            text += f" The worker process{f' (pid {self.pid})' if self.pid else ''} {describe_status(status)}."
        return f"{text} {self.detail}" if self.detail else text


def split_status(status: int | None) -> tuple[int | None, int | None]:
    """(signal, exit code) of a status that is negative for a signal, as in `subprocess`."""
    if status is None:
        return None, None
    return (-status, None) if status < 0 else (None, status)


def describe_status(status: int | None) -> str:
    """Describe how a process ended."""
    number, code = split_status(status)
    if number is not None:
        name = {known.value: known.name for known in signal.Signals}.get(number)
        return f"was killed by {name} (signal {number})" if name else f"was killed by signal {number}"
    return "has ended" if code is None else f"exited with exit code {code}"


class TaskUnschedulableError(RayError):
    """The task can never run on this machine."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return f"The task is not schedulable: {self.error_message}"


class TaskPlacementGroupRemoved(RayError):
    """The placement group of the task was removed."""

    def __str__(self) -> str:
        return "The placement group corresponding to this task has been removed."


class UserCodeException(RayError):
    """A user function that a library called in a task raised; `__cause__` is its exception, which `retry_exceptions` checks."""


class PendingCallsLimitExceeded(RayError):
    """More calls than `max_pending_calls` wait for the actor."""


class ObjectRefStreamEndOfStreamError(RayError):
    """The generator has no more items."""


class CrossLanguageError(RayError):
    """Raised by a task in another language; never by mray."""


# ----------------------------------------------------------------------------------------------- actors
class RayActorError(RayError):
    """The actor did not finish the call. `actor_id` is in hex digits."""

    BASE = "The actor experienced an error before finishing this task."

    def __init__(
        self, actor_id: str | None = None, error_msg: str = BASE, actor_init_failed: bool = False, preempted: bool = False
    ) -> None:
        super().__init__(actor_id, error_msg, actor_init_failed, preempted)
        self.actor_id = actor_id
        self.error_msg = error_msg
        self.actor_init_failed = actor_init_failed
        self.preempted = preempted

    def __str__(self) -> str:
        return self.error_msg


class ActorDiedError(RayActorError):
    """The actor is dead and will not be restarted.

    `cause` is the error of its constructor, if that was the reason. `pid`, `signal` and `exit_code` describe the end of its process,
    `class_name` is its class; ``None`` where unknown.
    """

    BASE_ERROR_MSG = "The actor died unexpectedly before finishing this task."

    def __init__(
        self,
        cause: RayTaskError | None = None,
        *,
        actor_id: str | None = None,
        error_msg: str | None = None,
        class_name: str | None = None,
        pid: int | None = None,
        status: int | None = None,
    ) -> None:
        if cause is not None:
            actor_id = actor_id or cause.actor_id
            pid = pid or cause.pid
            error_msg = error_msg or (f"The actor died because of an error raised in its creation task, {RayTaskError.__str__(cause)}")
        super().__init__(actor_id, error_msg or self.BASE_ERROR_MSG, cause is not None)
        self.args = (cause,) if cause is not None else ()
        self.cause = cause
        self.class_name = class_name
        self.pid = pid
        self.status = status
        self.signal, self.exit_code = split_status(status)

    @classmethod
    def because(
        cls,
        reason: str,
        *,
        actor_id: str | None = None,
        class_name: str | None = None,
        pid: int | None = None,
        status: int | None = None,
        namespace: str | None = None,
        ip: str | None = None,
        name: str | None = None,
    ) -> ActorDiedError:
        """Create the error with Ray's layout of the text: the actor's attributes, line by line, then the reason."""
        info = (("class_name", class_name), ("actor_id", actor_id), ("pid", pid), ("name", name), ("namespace", namespace), ("ip", ip))
        lines = [cls.BASE_ERROR_MSG, *(f"\t{key}: {value}" for key, value in info if value), reason]
        return cls(actor_id=actor_id, error_msg="\n".join(lines), class_name=class_name, pid=pid, status=status)

    def __reduce__(self) -> tuple[Any, ...]:
        names = ("actor_id", "error_msg", "class_name", "pid", "status")
        return partial(ActorDiedError, self.cause, **{name: getattr(self, name) for name in names}), ()


class ActorUnavailableError(RayActorError):
    """The actor is temporarily unreachable; it may be restarting."""

    def __init__(self, error_message: str, actor_id: bytes | None) -> None:
        text = actor_id.hex() if actor_id is not None else None
        super().__init__(
            text, f"The actor {text} is unavailable: {error_message}. The task may or may not have been executed on the actor."
        )
        self.args = (error_message, actor_id)


class ActorUnschedulableError(RayError):
    """The actor can never be placed on this machine."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return f"The actor is not schedulable: {self.error_message}"


class ActorPlacementGroupRemoved(RayError):
    """The placement group of the actor was removed."""

    def __str__(self) -> str:
        return "The placement group corresponding to this Actor has been removed."


class ActorAlreadyExistsError(ValueError, RayError):
    """The name is taken by another actor."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message


class ActorHandleNotFoundError(ValueError, RayError):
    """The handle belongs to another session."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message


class AsyncioActorExit(RayError):
    """Raised inside an async actor by `exit_actor`."""


# ---------------------------------------------------------------------------------------------- objects
class GetTimeoutError(RayError, TimeoutError):
    """The value did not arrive in time. The ref stays valid."""


class DeadlockError(RayError):
    """The wait cannot end, because calls wait for each other. Raised only with the setting `MRAY_RAISE_DEADLOCKS`; not in Ray.

    `chain` is a tuple of the waits, from this one on: each has the waiting call (`waiter`) and its process (`pid`), the call that it waits
    for (`awaits`, `awaits_pid`), which may stand `behind` another one, and its line (`file`, `line`, `function`, `source`). The last waits
    for the first.
    """

    def __init__(self, chain: Sequence[Any] = ()) -> None:
        super().__init__(chain)
        self.chain = tuple(chain)

    def __str__(self) -> str:
        return "\n".join(("This wait cannot end: these calls wait for each other.", *map(str, self.chain)))


class PlacementGroupUnschedulableError(TaskUnschedulableError, GetTimeoutError):
    """The placement group can never be created on this machine. Ray waits for another machine, and finally times out."""


class PlasmaObjectNotAvailable(RayError):
    """The value was not in the store."""


class ObjectStoreFullError(RayError):
    """There is no room for the object."""

    def __str__(self) -> str:
        return super().__str__() or "The local object store is full of objects that are still in scope and cannot be evicted."


class OutOfDiskError(RayError):
    """The local disk is full."""

    def __str__(self) -> str:
        text = "The object cannot be created because the local object store is full and the local disk's utilization is over capacity."
        return f"{super().__str__()}\n{text}"


class OutOfMemoryError(RayError):
    """The machine ran out of memory."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class OufOfBandObjectRefSerializationException(RayError):
    """A ref was pickled outside of calls and objects while that is forbidden. (The name is Ray's.)"""


class UnserializableException(RayError):
    """A task raised an exception that cannot be unpickled here; the text includes its traceback."""

    def __init__(self, original_stack_trace: str) -> None:
        super().__init__(original_stack_trace)
        self._original_stack_trace = original_stack_trace

    def __str__(self) -> str:
        what = "Failed to deserialize exception. Its class cannot be recreated from the pickled value: give it a `__reduce__`."
        return f"{what}\nOriginal exception:\n{self._original_stack_trace}"


class ObjectLostError(RayError):
    """The object is lost. `object_ref_hex` names it, `detail` gives the reason."""

    _WHY = "All copies of {ref} have been lost due to node failure."

    def __init__(self, object_ref_hex: str, owner_address: bytes | None = None, call_site: str = "", detail: str = "") -> None:
        super().__init__(object_ref_hex, owner_address, call_site, detail)
        self.object_ref_hex = object_ref_hex
        self.owner_address = owner_address
        self.call_site = call_site
        self.detail = detail

    def __str__(self) -> str:
        where = f" The ObjectRef was created at: {self.call_site}" if self.call_site else ""
        why = self._WHY.format(ref=self.object_ref_hex)
        what = f"Failed to retrieve object {self.object_ref_hex}.{where}\n\n" if self.object_ref_hex else ""
        return f"{what}{why} {self.detail}".rstrip()


class OwnerDiedError(ObjectLostError):
    """The process that owned the object, because it made the call or the `put`, has died."""

    _WHY = "The object's owner has exited. This is the Python worker that first created the ObjectRef via `.remote()` or `ray.put()`."


class ObjectFreedError(ObjectLostError):
    """The object was freed explicitly."""

    _WHY = "The object was manually freed using the internal `free` call."


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """The object was freed although a ref to it lives."""

    _WHY = "The object has already been deleted by the reference counting protocol. This should not happen."


class ObjectFetchTimedOutError(ObjectLostError):
    """The object could not be fetched."""

    _WHY = "Fetch for object {ref} timed out because no locations were found for the object."


class ObjectReconstructionFailedError(ObjectLostError):
    """The object was lost and could not be computed again."""

    _WHY = "The object cannot be reconstructed."

    def __init__(
        self,
        object_ref_hex: str,
        reason: object = None,
        reason_message: str | None = None,
        owner_address: bytes | None = None,
        call_site: str = "",
    ) -> None:
        super().__init__(object_ref_hex, owner_address, call_site)
        self.args = (object_ref_hex, reason, reason_message, owner_address, call_site)
        self.reason = reason
        self.reason_message = reason_message

    def __str__(self) -> str:
        return f"{super().__str__()} {self.reason_message}" if self.reason_message else super().__str__()


# ----------------------------------------------------------------------------------------------- system
class RaySystemError(RayError):
    """An operation of mray itself failed."""

    def __init__(self, client_exc: object, traceback_str: str | None = None) -> None:
        super().__init__(*((client_exc,) if traceback_str is None else (client_exc, traceback_str)))
        self.client_exc = client_exc
        self.traceback_str = traceback_str

    def __str__(self) -> str:
        text = f"System error: {self.client_exc}"
        return f"{text}\ntraceback: {self.traceback_str}" if self.traceback_str else text


class NodeDiedError(RayError):
    """The node process died, and its session with it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class LocalRayletDiedError(RayError):
    """The node process of the task died."""


class RpcError(RayError):
    """Communication with another process failed."""

    def __init__(self, message: str, rpc_code: int | None = None) -> None:
        super().__init__(message, rpc_code)
        self.message = message
        self.rpc_code = rpc_code

    def __str__(self) -> str:
        return self.message


class AuthenticationError(RayError):
    """Not allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RuntimeEnvSetupError(RayError):
    """The requested runtime environment could not be created."""

    def __init__(self, error_message: str | None = None) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return f"Failed to set up runtime environment.\n{self.error_message or ''}".rstrip("\n")


class StreamingGeneratorReplayInconsistentError(RaySystemError):
    """A restarted generator yielded something else."""


class RayDirectTransportError(RaySystemError):
    """A tensor could not be moved between actors."""


# ------------------------------------------------------------------------------------- compiled graphs
class RayChannelError(RaySystemError):
    """A channel of a compiled graph is closed or broken."""


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    """A compiled graph did not accept an input or return an output in time."""


class RayCgraphCapacityExceeded(RaySystemError):
    """A compiled graph has as many executions in flight, or unread results, as allowed."""


RAY_EXCEPTION_TYPES: list[type[RayError]] = [
    value for value in list(globals().values()) if isinstance(value, type) and issubclass(value, RayError) and value is not RayError
]

__all__ = ["RayError"] + [kind.__name__ for kind in RAY_EXCEPTION_TYPES]
