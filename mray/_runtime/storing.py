"""Where a large value goes: into shared memory while there is room, else to disk.

In the process that makes the value, in the thread that wants it stored.

    room in memory? --no--> others keep segments for reuse that would make room? --no--> a file
         |                              | yes: the node has them let go
         v                              v
      segment <-------------------------+
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._ipc.reaper import SPILLED, segment_prefix
from mray._ipc.table import SessionTable
from mray._objects.store import SegmentStore
from mray._runtime.deaths import has_ended, owner_error, removed_error
from mray.exceptions import ObjectStoreFullError

if TYPE_CHECKING:
    from mray._objects.serializer import Serialized
    from mray._runtime.client import Client


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
    client.node.send((m.SPILLED,))
    return payload


def missing_error(client: Client, owner: str | None, place: str, object_id: bytes | None) -> BaseException:
    """What reading a value raises that is not where it was: its owner's end has taken it along, or somebody else has.

    Nothing is computed again. A value outlives the process that made it, and on one machine its owner, who could ask for it again, is
    lost together with it or not at all.
    """
    if owner is not None and owner != client.process and not _is_there(client, owner):
        return owner_error(owner, object_id)
    return removed_error(place, object_id)


def _is_there(client: Client, process: str) -> bool:
    """Whether a process is alive: the node removes the socket of a dead one before what it owned."""
    return os.path.exists(client.address_of(process))
