"""Calls of this process to actors: a queue for each actor, which follows it from process to process.

In the caller's process. A process that has sent ACTOR_SUBSCRIBE gets the place of an actor, and each change, from the node (ACTOR_STATE).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common.causes import Cause
from mray._common.concurrency import runs_out_of_order
from mray._common.messages import CALL, CAUSE_REFUSED
from mray._ipc.connection import Connection
from mray._runtime.client.calls import CANCELLED, Call
from mray._runtime.connections.deaths import actor_error, unavailable_error

if TYPE_CHECKING:
    from mray._runtime.objects.borrowing import Borrowing
    from mray._runtime.objects.owner import Owner


class ActorCaller:
    """The calls of this process to one actor, in order.

    States: "unknown" (the node has not been asked), "asked" (it has not answered yet), then as it reports them "pending", "alive",
    "restarting", "dead". All methods need the client's lock.

    Invariant: a call is in `queue`, or in ``connection.calls``, or answered. While the actor is being restarted, which may take for ever,
    the queue has no call that is ready and may not be sent to the next process: only calls that wait for their arguments, that may be
    retried, or that were made before the actor's first process was there.
    """

    def __init__(self, callers: ActorCallers, actor_id: bytes) -> None:
        self._callers = callers
        self.client = callers.client
        self.actor_id = actor_id
        self.state = "unknown"
        self.process = ""
        self.incarnation = -1
        self.cause: Cause | None = None
        self.connection: Connection | None = None
        self.queue: deque[Call] = deque()
        self.max_task_retries = 0
        #: Calls that may be unanswered at once; 0: as many as there are.
        self.most_pending = 0
        #: Whether a call may overtake one that waits for its arguments.
        self.unordered = False
        #: Whether `native` must check a call before it is submitted.
        self.needs_check = False
        self.class_name = ""
        #: The arguments of its constructor, in the process that created it: every restart needs them.
        self.pins: Any = None
        #: Called with each new state.
        self.watchers: list[Any] = []

    def learn(self, options: Mapping[str, Any], is_async: bool) -> None:
        """Set the fields that follow from the actor's options."""
        self.max_task_retries = options.get("max_task_retries") or 0
        self.most_pending = max(options.get("max_pending_calls") or 0, 0)
        self.unordered = runs_out_of_order(is_async, options)
        self.needs_check = bool(self.max_task_retries or self.most_pending)

    def is_full(self) -> bool:
        """Whether so many calls are unanswered that the actor takes no more."""
        sent = 0 if self.connection is None else len(self.connection.calls)
        return 0 < self.most_pending <= sent + len(self.queue)

    def submit(self, call: Call) -> None:
        """Send the call, or queue it behind calls that must go first."""
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
            # None: it has died since; the node will report that.
            self.connection = self.client.try_peer(self.process)
        except OSError as error:  # no descriptor is left; the next call tries again
            self.connection = None
            queue, self.queue = self.queue, deque()
            for call in queue:
                call.fail(error)
        self.pump()

    def subscribe(self) -> None:
        """Have the node send this process the actor's place, and each change."""
        if self.state == "unknown":
            self.state = "asked"
            self._callers.subscribe(self)

    def _push(self, connection: Connection, call: Call) -> None:
        calls = connection.calls
        calls[call.task_id] = call
        # POINT call noted
        values = call.argument_values(self._callers.borrowing.export)
        message = (CALL, call.task_id, call.method, call.num_returns, call.form, call.payload, call.refs, values, call.options)
        if call.post(connection, message):
            self.client.posted(connection)

    def pump(self) -> None:
        """Send calls in order, up to the first whose arguments are not there (or past it, if that is allowed)."""
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
        """Send a queued call, now that its arguments are there."""
        connection = self.connection
        if self.state == "restarting" and _goes_once(call):
            self.queue.remove(call)
            self._refuse(call)
        elif self.unordered and connection is not None and not connection.closed:
            self.queue.remove(call)
            self._push(connection, call)
        else:
            self.pump()

    def on_state(self, state: str, process: str, incarnation: int, cause: Cause | None) -> None:
        """Take the state of the actor that the node reports."""
        # POINT actor state heard
        old = self.connection
        if state in ("restarting", "dead") and self.state != "dead":
            before, self.state, self.cause = self.state, state, cause
            lost: list[Call] = []
            if old is not None:
                old.read_rest()
                lost = list(old.calls.values())
                old.calls.clear()
                # The connection ends with the process, which may stay while other processes hold objects that it owns.
                self.connection = None
            if state == "dead":
                if cause is not None and cause.kind == CAUSE_REFUSED and self.pins is not None:  # only its creator's process tells the user
                    self._callers.tell_refusal(cause.text)
                self.pins = None
                self._fail_all(lost, self.process)
                self._fail_all(self.queue)
                self.queue.clear()
            else:
                # Calls that were made before its first process was there wait for any process.
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
        if self.state == "dead" and not self._callers.borrowing.holds(self.actor_id):
            self._callers.forget(self.actor_id)

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
        """Fail a call that is not for the actor's next process; `method` was in flight."""
        call.fail(unavailable_error(self.actor_id, self.class_name, self.cause, method), "" if method is None else self.process)

    def _restarting(self, lost: Sequence[Call], late: bool, again: bool) -> None:
        """Queue in order the calls that may be retried, and fail the others: the actor is being started again.

        `late`: calls have been queued between its process's death and now, when this process learns of it. `again`: the process that was to
        follow has died before it was there. That was an attempt of the calls that are retried in it: an actor may be restarted without end.
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
        """Do nothing after a reply: an actor's calls go out at once."""

    def attempt_failed(self, call: Call) -> None:
        """Send a call again: the method raised an error that the caller asked to be retried."""
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
        self.pump()  # the others may have waited behind it
        return True

    def refused(self, error: Exception) -> None:
        """Fail the queue: the connection has ended although the actor lives, and the calls over it have failed.

        Calls that wait for their arguments were to follow those. The next call connects again.
        """
        self.connection = None
        queue = list(self.queue)
        self.queue.clear()
        for call in queue:
            call.fail(error)

    def connection_of(self, _call: Call) -> Connection | None:
        """The connection over which a call was sent."""
        return self.connection


def _goes_once(call: Call) -> bool:
    """Whether the call only waits for the actor's process, and may be sent to the one that it was made for only."""
    return call.waiting == 0 and call.retries == 0


class ActorCallers(dict[bytes, ActorCaller]):
    """The queues of all actors that this process knows, by the actor's id. All methods need the client's lock."""

    def __init__(self, client: Owner, borrowing: Borrowing, tell_refusal: Callable[[str], None]) -> None:
        """`tell_refusal` is called with the node's text when an actor that this process creates can never be scheduled."""
        super().__init__()
        self.client = client
        self.borrowing = borrowing
        self.tell_refusal = tell_refusal

    def of(self, actor_id: bytes) -> ActorCaller:
        """The queue of calls to an actor."""
        caller = self.get(actor_id)
        if caller is None:
            caller = self[actor_id] = ActorCaller(self, actor_id)
        return caller

    def forget(self, actor_id: bytes) -> None:
        """Drop the queue of an actor that is dead or was never subscribed to: this process holds no handle any more."""
        caller = self.get(actor_id)
        if caller is not None and caller.state in ("dead", "unknown") and not caller.queue and not caller.watchers:
            del self[actor_id]

    def subscribe(self, caller: ActorCaller) -> None:
        """Ask the node for each change of an actor's state."""
        if self.client.fatal is not None:
            caller.on_state("dead", "", -1, Cause(m.CAUSE_NODE, str(self.client.fatal)))
            return
        self.client.node.send((m.ACTOR_SUBSCRIBE, caller.actor_id))

    def on_state(self, _node: Connection, actor_id: bytes, state: str, process: str, incarnation: int, cause: Any) -> None:
        """ACTOR_STATE."""
        caller = self.get(actor_id)
        if caller is not None:
            caller.on_state(state, process, incarnation, None if cause is None else Cause(*cause))

    def hung_up(self, connection: Connection, error: Exception) -> None:
        """Fail the queues of actors at the other end of a connection that broke, although the process lives."""
        for caller in list(self.values()):
            if caller.connection is connection:
                caller.refused(error)

    def fail_all(self, error: BaseException) -> None:
        """Fail all queues: the node is lost."""
        cause = Cause(m.CAUSE_NODE, str(error))
        for caller in list(self.values()):
            caller.on_state("dead", "", caller.incarnation, cause)
