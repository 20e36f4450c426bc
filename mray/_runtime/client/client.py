"""The client: the runtime of every process that can call, a driver or a worker.

    user's threads --> Client --+-- node (leases, actors, names)
                                +-- peers (calls, replies, borrows: `mray._runtime.connections`)
                                +-- own entries and store (`mray._runtime.objects`)

It connects its parts, completes entries with the values that come, and waits for them on behalf of user code.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress, count
from types import CodeType
from typing import Any

from mray._api.object_ref import ObjectRef
from mray._common import messages as m
from mray._common.bridge import nothing
from mray._common.clock import monotonic
from mray._common.ids import FIRST, return_id
from mray._common.invocations import Result
from mray._common.kept import os
from mray._ipc.connection import Connection
from mray._ipc.interrupts import after_fork, before_fork
from mray._ipc.reactor import Reactor
from mray._objects.ownership import MOST_SURVEYED, Completion, Countdown, Entry, Survey, split_ready, why_unknown
from mray._objects.remote_error import unpickle_error
from mray._objects.serializer import deserialize
from mray._objects.store import is_spilled, read
from mray._runtime.client.actor_calls import ActorCallers
from mray._runtime.client.announcements import Announcements
from mray._runtime.client.arguments import Arguments
from mray._runtime.client.calls import fail_call, lost_call
from mray._runtime.client.cancelling import Cancelling
from mray._runtime.client.late import why_late
from mray._runtime.client.leases import LeasePools
from mray._runtime.client.long_lists import LongList, LongLists
from mray._runtime.client.unschedulable import Unschedulable
from mray._runtime.client.wakeups import Wakeups
from mray._runtime.connections.deaths import ended_error
from mray._runtime.connections.ends import Ended
from mray._runtime.objects.borrowing import Borrowing
from mray._runtime.objects.owner import Owner
from mray._runtime.objects.tensor_transport import TensorStore
from mray._runtime.objects.unheard_errors import UnheardErrors, hear
from mray.exceptions import GetTimeoutError, ObjectLostError

#: How long a task waits for values that may be there before it gives its CPUs back, in seconds: an owner that is not stuck, in C code
#: say, has answered by then, with the value or its absence; also one that computes (it reads every few milliseconds).
GRACE_SECONDS = 0.05
#: Seconds to wait for the node's report of how a process ended that is known to be gone; its end is reported in any case.
_REPORT_SECONDS = 10.0


class Client(Owner):
    """The runtime of one process."""

    #: The in-process engine has another class.
    leases_class: type[LeasePools] = LeasePools

    def __init__(self, session_dir: str, process: str, role: str, reactor: Reactor | None = None) -> None:
        super().__init__(session_dir, process, role, reactor)
        self.announcements = Announcements()
        self.unschedulable = Unschedulable(self.announcements)
        self.unheard = UnheardErrors(self.reactor.defer, self.announcements.say)
        self.borrowing = Borrowing(self, lambda actor_id: self.actors.forget(actor_id))
        self.tensors = TensorStore(self, self.borrowing, self._end_of_actor_process)
        self.arguments = Arguments(self, self.borrowing)
        self.leases = self.leases_class(self, self.borrowing, self.arguments, self.unschedulable.hear)
        self.actors = ActorCallers(self, self.borrowing, self.unschedulable.hear)
        self.cancelling = Cancelling(self, self.arguments, self.leases, self.actors)
        self.wakeups = Wakeups(self)
        self.long_lists = LongLists(self.lock, self.reactor.call_later)
        self.meets_strangers = next(_made) > 0  # it had a session before
        self.from_node.on(
            {
                m.ACTOR_STATE: self.actors.on_state,
                m.LEASE_GRANT: self.leases.on_grant,
                m.LEASE_REFUSED: self.leases.on_refused,
                m.LEASE_RECALL: self.leases.on_recall,
                m.HELD: lambda _node, number: self.borrowing.acknowledged(number),
                m.TRIM_NOW: self._on_trim,
            }
        )
        self.from_peers.on(
            {
                m.DESCRIPTOR: self.wakeups.descriptors.on_descriptor,
                m.REPLY: self._on_reply,
                m.REPLIES: self._on_replies,
                m.ATTEMPT: self._on_attempt,
                m.GIVEN_BACK: self.leases.on_given_back,
                m.LEAVING: self.leases.on_leaving,
                m.CANCEL_OBJECT: self.cancelling.on_cancel_object,
                m.GRAPHED: self._on_graphed,
                **self.borrowing.handlers,
                **self.tensors.handlers,
            },
            {
                m.CALL: fail_call,
                m.TASK: fail_call,
                m.GRAPH: self._fail_graph_request,
                m.GRAPHED: self.fail_answer,
                **self.borrowing.failures,
                **self.tensors.failures,
            },
        )
        #: Sections that observers may ask this process for, besides those of `mray._runtime.observe.process_snapshot`.
        self.sections: dict[str, Callable[[], Any]] = {}
        #: Called before the first wait of `get` that is really going to wait, once.
        self.before_first_wait: Callable[[], None] | None = None
        #: Event loop to the refs that its coroutines wait for (`mray._runtime.client.awaiting`); and whether some thread always reads.
        self.awaited: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.reads_always = False
        _clients.add(self)

    # ------------------------------------------------------------------------------------ ends of others
    def _hung_up(self, connection: Connection, error: Exception | None, unread: bool = False) -> None:
        if error is not None:
            self.borrowing.broke(connection, error)
        self.tensors.peer_gone(connection)
        if not unread:
            self.segments.peer_gone(connection)
        super()._hung_up(connection, error)
        if error is None:
            return  # the node reports how the process has ended, and all that waits for it fails with that
        if unread:
            self._fail_calls(connection, error)
            self.leases.unread(connection)
        elif self.fatal is None:
            self._fail_calls(connection, error)

    def _ended(self, end: Ended) -> None:
        self.borrowing.ended(end.process)
        super()._ended(end)

    def _fail_calls(self, connection: Connection, error: Exception) -> None:
        """Fail the calls over a connection that broke, although the process at the other end lives."""
        calls = list(connection.calls.values())
        connection.calls.clear()
        for call in calls:
            call.fail(error)
        self.actors.hung_up(connection, error)

    def _all_lost(self, error: BaseException) -> None:
        self.actors.fail_all(error)
        self.leases.fail_all(error)
        self.borrowing.fail_all(error)
        super()._all_lost(error)

    def _end_of_actor_process(self, actor_id: bytes, class_name: str, process: str) -> BaseException | None:
        """The error for a process of an actor that is known to be gone; None when the actor goes on in another one."""
        with self.lock:
            caller = self.actors.of(actor_id)
            caller.class_name = caller.class_name or class_name
            caller.subscribe()
            actor = caller.actor
        self.reactor.wait_until(lambda: actor.state in (m.RESTARTING, m.DEAD) or actor.process not in ("", process), _REPORT_SECONDS)
        return caller.error() if actor.state == m.DEAD else None

    # ------------------------------------------------------------------------------------ hearing
    def _on_graphed(self, _peer: Connection, number: int, ok: bool, payload: bytes) -> None:
        self.requests.settle(number, payload if ok else None, None if ok else unpickle_error(payload))

    def _on_trim(self, _node: Connection) -> None:
        self.store.trim()

    @staticmethod
    def _fail_graph_request(peer: Connection, _failure: Exception, payload: bytes, number: int, *_fields: Any) -> None:
        peer.send((m.GRAPHED, number, False, payload))

    # ------------------------------------------------------------------------------------ replies
    def _on_reply(self, connection: Connection, task_id: bytes, form: int, payload: Any, refs: Any) -> None:
        call = connection.calls.pop(task_id, None)
        if call is None:
            # No caller waits for it any more.
            self.tensors.own(self.entry(), task_id + FIRST, form, payload, None)
            return
        try:
            entry = call.entry
            assert entry is not None
            if form >= m.FAILED:
                if form == m.TENSORS:
                    self.tensors.own(entry, task_id + FIRST, form, payload, call.handle)
                else:
                    call.failed(payload, connection.process)
                    self.unheard.come(entry, payload)
            # POINT reply come
            if form == m.PICKLED and not refs:
                entry.complete(form, payload)
            else:
                self.complete(connection, task_id, entry, form, payload, refs)
            call.source.replied(call)
        except Exception as error:
            raise lost_call(call, "REPLY", error) from None
        call.release()

    def _on_replies(self, connection: Connection, task_id: bytes, values: list[Result]) -> None:
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
                        call.failed(payload, connection.process)
                    self.unheard.come(entry, payload)
                self.complete(connection, return_id(task_id, index), entry, form, payload, refs)
            call.source.replied(call)
        except Exception as error:
            raise lost_call(call, "REPLIES", error) from None
        call.release()

    def complete(self, connection: Connection, pin: bytes, entry: Entry, form: int, payload: Any, refs: Any) -> None:
        """Give an entry its value, from its producer, which has pinned the refs inside by the name `pin`. Client's lock held."""
        if form == m.SEGMENT:
            entry.guard = self.segments.guard(payload)
            connection.peer.freed.discard(payload[0])
        entry.complete(form, payload, self.borrowing.adopt_reply(connection, pin, refs) if refs else None)

    def _on_attempt(self, connection: Connection, task_id: bytes) -> None:
        call = connection.calls.pop(task_id, None)
        if call is not None:
            try:
                call.source.attempt_failed(call)
            except Exception as error:
                raise lost_call(call, "ATTEMPT", error) from None

    # ------------------------------------------------------------------------------------ values
    def location_of(self, ref: ObjectRef) -> tuple[int | None, bool]:
        """(bytes of the value or None while it is pending, whether it lies on disk)."""
        entry = _entry_of(ref)
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
            return self.read_segment(entry, entry.owner, entry.object_id)
        return deserialize(form, entry.payload)

    def read_segment(
        self, entry: Entry, owner: str | None, object_id: bytes | None, failed: Callable[[Any], BaseException] = unpickle_error
    ) -> Any:
        """The value in a segment, made again if it was lost; raises the error if it cannot be. In any thread but the reading one.

        `failed` makes the error of a payload of form FAILED, which may come instead.
        """
        while True:
            form, payload = entry.form, entry.payload
            if form == m.FAILED:
                raise failed(payload)
            if form == m.SEGMENT:
                try:
                    return read(payload, entry)
                except FileNotFoundError:
                    with self.lock:
                        self.borrowing.revive(entry)
                    if entry.payload is payload and entry.form == m.SEGMENT:
                        raise self.missing_error(owner, payload[0], object_id) from None
            elif form is None:
                self.wait_as_user(lambda: entry.form is not None, None)  # the task that makes it again may need our CPUs
            else:
                return deserialize(form, payload)

    def get(self, refs: Sequence[ObjectRef], timeout: float | None, through_host: bool = False) -> list[Any]:
        """Values in order; the first error that is known is raised although others are pending. For `through_host` see `TensorStore`."""
        entries = [ref._entry for ref in refs]
        own = self.entry
        if not {*map(type, entries)} <= {own}:
            ref = next(ref for ref, entry in zip(refs, entries, strict=True) if type(entry) is not own)
            raise ValueError(f"Ray objects whose owner is unknown: {ref}: {why_unknown(ref)}.")
        if timeout is not None:
            self.borrowing.revive_all(entries)  # which counts as waiting
        for entry in entries:
            if entry.form is None:
                try:
                    self._await_all(entries, timeout)
                except KeyboardInterrupt:
                    self.cancelling.interrupted(entries)
                    raise
                break
        forms = {entry.form for entry in entries}
        if forms == _PICKLED:
            return [deserialize(m.PICKLED, entry.payload) for entry in entries]
        value_of = self.value_of
        if m.FAILED in forms:
            for entry in entries:
                hear(entry)
            value_of(next(entry for entry in entries if entry.form == m.FAILED))
        if m.TENSORS in forms:
            return self.tensors.values(refs, value_of, timeout, through_host)
        try:
            return [value_of(entry) for entry in entries]
        except ObjectLostError:  # this time the error names the object
            for ref in refs:
                ref._entry.object_id = ref.binary()
            return [value_of(entry) for entry in entries]

    def get_one(self, ref: ObjectRef, timeout: float | None) -> Any:
        """As `get`, the value of one ref: a pickle that came with a message, mostly."""
        entry = ref._entry
        if type(entry) is self.entry and (entry.form is None or entry.form == m.PICKLED) and entry.owner is None:
            if entry.form is None:
                entries = (entry,)
                try:
                    self._await_all(entries, timeout)
                except KeyboardInterrupt:
                    self.cancelling.interrupted(entries)
                    raise
            if entry.form == m.PICKLED:
                return deserialize(m.PICKLED, entry.payload)
        return self.get((ref,), timeout)[0]

    @classmethod
    def waiting_codes(cls) -> tuple[CodeType, ...]:
        """The code in which threads wait for values: those of a local variable `entries`."""
        return cls._await_all.__code__, cls.wait.__code__, cls._wait_again.__code__

    def _await_all(self, entries: Sequence[Entry], timeout: float | None) -> None:
        tell, self.before_first_wait = self.before_first_wait, None
        if tell is not None:
            tell()
        if len(entries) == 1:
            (entry,) = entries
            hope = None
            if entry.owner is not None and not entry.fetching:
                with self.lock:
                    hope = self._ask_for(entries)
            ready = self.wait_as_user(entry.is_ready, timeout, hope)
        else:
            with self.lock:
                hope = self._ask_for(entries)
            completion = Completion(entries)
            ready = self.wait_as_user(completion.is_reached, timeout, hope)
            if completion.failed is not None:
                for entry in entries:
                    hear(entry)
                self.value_of(completion.failed)
        if not ready:
            raise GetTimeoutError(f"Get timed out: some object(s) not ready after {timeout} s.{why_late(self, entries, timeout or 0)}")

    def _ask_for(self, entries: Sequence[Entry], spare: int = 0) -> int | None:
        """Have the values of borrowed objects sent. Client's lock held.

        Returns the `hope` of `wait_as_user`, a count of absences, when all of these values, or all but `spare`, may be there.
        """
        asks = self.resident.lends()
        for entry in dict.fromkeys(entries):  # a ref that is given twice is waited for once
            if entry.form is None:
                if entry.owner is None or entry.fetching:
                    spare -= 1  # it is being made, or was not there when it was asked for
                else:
                    self.borrowing.fetch(entry, asks)
        return self.borrowing.absences + spare if asks and spare >= 0 else None

    def wait_as_user(self, predicate: Callable[[], bool], timeout: float | None, hope: int | None = None) -> bool:
        """Wait on behalf of user code: a task gives its CPUs back meanwhile.

        Not while values come that are there already: a further worker would be started for each. With `hope` the task keeps its CPUs until
        the owners have reported so many values absent, and for `GRACE_SECONDS` at most.
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
        unblock = self.resident.block()
        if unblock is None:
            return reactor.wait_until(predicate, timeout)
        try:
            return reactor.wait_until(predicate, timeout)
        finally:
            unblock()

    def wait(self, refs: Sequence[ObjectRef], num_returns: int, timeout: float | None) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """See `mray.wait`."""
        own = self.entry
        is_long = self.long_lists.is_long(refs, num_returns)
        if is_long and (listed := self.long_lists.find(refs, own)) is not None:  # type: ignore[arg-type]  # long ones are lists
            return self._wait_again(listed, num_returns, timeout)
        if self.meets_strangers and {type(ref._entry) for ref in refs} != {own}:
            return self._wait_among_strangers(refs, num_returns, timeout)
        try:
            ready, rest = split_ready(refs, num_returns)
        except AttributeError:  # ids that no session made have no entry
            return self._wait_among_strangers(refs, num_returns, timeout)
        if len(ready) == num_returns:
            if is_long:
                self.long_lists.keep(LongList(rest.copy()))
            return self._heard(ready), rest
        entries = [ref._entry for ref in refs]
        countdown = Survey(entries) if num_returns == len(ready) + 1 and len(entries) <= MOST_SURVEYED else Countdown()
        most_left = len(entries) - num_returns
        with self.lock:
            watched = countdown.to_watch(entries)
            hope = self._ask_for(entries if self.resident.lends() else watched, most_left)
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
        if is_long:
            self.long_lists.keep(LongList(rest.copy()))
        return self._heard(ready), rest

    def _wait_again(self, listed: LongList, num_returns: int, timeout: float | None) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """As `wait`, for the refs that an earlier one has left."""
        entries = listed.entries
        try:
            with self.lock:
                places = listed.take(num_returns)
                hope = None
                if len(places) < num_returns:
                    listed.put_back(places)
                    if listed.asks:
                        hope = self._ask_for(tuple(entries), len(entries) - num_returns)
                        listed.asks = False
            if len(places) < num_returns:
                self.wait_as_user(lambda: listed.count >= num_returns, timeout, hope)
                with self.lock:
                    places = listed.take(num_returns)
            ready, rest = listed.split(places)
        except BaseException as error:
            self.long_lists.end(listed)
            if isinstance(error, KeyboardInterrupt):
                self.cancelling.interrupted(entries)
            raise
        self.long_lists.keep(listed)
        return self._heard(ready), rest

    def _heard(self, ready: list[ObjectRef]) -> list[ObjectRef]:
        """Mark the errors of these ready refs as seen by the caller, and return the refs."""
        if self.unheard.any:
            for ref in ready:
                hear(ref._entry)
        return ready

    def _wait_among_strangers(
        self, refs: Sequence[ObjectRef], num_returns: int, timeout: float | None
    ) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """As `wait`, where some refs are of no session or of an ended one: they are never ready."""
        are_known = [type(ref._entry) is self.entry for ref in refs]
        known = list(compress(refs, are_known))
        if len(known) < num_returns:
            stranger = refs[are_known.index(False)]
            others = f" Of these refs {len(known)} can be ready." if len(refs) > 1 else ""
            raise ValueError(f"Ray object whose owner is unknown: {stranger}: {why_unknown(stranger)}.{others}")
        ready = set(self.wait(known, num_returns, timeout)[0])
        return [ref for ref in refs if ref in ready], [ref for ref in refs if ref not in ready]

    def on_ready(self, ref: ObjectRef, callback: Callable[[], None], soon: bool = True) -> Callable[[], object]:
        """Call back once, from the reading thread and without the lock, when the value is there. See `Backend.on_ready`."""
        entry = ref._entry
        if type(entry) is not self.entry:
            callback()  # which asks for the value, and gets the error
            return nothing
        with self.lock:
            self.borrowing.revive(entry)
            if entry.form is None:
                if entry.owner is not None:
                    self.borrowing.fetch(entry)

                def came(_entry: Entry) -> None:
                    self.reactor.defer(partial(self.on_ready, ref, callback, soon))  # the value may have been lost again meanwhile

                if entry.add_waiter(came):
                    if soon and not self.reads_always:
                        self.reactor.wake_background_reader()
                    return partial(self._forget, entry, came)
        callback()
        return nothing

    def _forget(self, entry: Entry, waiter: Callable[[Entry], None]) -> None:
        with self.lock:
            entry.remove_waiter(waiter)

    def on_out_of_scope(self, ref: ObjectRef, callback: Callable[[bytes], None]) -> None:
        """Call back with the object's id, from the reading thread and without the lock, once no process holds a ref of it."""
        self.borrowing.check(ref)
        entry = _entry_of(ref)
        if entry.owner is not None:
            raise ValueError(f"{ref} is owned by another process: that one alone knows when it goes out of scope.")
        weakref.finalize(entry, self.reactor.defer, partial(callback, ref.binary())).atexit = False
        self.reactor.wake_background_reader()

    # ------------------------------------------------------------------------------------ ending
    def close(self) -> None:
        """Leave the session: all waiters fail, connections end, own segments are freed."""
        self.fail_everything(ended_error())
        reactor = self.reactor
        self.long_lists.clear()
        for awaited in tuple(self.awaited.values()):
            awaited.close()
        self.wakeups.end_relays()
        reactor.close()
        self.announcements.close()
        if reactor.closed_descriptors.error is not None:
            _torn.append(self)
            return
        self.tensors.close()
        self.hang_up()

    def _left(self) -> None:
        self.wakeups.close()
        super()._left()


#: The forms of values that came with messages.
_PICKLED = {m.PICKLED}


def _entry_of(ref: ObjectRef) -> Any:
    """The entry of a ref, for those who are not in a hurry."""
    return ref._entry


#: Numbers the clients of this process.
_made = count()
#: The clients of this process: one, and those of ended sessions that are still referenced.
_clients: weakref.WeakSet[Client] = weakref.WeakSet()
#: Clients whose descriptors the program has closed. They are never closed or collected: the numbers may be other files' by now.
_torn: list[Client] = []


def _after_fork() -> None:
    for client in _clients:
        client.abandon()


os.register_at_fork(after_in_child=_after_fork)
os.register_at_fork(before=before_fork, after_in_parent=after_fork, after_in_child=after_fork)
