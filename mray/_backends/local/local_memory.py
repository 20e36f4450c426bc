"""Large values of a session in one process: bytes of the heap that travel by reference.

They have the form SEGMENT, as natively, so that a value above the inline limit is written once and read in place (read-only arrays are
views of it); their "name" carries the bytes. Nobody frees them: they go with the last entry, message or array that holds them.
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

#: Of a PACKED value without buffers (see `mray._objects.serializer`).
_PREFIX = struct.Struct("<IIQ")
_numbers = itertools.count(1)


class HeapPages(Claimable, mmap.mmap):
    """The bytes of a large value."""

    def copied(self) -> HeapPages:
        """Another one with the same bytes."""
        copy = HeapPages(-1, len(self))
        copy[:] = self[:]
        return copy


class Heap(str):
    """The name of a large value, and the value: PACKED, in memory of its own that begins a page, as segments do."""

    data: HeapPages
    #: Weakly, the reading that there is.
    reading: Any = None
    #: Readers may write to what they get: each has a copy.
    is_copied: bool

    @classmethod
    def of(cls, value: Serialized) -> Heap:
        """Lay a value out."""
        name = cls(f"/heap-{next(_numbers)}")
        head = b"" if value.form == m.PACKED else _PREFIX.pack(0, 0, len(value.pickled))
        name.data = HeapPages(-1, len(head) + value.size)
        name.data[: len(head)] = head
        value.write_into(memoryview(name.data)[len(head) :])
        name.is_copied = value.has_tensors
        return name

    def map(self) -> Any:
        """The memory for a reader: of one reading for all, as long as it lives."""
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
    """An object whose value, if it is large, lies on the heap.

    A subclass since `mray._objects.store.read` takes the mapping from the entry, and calls nothing of the memory's where there is one.
    """

    @property
    def mapping(self) -> Any:
        """This process's mapping of the value, for `mray._objects.store.read`."""
        form, payload = self.form, self.payload
        if form == m.TENSORS:  # what is beside the tensors
            form, payload = payload[6:8]
        name = payload[0] if form == m.SEGMENT else None
        return name.map if isinstance(name, Heap) else None

    @mapping.setter
    def mapping(self, value: Any) -> None:
        """There is one, always."""


class HeapStore:
    """The values that a simulated process has produced."""

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

    def end_of_array(self, born: Any) -> None:
        """Nothing to do: there are none."""

    def forget_owner(self, owner: str) -> None:
        """Nothing to do: the memory is the value's."""

    def free(self, name: str, *, again: bool = True) -> None:
        """Nothing to do: the memory is the value's."""

    def trim(self) -> None:
        """Nothing is kept for reuse."""

    def give_away(self, name: str) -> None:
        """It belongs to whoever holds it."""

    def close(self) -> None:
        """Nothing to remove."""


class HeapSegments:
    """The values that a simulated process owns."""

    def claim(self, payload: Any) -> None:
        """Nobody has to free it."""

    def guard(self, payload: Any) -> None:
        """Nobody has to free it."""

    def expose(self, names: Any) -> None:
        """No memory is used again."""

    def free(self, name: str, producer: str) -> None:
        """Nobody has to free it."""

    def discard_unclaimed(self, names: Any) -> None:
        """Nobody has to free them."""


class HeapMemory:
    """The memory of all simulated processes."""

    def __init__(self) -> None:
        #: One for all: a ref that reaches another process by reference, through a global, is as good there.
        self.entry: type[Entry] = type("Entry", (HeapEntry,), {})

    def store(self, process: str, session_dir: str, facts: Any, table: Any) -> HeapStore:
        return HeapStore(process)

    def segments(self, own: object) -> HeapSegments:
        return HeapSegments()
