"""Calls on their way out: what a caller remembers of a call, how its arguments travel, and the queue of calls to one actor.

In the caller's process. A call goes straight to the worker's socket; its record stays in `Connection.calls` of that connection until the
reply comes. Arguments that are refs travel as placeholders whose values are appended to the message; a call waits here until they are
there.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mray._api.dag_node import GraphRef
from mray._api.object_ref import ObjectRef
from mray._common.concurrency import runs_out_of_order
from mray._common.ids import TaskID
from mray._common.messages import CALL, CAUSE_REFUSED, FAILED, REPLIES, REPLY, SEGMENT, TENSORS
from mray._ipc.connection import Connection
from mray._objects.ownership import Entry, Holder
from mray._objects.remote_error import pickle_error
from mray._objects.serializer import PLAIN_TYPES, serialize
from mray._runtime.client import failed_calls
from mray._runtime.client.deaths import actor_error, unavailable_error
from mray._runtime.client.unheard_errors import hear
from mray.exceptions import TaskCancelledError

if TYPE_CHECKING:
    from mray._api.blueprint import ActorBlueprint
    from mray._runtime.client.client import Client

#: Above this many bytes a value goes into a segment instead of a message.
INLINE_BYTES = 100 * 1024

#: Posts wait for company until so many bytes are queued for a peer that is busy anyway.
BATCH_BYTES = 4096
#: Calls that follow each other faster than this are a burst, and a burst is held back this long, in seconds.
BURST_GAP = 50e-6
BURST_SECONDS = 2e-3
#: Stands for the retries of a call that was cancelled: it is not sent again.
CANCELLED = -2


class Placeholder:
    """Stands for a top-level ref among pickled arguments."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return Placeholder, (self.index,)


class Call(Holder):
    """A call that has not been answered.

    `entry` is that of its return value if it has exactly one, `entries` are those of several. `pins` holds whatever must live until the
    reply: refs among and inside the arguments, the handle it was made with.
    """

    __slots__ = (
        "arguments",
        "entries",
        "entry",
        "form",
        "handle",
        "keep",
        "lease",
        "memory_kills",
        "method",
        "name",
        "num_returns",
        "options",
        "parent",
        "payload",
        "pins",
        "refs",
        "retries",
        "source",
        "task_id",
        "waiting",
        "was_sent",
    )

    def __init__(self, task_id: bytes, method: Any, num_returns: int, entry: Entry | None, entries: Sequence[Entry] = ()) -> None:
        self.task_id = task_id
        self.method = method
        self.num_returns = num_returns
        self.entry = entry
        self.entries = entries
        self.form = 0
        self.payload: Any = b""
        self.refs: list[tuple[bytes, str]] | None = None
        #: Top-level refs among the arguments, in the order of their placeholders.
        self.arguments: list[ObjectRef] | None = None
        self.pins: Any = None
        #: Keeps the actor alive until the call is answered.
        self.handle: Any = None
        #: The entry of the arguments when they are so large that they lie in a segment.
        self.keep: Entry | None = None
        self.options: dict[str, Any] | None = None
        #: Arguments whose values are not there yet.
        self.waiting = 0
        #: The task that made the call, None in a driver.
        self.parent: bytes | None = None
        #: Retries left: after system failures, or after application errors that were to be retried. `CANCELLED` once it was.
        self.retries = 0
        #: Whether a process that is dead now has been sent it.
        self.was_sent = False
        self.memory_kills = 0
        self.name = ""
        #: The queue (of an actor, of a scheduling class) the call belongs to.
        self.source: Any = None
        #: The lease a task was pushed to.
        self.lease: Any = None

    def argument_values(self, client: Client) -> list[tuple[Any, ...]] | None:
        """What the message says of the arguments that were refs: ``(form, payload)``, of what lies elsewhere also (object id, owner)."""
        if self.arguments is None:
            return None
        values: list[tuple[Any, ...]] = []
        for ref in self.arguments:
            entry = ref._entry
            # None: it is being made again. Where it lay the worker finds nothing, and asks the owner.
            form = SEGMENT if entry.form is None else entry.form
            if form in (SEGMENT, TENSORS):
                # Views of it may outlive the call: the worker borrows the object.
                values.append((form, entry.payload, ref._id, client.borrowing.export(ref)))
            else:
                if form == FAILED:
                    hear(entry)  # the call says it again
                values.append((form, entry.payload))
        return values

    def use_retry(self) -> None:
        """The call is going to be sent again; deaths and errors count alike. The last attempt answers with its error."""
        if self.retries > 0:
            self.retries -= 1
        if not self.retries and self.options is not None:
            self.options = {name: value for name, value in self.options.items() if name != "retry"}

    def fail(self, error: BaseException, process: str = "") -> None:
        """Every return value of the call is this error; `process` is what ran it, if it was begun. Client's lock held."""
        failed_calls.note(self, error, process)
        payload = pickle_error(error)
        for entry in self.entries if self.entry is None else (self.entry,):
            entry.complete(FAILED, payload)
        self.release()

    def cancel(self) -> None:
        """The call was cancelled, and does not run (again). Client's lock held."""
        self.fail(TaskCancelledError(TaskID(self.task_id)))

    def release(self) -> None:
        """The call is over: let go of what it kept alive."""
        self.pins = None
        self.handle = None
        self.arguments = None
        self.payload = None
        self.keep = None


def pack_arguments(
    client: Client, call: Call, args: Sequence[Any], kwargs: dict[str, Any] | None, what: str, of: ActorBlueprint | None = None
) -> None:
    """Pickle the arguments into the call and note which of them are refs that have to be there first.

    `what` is called, for texts: a function or, with `of`, a method of that class.
    """
    plain = True
    replace = False
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind not in PLAIN_TYPES:
            plain = False
            if kind is ObjectRef:
                replace = True
        elif kind is bytes and len(value) > INLINE_BYTES:
            plain = False
            replace = True
    if replace:
        args, kwargs = _replace(client, call, args, kwargs)
    if plain:
        call.payload = pickle.dumps((args, kwargs), 5)
        if len(call.payload) <= INLINE_BYTES:
            return
    else:
        for value in (*args, *(kwargs or {}).values()):
            if isinstance(value, GraphRef):
                raise TypeError(f"{type(value).__name__} cannot be used as Ray task/actor argument.")
    client.store_arguments(call, (tuple(args), kwargs), what if of is None else f"{of.module}.{of.name}.{what}")


def _replace(client: Client, call: Call, args: Sequence[Any], kwargs: dict[str, Any] | None) -> tuple[Sequence[Any], dict[str, Any] | None]:
    """The arguments with placeholders for refs, and for large bytes, which become objects rather than copies inside a pickle."""
    arguments: list[ObjectRef] = []

    def replace(value: Any) -> Any:
        if type(value) is bytes and len(value) > INLINE_BYTES:
            value = client.put(value)
        elif type(value) is not ObjectRef:
            return value
        client.borrowing.check(value)
        arguments.append(value)
        return Placeholder(len(arguments) - 1)

    args = tuple(replace(value) for value in args)
    if kwargs:
        kwargs = {key: replace(value) for key, value in kwargs.items()}
    call.arguments = arguments
    return args, kwargs


class ActorCaller:
    """The calls of this process to one actor, in order.

    States: "unknown" (the node has not been asked), "asked" (it has not answered yet), then as it tells them "pending", "alive",
    "restarting", "dead". All methods want the client's lock.

    Invariant: a call is in `queue`, or in ``connection.calls``, or answered. While the actor is being restarted, which may take for ever,
    nothing is queued that could go and may not be sent to the next process: only what waits for its arguments, what may be retried, and
    what was called before the actor had been there at all.
    """

    def __init__(self, client: Client, actor_id: bytes) -> None:
        self.client = client
        self.actor_id = actor_id
        self.state = "unknown"
        self.process = ""
        self.incarnation = -1
        self.cause: tuple[Any, ...] | None = None
        self.connection: Connection | None = None
        self.queue: deque[Call] = deque()
        self.max_task_retries = 0
        #: Calls that may be unanswered at once; 0: as many as there are.
        self.most_pending = 0
        #: Whether a call may overtake one that waits for its arguments.
        self.unordered = False
        #: Whether a call must be looked at before it is submitted.
        self.particular = False
        self.class_name = ""
        #: What its constructor was given, in the process that created it: every restart needs it.
        self.pins: Any = None
        #: Called with each new state.
        self.watchers: list[Any] = []

    def learn(self, options: Mapping[str, Any], is_async: bool) -> None:
        """What the actor's options mean for its callers."""
        self.max_task_retries = options.get("max_task_retries") or 0
        self.most_pending = max(options.get("max_pending_calls") or 0, 0)
        self.unordered = runs_out_of_order(is_async, options)
        self.particular = bool(self.max_task_retries or self.most_pending)

    def is_full(self) -> bool:
        """Whether so many calls are unanswered that the actor takes no more."""
        sent = 0 if self.connection is None else len(self.connection.calls)
        return 0 < self.most_pending <= sent + len(self.queue)

    def submit(self, call: Call) -> None:
        """Send the call, or queue it behind what must go first."""
        call.source = self
        if call.waiting == 0 and (not self.queue or self.unordered) and self.connection is not None and not self.connection.closed:
            self._push(self.connection, call)
            return
        if self.state == "dead":
            call.fail(actor_error(self.actor_id, self.class_name, self.cause))
            return
        if self.state == "restarting" and _goes_once(call):
            self._refuse(call)
            return
        self.queue.append(call)
        if self.state == "alive" and self.connection is None:
            self._connect()
        self.subscribe()

    def _connect(self) -> None:
        try:
            # None: it has died since; the node will say so.
            self.connection = self.client.try_peer(self.process)
        except OSError as error:  # no descriptor is left; the next call tries again
            self.connection = None
            queue, self.queue = self.queue, deque()
            for call in queue:
                call.fail(error)
        self.pump()

    def subscribe(self) -> None:
        """Have the node tell this process where the actor is, and each change."""
        if self.state == "unknown":
            self.state = "asked"
            self.client.subscribe_actor(self)

    def _push(self, connection: Connection, call: Call) -> None:
        calls = connection.calls
        calls[call.task_id] = call
        # POINT call noted
        values = call.argument_values(self.client)
        connection.post((CALL, call.task_id, call.method, call.num_returns, call.form, call.payload, call.refs, values, call.options))
        self.client.posted(connection)

    def pump(self) -> None:
        """Send what can go: calls in order, up to the first whose arguments are not there (or past it, if that is allowed)."""
        queue = self.queue
        connection = self.connection
        if self.unordered and connection is not None and not connection.closed:
            waiting = [call for call in queue if call.waiting]
            for call in queue:
                if not call.waiting:
                    self._push(connection, call)
            queue.clear()
            queue.extend(waiting)
        while queue and connection is not None and not connection.closed and queue[0].waiting == 0:
            self._push(connection, queue.popleft())
        if connection is not None:
            connection.flush()

    def ready(self, call: Call) -> None:
        """The arguments of a queued call are there."""
        connection = self.connection
        if self.state == "restarting" and _goes_once(call):
            self.queue.remove(call)
            self._refuse(call)
        elif self.unordered and connection is not None and not connection.closed:
            self.queue.remove(call)
            self._push(connection, call)
        else:
            self.pump()

    def on_state(self, state: str, process: str, incarnation: int, cause: tuple[Any, ...] | None) -> None:
        """The node says what has become of the actor."""
        # POINT actor state heard
        old = self.connection
        if state in ("restarting", "dead") and self.state != "dead":
            before, self.state, self.cause = self.state, state, cause
            lost: list[Call] = []
            if old is not None:
                old.read_rest()
                lost = list(old.calls.values())
                old.calls.clear()
                # The connection ends with the process, which may stay while others hold what it owns.
                self.connection = None
            if state == "dead":
                if cause is not None and cause[0] == CAUSE_REFUSED and self.pins is not None:  # who created it tells, and nobody else
                    self.client.unschedulable.hear(cause[1])
                self.pins = None
                self._fail_all(lost, self.process)
                self._fail_all(self.queue)
                self.queue.clear()
            else:
                # Before it was there at all, calls have been waiting for whichever process is the first.
                self._restarting(lost, late=before in ("asked", "alive"), again=before == "restarting" and self.process != "")
        elif state == "alive":
            self.state = state
            if incarnation != self.incarnation or old is None or old.closed:
                self.incarnation = incarnation
                self.process = process
                self._connect()
        elif self.state != "dead":
            self.state = state
        for watcher in tuple(self.watchers):
            watcher(self)
        if self.state == "dead" and not self.client.borrowing.holds(self.actor_id):
            self.client.forget_actor(self.actor_id)

    def on_death(self, callback: Callable[[Any], None]) -> None:
        """Call back with the error, soon and without the lock, when the actor is dead for good."""

        def tell(_caller: ActorCaller) -> None:
            if self.state == "dead":
                self.watchers.remove(tell)
                error = actor_error(self.actor_id, self.class_name, self.cause)
                self.client.reactor.defer(lambda: callback(error))

        self.watchers.append(tell)
        self.subscribe()
        tell(self)

    def _fail_all(self, calls: Iterable[Call], process: str = "") -> None:
        for call in tuple(calls):
            call.fail(actor_error(self.actor_id, self.class_name, self.cause, call.method), process)

    def _refuse(self, call: Call, method: str | None = None) -> None:
        """The actor is being started again, and the call is not for the next process; `method` was in flight."""
        call.fail(unavailable_error(self.actor_id, self.class_name, self.cause, method), "" if method is None else self.process)

    def _restarting(self, lost: Sequence[Call], late: bool, again: bool) -> None:
        """The actor is being started again: resend in order what may be retried, fail the rest.

        `late`: calls have been queued since its process died and until now, when that is heard. `again`: the process that was to follow has
        died before it was there. That was an attempt of those calls that are retried in it: an actor may be restarted without end.
        """
        if late:
            refused = [call for call in self.queue if _goes_once(call)]
            self.queue = deque(call for call in self.queue if not _goes_once(call))
            for call in refused:
                self._refuse(call)
        for call in [call for call in self.queue if call.was_sent] if again else ():
            if call.retries:
                call.use_retry()
            else:
                self.queue.remove(call)
                self._refuse(call)
        retried = []
        for call in lost:
            if call.retries == CANCELLED:
                call.cancel()
            elif call.retries:
                call.use_retry()
                call.was_sent = True
                retried.append(call)
            else:
                self._refuse(call, call.method)
        self.queue.extendleft(reversed(retried))

    def replied(self, call: Call) -> None:
        """A reply has come (nothing to do: an actor's calls go out at once)."""

    def attempt_failed(self, call: Call) -> None:
        """The method raised an error that the caller asked to be retried."""
        if call.retries == CANCELLED:
            call.cancel()
            return
        call.use_retry()
        connection = self.connection
        if connection is not None and not connection.closed:
            self._push(connection, call)
            connection.flush()
        else:
            self.queue.appendleft(call)

    def cancel(self, call: Call) -> bool:
        """Take a call that has not been sent out of the queue."""
        try:
            self.queue.remove(call)
        except ValueError:
            return False
        self.pump()  # it may have been what the others waited behind
        return True

    def connection_of(self, _call: Call) -> Connection | None:
        """Where a call that has been sent is."""
        return self.connection


def _goes_once(call: Call) -> bool:
    """Whether nothing but the actor's process is missing to send the call, and it may not be sent to another one than it met."""
    return call.waiting == 0 and call.retries == 0


def failed_reply(task_id: bytes, num_returns: int, payload: bytes) -> tuple[Any, ...]:
    """The message that answers a call with an error, pickled, for each of its return values."""
    if num_returns == 1:
        return REPLY, task_id, FAILED, payload, None
    return REPLIES, task_id, [(FAILED, payload, None)] * num_returns


def freeze_value(client: Client, value: Any, owner: str) -> tuple[int, Any, list[Any] | None]:
    """``form, payload, live refs`` of a value: inline when small, else in a segment that belongs to `owner`."""
    packed = serialize(value)
    if packed.size <= INLINE_BYTES:
        return packed.form, packed.to_bytes(), packed.refs
    return SEGMENT, client.store_value(packed, owner), packed.refs
