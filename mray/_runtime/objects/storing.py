"""Where a large value goes: into shared memory while there is room, else to disk; and how its memory is let go.

In the process that makes the value, in the thread that wants it stored.

    room in memory? --no--> others keep segments for reuse that would make room? --no--> a file
         |                              | yes: the node has them let go
         v                              v
      segment <-------------------------+
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common.ids import return_id
from mray._ipc.reaper import SPILLED, objects_of, segment_prefix
from mray._ipc.segment import unlink
from mray._ipc.table import SessionTable
from mray._objects.ownership import Guard
from mray._objects.store import SegmentStore
from mray._runtime.client.deaths import has_ended, note_end, owner_error, removed_error
from mray.exceptions import ObjectStoreFullError

if TYPE_CHECKING:
    from mray._ipc.connection import Connection
    from mray._objects.serializer import Serialized
    from mray._runtime.client.client import Client

#: Seconds in which the end of a session is found out by far.
_NEWS_SECONDS = 10.0


def open_store(client: Client, table: SessionTable, facts: dict[str, Any]) -> SegmentStore:
    """The store of this process, by the facts of its session."""
    return SegmentStore(
        segment_prefix(facts["session"]),
        client.process,
        table,
        facts["row"],
        table.rows_in_use,
        facts["object_store_memory"],
        os.path.join(client.session_dir, SPILLED),
        facts["most_of_disk"],
    )


def store_value(client: Client, value: Serialized, owner: str) -> tuple[str, int, str]:
    """Store a value for `owner`; the payload of form SEGMENT.

    Raises `OutOfDiskError` when neither memory nor disk have room; `ObjectStoreFullError` when memory has none and spilling is off.
    """
    payload = _find_room(client, value, owner)
    # POINT value stored
    # Whoever dies from here on is forgotten when this process hears of it; who has died before would never free it.
    if has_ended(owner) and not _is_there(client, owner):
        client.store.forget_owner(owner)
    return payload


def _find_room(client: Client, value: Serialized, owner: str) -> tuple[str, int, str]:
    client.reactor.run_deferred()  # segments of dropped refs, first of all
    store = client.store
    try:
        return store.write(value, owner)
    except ObjectStoreFullError:
        if store.others_could_make_room(value.size):
            client.ask(m.QUERY, "trim", [])
            try:
                return store.write(value, owner)
            except ObjectStoreFullError:
                pass
        if not client.facts["spilling"]:
            raise
    payload = store.spill(value, owner)
    # POINT value spilled
    client.node.send((m.SPILLED,))
    return payload


@contextlib.contextmanager
def all_or_none(client: Client, connection: Connection, task_id: bytes, values: Sequence[tuple[int, Any, Any]]) -> Iterator[None]:
    """While a call's values are made for its caller: after an error nobody will ever ask for those that are there already."""
    try:
        yield
    except BaseException:
        segments = []
        with client.lock:
            for index, (form, payload, _refs) in enumerate(values):
                connection.facts.get("pins", {}).pop(return_id(task_id, index), None)
                if form == m.TENSORS:
                    client.tensors.drop(return_id(task_id, index + 1))
                    form, payload = payload[-2:]
                if form == m.SEGMENT:
                    segments.append(payload[0])
        for name in segments:
            client.store.free(name)
        raise


class OwnSegments:
    """The segments of values that this process owns, whoever has made them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Names of those that others have made and that this process knows of.
        self._claimed: set[str] = set()
        #: Those that a process held which has died: it may have passed their memory on (`mray._ipc.slots`), to whom nobody knows now.
        self._exposed: set[str] = set()

    def claim(self, payload: tuple[str, int, str]) -> None:
        """A value has come from its producer."""
        if payload[2] != self._client.process:
            self._claimed.add(payload[0])

    def guard(self, payload: tuple[str, int, str]) -> Guard:
        """What frees the segment of a value when it ends."""
        self.claim(payload)
        return Guard(self._client.reactor.defer, self.free, payload[0], payload[2])

    def expose(self, names: Iterable[str]) -> None:
        """A process has died that held them: their memory is not used again, so that it lives as long as whoever has mapped it."""
        self._exposed.update(names)

    def free(self, name: str, producer: str) -> None:
        """The value in a segment is needed no more (called by the reactor)."""
        client = self._client
        again = name not in self._exposed
        self._exposed.discard(name)
        if producer == client.process:
            client.store.free(name, again=again)
            return
        with client.lock:
            self._claimed.discard(name)
            # POINT segment disclaimed
            connection = client.peers.get(producer)
            if connection is None or connection.closed:
                unlink(name)
                return
            connection.facts.setdefault("freed", set()).add(name)
            connection.post((m.FREE_SEGMENT, [name]) if again else (m.FREE_SEGMENT, [name], False))
            client.reactor.post_later(connection)

    def discard_unclaimed(self, producer: str) -> None:
        """A process has died and all it had said is read: remove what it was making for this one. Client's lock held."""
        for name in objects_of(self._client.session_dir, self._client.process, producer):
            if name not in self._claimed:
                unlink(name)


def missing_error(client: Client, owner: str | None, place: str, object_id: bytes | None) -> BaseException:
    """What reading a value raises that is not where it was: its owner's end has taken it along, or somebody else has.

    A value outlives the process that made it, so only the latter is a matter of making it again (`mray._runtime.objects.reconstruction`),
    which could not be or came to this.
    """
    if owner is not None and owner != client.process and not _is_there(client, owner):
        connection = client.peers.get(owner)
        if connection is not None and not has_ended(owner):  # the node's word, which says more, is still under way
            note_end(owner, "", connection.pid)
        return owner_error(owner, object_id)
    if client.node.is_cut():  # with whose session all memory goes: how it has ended is being found out
        client.reactor.wait_until(lambda: client.fatal is not None, _NEWS_SECONDS)
        if client.fatal is not None:
            return client.fatal
    return removed_error(place, object_id)


def _is_there(client: Client, process: str) -> bool:
    """Whether a process is alive: the node forgets a dead one before it takes away what that owned. So it is while the node is dead."""
    return client.node.is_cut() or client.introductions.know(process)
