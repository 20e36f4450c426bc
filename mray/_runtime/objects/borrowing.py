"""Borrowing: how processes that hold a ref of another process's object keep it alive, and get its value.

The owner keeps the entries that each process has borrowed in a `Ledger`; the end of that process returns them all. A borrower sends
BORROW when it first receives a ref and RELEASE after its last use (decided by its `Borrower`).

A borrow must reach the owner before the process that passed the ref on releases it. On one connection the order of messages suffices: a
worker that receives a ref of its caller's sends BORROW on the connection on which it will reply. For refs of a third process the owner
acknowledges, and the reply (or the UNPIN) waits for the acknowledgement. Actor handles are borrowed from the node by the same rule
(ACTOR_HOLD, ACTOR_DROP).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._common import messages as m
from mray._common import settings
from mray._common.ids import is_of_session_of
from mray._decide.caller import caller_instructions as do
from mray._decide.caller.borrower import Borrower
from mray._decide.caller.ledger import Ledger
from mray._ipc.connection import Connection
from mray._ipc.segment import is_there
from mray._ipc.table import LENT, ROW_WORDS
from mray._objects.ownership import Entry, ForeignEntry, Guard, why_unknown
from mray._objects.remote_error import pickle_error
from mray._objects.serializer import is_noting, note_ref
from mray._runtime.connections.deaths import lost_error
from mray._runtime.connections.ends import Ended
from mray._runtime.connections.part import Part
from mray._runtime.objects.unhandled_errors import mark_handled
from mray.exceptions import OufOfBandObjectRefSerializationException

if TYPE_CHECKING:
    from mray._runtime.objects.owner import Owner

Names = list[tuple[bytes, str]]
_made = count()


def is_lost(entry: Entry) -> bool:
    """Whether a value lay in a segment that was removed and is not mapped in this process."""
    if entry.form != m.SEGMENT or is_there(entry.payload[0]):
        return False
    return entry.mapping is None or entry.mapping() is None


class ActorToken:
    """Lives as long as this process holds handles of the actor."""

    __slots__ = ("__weakref__", "actor_id", "guard")

    def __init__(self, actor_id: bytes, guard: Guard | None) -> None:
        self.actor_id = actor_id
        self.guard = guard


class Borrowing(Part):
    """Carries out what its `Borrower` decides. Methods need the client's lock unless they take it themselves."""

    def __init__(self, owner: Owner, drop_actor: Callable[[bytes], None]) -> None:
        client = self._client = owner.client
        self._owner = owner
        #: Whether this process may hold refs of other sessions, for which `wait` then checks.
        self.meets_strangers = next(_made) > 0
        self._on_dropped = drop_actor
        self.borrower = Borrower(client.process)
        #: Objects of this process that others hold; and refs inside replies, until they are borrowed.
        self.lent: Ledger[Entry] = Ledger()
        self.pins: Ledger[list[Any]] = Ledger()
        #: The count in the session's table.
        self._published = 0
        #: Refs and tokens pickled outside of mray.
        self._out_of_band: list[Any] = []
        #: The connection of the caller whose arguments this process is unpickling: a BORROW on it, before the reply, needs no
        #: acknowledgement. (Two processes that call each other concurrently have two connections.)
        self.caller: Connection | None = None
        #: How often an owner has reported a value absent.
        self.absences = 0
        client.from_node.on({m.HELD: lambda _node, number: self.acknowledged(number)})
        client.from_peers.on(
            {
                m.BORROW: self._on_borrow,
                m.BORROWED: lambda _c, number: self.acknowledged(number),
                m.RELEASE: self._on_release,
                m.FETCH: self._on_fetch,
                m.OBJECT: self._on_object,
                m.ABSENT: self._on_absent,
                m.FREE_SEGMENT: self._on_free_segment,
                m.UNPIN: self.pins.returned,
            },
            {m.FETCH: self._fetch_failed, m.OBJECT: self._object_failed},
        )

    def _follow(self, instructions: do.Instructions) -> None:
        for instruction in instructions:
            _WAYS[type(instruction)](self, instruction)

    def _publish(self) -> None:
        lent = self.lent.out
        table = self._client.reactor.table
        if lent != self._published and table is not None:
            self._published = lent
            table.words[self._client.info["row"] * ROW_WORDS + LENT] = lent

    # ------------------------------------------------------------------------------------ as borrower
    def restore(self, object_id: bytes, owner: str) -> ObjectRef:
        """The ref of a pickled (id, owner). Takes the lock."""
        if not is_of_session_of(owner, self._client.process):
            self.meets_strangers = True
            return ObjectRef(object_id, ForeignEntry())
        with self._client.lock:
            return ObjectRef(object_id, self.entry_of(object_id, owner))

    def entry_of(self, object_id: bytes, owner: str, then: Callable[[], None] | None = None) -> Entry:
        """The entry of an object, borrowed if it is new; `then` is called when the owner has counted the borrow."""
        client = self._client
        if owner == client.process:
            entry = self._owner.exported.get(object_id)
            if entry is None:
                entry = client.entry()
                entry.complete(m.FAILED, pickle_error(lost_error(object_id)))
            if then is not None:
                then()
            return entry
        borrower = self.borrower
        known: Entry | None = borrower.objects.get(object_id)
        if known is not None:
            if not borrower.is_counted(object_id):
                self._follow(borrower.met_again(object_id, then))
            elif then is not None:
                then()
            return known
        entry = client.entry()
        entry.owner = owner
        entry.object_id = object_id
        connection = client.try_peer(owner)
        if connection is None:
            self.fail(do.FailObjects([entry], None))
            if then is not None:
                then()
            return entry
        entry.guard = Guard(client.reactor.defer, self._let_go, object_id, connection)
        number = borrower.met(entry, owner, connection is self.caller, then)
        # POINT borrow noted
        if number:
            connection.send((m.BORROW, number, [object_id]))
        else:
            connection.post((m.BORROW, 0, [object_id]))
            client.reactor.post_later(connection)
        return entry

    def borrowed(self, connection: Connection, object_id: bytes, form: int, payload: Any) -> Entry:
        """The entry of an object that its owner has lent unasked (`lend`)."""
        known: Entry | None = self.borrower.objects.get(object_id)
        if known is not None:
            self._let_go(object_id, connection)  # the owner has counted twice
            return known
        entry = self._client.entry()
        entry.owner = connection.process
        entry.object_id = object_id
        entry.guard = Guard(self._client.reactor.defer, self._let_go, object_id, connection)
        entry.complete(form, tuple(payload) if form == m.SEGMENT else payload)
        self.borrower.lent(entry)
        return entry

    def acknowledged(self, number: int) -> None:
        """The owner has counted this process among the borrowers."""
        self._follow(self.borrower.acknowledged(number))

    def _let_go(self, object_id: bytes, connection: Connection) -> None:
        with self._client.lock:
            if not connection.closed:
                # POINT borrow over
                connection.post((m.RELEASE, [object_id]))
                self._client.reactor.post_later(connection)

    def adopt(self, names: Names, then: Callable[[], None] | None = None) -> list[Any]:
        """Live refs for the names inside an arrived value; `then` as in `entry_of`, called once for all."""
        left = len(names)

        def one() -> None:
            nonlocal left
            left -= 1
            if not left and then is not None:
                then()

        live: list[Any] = []
        for name, owner in names:
            if owner:
                live.append(ObjectRef(name, self.entry_of(name, owner, one)))
            else:
                live.append(self.token(name, one))
        return live

    def adopt_reply(self, connection: Connection, task_id: bytes, names: Names) -> list[Any]:
        """As `adopt`, for a reply, whose worker pins the refs until they are borrowed."""
        return self.adopt(names, lambda: connection.send((m.UNPIN, task_id)))

    def fetch(self, entry: Entry, asks: bool = False) -> None:
        """Request the value from its owner, if that was not done, and with `asks` whether it is ready (`absences`).

        OSError when this process can open no more files: it may try again.
        """
        if self.borrower.wants(entry):
            assert entry.owner is not None
            self._follow(self.borrower.fetched(entry, self._client.try_peer(entry.owner), asks))

    def revive(self, entry: Entry) -> None:
        """Recompute a lost value before it is used, if possible; the entry is pending meanwhile."""
        if (entry.recipe is None and entry.owner is None) or not is_lost(entry):
            return
        if entry.owner is None:
            entry.recipe.make()
        elif self.borrower.lost(entry, entry.payload[0]):
            self.fetch(entry)

    def revive_all(self, entries: Iterable[Entry]) -> None:
        """As `revive`, for entries in segments. Takes the lock."""
        for entry in [entry for entry in entries if entry.form == m.SEGMENT]:
            with self._client.lock:
                self.revive(entry)

    def _on_absent(self, _connection: Connection, _object_id: bytes) -> None:
        self.absences += 1

    def _on_object(self, connection: Connection, object_id: bytes, form: int, payload: Any, names: Names | None) -> None:
        entry = self.borrower.objects.get(object_id)
        if entry is None:
            return
        keep = [entry]  # until every ref inside is borrowed, the object that holds them must stay
        refs = self.adopt(names, keep.clear) if names else None
        # POINT object fetched
        entry.complete(form, payload, refs)

    def _object_failed(self, _peer: Connection, _failure: Exception, payload: bytes, object_id: bytes, *_fields: Any) -> None:
        entry = self.borrower.objects.get(object_id)
        if entry is not None:
            entry.complete(m.FAILED, payload)

    @staticmethod
    def _fetch_failed(peer: Connection, _failure: Exception, payload: bytes, object_id: bytes, *_asks: bool) -> None:
        peer.send((m.OBJECT, object_id, m.FAILED, payload, None))

    # ------------------------------------------------------------------------------------ as owner
    def note(self, ref: ObjectRef) -> str:
        """Record a ref that this thread is pickling; returns its owner. Outside of calls and values the ref stays pinned, since no message
        reports the end of the copy.
        """
        if is_noting():
            note_ref(ref)
        elif settings.ALLOW_OUT_OF_BAND_REFS.get():
            self._out_of_band.append(ref)
        else:
            raise OufOfBandObjectRefSerializationException(
                f"{ref} was pickled outside of a call or an object, so its lifetime could not be tracked. Pass it as an argument, put() a "
                "value that holds it, or set RAY_allow_out_of_band_object_ref_serialization=1 to pin it forever."
            )
        return self.export(ref)

    def note_handle(self, actor_id: bytes, token: ActorToken | None) -> None:
        if token is None:
            token = self.token(actor_id)
        if is_noting():
            note_ref(token)
        else:
            self._out_of_band.append(token)

    def check(self, ref: ObjectRef) -> None:
        """ValueError for a ref of another session."""
        if type(ref._entry) is not self._client.entry:
            raise ValueError(f"Ray object whose owner is unknown: {ref}: {why_unknown(ref)}.")

    def export(self, ref: ObjectRef) -> str:
        """Let other processes request the object; returns its owner."""
        entry = ref._entry
        self.check(ref)
        if entry.owner is None:
            self._owner.exported[ref._id] = entry
            return self._client.process
        return str(entry.owner)

    def names_of(self, refs: list[Any]) -> Names:
        names = []
        for ref in refs:
            if type(ref) is ObjectRef:
                names.append((ref._id, self.export(ref)))
            else:
                names.append((ref.actor_id, ""))
        return names

    def _on_borrow(self, connection: Connection, number: int, object_ids: list[bytes]) -> None:
        exported = self._owner.exported
        for object_id in object_ids:
            entry = exported.get(object_id)
            if entry is not None:
                self.lent.lend(entry, connection, object_id)
        self._publish()
        # POINT borrow counted
        if number:
            connection.send((m.BORROWED, number))

    def _on_release(self, connection: Connection, object_ids: list[bytes]) -> None:
        for object_id in object_ids:
            self.lent.returned(connection, object_id)
        self._publish()

    def lend(self, connection: Connection, object_id: bytes, entry: Entry) -> None:
        """Count the peer as a borrower, before a message passes the object on (`borrowed`)."""
        self._owner.exported[object_id] = entry
        self._on_borrow(connection, 0, [object_id])

    def _on_fetch(self, connection: Connection, object_id: bytes, asks: bool = False) -> None:
        entry = self._owner.exported.get(object_id)
        if entry is None:
            connection.send((m.OBJECT, object_id, m.FAILED, pickle_error(lost_error(object_id)), None))
            return

        def answer(found: Entry) -> None:
            names = self.names_of(found.refs) if found.refs else None
            mark_handled(found)
            connection.send((m.OBJECT, object_id, found.form, found.payload, names))

        self.revive(entry)
        if entry.owner is not None:
            self.fetch(entry)
        is_absent = entry.form is None
        entry.then(answer)
        if is_absent and asks:
            connection.send((m.ABSENT, object_id))

    def _on_free_segment(self, _connection: Connection, names: list[str], again: bool = True) -> None:
        for name in names:
            self._owner.store.free(name, again=again)

    def pin(self, connection: Connection, task_id: bytes, refs: list[Any]) -> None:
        """Hold the refs inside a reply until its receiver has borrowed them or has exited."""
        self.pins.returned(connection, task_id)  # of an earlier attempt
        self.pins.lend(refs, connection, task_id)
        # POINT reply pinned

    # ------------------------------------------------------------------------------------ actor handles
    def token(self, actor_id: bytes, then: Callable[[], None] | None = None, *, held: bool = False) -> ActorToken:
        """The token that keeps an actor alive; `held`: the node counts this process, the creator, already."""
        client, borrower = self._client, self.borrower
        token: ActorToken | None = borrower.tokens.get(actor_id)
        if token is None:
            token = ActorToken(actor_id, Guard(client.reactor.defer, self._drop_actor, actor_id))
            self._follow(borrower.handle_came(token, held or client.node.closed, then))
        else:
            self._follow(borrower.met_again(actor_id, then))
        return token

    def held_actors(self) -> list[bytes]:
        return list(self.borrower.tokens)

    def holds(self, actor_id: bytes) -> bool:
        return actor_id in self.borrower.tokens

    def drop_handles(self) -> None:
        """Release all actors, although the program may have handles. Takes the lock."""
        for actor_id in self.held_actors():
            self.borrower.tokens.pop(actor_id, None)
            self._drop_actor(actor_id)

    def _drop_actor(self, actor_id: bytes) -> None:
        with self._client.lock:
            self._follow(self.borrower.handles_gone(actor_id))

    # ------------------------------------------------------------------------------------ ends
    def connection_ended(self, connection: Connection, error: Exception | None, unread: bool) -> None:
        """Fail entries whose live owner cannot be reached; its borrows stay."""
        if error is not None:
            self._follow(self.borrower.broke(connection.process, error))

    def process_ended(self, end: Ended) -> None:
        self._owner.segments.expose(entry.payload[0] for entry in self.lent.ended(end.process) if entry.form == m.SEGMENT)
        self.pins.ended(end.process)
        self._publish()
        self._follow(self.borrower.died(end.process))

    def all_lost(self, error: BaseException) -> None:
        self._follow(self.borrower.all_lost(error))

    # ------------------------------------------------------------------------------------ instructions
    def fail(self, fail: do.FailObjects) -> None:
        if fail.error is None:
            self._client.after_end(fail.entries[0].owner, lambda: self._fail_owned(fail.entries))
            return
        payload = pickle_error(fail.error)
        for entry in fail.entries:
            entry.complete(m.FAILED, payload)

    def _fail_owned(self, entries: Iterable[Entry]) -> None:
        """Fail entries whose owner has exited, with the session's error if that has ended."""
        client = self._client
        for entry in entries:
            if entry.form is None:
                assert entry.owner is not None
                entry.complete(m.FAILED, pickle_error(client.fatal or client.ends.owner_error(entry.owner, entry.object_id)))

    def hold(self, hold: do.Hold) -> None:
        # POINT handle noted
        self._client.node.send((m.ACTOR_HOLD, hold.number, [hold.actor_id]))

    def drop(self, drop: do.Drop) -> None:
        self._on_dropped(drop.actor_id)
        if not self._client.node.closed:
            self._client.node.send((m.ACTOR_DROP, [drop.actor_id]))


_WAYS: dict[type[Any], Callable[[Borrowing, Any], None]] = {
    do.Fetch: lambda _borrowing, fetch: fetch.link.send((m.FETCH, fetch.object_id, True) if fetch.asks else (m.FETCH, fetch.object_id)),
    do.FailObjects: Borrowing.fail,
    do.Hold: Borrowing.hold,
    do.Drop: Borrowing.drop,
    do.GoOn: lambda _borrowing, go_on: go_on.then(),
}
