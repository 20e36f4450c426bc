"""Payload slots: the memory of messages too large for a ring's entry, lent to readers until they let go.

    writer process                                     reader process r
    SlotWriter.claim -> Slot (a segment), fill it      SlotReader.open(place) -> Pin (a view that exports the bytes)
    the entry carries the slot's *place*  ---------->  arrays are views of the pin
    a slot is free when every reader has    <--------  RELEASED[slot] of reader r = use, when the last view is gone
    released its latest use

Each slot is a segment of its own. The writer takes the smallest free slot that fits, replaces one that is too small (the old
segment's memory goes with the last view of it), or adds a slot. When all slots are taken the oldest one is *given away*: its
name and the writer's mapping go, so its memory lives exactly as long as the views of it, and a fresh segment takes its place.
So no reader, however long it holds an array, ever blocks the writer.

A segment's name is needed until every reader has mapped it: the writer unlinks it when all of them have consumed the first
message that lay in it. What a crash leaves carries the ring's prefix and is swept with it.

Releases come from finalizers, which may run between any two byte codes of any thread: all they do is write one word of
their own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from struct import Struct
from typing import Any

from mray._ipc.memory_order import publish_fence, trust_fence
from mray._ipc.ring import RingWriter
from mray._ipc.segment import Segment, unlink

#: Where a payload lies: slot, generation of the slot's segment, use, length in bytes.
PLACE = Struct("@QQQQ")

#: Slots are never smaller than this, so that values of slightly different sizes share one.
LEAST_SLOT = 64 * 1024

_SHM = "/dev/shm"


def slot_name(prefix: str, slot: int, generation: int) -> str:
    """The name of a slot's segment."""
    return f"{prefix}{slot:x}.{generation:x}"


def unlink_all(prefix: str) -> None:
    """Take away every name that starts with `prefix` (which starts with a slash)."""
    wanted = prefix[1:]
    for name in os.listdir(_SHM):
        if name.startswith(wanted):
            unlink("/" + name)


class Slot:
    """One slot as the writer sees it."""

    __slots__ = ("first", "generation", "index", "segment", "use", "view")

    def __init__(self, index: int, generation: int, segment: Segment, first: int) -> None:
        self.index = index
        self.generation = generation
        self.segment = segment
        #: The number of the first message that lies in the segment; whoever has consumed it has mapped the segment.
        self.first = first
        #: Writable bytes of the segment.
        self.view = memoryview(segment.memory)
        #: The number of the latest message in it; never repeats, also across generations.
        self.use = 0


class SlotWriter:
    """The writer's slots of one ring. `released[r]` is the index of RELEASED[0] of reader r among `words`."""

    def __init__(self, prefix: str, ring: RingWriter, words: memoryview, released: list[int], most: int) -> None:
        self._prefix = prefix
        self._ring = ring
        self._words = words
        self._released = released
        self._most = most
        self._uses = 0
        self._slots: list[Slot] = []
        #: Segments whose names somebody may still need, with their first messages.
        self._named: list[tuple[int, Segment]] = []
        #: How many slots were given away to readers that hold on to them.
        self.given_away = 0

    def claim(self, size: int) -> Slot:
        """A slot of at least `size` bytes that nobody reads; raises ObjectStoreFullError when memory is full."""
        slot = self._choose(size)
        self._uses += 1
        slot.use = self._uses
        return slot

    def place(self, slot: Slot, length: int) -> bytes:
        """What the ring's entry says of a filled slot."""
        return PLACE.pack(slot.index, slot.generation, slot.use, length)

    def unclaim(self, slot: Slot) -> None:
        """The claimed slot was not filled: nobody will release its use."""
        slot.use = 0

    def _free(self, slot: Slot) -> bool:
        words = self._words
        use = slot.use
        for first in self._released:
            # use 0: claimed and never published.
            if use and words[first + slot.index] != use:
                return False
        return True

    def _choose(self, size: int) -> Slot:
        if self._named:
            self._tidy()
        fitting: Slot | None = None
        small: Slot | None = None
        for slot in self._slots:
            if not self._free(slot):
                continue
            if slot.segment.size >= size:
                if fitting is None or slot.segment.size < fitting.segment.size:
                    fitting = slot
            elif small is None:
                small = slot
        if fitting is not None:
            # SYNC POINT slot: last read, fence, RELEASED | read RELEASED, fence, overwrite.
            trust_fence()
            return fitting
        if small is not None:
            return self._replace(small, size)
        if len(self._slots) < self._most:
            slot = self._make(len(self._slots), 0, size)
            self._slots.append(slot)
            return slot
        slot = self._replace(min(self._slots, key=lambda slot: slot.use), size)
        self.given_away += 1
        return slot

    def _make(self, index: int, generation: int, size: int) -> Slot:
        segment = Segment.create(slot_name(self._prefix, index, generation), max(size, LEAST_SLOT))
        first = self._ring.next
        self._named.append((first, segment))
        return Slot(index, generation, segment, first)

    def _replace(self, old: Slot, size: int) -> Slot:
        """A larger (or fresh) segment in the place of `old`, whose memory goes with its last view."""
        slot = self._make(old.index, old.generation + 1, size)
        self._slots[old.index] = slot
        _unmap(old)
        return slot

    def _tidy(self) -> None:
        """Unlink the names that nobody needs any more."""
        consumed = self._ring.consumed()
        keep = []
        for first, segment in self._named:
            if first < consumed:
                segment.unlink()
            else:
                keep.append((first, segment))
        self._named = keep

    def held(self) -> int:
        """Bytes of shared memory in the slots."""
        return sum(slot.segment.size for slot in self._slots)

    def statistics(self) -> dict[str, int]:
        """Slots, slots in use, bytes, slots given away."""
        in_use = sum(not self._free(slot) for slot in self._slots)
        return {"slots": len(self._slots), "in_use": in_use, "bytes": self.held(), "given_away": self.given_away}

    def close(self) -> None:
        """Let go of all slots; readers keep what they have mapped. Idempotent."""
        for _first, segment in self._named:
            segment.unlink()
        self._named.clear()
        for slot in self._slots:
            _unmap(slot)
        self._slots.clear()
        self._words.release()


def _unmap(slot: Slot) -> None:
    slot.view.release()
    slot.segment.close()


class Attached:
    """One slot's segment as a reader has mapped it."""

    __slots__ = ("generation", "pin_type", "segment")

    def __init__(self, generation: int, segment: Segment) -> None:
        self.generation = generation
        self.segment = segment
        self.pin_type = _pin_type(segment.size)


class SlotReader:
    """The slots of one ring as reader r sees them; `released` is the index of its RELEASED[0] among `words`."""

    def __init__(self, prefix: str, words: memoryview, released: int) -> None:
        self._prefix = prefix
        self._words = words
        self._released = released
        self._attached: dict[int, Attached] = {}

    def open(self, place: bytes) -> tuple[Any, int]:
        """An exporter of the bytes at `place`, which are the caller's until it dies, and their number.

        The slot is released when the exporter and all views of it are gone.
        """
        slot, generation, use, length = PLACE.unpack(place)
        attached = self._attached.get(slot)
        if attached is None or attached.generation != generation:
            if attached is not None:
                attached.segment.close()
            segment = Segment.open(slot_name(self._prefix, slot, generation), writable=True)
            attached = self._attached[slot] = Attached(generation, segment)
        pin = attached.pin_type.from_buffer(attached.segment.memory)
        pin.release = _releaser(self._words, self._released + slot, use, self._attached, slot, generation)
        return pin, length

    def close(self) -> None:
        """Unmap what no view holds. Later releases do nothing. Idempotent."""
        attached = list(self._attached.values())
        self._attached.clear()  # from here on, releases do nothing
        for each in attached:
            each.segment.close()
        self._words.release()


def _releaser(words: memoryview, index: int, use: int, attached: dict[int, Attached], slot: int, generation: int) -> Callable[[], None]:
    process = os.getpid()

    def release() -> None:
        current = attached.get(slot)
        # A slot that was given away has another segment by now, whose uses are not ours to release. And a forked child has copies of
        # its parent's views, but RELEASED stays the parent's word.
        if current is not None and current.generation == generation and os.getpid() == process:
            # SYNC POINT slot: last read, fence, RELEASED | read RELEASED, fence, overwrite.
            publish_fence()
            words[index] = use

    return release


_pin_types: dict[int, Any] = {}


def _pin_type(size: int) -> Any:
    """A type whose instances export `size` bytes of a mapping and say when the last view of them is gone."""
    pin_type = _pin_types.get(size)
    if pin_type is None:

        def finalize(self: Any) -> None:
            self.release()

        pin_type = type("Pin", (ctypes.c_ubyte * size,), {"__del__": finalize, "release": staticmethod(lambda: None)})
        if len(_pin_types) > 256:
            _pin_types.clear()
        _pin_types[size] = pin_type
    return pin_type
