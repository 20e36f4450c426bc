"""The objects that this process owns: their entries, and where their values are stored.

A large value goes into shared memory while there is room, else to disk, in the thread that stores it.

    room in memory? --no--> would trimming the pools of other processes make room? --no--> a file
        |                              | yes: MAKE_ROOM
        v                              v
     segment <-------------------------+
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._common import messages as m
from mray._common.ids import new_object_id
from mray._ipc.segment import unlink
from mray._ipc.zero_copy import counts
from mray._objects.ownership import Entry, Guard
from mray._objects.remote_error import UNPICKLABLE, serialization_error
from mray._objects.serializer import serialize
from mray._runtime.connections.deaths import removed_error
from mray._runtime.connections.ends import Ended
from mray._runtime.connections.part import Part
from mray.exceptions import ObjectStoreFullError

if TYPE_CHECKING:
    from mray._ipc.connection import Connection
    from mray._objects.serializer import Serialized
    from mray._objects.store import Payload
    from mray._runtime.connections.endpoint import Endpoint
    from mray._runtime.objects.memory import Memory, Store

#: Larger values go into a segment instead of a message.
INLINE_BYTES = 100 * 1024
#: Names remembered per producer that it was sent to free.
MOST_FREED = 1000
#: Seconds that amply suffice to notice the end of a session.
_REPORT_SECONDS = 10.0


class Owner(Part):
    store: Store

    def __init__(self, client: Endpoint, memory: Memory) -> None:
        self.client = client
        self._memory = memory
        #: Own objects whose refs have been pickled: other processes may request them.
        self.exported: weakref.WeakValueDictionary[bytes, Entry] = weakref.WeakValueDictionary()
        self.segments = memory.segments(OwnSegments(self))
        #: Processes for which this one has stored values.
        self._others: set[str] = set()
        client.from_node.on({m.TRIM_NOW: lambda _node: self.store.trim()})

    def joined(self, info: dict[str, Any]) -> None:
        client = self.client
        self.store = self._memory.store(client.process, client.session_dir, info, client.reactor.table)

    # ------------------------------------------------------------------------------------ values
    def put(self, value: Any) -> ObjectRef:
        client = self.client
        if client.fatal is not None:
            client.check()
        try:
            form, payload, refs = self.freeze(value, client.process)
        except UNPICKLABLE as error:
            raise serialization_error(error, value, "the put value {}") from error
        entry = client.entry()
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
        """An exporter of writable memory for an array of `size` bytes, which can be sent without a copy.

        None if there is no room for it, or if it would travel inside a message.
        """
        if size <= INLINE_BYTES:
            return None
        self.client.check()
        self.client.reactor.run_deferred()  # released segments may be reused
        try:
            buffer = self.store.bear(size)
        except ObjectStoreFullError:
            counts.elsewhere += 1
            return None
        exporter = buffer.exporter(size)
        exporter.guard = Guard(self.client.reactor.defer, self.store.end_of_array, buffer)
        return exporter

    def store_value(self, value: Serialized, owner: str) -> Payload:
        """Store a value for `owner`; returns the payload of form SEGMENT.

        Raises `OutOfDiskError` when neither memory nor disk has room; `ObjectStoreFullError` when memory has none and spilling is off.
        """
        self.client.reactor.run_deferred()  # frees segments of dropped refs first
        try:
            payload = self.store.write(value, owner)
        except ObjectStoreFullError as full:
            payload = self._store_elsewhere(value, owner, full)
        # POINT value stored
        if owner != self.client.process:
            self._others.add(owner)
            if self.client.ends.of(owner) is not None:  # it would never free it
                self.store.forget_owner(owner)
        return payload

    def _store_elsewhere(self, value: Serialized, owner: str, full: ObjectStoreFullError) -> Payload:
        """As `store_value`, in memory that others give back, or on disk."""
        store = self.store
        if store.others_could_make_room(value.size):
            self.client.ask(m.MAKE_ROOM)
            with contextlib.suppress(ObjectStoreFullError):
                return store.write(value, owner)
        if not self.client.info["spilling"]:
            raise full
        payload = store.spill(value, owner)
        # POINT value spilled
        self.client.node.send((m.SPILLED,))
        return payload

    def missing_error(self, owner: str | None, place: str, object_id: bytes | None) -> BaseException:
        """The error of reading a removed value: it was freed at its owner's end, or another program has removed it.

        A value outlives its producer, so only one that was removed by another program can be recomputed
        (`mray._runtime.client.reconstruction`), which was not possible or has failed.
        """
        client = self.client
        # The node drops a dead process before it frees that process's objects.
        if owner not in (None, client.process) and not (client.node.is_cut() or client.transport.knows(owner)):
            client.await_end(owner)
            return client.ends.owner_error(owner, object_id)
        if client.node.is_cut():  # the memory ends with the session, whose end this process is about to learn
            client.reactor.wait_until(lambda: client.fatal is not None, _REPORT_SECONDS)
            if client.fatal is not None:
                return client.fatal
        return removed_error(place, object_id)

    # ------------------------------------------------------------------------------------ ends
    def process_ended(self, end: Ended) -> None:
        if end.process in self._others:
            self._others.remove(end.process)
            self.store.forget_owner(end.process)

    def segments_orphaned(self, segments: Sequence[str]) -> None:
        self.client.reactor.defer(partial(self.segments.discard_unclaimed, segments))

    def connection_ended(self, connection: Connection, error: Exception | None, unread: bool) -> None:
        """Unlink the segments that the peer was to free, unless it has read no message."""
        if not unread:
            for name in connection.peer.freed:
                unlink(name)

    def left(self) -> None:
        if self.client.info:
            self.store.close()


class OwnSegments:
    """The segments of values that this process owns; any process may have created them."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        #: Names of other producers' segments that this process knows.
        self._claimed: set[str] = set()
        #: Segments that a dead process held, and may have passed on to others (`mray._ipc.slots`).
        self._exposed: set[str] = set()

    def claim(self, payload: Payload) -> None:
        if payload[2] != self._owner.client.process:
            self._claimed.add(payload[0])

    def guard(self, payload: Payload) -> Guard:
        client = self._owner.client
        if payload[2] != client.process:
            self._claimed.add(payload[0])
        return Guard(client.reactor.defer, self.free, payload[0], payload[2])

    def expose(self, names: Iterable[str]) -> None:
        """Never reuse these segments: a dead process held them, and others may have them mapped."""
        self._exposed.update(names)

    def free(self, name: str, producer: str) -> None:
        client = self._owner.client
        again = name not in self._exposed
        self._exposed.discard(name)
        if producer == client.process:
            self._owner.store.free(name, again=again)
            return
        with client.lock:
            self._claimed.discard(name)
            # POINT segment disclaimed
            connection = client.peers.get(producer)
            if connection is None or connection.closed:
                unlink(name)
                return
            freed = connection.peer.freed
            freed[name] = None
            if len(freed) > MOST_FREED:  # the producer has read the dropped name long ago, or the session's end removes it
                del freed[next(iter(freed))]
            connection.post((m.FREE_SEGMENT, [name]) if again else (m.FREE_SEGMENT, [name], False))
            client.reactor.post_later(connection)

    def discard_unclaimed(self, names: Iterable[str]) -> None:
        """Unlink segments that a dead process was creating for this one, after all its messages were read. Slow, so without the lock."""
        with self._owner.client.lock:
            unclaimed = [name for name in names if name not in self._claimed]
        for name in unclaimed:
            unlink(name)
