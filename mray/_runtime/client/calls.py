"""An unanswered call, as its caller remembers it: in `Connection.calls` until the reply arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mray._api.object_ref import ObjectRef
from mray._common.clock import perf_counter
from mray._common.ids import TaskID
from mray._common.invocations import MethodInvocation, short_name
from mray._common.messages import FAILED, REPLIES, REPLY, SEGMENT, STREAM_ITEMS, TENSORS
from mray._ipc.connection import Connection, Message
from mray._objects.ownership import Entry
from mray._objects.remote_error import pickle_error
from mray._runtime.client import failed_calls
from mray._runtime.connections.endpoint import Endpoint, fault_error
from mray._runtime.connections.part import Row
from mray._runtime.objects.unhandled_errors import mark_handled
from mray.exceptions import TaskCancelledError

#: Ray's names.
WAITS_FOR_ARGUMENTS = "PENDING_ARGS_AVAIL"
WAITS_FOR_WORKER = "PENDING_NODE_ASSIGNMENT"
SENT = "SUBMITTED_TO_WORKER"
QUEUES_IN_ACTOR = "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY"
RUNNING = "RUNNING"
#: Missing arguments that the row of a call names.
_MOST_AWAITED = 8


class Call:
    """`entry` is the entry of its only return value, `entries` are those of several. `pins` keeps refs among and inside the arguments alive
    until the reply.
    """

    # Class attributes instead of slots, as in `Entry`: most fields keep their defaults.

    form = 0
    payload: Any = b""
    refs: list[tuple[bytes, str]] | None = None
    #: Refs among the arguments; and the position of each: an index, or the name of a keyword.
    arguments: list[ObjectRef] | None = None
    places: Sequence[int | str] = ()
    pins: Any = None
    #: Keeps the actor alive.
    handle: Any = None
    #: The entry of arguments that lie in a segment.
    keep: Entry | None = None
    options: dict[str, Any] | None = None
    #: Arguments whose values are pending.
    waiting = 0
    #: The task that made the call, None in a driver.
    parent: bytes | None = None
    #: Retries left; `CANCELLED` after a cancellation.
    retries = 0
    #: Whether an earlier attempt was sent.
    was_sent = False
    tries = 0
    memory_kills = 0
    name = ""
    #: An `ActorCaller` or a `TaskPool`.
    source: Any = None
    lease: Any = None

    def __init__(self, task_id: bytes, method: Any, num_returns: int, entry: Entry | None, entries: Sequence[Entry] = ()) -> None:
        self.task_id = task_id
        self.method = method
        self.num_returns = num_returns
        self.entry = entry
        self.entries = entries

    def argument_values(self, export: Callable[[ObjectRef], str]) -> list[tuple[Any, ...]]:
        """The values of arguments that were refs, for the message: ``(place, form, payload)``, and (object id, owner) unless inline.

        `export` prepares an object for borrowing, and returns its owner.
        """
        values: list[tuple[Any, ...]] = []
        for place, ref in zip(self.places, self.arguments or (), strict=True):
            entry = ref._entry
            # None: it is being recomputed. The worker finds no segment, and asks the owner.
            form = SEGMENT if entry.form is None else entry.form
            if form in (SEGMENT, TENSORS):
                # The worker borrows the object, because views of it may outlive the call.
                values.append((place, form, entry.payload, ref._id, export(ref)))
            else:
                if form == FAILED:
                    mark_handled(entry)  # the error of the call reports it
                values.append((place, form, entry.payload))
        return values

    def use_retry(self) -> None:
        """The last attempt answers with its error."""
        self.tries += 1
        if self.retries > 0:
            self.retries -= 1
        if not self.retries and self.options is not None:
            self.options = {name: value for name, value in self.options.items() if name != "retry"}

    def fail(self, error: BaseException, process: str = "") -> None:
        """`process` has run the call, "" if none has. Client's lock held."""
        self._note_failure(process, *failed_calls.info(error))
        payload = pickle_error(error)
        for entry in self.entries if self.entry is None else (self.entry,):
            entry.complete(FAILED, payload)
        self.release()

    def failed(self, payload: bytes, process: str) -> None:
        """Client's lock held."""
        self._note_failure(process, *failed_calls.info_of_answer(payload))

    def _note_failure(self, process: str, kind: str, text: str) -> None:
        name, function = self.names()
        client = getattr(self.source, "client", None)
        owner = "" if client is None else client.process
        resources = dict((getattr(self.source, "demand", None) or {}).get("resources") or {})
        failed_calls.remember(
            failed_calls.FailedCall(self.task_id, name, function, self.parent or b"", owner, process, resources, kind, text, perf_counter())
        )

    def names(self) -> tuple[str, str]:
        method = self.method
        if isinstance(method, str):
            class_name = getattr(self.source, "class_name", "")
            function = f"{short_name(class_name)}.{method}" if class_name else method
        else:
            function = str(method[2]).rpartition(".")[2]
        return (self.options or {}).get("name") or self.name or function, function

    def row(self, state: str, process: str) -> Row:
        """A row for observers: in this state, and sent to this process or about to be."""
        demand = getattr(self.source, "demand", None) or {}
        name, function = self.names()
        return {
            "task_id": self.task_id,
            "name": name,
            "func_or_class_name": function,
            "parent": self.parent or b"",
            "state": state,
            "process": process,
            "retries_left": self.retries,
            "required_resources": dict(demand.get("resources") or {}),
            "waits_for": [ref.binary() for ref in (self.arguments or ())[:_MOST_AWAITED] if ref._entry.form is None],
        }

    def send(self, client: Endpoint, connection: Connection, message: Message) -> bool:
        """Fail the call if messages cannot carry one of its values. Client's lock held."""
        try:
            client.send_call(connection, message)
        except ValueError as error:
            del connection.calls[self.task_id]
            self.options = None  # listings cannot show them either
            self.fail(TypeError(f"{self.names()[1]} could not be called: its options have a value that messages cannot carry ({error})."))
            return False
        return True

    def cancel(self) -> None:
        """Fail as cancelled. Client's lock held."""
        self.fail(TaskCancelledError(TaskID(self.task_id)))

    def release(self) -> None:
        self.pins = None
        self.handle = None
        self.arguments = None
        self.payload = None
        self.keep = None


def lost_call(call: Call, message: str, error: Exception) -> Exception:
    """Fail a call that its connection no longer records; returns the error, to be raised."""
    call.fail(fault_error(f"The handler of {message}", error))
    return error


def failed_reply(task_id: bytes, num_returns: int, payload: bytes) -> tuple[Any, ...]:
    if num_returns == 1:
        return REPLY, task_id, FAILED, payload, None
    return REPLIES, task_id, [(FAILED, payload, None)] * num_returns


def fail_call(peer: Connection, _failure: Exception, payload: bytes, *fields: Any) -> None:
    """Answer a CALL or TASK whose handler has failed as if its code had raised the error."""
    call = MethodInvocation(*fields[: len(MethodInvocation._fields)])  # TASK begins with the same fields
    if call.options is not None and "stream" in call.options:
        peer.post((STREAM_ITEMS, call.task_id, call.options["stream"][0], [(FAILED, payload, None)]))
    peer.send(failed_reply(call.task_id, call.num_returns, payload))
