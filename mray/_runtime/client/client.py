"""The client: what every process that can call has, a driver or a worker.

    user's threads --> Client --+-- node (leases, actors, names: `NodeLink`)
                                +-- peers (calls, replies, borrows: one connection each way at most)
                                +-- own entries and store

One lock guards the client's tables; it is held while a message is dispatched and while a call is submitted, and never while user code runs,
a value is pickled, or a thread waits. Finalizers take no lock: they hand their work to the reactor.

When the node is lost everything that waits fails at once with the cause, and so does every later call.
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from time import monotonic
from typing import Any

from mray._api.object_ref import ObjectRef
from mray._common import messages as m
from mray._common.ids import FIRST, new_object_id, return_id
from mray._common.protocol import FROM_NODE, OBSERVING, PEERS, misfit
from mray._ipc.connection import Connection, Message, ProtocolViolationError, connect
from mray._ipc.introductions import NODE_SOCKET, Introductions
from mray._ipc.reactor import Reactor
from mray._objects.ownership import MOST_SURVEYED, Countdown, Entry, Survey, split_ready, why_unknown
from mray._objects.remote_error import serialization_error, unpickle_error
from mray._objects.serializer import Serialized, deserialize, serialize
from mray._objects.store import SegmentStore, is_spilled
from mray._runtime.client import failed_calls
from mray._runtime.client.announcements import Announcements
from mray._runtime.client.calls import BATCH_BYTES, BURST_GAP, BURST_SECONDS, INLINE_BYTES, ActorCaller, Call, freeze_value
from mray._runtime.client.cancelling import Cancelling
from mray._runtime.client.descriptors import Descriptors
from mray._runtime.client.dispatch import Dispatch
from mray._runtime.client.faults import end_by_node_word, end_driver, end_request, fault_error, lost_call
from mray._runtime.client.hangups import node_hung_up, peer_hung_up, worker_gone
from mray._runtime.client.joining import await_welcome
from mray._runtime.client.leases import LeasePools
from mray._runtime.client.protocol_errors import ends_of_conversations
from mray._runtime.client.requests import Answer, Requests
from mray._runtime.client.unheard_errors import UnheardErrors, hear
from mray._runtime.client.unschedulable import Unschedulable
from mray._runtime.client.wakeups import Bells
from mray._runtime.objects.borrowing import Borrowing
from mray._runtime.objects.reconstruction import read_value, revive, revive_all
from mray._runtime.objects.storing import OwnSegments, store_value
from mray._runtime.objects.tensor_transport import TensorStore
from mray._runtime.observe.process_snapshot import listener
from mray.exceptions import GetTimeoutError, ObjectLostError, RaySystemError

Payload = tuple[int, Any, Any]

#: How long a task waits for values that may be there before it gives its CPUs back, in seconds: an owner that is not stuck, in C code
#: say, has answered by then, with the value or that it is not there; also one that computes (it reads every few milliseconds).
GRACE_SECONDS = 0.05


class Client:
    """The runtime of one process."""

    #: In one process, of another kind.
    leases_class: type[LeasePools] = LeasePools

    def __init__(self, session_dir: str, process: str, role: str, reactor: Reactor | None = None) -> None:
        self.session_dir = session_dir
        self.process = process
        self.role = role
        self.lock = threading.RLock()
        self.reactor = reactor or Reactor()
        guard = self.reactor.guard
        guard.lock, guard.again, guard.later = self.lock, self.reactor.defer, self.reactor.call_later
        guard.looks = role == m.ROLE_DRIVER
        self.reactor.closed_descriptors.tell = self.fail_everything
        self.facts: dict[str, Any] = {}
        #: The job that a driver brings to a session which is not its own (see `mray._runtime.node.jobs`).
        self.wishes: dict[str, Any] | None = None
        self.node: Connection
        #: Why nothing works any more, once the node is lost or the session is over.
        self.fatal: BaseException | None = None
        self.peers: dict[str, Connection] = {}
        self.actors: dict[bytes, ActorCaller] = {}
        self.leases = self.leases_class(self)
        self.borrowing = Borrowing(self)
        self.tensors = TensorStore(self)
        self.descriptors = Descriptors(self)
        self.bells = Bells(self)
        self.cancelling = Cancelling(self)
        self.announcements = Announcements()
        self.unschedulable = Unschedulable(self.announcements)
        self.unheard = UnheardErrors(self.reactor.defer, self.announcements)
        self.store: SegmentStore
        self.segments = OwnSegments(self)
        #: Objects of this process whose refs have been pickled: others may ask for them.
        self.exported: weakref.WeakValueDictionary[bytes, Entry] = weakref.WeakValueDictionary()
        #: The class of this session's entries: by it a ref that outlived its session is known.
        self.entry: type[Entry] = type("Entry", (Entry,), {})
        #: There was a session before in this process: whoever waits looks for its refs.
        self._follows = next(_made) > 0
        self.requests = Requests()
        #: When the last call was posted, and since when the burst that it belongs to has been held back.
        self._posted = 0.0
        self._burst = 0.0
        #: What is done with each message, of the node and of peers.
        self.from_node = Dispatch(
            FROM_NODE,
            {
                m.ANSWER: self._on_answer,
                m.ACTOR_STATE: self._on_actor_state,
                m.LEASE_GRANT: self.leases.on_grant,
                m.LEASE_REFUSED: self.leases.on_refused,
                m.LEASE_LOST: self.leases.on_lost,
                m.LEASE_RECALL: self.leases.on_recall,
                m.HELD: lambda _node, number: self.borrowing.acknowledged(number),
                m.TRIM_NOW: self._on_trim,
                m.WORKER_GONE: partial(worker_gone, self),
                **ends_of_conversations(self),
            },
        )
        self.from_peers = Dispatch(
            PEERS | OBSERVING,
            {
                **ends_of_conversations(self),
                m.HELLO: self._on_hello,
                m.DESCRIPTOR: self.descriptors.on_descriptor,
                m.REPLY: self._on_reply,
                m.REPLIES: self._on_replies,
                m.ATTEMPT: self._on_attempt,
                m.GIVEN_BACK: self.leases.on_given_back,
                m.CANCEL_OBJECT: self.cancelling.on_cancel_object,
                m.GRAPHED: self._on_graphed,
                m.ASK: listener(self),
                **self.borrowing.words,
                **self.tensors.words,
            },
        )
        #: What observers may ask this process for, besides what `mray._runtime.observe.process_snapshot` knows by itself.
        self.sections: dict[str, Callable[[], Any]] = {}
        #: Called in the reading thread with the id of a peer whose process is gone, or that has no descriptor left for this one. An error
        #: says why the conversation with it has ended although it lives.
        self.on_peer_gone: Callable[[str, Exception | None], None] = lambda _process, _error: None
        self.on_peer_refused: Callable[[str, Exception], None] = lambda _process, _error: None
        #: Called when the node has hung up (a worker ends itself; the driver cleans the session).
        self.on_node_lost: Callable[[], BaseException | None] = lambda: None
        #: Called when the conversation with a peer has ended, although it lives: the connection says why.
        self.on_broken: Callable[[Connection], None] = lambda _connection: None
        #: Ends what this process cannot go on with: a worker ends itself, a driver what it asks of the session.
        self.end_with: Callable[[RaySystemError], None] = partial(end_driver, self)
        self.reactor.on_fault = lambda what, error: self.end_with(fault_error(what, error))
        #: Called around a wait of user code that is really going to wait; and whether that gives anything back.
        self.on_block: Callable[[], Callable[[], None] | None] = lambda: None
        self.lends: Callable[[], bool] = lambda: False
        #: By event loop: what its coroutines wait for (`mray._runtime.client.awaiting`); and whether some thread always reads.
        self.awaited: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.reads_always = False
        #: How others are reached, and how they come here; once this process has joined.
        self.introductions: Introductions
        self._on_peer_hangup, self._on_node_hangup = partial(peer_hung_up, self), partial(node_hung_up, self)
        _clients.add(self)

    # ------------------------------------------------------------------------------------ joining a session
    def join(self, sock: socket.socket | None = None) -> None:
        """Say hello to the node, over this connection or as a newcomer by name, and wait for the facts of the session and the channels."""
        sock = sock or connect(os.path.join(self.session_dir, NODE_SOCKET))
        self.node = self.reactor.register(sock, self._on_node_message, self._on_node_hangup)
        await_welcome(self, sock)

    def admit(self, asking: socket.socket, door: socket.socket) -> None:
        """The channels to the node for introductions are there."""
        self.introductions = Introductions(asking, door, self.reactor.guard, self.reactor.closed_descriptors.found)
        self.reactor.serve(door, f"Process {self.process}", self._on_peer_message, self._on_peer_hangup)

    def connect(self, process: str, timeout: float | None = None) -> socket.socket:
        """A connection of one's own to a process (`NODE`: to the node). Errors as `Introductions.to`. Any thread."""
        return self.introductions.to(process, timeout)[0]

    def _connect_peer(self, process: str) -> Connection:
        sock, pid = self.introductions.to(process)
        connection = self.reactor.register(sock, self._on_peer_message, self._on_peer_hangup)
        connection.pid = pid
        return connection

    def peer(self, process: str) -> Connection:
        """The connection to a process; ConnectionError when it has gone, another OSError as `connect`. Client's lock held."""
        connection = self.peers.get(process)
        if connection is None or connection.closed:
            connection = self._connect_peer(process)
            connection.process = process
            self.peers[process] = connection
            self.borrowing.peer_again(connection)
            connection.send((m.HELLO, self.role, self.process, os.getpid()))
        return connection

    def try_peer(self, process: str) -> Connection | None:
        """As `peer`, None when it, or the node, has gone: word of that is on the way. OSError when it cannot be reached."""
        try:
            return self.peer(process)
        except ConnectionError:
            return None

    # ------------------------------------------------------------------------------------ dispatch
    def _on_node_message(self, connection: Connection, message: Message) -> None:
        handle = self.from_node.get(message[0])
        with self.lock:
            if handle is not None:
                try:
                    # POINT node heard: message[0]
                    handle(connection, *message[1:])
                except Exception as error:
                    end_by_node_word(self, message, error)

    def _on_peer_message(self, connection: Connection, message: Message) -> None:
        with self.lock:
            try:
                # POINT peer heard: message[0]
                self.from_peers[message[0]](connection, *message[1:])
            except Exception as error:
                if not end_request(self, connection, message, error):
                    raise

    def _on_hello(self, connection: Connection, role: str, process: str, pid: int, _wishes: Any = None) -> None:
        if wrong := misfit((m.HELLO, role, process, pid)):  # before it is known by that name
            raise ProtocolViolationError(wrong)
        connection.role, connection.process, connection.pid = role, process, pid
        known = self.peers.get(process)
        if known is None or known.closed:
            self.peers[process] = connection
        self.borrowing.peer_again(connection)

    def _on_answer(self, _node: Connection, request: int, ok: bool, value: Any) -> None:
        self.requests.settle(request, value, None if ok else RaySystemError(str(value)))

    def _on_graphed(self, _peer: Connection, number: int, ok: bool, payload: bytes) -> None:
        self.requests.settle(number, payload if ok else None, None if ok else unpickle_error(payload))

    def _on_trim(self, _node: Connection) -> None:
        self.store.trim()

    def _on_actor_state(self, _node: Connection, actor_id: bytes, state: str, process: str, incarnation: int, cause: Any) -> None:
        caller = self.actors.get(actor_id)
        if caller is not None:
            caller.on_state(state, process, incarnation, cause)

    # ------------------------------------------------------------------------------------ replies
    def _on_reply(self, connection: Connection, task_id: bytes, form: int, payload: Any, refs: Any) -> None:
        call = connection.calls.pop(task_id, None)
        if call is None:
            # Nobody waits for it any more.
            self.tensors.own(self.entry(), task_id + FIRST, form, payload, None)
            return
        try:
            entry = call.entry
            assert entry is not None
            if form >= m.FAILED:
                if form == m.TENSORS:
                    self.tensors.own(entry, task_id + FIRST, form, payload, call.handle)
                else:
                    failed_calls.answered(call, payload, connection.process)
                    self.unheard.come(entry, payload)
            # POINT reply come
            self.complete(connection, task_id, entry, form, payload, refs)
            call.source.replied(call)
        except Exception as error:
            raise lost_call(call, "REPLY", error) from None
        call.release()

    def _on_replies(self, connection: Connection, task_id: bytes, values: list[Payload]) -> None:
        call = connection.calls.pop(task_id, None)
        if call is None:
            for index, (form, payload, _refs) in enumerate(values):
                self.tensors.own(self.entry(), return_id(task_id, index + 1), form, payload, None)
            return
        failed = False
        try:
            for index, (entry, (form, payload, refs)) in enumerate(zip(call.entries, values, strict=True)):
                if form == m.TENSORS:
                    self.tensors.own(entry, return_id(task_id, index + 1), form, payload, call.handle)
                elif form == m.FAILED:
                    if not failed:
                        failed = True
                        failed_calls.answered(call, payload, connection.process)
                    self.unheard.come(entry, payload)
                self.complete(connection, return_id(task_id, index), entry, form, payload, refs)
            call.source.replied(call)
        except Exception as error:
            raise lost_call(call, "REPLIES", error) from None
        call.release()

    def complete(self, connection: Connection, pin: bytes, entry: Entry, form: int, payload: Any, refs: Any) -> None:
        """The value of an entry has come from its producer; `pin` is how that names the refs inside. Client's lock held."""
        if form == m.SEGMENT:
            entry.guard = self.segments.guard(payload)
            connection.facts.get("freed", set()).discard(payload[0])
        entry.complete(form, payload, self.borrowing.adopt_reply(connection, pin, refs) if refs else None)

    def _on_attempt(self, connection: Connection, task_id: bytes) -> None:
        call = connection.calls.pop(task_id, None)
        if call is not None:
            try:
                call.source.attempt_failed(call)
            except Exception as error:
                raise lost_call(call, "ATTEMPT", error) from None

    # ------------------------------------------------------------------------------------ the node
    def ask(self, code: int, *fields: Any, timeout: float | None = None) -> Any:
        """Send a request to the node and wait for its answer; raises what it says or, when it dies, why."""
        answer = self.request(self.node, code, *fields)
        return self.await_answer(answer, timeout)

    def request(self, connection: Connection, code: int, *fields: Any) -> Answer:
        """Send a numbered request; the answer is set when it comes, or when the peer has gone."""
        with self.lock:
            self._check()
            return self.requests.send(connection, code, *fields)

    def settle(self, number: int, value: Any) -> bool:
        """The answer to a request has come. False: nobody waits for it. Client's lock held."""
        return self.requests.settle(number, value, None)

    def give_up(self, answer: Answer) -> None:
        """Nobody waits for this answer any more. Client's lock held."""
        self.requests.forget(answer)

    def await_answer(self, answer: Answer, timeout: float | None = None) -> Any:
        if not self.reactor.wait_until(answer.is_ready, timeout):
            raise GetTimeoutError("the answer did not come in time")
        if answer.error is not None:
            raise answer.error
        return answer.value

    def _check(self) -> None:
        if self.fatal is not None:
            raise self.fatal

    def fail_everything(self, error: BaseException) -> None:
        """Nothing will be answered any more: everyone who waits gets the error."""
        with self.lock:
            if self.fatal is not None:
                return
            self.fatal = error
            self.requests.fail_all(error)
            cause = (m.CAUSE_NODE, str(error), 0, None, None)
            for caller in list(self.actors.values()):
                caller.on_state("dead", "", caller.incarnation, cause)
            self.leases.fail_all(error)
            self.borrowing.fail_all(error)

    def posted(self, connection: Connection) -> None:
        """A call has been posted: send it now, or let more come together if this is a burst or the peer is busy anyway.

        What is held back leaves with the next wait, with a later call, or with the background reader's tick.
        """
        reactor = self.reactor
        reactor.activity += 1
        now = monotonic()
        alone = now - self._posted > BURST_GAP
        self._posted = now
        if reactor.asleep or connection.unsent > BATCH_BYTES or (alone and len(connection.calls) < 2):
            connection.flush()
            return
        reactor.post_later(connection)
        if alone:
            self._burst = now
        elif now - self._burst > BURST_SECONDS:
            # Many peers, a call or two for each: waking each of them for one call would cost more than the calls.
            self._burst = now
            reactor.flush()

    # ------------------------------------------------------------------------------------ objects
    def put(self, value: Any) -> ObjectRef:
        """Store a value; this process owns it."""
        self._check()
        try:
            form, payload, refs = freeze_value(self, value, self.process)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise serialization_error(error, value, "the put value {}") from error
        entry = self.entry()
        entry.refs = refs
        entry.payload = payload
        entry.form = form
        if form == m.SEGMENT:
            entry.guard = self.segments.guard(payload)
        return ObjectRef(new_object_id(), entry)

    def store_value(self, value: Serialized, owner: str) -> tuple[str, int, str]:
        """Write a value into a segment, in memory or on disk."""
        return store_value(self, value, owner)

    def store_arguments(self, call: Call, arguments: Any, what: str) -> None:
        """Arguments that are not plain: pickle them thoroughly, pin what is inside, use a segment when they are large."""
        try:
            packed = serialize(arguments)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise serialization_error(error, arguments, f"the argument {{}} for a task or actor {what}") from error
        refs = packed.refs
        if refs:
            call.refs = self.borrowing.names_of(refs)
            call.pins = [*(call.pins or ()), *refs]
        if packed.size <= INLINE_BYTES:
            call.form, call.payload = packed.form, packed.to_bytes()
            return
        # An object without a ref: the worker borrows it, since views of large arguments may outlive the call.
        entry = call.keep = self.entry()
        object_id = new_object_id()
        segment = self.store_value(packed, self.process)
        entry.guard = self.segments.guard(segment)
        entry.complete(m.SEGMENT, segment)
        self.exported[object_id] = entry
        call.form, call.payload = m.SEGMENT, (*segment, object_id)

    def await_arguments(self, call: Call, source: Any) -> bool:
        """Have ``source.ready(call)`` called once every argument is there; False when that is now. Client's lock held."""
        call.source = source
        waiting = 0

        def ready(_entry: Entry) -> None:
            call.waiting -= 1
            if not call.waiting:
                self.cancelling.waiting.discard(call)
                if call.arguments is not None:  # else it was cancelled
                    call.source.ready(call)

        for ref in call.arguments or ():
            entry = ref._entry
            if entry.form is None:
                self.borrowing.fetch(entry)
            waiting += entry.add_waiter(ready)
        call.waiting = waiting
        if waiting:
            self.cancelling.waiting.add(call)
        return waiting > 0

    def location_of(self, ref: ObjectRef) -> tuple[int | None, bool]:
        """(bytes of the value or None while it is pending, whether it lies on disk)."""
        entry = ref._entry
        if entry.form is None:
            return None, False
        if entry.form == m.SEGMENT:
            return abs(entry.payload[1]), is_spilled(entry.payload)
        return len(entry.payload), False

    def value_of(self, entry: Entry) -> Any:
        """The value of an entry that is ready; raises it when it is an error."""
        form = entry.form
        if form == m.PICKLED:
            return deserialize(form, entry.payload)
        if form == m.FAILED:
            hear(entry)
            raise unpickle_error(entry.payload)
        if form == m.SEGMENT or form is None:  # it is being made again for another thread
            return read_value(self, entry, entry.owner, entry.object_id)
        return deserialize(form, entry.payload)

    def get(self, refs: Sequence[ObjectRef], timeout: float | None, through_host: bool = False) -> list[Any]:
        """Values in order; the first error that is known is raised although others are pending. For `through_host` see `TensorStore`."""
        entries = [ref._entry for ref in refs]
        own = self.entry
        for ref, entry in zip(refs, entries, strict=True):
            if type(entry) is not own:
                raise ValueError(f"Ray objects whose owner is unknown: {ref}: {why_unknown(entry)}.")
        if timeout is not None:
            revive_all(self, entries)  # which counts as waiting
        for entry in entries:
            if entry.form is None:
                try:
                    self._await_all(entries, timeout)
                except KeyboardInterrupt:
                    self.cancelling.interrupted(entries)
                    raise
                break
        failed, tensors = m.FAILED, m.TENSORS
        elsewhere = False
        for entry in entries:
            if entry.form == failed:
                for other in entries:
                    hear(other)
                self.value_of(entry)
            elif entry.form == tensors:
                elsewhere = True
        value_of = self.value_of
        if elsewhere:
            return self.tensors.values(refs, value_of, timeout, through_host)
        try:
            return [value_of(entry) for entry in entries]
        except ObjectLostError:  # this time it says which
            for ref in refs:
                ref._entry.object_id = ref.binary()
            return [value_of(entry) for entry in entries]

    def _await_all(self, entries: Sequence[Entry], timeout: float | None) -> None:
        if len(entries) == 1:
            (entry,) = entries
            hope = None
            if entry.owner is not None and not entry.fetching:
                with self.lock:
                    hope = self._ask_for(entries)
            ready = self.wait_as_user(lambda: entry.form is not None, timeout, hope)
        else:
            countdown = Countdown(m.FAILED)
            with self.lock:
                hope = self._ask_for(entries)
                for entry in entries:
                    countdown.watch(entry)
            try:
                ready = self.wait_as_user(lambda: not countdown.left or countdown.failed is not None, timeout, hope)
            finally:
                with self.lock:
                    countdown.end(entries)
            if countdown.failed is not None:
                for entry in entries:
                    hear(entry)
                self.value_of(countdown.failed)
        if not ready:
            raise GetTimeoutError(f"Get timed out: some object(s) not ready after {timeout} s.")

    def _ask_for(self, entries: Sequence[Entry], spare: int = 0) -> int | None:
        """Have the values of borrowed objects sent. Client's lock held.

        Returns what `wait_as_user` is to know when all of these values, or all but so many, may be there: up to which count of absences.
        """
        asks = self.lends()
        for entry in dict.fromkeys(entries):  # who asks twice for the same waits once
            if entry.form is None:
                if entry.owner is None or entry.fetching:
                    spare -= 1  # it is being made, or was not there when it was asked for
                else:
                    self.borrowing.fetch(entry, asks)
        return self.borrowing.absences + spare if asks and spare >= 0 else None

    def wait_as_user(self, predicate: Callable[[], bool], timeout: float | None, hope: int | None = None) -> bool:
        """Wait on behalf of user code: a task gives its CPUs back meanwhile.

        Not in the moment in which values come that are there already: a worker more would be started for each. With `hope` it keeps them
        until the owners have said of so many values that they are not there, and for `GRACE_SECONDS` at most.
        """
        reactor = self.reactor
        if timeout == 0:
            return reactor.wait_until(predicate, 0)
        if hope is not None:
            borrowing = self.borrowing
            deadline = None if timeout is None else monotonic() + timeout
            reactor.wait_until(
                lambda: predicate() or borrowing.absences > hope, GRACE_SECONDS if timeout is None else min(timeout, GRACE_SECONDS)
            )
            if predicate():
                return True
            if deadline is not None:
                timeout = max(0.0, deadline - monotonic())
        unblock = self.on_block()
        if unblock is None:
            return reactor.wait_until(predicate, timeout)
        try:
            return reactor.wait_until(predicate, timeout)
        finally:
            unblock()

    def wait(self, refs: Sequence[ObjectRef], num_returns: int, timeout: float | None) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """See `mray.wait`."""
        own = self.entry
        if self._follows and {type(ref._entry) for ref in refs} != {own}:
            return self._wait_among_strangers(refs, num_returns, timeout)
        try:
            ready, rest = split_ready(refs, num_returns)
        except AttributeError:  # ids that nobody made have no entry
            return self._wait_among_strangers(refs, num_returns, timeout)
        if len(ready) == num_returns:
            return self._heard(ready), rest
        entries = [ref._entry for ref in refs]
        countdown = Survey(entries) if num_returns == len(ready) + 1 and len(entries) <= MOST_SURVEYED else Countdown(-1)
        most_left = len(entries) - num_returns
        with self.lock:
            watched = countdown.to_watch(entries)
            hope = self._ask_for(entries if self.lends() else watched, most_left)
            for entry in watched:
                if entry.form is None:
                    countdown.watch(entry)
        try:
            if countdown.left > most_left:
                self.wait_as_user(lambda: countdown.left <= most_left, timeout, hope)
        except KeyboardInterrupt:
            self.cancelling.interrupted(entries)
            raise
        finally:
            with self.lock:
                countdown.end(entries)
        ready, rest = split_ready(refs, num_returns)
        return self._heard(ready), rest

    def _heard(self, ready: list[ObjectRef]) -> list[ObjectRef]:
        """These refs, of whose values the caller knows now."""
        if self.unheard.any:
            for ref in ready:
                hear(ref._entry)
        return ready

    def _wait_among_strangers(
        self, refs: Sequence[ObjectRef], num_returns: int, timeout: float | None
    ) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """As `wait`, where some refs are of no session or of an ended one: they are never ready."""
        known = [ref for ref in refs if type(ref._entry) is self.entry]
        if len(known) < num_returns:
            stranger = next(ref for ref in refs if type(ref._entry) is not self.entry)
            others = f" Of these refs {len(known)} can be ready." if len(refs) > 1 else ""
            raise ValueError(f"Ray object whose owner is unknown: {stranger}: {why_unknown(stranger._entry)}.{others}")
        ready = set(self.wait(known, num_returns, timeout)[0])
        return [ref for ref in refs if ref in ready], [ref for ref in refs if ref not in ready]

    def on_ready(self, ref: ObjectRef, callback: Callable[[], None], soon: bool = True) -> None:
        """Call back once, from the reading thread and without the lock, when the value is there. For `soon` see `Backend.on_ready`."""
        entry = ref._entry
        if type(entry) is not self.entry:
            callback()  # which asks, and is told that there is nothing
            return
        with self.lock:
            revive(self, entry)
            if entry.form is None:
                if entry.owner is not None:
                    self.borrowing.fetch(entry)
                # What comes may have been lost meanwhile.
                if entry.add_waiter(lambda _entry: self.reactor.defer(partial(self.on_ready, ref, callback, soon))):
                    if soon:
                        self.reactor.wake_background_reader()
                    return
        callback()

    # ------------------------------------------------------------------------------------ actors
    def actor(self, actor_id: bytes) -> ActorCaller:
        """The queue of calls to an actor. Client's lock held."""
        caller = self.actors.get(actor_id)
        if caller is None:
            caller = self.actors[actor_id] = ActorCaller(self, actor_id)
        return caller

    def forget_actor(self, actor_id: bytes) -> None:
        """This process holds no handle: an actor that is dead, or was never asked for, is nobody's. Client's lock held."""
        caller = self.actors.get(actor_id)
        if caller is not None and caller.state in ("dead", "unknown") and not caller.queue and not caller.watchers:
            del self.actors[actor_id]

    def subscribe_actor(self, caller: ActorCaller) -> None:
        if self.fatal is not None:
            caller.on_state("dead", "", -1, (m.CAUSE_NODE, str(self.fatal), 0, None, None))
            return
        self.node.send((m.ACTOR_SUBSCRIBE, caller.actor_id))

    # ------------------------------------------------------------------------------------ ending
    def close(self) -> None:
        """Leave the session: everything that waits fails, connections end, own segments go."""
        self.fail_everything(RaySystemError("Ray has not been started yet. The session was shut down."))
        reactor = self.reactor
        for awaited in tuple(self.awaited.values()):
            awaited.close()
        reactor.close()
        self.announcements.close()
        if reactor.closed_descriptors.error is not None:
            _torn.append(self)
            return
        self.tensors.close()
        with self.lock:
            for connection in filter(None, [*self.peers.values(), getattr(self, "node", None)]):  # which may not have been reached
                connection.close()
            self.peers.clear()
            self.bells.close()
            if self.facts:
                self.introductions.close()
                self.store.close()
                assert reactor.table is not None
                reactor.table.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's descriptors without a word."""
        self.fatal = RaySystemError("this process was forked from one that uses mray; call mray.init() in it to use mray here")
        self.reactor.abandon()
        if self.facts and self.reactor.closed_descriptors.error is None:
            self.introductions.abandon()


#: How many there were.
_made = count()
#: The clients of this process: one, and those of ended sessions that somebody still holds.
_clients: weakref.WeakSet[Client] = weakref.WeakSet()
#: Those whose descriptors the program has closed. Nothing of them is closed again or collected: the numbers may be other files' by now.
_torn: list[Client] = []


def _after_fork() -> None:
    for client in _clients:
        client.abandon()


os.register_at_fork(after_in_child=_after_fork)
