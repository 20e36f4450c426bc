"""Large values of a session in one process: heap bytes that are passed by reference.

They have the form SEGMENT, so that a large value is written once and read in place; their "name" carries the bytes, which are
released with the last entry, message or array that holds them.
"""

from __future__ import annotations

import itertools
import mmap
import struct
import weakref
from typing import Any, NoReturn

from mray._common import messages as m
from mray._inside.platform import Claimable, Entry, reading_of
from mray._inside.values import Serialized
from mray.exceptions import ObjectStoreFullError

#: Header of a PACKED value without buffers.
_PREFIX = struct.Struct("<IIQ")
_numbers = itertools.count(1)


class HeapPages(Claimable, mmap.mmap):
    def copied(self) -> HeapPages:
        copy = HeapPages(-1, len(self))
        copy[:] = self[:]
        return copy


class Heap(str):
    """The name of a large value, and the value: PACKED, page-aligned memory."""

    data: HeapPages
    #: A weak reference to the current reading.
    reading: Any = None
    #: Whether each reader gets a copy, since it may write.
    is_copied: bool

    @classmethod
    def of(cls, value: Serialized) -> Heap:
        name = cls(f"/heap-{next(_numbers)}")
        head = b"" if value.form == m.PACKED else _PREFIX.pack(0, 0, len(value.pickled))
        name.data = HeapPages(-1, len(head) + value.size)
        name.data[: len(head)] = head
        value.write_into(memoryview(name.data)[len(head) :])
        name.is_copied = value.has_tensors
        return name

    def map(self) -> Any:
        """Map the memory; readers share one reading while it lives."""
        if self.is_copied:
            return self.data.copied()
        reading = self.reading and self.reading()
        if reading is None:
            reading = reading_of(self.data, self)
            if reading is None:  # without numpy
                return self.data
            self.reading = weakref.ref(reading)
        return reading

    def part(self) -> None:
        """The living reading keeps the memory, and the value moves to a copy."""
        self.data, self.reading = self.data.copied(), None


class HeapEntry(Entry):
    """A subclass because `mray._objects.store.read` takes the mapping from the entry, and does not call the memory if one exists."""

    @property
    def mapping(self) -> Any:
        form, payload = self.form, self.payload
        if form == m.TENSORS:  # the part without the tensors
            form, payload = payload[6:8]
        name = payload[0] if form == m.SEGMENT else None
        return name.map if isinstance(name, Heap) else None

    @mapping.setter
    def mapping(self, value: Any) -> None:
        """Do nothing: no mapping exists."""


class HeapStore:
    def __init__(self, process: str) -> None:
        self._process = process

    def write(self, value: Serialized, owner: str) -> tuple[str, int, str]:
        return Heap.of(value), value.size, self._process

    def others_could_make_room(self, size: int) -> bool:
        return False

    def spill(self, value: Serialized, owner: str) -> NoReturn:
        raise NotImplementedError("memory has no limit in one process")

    def bear(self, size: int) -> NoReturn:
        raise ObjectStoreFullError("arrays are not created in shared memory in one process")

    def end_of_array(self, buffer: Any) -> None:
        """Do nothing: no arrays are shared."""

    def forget_owner(self, owner: str) -> None:
        """Do nothing: the value has the memory."""

    def free(self, name: str, *, again: bool = True) -> None:
        """As `forget_owner`."""

    def trim(self) -> None:
        """Do nothing: no memory is pooled."""

    def give_away(self, name: str) -> None:
        """As `forget_owner`."""

    def close(self) -> None:
        """Do nothing: no names exist."""


class HeapSegments:
    def claim(self, payload: Any) -> None:
        """Do nothing: the garbage collector frees it."""

    def guard(self, payload: Any) -> None:
        """As `claim`."""

    def expose(self, names: Any) -> None:
        """Do nothing: memory is not reused."""

    def free(self, name: str, producer: str) -> None:
        """As `claim`."""

    def discard_unclaimed(self, names: Any) -> None:
        """Do nothing."""


class HeapMemory:
    def __init__(self) -> None:
        #: Shared, so that a ref that reaches another process through a global works there.
        self.entry: type[Entry] = type("Entry", (HeapEntry,), {})

    def store(self, process: str, session_dir: str, info: Any, table: Any) -> HeapStore:
        return HeapStore(process)

    def segments(self, own: object) -> HeapSegments:
        return HeapSegments()
