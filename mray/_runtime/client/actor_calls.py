"""Calls of this process to actors: a queue for each actor, which follows it from process to process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common.bridge import Cancel
from mray._common.causes import Cause
from mray._common.concurrency import runs_out_of_order
from mray._common.invocations import short_name
from mray._common.messages import CALL, DEAD, RESTARTING
from mray._decide.caller import caller_instructions as do
from mray._decide.caller.actor_queue import UNKNOWN, ActorQueue
from mray._ipc.connection import Connection
from mray._runtime.client.calls import WAITS_FOR_ARGUMENTS, WAITS_FOR_WORKER, Call
from mray._runtime.connections.deaths import actor_error, unavailable_error
from mray._runtime.connections.part import Part, Row, Unanswered

if TYPE_CHECKING:
    from mray._runtime.connections.endpoint import Endpoint
    from mray._runtime.objects.borrowing import Borrowing

#: Wait for the node's report about an actor's exited process.
_REPORT_SECONDS = 10.0


class ActorCaller:
    """Carries out what an `ActorQueue` decides. All methods need the client's lock."""

    def __init__(self, callers: ActorCallers, actor_id: bytes) -> None:
        self._callers = callers
        self.client = callers.client
        self.actor_id = actor_id
        self.actor: ActorQueue[Call] = ActorQueue(actor_id)
        self.actor.rest = self.client.info["retry_delay"]
        self.max_task_retries = 0
        #: `native` must check a call before it is submitted.
        self.needs_check = False
        self.class_name = ""
        #: In the process that created the actor: the constructor's arguments, for restarts.
        self.pins: Any = None
        #: The actor ends with this process.
        self.owned = False
        #: Called after each change of state.
        self.watchers: list[Callable[[], None]] = []

    def _follow(self, instructions: do.Instructions) -> None:
        for instruction in instructions:
            _WAYS[type(instruction)](self, instruction)
        if instructions and self.actor.link is not None:
            self.actor.link.flush()

    # ------------------------------------------------------------------------------------ events
    def learn(self, options: Mapping[str, Any], is_async: bool) -> None:
        self.max_task_retries = options.get("max_task_retries") or 0
        self.actor.most_pending = max(options.get("max_pending_calls") or 0, 0)
        self.actor.unordered = runs_out_of_order(is_async, options)
        self.needs_check = bool(self.max_task_retries or self.actor.most_pending)

    def submit(self, call: Call) -> None:
        call.source = self
        actor = self.actor
        link = actor.link
        # As `ActorQueue.sends_directly`.
        if link is not None and not call.waiting and not link.closed and (not actor.queue or actor.unordered):
            self.push(call)
        else:
            self._follow(actor.submitted(call))

    def subscribe(self) -> None:
        self._follow(self.actor.watched())

    def ready(self, call: Call) -> None:
        self._follow(self.actor.arguments_came(call))

    def on_state(self, state: str, process: str, incarnation: int, cause: Cause | None) -> None:
        # POINT actor state received
        if self.actor.link is not None and (state in (RESTARTING, DEAD) or incarnation != self.actor.incarnation):
            self.actor.link.read_rest()
        self._follow(self.actor.reported(state, process, incarnation, cause))

    def attempt_failed(self, call: Call) -> None:
        self._follow(self.actor.attempt_failed(call))

    def cancel(self, call: Call) -> bool:
        """Take an unsent call out of the queue; False if it was sent."""
        instructions = self.actor.cancelled(call)
        self._follow(instructions or [])
        return instructions is not None

    def rests(self, call: Call) -> bool:
        return self.actor.rests(call)

    def _rested(self, calls: Sequence[Call]) -> None:
        with self.client.lock:
            self._follow(self.actor.rested(calls))

    def broke(self, error: Exception) -> None:
        self._follow(self.actor.broke(error))

    # ------------------------------------------------------------------------------------ instructions
    def ask_node(self) -> None:
        if self.client.fatal is not None:
            self._follow(self.actor.reported(DEAD, "", -1, Cause(m.CAUSE_NODE, str(self.client.fatal))))
        else:
            self.client.node.send((m.ACTOR_SUBSCRIBE, self.actor_id))

    def push(self, call: Call) -> None:
        connection: Connection = self.actor.link
        connection.calls[call.task_id] = call
        # POINT call noted
        values = None if call.arguments is None else call.argument_values(self._callers.borrowing.export)
        message = (CALL, call.task_id, call.method, call.num_returns, call.form, call.payload, call.refs, values, call.options)
        if call.options is None:
            self.client.send_call(connection, message)
        else:
            call.send(self.client, connection, message)

    def connect(self, connect: do.Connect) -> None:
        try:
            connection = self.client.try_peer(connect.process)
        except OSError as error:  # no descriptor is left
            self._follow(self.actor.unreachable(error))
        else:
            self._follow(self.actor.connected(connection))

    def fail_dead(self, fail: do.FailDead) -> None:
        call, process = fail
        call.fail(actor_error(self.actor_id, self.class_name, self.actor.cause, None if process is None else call.method), process or "")

    def fail_unavailable(self, fail: do.FailUnavailable) -> None:
        call, process = fail
        call.fail(unavailable_error(self.actor_id, self.class_name, self.actor.cause, call.method if process else None), process)

    def await_rest(self, wait: do.AwaitRest) -> None:
        self.client.reactor.call_later(wait.seconds, lambda: self._rested(wait.calls))

    def announce(self, _announce: do.Announce) -> None:
        if self.actor.state == DEAD:
            cause = self.actor.cause
            if cause is not None and cause.kind == m.CAUSE_REFUSED and self.pins is not None:  # only its creator's process reports it
                self._callers.tell_refusal(cause.text)
            self.pins = None
        for watcher in tuple(self.watchers):
            watcher()
        if self.actor.state == DEAD and not self._callers.borrowing.holds(self.actor_id):
            self._callers.forget(self.actor_id)

    # ------------------------------------------------------------------------------------ questions
    def error(self, doing: str = "") -> BaseException:
        """The error of calls to a dead actor; `doing` is a sentence for its text."""
        return actor_error(self.actor_id, self.class_name, self.actor.cause, doing=doing)

    def connection_of(self, _call: Call) -> Connection | None:
        link: Connection | None = self.actor.link
        return link

    def ahead(self, call: Call) -> list[Call]:
        """Unsent calls that are sent before this one."""
        queue = self.actor.queue
        return list(takewhile(lambda each: each is not call, queue)) if call in queue and not self.actor.unordered else []

    def request_for(self, _call: Call) -> int:
        return 0

    def origin(self, call: Call) -> Row:
        return {
            "task": f"{short_name(self.class_name)}.{call.method}",
            "actor_id": self.actor_id,
            "process": self.actor.process,
            "object_id": b"",
        }

    def calls(self) -> Iterator[Unanswered]:
        process = self.actor.process
        for call in self.actor.queue:
            yield call, WAITS_FOR_ARGUMENTS if call.waiting else WAITS_FOR_WORKER, process
        for call in self.actor.aside:
            yield call, WAITS_FOR_WORKER, process

    def count_calls(self) -> int:
        return len(self.actor.queue) + len(self.actor.aside)


class ActorState:
    """An actor's arrival in one of some states, DEAD among them. Any thread."""

    __slots__ = ("_caller", "_doing", "_states")

    def __init__(self, caller: ActorCaller, *states: str, doing: str = "") -> None:
        self._caller = caller
        self._states = states
        self._doing = doing

    def ready(self) -> bool:
        return self._caller.actor.state in self._states

    def then(self, callback: Callable[[Any], object]) -> Cancel:
        """As `Waitable.then`, in the reading thread and without the lock, with the error of a dead actor."""
        caller = self._caller

        def changed() -> None:
            if self.ready():
                cancel()
                caller.client.reactor.defer(partial(callback, caller.error(self._doing)))

        def cancel() -> None:
            with contextlib.suppress(ValueError):  # it has been called, or another thread has cancelled it
                caller.watchers.remove(changed)

        with caller.client.lock:
            caller.subscribe()  # first: if the node is lost, this sets the state
            caller.watchers.append(changed)
            changed()
        return cancel


_WAYS: dict[type[Any], Callable[[ActorCaller, Any], None]] = {
    do.Send: lambda caller, send: caller.push(send.call),
    do.Cancel: lambda _caller, cancel: cancel.call.cancel(),
    do.Fail: lambda _caller, fail: fail.call.fail(fail.error),
    do.FailDead: ActorCaller.fail_dead,
    do.FailUnavailable: ActorCaller.fail_unavailable,
    do.Subscribe: lambda caller, _: caller.ask_node(),
    do.Connect: ActorCaller.connect,
    do.AwaitRest: ActorCaller.await_rest,
    do.Announce: ActorCaller.announce,
}


class ActorCallers(Part, dict[bytes, ActorCaller]):
    """Callers by actor id. All methods need the client's lock."""

    def __init__(self, client: Endpoint, borrowing: Borrowing, tell_refusal: Callable[[str], None]) -> None:
        """`tell_refusal` is called with the node's text when an actor that this process creates can never be scheduled."""
        super().__init__()
        self.client = client
        self.borrowing = borrowing
        self.tell_refusal = tell_refusal
        client.from_node.on({m.ACTOR_STATE: self._on_state})

    def of(self, actor_id: bytes) -> ActorCaller:
        caller = self.get(actor_id)
        if caller is None:
            caller = self[actor_id] = ActorCaller(self, actor_id)
        return caller

    def forget(self, actor_id: bytes) -> None:
        """The actor is dead or unknown, and the caller holds no handle of it."""
        caller = self.get(actor_id)
        if caller is not None and caller.actor.state in (DEAD, UNKNOWN) and not caller.actor.queue and not caller.watchers:
            del self[actor_id]

    def calls(self) -> Iterator[Unanswered]:
        for caller in self.values():
            yield from caller.calls()

    def count_calls(self) -> int:
        return sum(caller.count_calls() for caller in self.values())

    def is_idle(self) -> bool:
        actors = [caller.actor for caller in tuple(self.values())]
        return not any((actor.link is not None and actor.link.calls) or actor.queue or actor.aside for actor in actors)

    def own_live(self) -> bool:
        return any(caller.owned and caller.actor.state not in (DEAD, UNKNOWN) for caller in tuple(self.values()))

    def end_of_process(self, actor_id: bytes, class_name: str, process: str) -> BaseException | None:
        """The error of an actor's exited process; None if the actor continues in another one. Takes the lock."""
        client = self.client
        with client.lock:
            caller = self.of(actor_id)
            caller.class_name = caller.class_name or class_name
            caller.subscribe()
            actor = caller.actor
        client.reactor.wait_until(lambda: actor.state in (RESTARTING, DEAD) or actor.process not in ("", process), _REPORT_SECONDS)
        return caller.error() if actor.state == DEAD else None

    def _on_state(self, _node: Connection, actor_id: bytes, state: str, process: str, incarnation: int, cause: Any) -> None:
        caller = self.get(actor_id)
        if caller is not None:
            caller.on_state(state, process, incarnation, None if cause is None else Cause(*cause))

    def connection_ended(self, connection: Connection, error: Exception | None, unread: bool) -> None:
        if error is not None and (unread or self.client.fatal is None):
            for caller in list(self.values()):
                if caller.actor.link is connection:
                    caller.broke(error)

    def all_lost(self, error: BaseException) -> None:
        cause = Cause(m.CAUSE_NODE, str(error))
        for caller in list(self.values()):
            caller.on_state(DEAD, "", caller.actor.incarnation, cause)
