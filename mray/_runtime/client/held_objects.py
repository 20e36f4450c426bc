"""The objects that this process holds refs of, as rows, when an observer asks. In the reading thread, with the client's lock held.

Refs are found among the objects that the garbage collector knows, so that no ref records anything.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from heapq import nlargest, nsmallest
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._common import messages as m
from mray._common.ids import FIRST
from mray._objects.store import is_spilled
from mray._runtime.client.calls import Call
from mray._runtime.connections import part
from mray._runtime.connections.part import Row

if TYPE_CHECKING:
    from mray._objects.ownership import Entry
    from mray._runtime.connections.endpoint import Endpoint
    from mray._runtime.objects.borrowing import Borrowing


def rows(client: Endpoint, borrowing: Borrowing, limit: int = part.MOST_ROWS, largest: bool = False) -> dict[str, Any]:
    """How many there are, and the first by id, or the largest ones."""
    in_values: set[int] = set()
    in_calls: set[int] = set()
    refs: dict[bytes, list[ObjectRef]] = {}
    entry_class = client.entry
    living = gc.get_objects()
    for thing in living:
        kind = type(thing)
        if kind is ObjectRef:
            # Another thread may be about to make it.
            if type(getattr(thing, "_entry", None)) is entry_class:
                refs.setdefault(thing.binary(), []).append(thing)
        elif kind is entry_class:
            in_values.update(id(ref) for ref in thing.refs or () if type(ref) is ObjectRef)
        elif kind is Call:
            in_calls.update(id(ref) for ref in (*(getattr(thing, "arguments", None) or ()), *_refs_in(getattr(thing, "pins", None))))
    del living

    def first_entry(held: list[ObjectRef]) -> Entry:
        return held[0]._entry  # type: ignore[no-any-return]

    count = len(refs)
    most = min(limit, part.MOST_ROWS)
    if count > most:
        chosen = nlargest(most, refs, key=lambda each: _place(first_entry(refs[each]))[0]) if largest else nsmallest(most, refs)
        refs = {object_id: refs[object_id] for object_id in chosen}

    def objects() -> Iterator[Row]:
        for object_id, held in refs.items():
            users = {id(ref) for ref in held}
            kind = "USED_BY_PENDING_TASK" if users & in_calls else "CAPTURED_IN_OBJECT" if users <= in_values else "LOCAL_REFERENCE"
            yield _object(object_id, first_entry(held), kind, client.process)

    handles = borrowing.held_actors()
    found = islice(chain(objects(), map(partial(_handle, client.process), handles)), most)
    return {"total": count + len(handles), "rows": list(found)}


def inline_bytes(client: Endpoint) -> int:
    """The bytes of all small values. Visits every object of the interpreter."""
    entries = [thing for thing in gc.get_objects() if type(thing) is client.entry]
    return sum(len(entry.payload) for entry in entries if entry.form not in (None, m.SEGMENT, m.TENSORS))


def _refs_in(pins: Any) -> list[Any]:
    return [pin for pin in pins if type(pin) is ObjectRef] if isinstance(pins, list) else []


def _object(object_id: bytes, entry: Entry, kind: str, process: str) -> Row:
    form = entry.form
    size, where = _place(entry)
    if kind == "LOCAL_REFERENCE" and entry.mapping is not None and entry.mapping() is not None:
        kind = "PINNED_IN_MEMORY"
    task: Call | None = entry.task
    return {
        "object_id": object_id,
        "object_size": size,
        "storage": where,
        "pending": form is None,
        "failed": form == m.FAILED,
        "reference_type": kind,
        "owner": entry.owner or process,
        "task_name": task.name or str(task.method if isinstance(task.method, str) else task.method[2]) if task is not None else "",
    }


def _place(entry: Entry) -> tuple[int, str]:
    """Bytes, -1 where they are unknown, and where the value lies."""
    form, payload = entry.form, entry.payload
    if form == m.SEGMENT:
        return abs(payload[1]), "disk" if is_spilled(payload) else "shared memory"
    if form == m.TENSORS:
        return -1, "with its maker"
    return (-1, "") if form is None else (len(payload), "inline")


def _handle(process: str, actor_id: bytes) -> Row:
    """As the row of the object that the constructor's call would return."""
    return {
        "object_id": b"\xff" * 8 + actor_id + FIRST,
        "object_size": -1,
        "storage": "",
        "pending": False,
        "failed": False,
        "reference_type": "ACTOR_HANDLE",
        "owner": process,
        "task_name": "",
    }
