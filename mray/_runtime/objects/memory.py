"""`Memory`: where large values are stored, behind a process's `Owner`.

`SharedMemory` is the kernel's; the single-process engine has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mray._common.kept import os
from mray._ipc.reaper import SPILLED, segment_prefix
from mray._objects.ownership import Entry
from mray._objects.store import SegmentStore

if TYPE_CHECKING:
    from mray._ipc.table import SessionTable
    from mray._ipc.zero_copy import ZeroCopyBuffer
    from mray._objects.serializer import Serialized
    from mray._objects.store import Payload


class Store(Protocol):
    """The memory of values that this process has produced."""

    def write(self, value: Serialized, owner: str) -> Payload: ...

    def others_could_make_room(self, size: int) -> bool: ...

    def spill(self, value: Serialized, owner: str) -> Payload: ...

    def bear(self, size: int) -> ZeroCopyBuffer: ...

    def end_of_array(self, buffer: ZeroCopyBuffer) -> None: ...

    def free(self, name: str, *, again: bool = True) -> None: ...

    def trim(self) -> None: ...

    def give_away(self, name: str) -> None: ...

    def forget_owner(self, owner: str) -> None: ...

    def close(self) -> None: ...


class Segments(Protocol):
    """The memory of values that this process owns."""

    def claim(self, payload: Payload) -> None: ...

    def guard(self, payload: Payload) -> Any: ...

    def expose(self, names: Iterable[str]) -> None: ...

    def free(self, name: str, producer: str) -> None: ...

    def discard_unclaimed(self, names: Sequence[str]) -> None: ...


class Memory(Protocol):
    """The memory of one process."""

    #: `mray._objects.store.read` asks an entry of this session for its `mapping`.
    entry: type[Entry]

    def store(self, process: str, session_dir: str, info: dict[str, Any], table: SessionTable | None) -> Store:
        """The store of a process that has joined the session that `info` describes."""

    def segments(self, own: Segments) -> Segments:
        """`own` frees the memory by messages to its producers; returns it or a replacement."""


class SharedMemory:
    def __init__(self) -> None:
        self.entry: type[Entry] = type("Entry", (Entry,), {})

    def store(self, process: str, session_dir: str, info: dict[str, Any], table: SessionTable | None) -> SegmentStore:
        assert table is not None
        return SegmentStore(
            segment_prefix(info["session"]),
            process,
            table,
            info["row"],
            table.rows_in_use,
            info["object_store_memory"],
            os.path.join(session_dir, SPILLED),
            info["most_of_disk"],
            info["most_kept"],
        )

    def segments(self, own: Segments) -> Segments:
        return own
