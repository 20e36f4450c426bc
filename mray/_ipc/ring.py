"""A ring in shared memory with one writer and several readers, without locks.

    writer process                                    reader process r
    RingWriter.put --- entry, then PUBLISHED -------> RingReader.take
    RingWriter.has_room <------------- CONSUMED[r] --

The steps in the order in which memory must see them; a crash between any two leaves the ring consistent:

    put:    W1 write the entry (FORM, LENGTH, payload)    not visible: PUBLISHED does not cover it
            W2 PUBLISHED = n + 1                          visible
    take:   R1 read PUBLISHED, see that it covers n
            R2 copy the entry out
            R3 CONSUMED[r] = n + 1                        the writer may reuse the entry

Entries are small; large values lie in slots (`mray._ipc.slots`).

Not thread-safe.
"""

from __future__ import annotations

import mmap

from mray._ipc import layout as at
from mray._ipc.layout import ENTRY_HEADER, LAYOUT_VERSION, WORD, RingLayout
from mray._ipc.memory_order import TOTAL_STORE_ORDER, fence, publish_fence, trust_fence
from mray._ipc.segment import Segment

_WEAK_ORDER = not TOTAL_STORE_ORDER
_pack_header = ENTRY_HEADER.pack_into
_unpack_header = ENTRY_HEADER.unpack_from
_HEADER = ENTRY_HEADER.size

_NEVER = 1 << 64

#: From this form on, a message is consumed in a second step: the payload says where the value lies.
STAYS = 256


class DamagedError(ValueError):
    """Shared memory holds what mray has not written."""


class RingWriter:
    """Formats the region."""

    __slots__ = (
        "_consumed",
        "_mask",
        "_memory",
        "_offsets",
        "_published",
        "_wanted",
        "_words",
        "closed",
        "inline",
        "layout",
        "limit",
        "next",
    )

    def __init__(self, segment: Segment, offset: int, layout: RingLayout) -> None:
        self.layout = layout
        self.closed = False
        self.inline = layout.inline
        self._memory: mmap.mmap = segment.memory
        self._words = segment.words()
        base = offset // WORD
        self._published = base + at.PUBLISHED
        self._wanted = base + at.WANTED
        self._consumed = [base + layout.reader_block(reader) + at.CONSUMED for reader in range(layout.readers)]
        self._offsets = [offset + layout.entry(index) for index in range(layout.entries)]
        self._mask = layout.entries - 1
        self.next = 0
        #: Below it messages have room. Invariant: limit <= least CONSUMED + entries.
        self.limit = layout.entries

    @staticmethod
    def format(segment: Segment, offset: int, layout: RingLayout) -> None:
        """Write a ring's header into zeroed memory, before any end exists."""
        words = segment.words(offset, at.LINE_WORDS)
        words[at.ENTRIES] = layout.entries
        words[at.ENTRY_BYTES] = layout.entry_bytes
        words[at.READERS] = layout.readers
        words[at.SLOTS] = layout.slots
        publish_fence()
        words[at.VERSION] = LAYOUT_VERSION
        words.release()

    def has_room(self) -> bool:
        return self.next < self.limit or self._refresh()

    def _refresh(self) -> bool:
        words = self._words
        self.limit = min([words[index] for index in self._consumed]) + self.layout.entries
        # SYNC POINT entry: copy out, fence, CONSUMED | read CONSUMED, fence, overwrite.
        if _WEAK_ORDER:
            trust_fence()
        return self.next < self.limit

    def want_room(self, wanted: bool) -> None:
        """Ask the readers to ring when they consume (or stop asking). Check `has_room` again after asking."""
        self._words[self._wanted] = 1 if wanted else 0
        # SYNC POINT room: WANTED, fence, look at CONSUMED again | CONSUMED, fence before sleeping, look at WANTED.
        fence()

    def put(self, form: int, payload: bytes | memoryview) -> None:
        """Publish a message; there must be room, and the payload must fit."""
        number = self.next
        offset = self._offsets[number & self._mask]
        start = offset + _HEADER
        memory = self._memory
        length = len(payload)
        memory[start : start + length] = payload
        _pack_header(memory, offset, form, length)
        # SYNC POINT message: write the entry, fence, PUBLISHED | read PUBLISHED, fence, copy out.
        if _WEAK_ORDER:
            publish_fence()
        # POINT entry written
        self.next = number = number + 1
        self._words[self._published] = number

    def last(self) -> tuple[int, bytes]:
        """As (form, payload); (0, b"") if there is none."""
        offset = self._offsets[(self.next - 1) & self._mask]
        form, length = _unpack_header(self._memory, offset)
        return form, self._memory[offset + _HEADER : offset + _HEADER + length]

    def consumed(self) -> int:
        """Messages that every reader has consumed."""
        least: int = min([self._words[index] for index in self._consumed])
        return least

    def close(self) -> None:
        """Idempotent."""
        if not self.closed:
            self.closed = True
            self._words.release()


class RingReader:
    __slots__ = (
        "_consumed",
        "_entries",
        "_inline",
        "_mask",
        "_memory",
        "_offsets",
        "closed",
        "layout",
        "next",
        "published",
        "reader",
        "wanted",
        "words",
    )

    def __init__(self, segment: Segment, offset: int, layout: RingLayout, reader: int) -> None:
        if offset % WORD or offset < 0 or offset + layout.extent > segment.size:
            raise ValueError(f"no ring of {layout.extent} bytes lies at {offset} of {segment.name}, which has {segment.size} bytes")
        words = segment.words()
        base = offset // WORD
        info = (
            words[base + at.VERSION],
            words[base + at.ENTRIES],
            words[base + at.ENTRY_BYTES],
            words[base + at.READERS],
            words[base + at.SLOTS],
        )
        if info != (LAYOUT_VERSION, layout.entries, layout.entry_bytes, layout.readers, layout.slots):
            raise ValueError(f"the ring at {offset} of {segment.name} has another layout: {info}, expected {layout}")
        self.layout = layout
        self.closed = False
        self.reader = reader
        self._memory: mmap.mmap = segment.memory
        #: The segment's words; indices of PUBLISHED and WANTED.
        self.words = words
        self.published = base + at.PUBLISHED
        self.wanted = base + at.WANTED
        self._consumed = base + layout.reader_block(reader) + at.CONSUMED
        self._offsets = [offset + layout.entry(index) for index in range(layout.entries)]
        self._mask = layout.entries - 1
        self._entries = layout.entries
        self._inline = layout.inline
        self.next = 0

    def ready(self) -> bool:
        return self.words[self.published] > self.next

    def form(self) -> int:
        """The form of the waiting message, which stays."""
        if _WEAK_ORDER:
            trust_fence()
        form: int = _unpack_header(self._memory, self._offsets[self.next & self._mask])[0]
        return form

    def take(self) -> tuple[int, bytes] | None:
        """Return the next message as (form, payload), or None. Raises `DamagedError`.

        A message of form `STAYS` or above is not consumed: the caller calls `consume` when it has finished with the value.
        """
        number = self.next
        words = self.words
        published = words[self.published]
        if published <= number:
            return None
        # SYNC POINT message: write the entry, fence, PUBLISHED | read PUBLISHED, fence, copy out.
        if _WEAK_ORDER:
            trust_fence()
        memory = self._memory
        offset = self._offsets[number & self._mask]
        form, length = _unpack_header(memory, offset)
        if length > self._inline or published > number + self._entries:
            raise DamagedError(f"a ring of {self._entries} entries has {published - number} messages, of which one has {length} bytes")
        offset += _HEADER
        payload = memory[offset : offset + length]
        # POINT entry copied
        if form < STAYS:
            # SYNC POINT entry: copy out, fence, CONSUMED | read CONSUMED, fence, overwrite.
            if _WEAK_ORDER:
                publish_fence()
            self.next = number = number + 1
            words[self._consumed] = number
        return form, payload

    def consume(self) -> None:
        """Consume a message that `take` left in place."""
        publish_fence()
        self.next += 1
        # POINT entry done
        self.words[self._consumed] = self.next

    def give_up(self) -> None:
        self.next = _NEVER

    def room_wanted(self) -> bool:
        """The reader then rings the writer's doorbell after consuming, and polls again before sleeping."""
        return self.words[self.wanted] != 0

    def close(self) -> None:
        """Idempotent."""
        if not self.closed:
            self.closed = True
            self.words.release()
