"""The objects that this process owns: their entries, and the places of their values.

In every client. A large value goes into shared memory while there is room, else to disk, in the thread that wants it stored.

    room in memory? --no--> would segments that other processes keep for reuse make room? --no--> a file
         |                              | yes: the node has them freed
         v                              v
      segment <-------------------------+
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._common import messages as m
from mray._common.ids import new_object_id
from mray._common.kept import os
from mray._ipc.born import counts
from mray._ipc.reaper import SPILLED, segment_prefix
from mray._ipc.segment import unlink
from mray._objects.ownership import Entry, Guard
from mray._objects.remote_error import serialization_error
from mray._objects.serializer import serialize
from mray._objects.store import Payload, SegmentStore
from mray._runtime.connections.deaths import removed_error
from mray._runtime.connections.endpoint import Endpoint
from mray._runtime.connections.ends import Ended
from mray.exceptions import ObjectStoreFullError

if TYPE_CHECKING:
    from mray._ipc.connection import Connection
    from mray._ipc.reactor import Reactor
    from mray._ipc.table import SessionTable
    from mray._objects.serializer import Serialized

#: Above this many bytes a value goes into a segment instead of a message.
INLINE_BYTES = 100 * 1024
#: Seconds that suffice by far for the end of a session to be noticed.
_REPORT_SECONDS = 10.0


class Owner(Endpoint):
    """An endpoint that has objects of its own."""

    store: SegmentStore

    def __init__(self, session_dir: str, process: str, role: str, reactor: Reactor | None = None) -> None:
        super().__init__(session_dir, process, role, reactor)
        #: The class of this session's entries: entries of other sessions have another one.
        self.entry: type[Entry] = type("Entry", (Entry,), {})
        #: Whether this process may hold refs of other sessions: `wait` then looks for them.
        self.meets_strangers = False
        #: Objects of this process whose refs have been pickled: other processes may ask for them.
        self.exported: weakref.WeakValueDictionary[bytes, Entry] = weakref.WeakValueDictionary()
        self.segments = OwnSegments(self)

    def _enter(self, facts: dict[str, Any], table: SessionTable) -> None:
        super()._enter(facts, table)
        self.store = SegmentStore(
            segment_prefix(facts["session"]),
            self.process,
            table,
            facts["row"],
            table.rows_in_use,
            facts["object_store_memory"],
            os.path.join(self.session_dir, SPILLED),
            facts["most_of_disk"],
            facts["most_kept"],
        )

    # ------------------------------------------------------------------------------------ values
    def put(self, value: Any) -> ObjectRef:
        """Store a value; this process owns it."""
        self.check()
        try:
            form, payload, refs = self.freeze(value, self.process)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise serialization_error(error, value, "the put value {}") from error
        entry = self.entry()
        entry.refs = refs
        entry.payload = payload
        entry.form = form
        if form == m.SEGMENT:
            entry.guard = self.segments.guard(payload)
        return ObjectRef(new_object_id(), entry)

    def freeze(self, value: Any, owner: str) -> tuple[int, Any, list[Any] | None]:
        """``form, payload, live refs`` of a value: inline when small, else in a segment that belongs to `owner`."""
        packed = serialize(value)
        if packed.size <= INLINE_BYTES:
            return packed.form, packed.to_bytes(), packed.refs
        return m.SEGMENT, self.store_value(packed, owner), packed.refs

    def new_memory(self, size: int) -> Any | None:
        """Exports writable memory for an array of so many bytes, which can be sent without a copy.

        None if there is no room for it, or if it would travel inside of a message.
        """
        if size <= INLINE_BYTES:
            return None
        self.check()
        self.reactor.run_deferred()  # what is no longer needed may serve again
        try:
            born = self.store.bear(size)
        except ObjectStoreFullError:
            counts.elsewhere += 1
            return None
        exporter = born.exporter(size)
        exporter.guard = Guard(self.reactor.defer, self.store.end_of_array, born)
        return exporter

    def store_value(self, value: Serialized, owner: str) -> Payload:
        """Store a value for `owner`; the payload of form SEGMENT.

        Raises `OutOfDiskError` when neither memory nor disk have room; `ObjectStoreFullError` when memory has none and spilling is off.
        """
        payload = self._find_room(value, owner)
        # POINT value stored
        if owner != self.process:  # one that has died would never free it
            with self.lock:
                self.ends.then(owner, self._owner_ended)
        return payload

    def _find_room(self, value: Serialized, owner: str) -> Payload:
        self.reactor.run_deferred()  # segments of dropped refs, first of all
        store = self.store
        try:
            return store.write(value, owner)
        except ObjectStoreFullError:
            if store.others_could_make_room(value.size):
                self.ask(m.QUERY, "trim", [])
                try:
                    return store.write(value, owner)
                except ObjectStoreFullError:
                    pass
            if not self.facts["spilling"]:
                raise
        payload = store.spill(value, owner)
        # POINT value spilled
        self.node.send((m.SPILLED,))
        return payload

    def missing_error(self, owner: str | None, place: str, object_id: bytes | None) -> BaseException:
        """The error of reading a value that is not where it was: it was freed at its owner's end, or another program has removed it.

        A value outlives the process that made it, so only a removed one can be made again (`mray._runtime.client.reconstruction`), which
        was not possible or has failed.
        """
        if owner is not None and owner != self.process and not self._is_there(owner):
            self.hear_end(owner)
            return self.ends.owner_error(owner, object_id)
        if self.node.is_cut():  # the memory ends with the session; this process is about to learn how that has ended
            self.reactor.wait_until(lambda: self.fatal is not None, _REPORT_SECONDS)
            if self.fatal is not None:
                return self.fatal
        return removed_error(place, object_id)

    def _is_there(self, process: str) -> bool:
        """Whether a process is alive: the node drops a dead one before it frees that one's objects. True while the node is dead."""
        return self.node.is_cut() or self.introductions.know(process)

    # ------------------------------------------------------------------------------------ ends
    def _owner_ended(self, end: Ended) -> None:
        """Let go of memory that this process has made for another one."""
        if end.error is None:
            self.store.forget_owner(end.process)
        else:
            self.ends.then(end.process, self._owner_ended)

    def _bequeathed(self, segments: Sequence[str]) -> None:
        self.reactor.defer(partial(self.segments.discard_unclaimed, segments))

    def _left(self) -> None:
        super()._left()
        if self.facts:
            self.store.close()


class OwnSegments:
    """The segments of values that this process owns; any process may have made them."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        #: Names of segments that other processes have made and that this process knows.
        self._claimed: set[str] = set()
        #: Segments that a dead process held: it may have passed their memory on to further processes (`mray._ipc.slots`).
        self._exposed: set[str] = set()

    def claim(self, payload: Payload) -> None:
        """Claim the segment of a value that has come from its producer."""
        if payload[2] != self._owner.process:
            self._claimed.add(payload[0])

    def guard(self, payload: Payload) -> Guard:
        """The guard that frees the segment of a value when it ends."""
        self.claim(payload)
        return Guard(self._owner.reactor.defer, self.free, payload[0], payload[2])

    def expose(self, names: Iterable[str]) -> None:
        """Never use these segments again: a process that held them has died, and others may have their memory mapped."""
        self._exposed.update(names)

    def free(self, name: str, producer: str) -> None:
        """Free the segment of a value that is needed no more (called by the reactor)."""
        owner = self._owner
        again = name not in self._exposed
        self._exposed.discard(name)
        if producer == owner.process:
            owner.store.free(name, again=again)
            return
        with owner.lock:
            self._claimed.discard(name)
            # POINT segment disclaimed
            connection = owner.peers.get(producer)
            if connection is None or connection.closed:
                unlink(name)
                return
            connection.peer.freed.add(name)
            connection.post((m.FREE_SEGMENT, [name]) if again else (m.FREE_SEGMENT, [name], False))
            owner.reactor.post_later(connection)

    def peer_gone(self, connection: Connection) -> None:
        """Remove the segments that were to be freed at the other end of a connection that has ended, unless it has read no message."""
        for name in connection.peer.freed:
            unlink(name)

    def discard_unclaimed(self, names: Iterable[str]) -> None:
        """Remove the segments that a dead process was making for this one. All its messages were read. Without the lock: it takes long."""
        with self._owner.lock:
            unclaimed = [name for name in names if name not in self._claimed]
        for name in unclaimed:
            unlink(name)
