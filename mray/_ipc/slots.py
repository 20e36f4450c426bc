"""Payload slots: memory of messages too large for a ring's entry, lent to readers until they release it.

    writer process                                     reader process r
    SlotWriter.claim -> Slot (a segment), fill it      SlotReader.open(place) -> Pin (a view that exports the bytes)
    the entry carries the slot's *place*  ---------->  arrays are views of the pin (a pickle without arrays is read and released)
    a slot is free when every reader has    <--------  RELEASED[slot] of reader r = use, when the last view dies
    released its latest use

Each slot is a segment. When all slots are taken, the oldest is *given away*: the writer unlinks and unmaps it, so its memory lives as
long as its views. So a reader that holds an array never blocks the writer.

The writer unlinks a segment's name when all readers have consumed its first message; until then it offers the segment to readers that do
not find the name. Names that a crash leaves carry the ring's prefix.

*Passing on.* A value that lies in foreign memory (a slot of another ring, an object of the store) is not copied: SlotWriter.lend takes a
slot's number without memory and keeps the value alive until every reader has released it; meanwhile this process pins the original slot,
so the original writer does not touch it. At most half of the numbers are lent, since a loan cannot be given away.

    A: claim ---- place ----> B: open (a pin) ... lend(value) ---- number, B's descriptor ----> C: borrow (pins of A's segment)
    A's RELEASED[slot] of B <- the pin dies <- B drops the value <---- B's RELEASED[number] of C <- the last pin dies

Loans outlive both ends of their ring (`mray._ipc.ring_loans`), and a reader releases also after its own close.

Releases come from finalizers, which may run between any two byte codes of any thread: they only write one word of their own.
"""

from __future__ import annotations

import ctypes
import errno
import weakref
from collections.abc import Callable, Collection, Sequence
from struct import Struct
from typing import Any

from mray._common.kept import os
from mray._common.process_local import kernel_pid
from mray._ipc import layout as at
from mray._ipc.limits import above_limit, exhausted
from mray._ipc.mapped import Mapped, Origin, open_origin
from mray._ipc.memory_order import publish_fence, trust_fence
from mray._ipc.ring import DamagedError, RingWriter
from mray._ipc.ring_loans import RingLoans, sign, sweep_closed
from mray._ipc.segment import SHM, Ask, Descriptor, Segment, for_what, new_nonce, open_memory, unlink
from mray.exceptions import ObjectStoreFullError

#: Slot, generation of its segment, use, length in bytes.
PLACE = Struct("@QQQQ")

#: Bytes; values of slightly different sizes share a slot.
LEAST_SLOT = 64 * 1024

#: Cached mappings of foreign memory.
MOST_BORROWED = 32

#: Messages that a reader copies after it has written to a tensor: a copy-on-write fault costs more than a page's copy.
COPIES = 32


class WriterGoneError(FileNotFoundError):
    """The writer has left the ring or died, and its memory is freed."""


def slot_name(prefix: str, slot: int, generation: int) -> str:
    return f"{prefix}{slot:x}.{generation:x}"


def _next_generation(_generation: int) -> int:
    """Unpredictable, so that no other user can create the name first."""
    return new_nonce()


@above_limit()
def unlink_all(prefix: str) -> None:
    wanted = prefix[1:]
    for name in os.listdir(SHM):
        if name.startswith(wanted):
            unlink("/" + name)


class Slot:
    """Memory, a loan, or neither."""

    __slots__ = ("generation", "index", "keep", "segment", "use", "view")

    def __init__(self, index: int) -> None:
        self.index = index
        self.generation = 0
        self.segment: Segment | None = None
        self.view = memoryview(b"")
        #: The number of its latest message; never repeats, also across generations.
        self.use = 0
        #: Kept alive by a loan.
        self.keep: object = None

    def fill(self, segment: Segment, generation: int) -> None:
        self.generation = generation
        self.segment = segment
        self.view = memoryview(segment.memory)

    def empty(self) -> None:
        """Readers retain their mappings."""
        if self.segment is not None:
            self.view.release()
            self.segment.close()
            self.segment = None


class SlotWriter:
    """`released[r]` is the index of RELEASED[0] of reader r among `words`."""

    def __init__(self, prefix: str, ring: RingWriter, words: memoryview, released: list[int], most: int, name: str = "") -> None:
        self._prefix = prefix
        self._name = name
        self._ring = ring
        self._words = words
        self._released = released
        self._most = most
        self._uses = 0
        self._slots: list[Slot] = []
        self._loans = _PassedOn(words[:], released)
        #: Named segments with their first messages: a reader that has consumed it has mapped the segment.
        self._named: list[tuple[int, Segment]] = []
        self.given_away = 0
        #: Values passed on without a copy.
        self.passed_on = 0
        sweep_closed()

    def claim(self, size: int) -> Slot:
        """Return a slot of at least `size` bytes that no reader holds. Raises ObjectStoreFullError."""
        slot = self._choose(size)
        self._uses += 1
        slot.use = self._uses
        # POINT slot claimed
        return slot

    def place(self, slot: Slot, length: int) -> bytes:
        return PLACE.pack(slot.index, slot.generation, slot.use, length)

    def unclaim(self, slot: Slot) -> None:
        """Undo a claim or loan that was not sent."""
        slot.use = 0
        if slot.keep is not None:
            self.passed_on -= 1
            slot.keep = None
            del self._loans.out[slot.index]

    def lend(self, keep: object) -> Slot | None:
        """Return a slot without memory that keeps an object alive until every reader has released it; None if none is left."""
        self.end_loans()
        sweep_closed()
        if len(self._loans.out) >= self._most // 2:
            return None
        slot = next((slot for slot in self._slots if slot.segment is None and slot.keep is None), None)
        if slot is None:
            slot = self._add() or self._vacate()
            if slot is None:
                return None
        self._uses += 1
        slot.use = self._uses
        slot.keep = keep
        self.passed_on += 1
        self._loans.out[slot.index] = slot.use, slot
        return slot

    def _add(self) -> Slot | None:
        if len(self._slots) >= self._most:
            return None
        slot = Slot(len(self._slots))
        self._slots.append(slot)
        return slot

    def _vacate(self) -> Slot | None:
        for slot in self._slots:
            if slot.segment is not None and self._free(slot):
                slot.empty()
                return slot
        return None

    def end_loans(self) -> None:
        self._loans.sweep()

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
        if self._loans.out:
            self._loans.sweep()
        fitting: Slot | None = None
        least = 0
        other: Slot | None = None
        for slot in self._slots:
            if slot.keep is not None or not self._free(slot):
                continue
            held = 0 if slot.segment is None else slot.segment.size
            if held >= size:
                if fitting is None or held < least:
                    fitting = slot
                    least = held
            elif other is None or (other.segment is None and slot.segment is not None):
                # Prefer a slot that is too small, to free its memory.
                other = slot
        if fitting is not None:
            # SYNC POINT slot: last read, fence, RELEASED | read RELEASED, fence, overwrite.
            trust_fence()
            return fitting
        slot = other or self._add() or self._give_away()
        generation = _next_generation(slot.generation)
        try:
            segment = Segment.create(slot_name(self._prefix, slot.index, generation), max(size, LEAST_SLOT), offer=True)
        except (OSError, ObjectStoreFullError) as error:
            if self._name:
                raise for_what(error, self._name) from None
            raise
        # POINT slot made
        self._named.append((self._ring.next, segment))
        slot.empty()
        slot.fill(segment, generation)
        return slot

    def _give_away(self) -> Slot:
        self.given_away += 1
        return min((slot for slot in self._slots if slot.keep is None), key=lambda slot: slot.use)

    def _tidy(self) -> None:
        consumed = self._ring.consumed()
        keep = []
        for first, segment in self._named:
            if first < consumed:
                segment.unlink()
            else:
                keep.append((first, segment))
        self._named = keep

    def held(self) -> int:
        return sum(segment.size for segment in [slot.segment for slot in self._slots] if segment is not None)

    def statistics(self) -> dict[str, int]:
        """Any thread."""
        filled = [slot for slot in self._slots if slot.segment is not None]
        in_use = sum(not self._free(slot) for slot in filled)
        return {
            "slots": len(filled),
            "in_use": in_use,
            "bytes": self.held(),
            "given_away": self.given_away,
            "passed_on": self.passed_on,
            "on_loan": self._loans.held(),
        }

    def close(self) -> None:
        """Readers retain their mappings. Idempotent."""
        for _first, segment in self._named:
            segment.unlink()
        self._named.clear()
        for slot in self._slots:
            slot.empty()
        self._slots.clear()
        self._loans.close()
        self._words.release()


class _PassedOn(RingLoans[Slot]):
    __slots__ = ()

    def over(self, number: int, use: int, thing: Slot, dead: Collection[int]) -> bool:
        if any(self.words[first + number] != use for first in dead):
            # A dead reader may have passed it on: never reuse the memory.
            for each in thing.keep if isinstance(thing.keep, (tuple, list)) else ():
                if isinstance(each, Descriptor):
                    each.exposed = True
        thing.keep = None
        return True


class Attached:
    """A slot's segment, mapped by a reader."""

    __slots__ = ("generation", "memory", "pin_type")

    def __init__(self, generation: int, memory: Mapped) -> None:
        self.generation = generation
        self.memory = memory
        self.pin_type = _pin_type(memory.region.size)


class Loan:
    """Held by the pins of a message; its finalizer releases the loan."""

    __slots__ = ("__weakref__", "_release", "writable")

    def __init__(self, release: Callable[[], None], writable: bool) -> None:
        self._release = release
        #: Whether pins may be written to.
        self.writable = writable

    def __del__(self) -> None:
        self._release()


class Borrowed:
    """Foreign memory mapped by a reader, with its users here."""

    __slots__ = ("inode", "loans", "memory", "named", "pin_type")

    def __init__(self, inode: int, named: bool, memory: Mapped) -> None:
        self.inode = inode
        self.named = named
        self.memory = memory
        self.pin_type = _pin_type(memory.region.size)
        self.loans: list[weakref.ref[Loan]] = []

    def admits(self, writable: bool) -> bool:
        """Whether the mapping can serve one more message; a writable one needs it exclusively."""
        self.loans = [reference for reference in self.loans if reference() is not None]
        loans = [reference() for reference in self.loans]
        return not writable and not any(loan.writable for loan in loans if loan is not None)

    def is_idle(self) -> bool:
        return all(reference() is None for reference in self.loans)


class SlotReader:
    """`released` is the index of RELEASED[0] of this reader among `words`."""

    def __init__(self, prefix: str, words: memoryview, released: int, most: int, ask: Ask | None = None) -> None:
        self._prefix, self._ask = prefix, ask
        self._words = words
        self._released = released
        self._most = most
        self._attached: dict[int, Attached] = {}
        #: By name, the longest unused first.
        self._borrowed: dict[str, Borrowed] = {}
        self._copies = 0
        line = released - at.LINE_WORDS
        sign(words, line)
        #: Held by this reader and by the loans that it has received.
        self._holder: _Holder | None = _Holder(words[:], line + at.HOLDS)

    def open(self, place: bytes) -> tuple[Any, int]:
        """Return an exporter of the bytes at `place`, and their number. The slot is released when the exporter and its views are dead.

        Raises `WriterGoneError`; `DamagedError` for an invalid place.
        """
        attached, length, release = self._find_slot(place)
        memory = attached.memory
        if memory.region.refresh(memory, length):
            self._copies = COPIES
        pin = attached.pin_type.from_buffer(memory)
        pin.release = release
        return pin, length

    def look(self, place: bytes) -> tuple[memoryview, Callable[[], None]]:
        """Return the bytes at `place`, not to be retained, and the function that releases the slot. Raises as `open`."""
        attached, length, release = self._find_slot(place)
        memory = attached.memory
        if memory.region.refresh(memory, 0):
            self._copies = COPIES
        return memoryview(memory)[:length], release

    def _find_slot(self, place: bytes) -> tuple[Attached, int, Callable[[], None]]:
        if len(place) != PLACE.size:
            raise DamagedError(f"{len(place)} bytes give the place of a value, instead of {PLACE.size}")
        slot, generation, use, length = PLACE.unpack(place)
        if slot >= self._most:
            raise DamagedError(f"a value lies in slot {slot} of a ring that has {self._most}")
        attached = self._attached.get(slot)
        if attached is None or attached.generation != generation:
            if attached is not None:
                attached.memory.let_go()
            memory = _map_named(slot_name(self._prefix, slot, generation), f"{self._prefix}{slot:x}", self._ask)
            attached = self._attached[slot] = Attached(generation, memory)
        size = attached.memory.region.size
        if length > size:
            raise DamagedError(f"a value of {length} bytes lies in a slot of {size}")
        return attached, length, _releaser(self._words, self._released + slot, use, self._attached, slot, generation)

    def borrow(self, slot: int, use: int, origins: Sequence[Origin], writable: bool) -> list[Any]:
        """Return exporters of foreign memory; the loan is released when all of them and their views are dead.

        Raises `WriterGoneError` when the process that passed the value on died before it was mapped; `DamagedError`.
        """
        if not (type(slot) is type(use) is int and 0 <= slot < self._most and 0 <= use < 1 << 64):
            raise DamagedError(f"a value was passed on as the loan {slot!r} of a ring that has {self._most}")
        assert self._holder is not None
        loan = Loan(_loan_releaser(self._holder, self._released + slot, use), writable)
        vacated = self._attached.pop(slot, None)
        if vacated is not None:
            vacated.memory.let_go()
        pins = []
        for origin in origins:
            borrowed = self._find(origin, writable)
            borrowed.loans.append(weakref.ref(loan))
            pin = borrowed.pin_type.from_buffer(borrowed.memory)
            pin.loan = loan
            pins.append(pin)
        return pins

    def _find(self, origin: Origin, writable: bool) -> Borrowed:
        key, pid, fd, inode = origin
        if not (type(pid) is type(fd) is int and isinstance(key, str)):
            raise DamagedError("a value was passed on without saying where it lies")
        known = self._borrowed.pop(key, None)
        if known is not None and (known.inode != inode or not known.admits(writable)):
            known.memory.let_go()
            known = None
        if known is None:
            self._forget_idle()
            known = _map_of(pid, fd, inode, key, self._ask)
        if known.is_idle() and known.memory.region.refresh(known.memory, known.memory.region.size):
            self._copies = COPIES
        self._borrowed[key] = known
        return known

    def wants_copy(self) -> bool:
        """Whether to copy this message's tensors, since they will probably be written to. Call once per message with tensors."""
        if not self._copies:
            return False
        self._copies -= 1
        return True

    def _forget_idle(self) -> None:
        spare = len(self._borrowed) - MOST_BORROWED
        for key, borrowed in list(self._borrowed.items()):
            descriptor = borrowed.memory.region.descriptor
            gone = borrowed.named and (descriptor is None or not descriptor.is_named())
            if (gone or spare >= 0) and borrowed.is_idle():
                borrowed.memory.let_go()
                del self._borrowed[key]
                spare -= 1

    def close(self) -> None:
        """Unmap what has no views; later releases do nothing, since views own the memory. Idempotent."""
        attached = list(self._attached.values())
        self._attached.clear()
        self._holder = None
        for memory in (*(each.memory for each in attached), *(each.memory for each in self._borrowed.values())):
            memory.let_go()
        self._borrowed.clear()
        self._words.release()


def _map_named(name: str, key: str, ask: Ask | None) -> Mapped:
    try:
        descriptor = Descriptor(open_memory(name, ask=ask))
    except (FileNotFoundError, ConnectionError) as error:
        raise WriterGoneError(*error.args, name) from error
    return Mapped.of(descriptor.fd, descriptor.size, key, descriptor)


def _map_of(pid: int, fd: int, inode: int, key: str, ask: Ask | None) -> Borrowed:
    """`ask` the process where the kernel denies access."""
    try:
        descriptor = open_origin(pid, fd, inode, ask)
    except (FileNotFoundError, PermissionError, ConnectionError) as error:
        raise WriterGoneError(errno.ENOENT, f"process {pid}, which passed this value on, has exited", key) from error
    except OSError as error:
        raise exhausted(error, f"A value of process {pid} could not be mapped.") from error
    if descriptor.inode != inode:
        raise WriterGoneError(errno.ENOENT, f"process {pid}, which passed this value on, has exited", key)
    return Borrowed(inode, descriptor.named, Mapped.of(descriptor.fd, descriptor.size, key, descriptor))


def _releaser(words: memoryview, index: int, use: int, attached: dict[int, Attached], slot: int, generation: int) -> Callable[[], None]:
    process = kernel_pid()

    def release() -> None:
        current = attached.get(slot)
        # A slot given away has another segment by now, whose uses are not released here. A forked child shares its parent's views, but only
        # the parent writes RELEASED.
        if current is not None and current.generation == generation and kernel_pid() == process:
            # SYNC POINT slot: last read, fence, RELEASED | read RELEASED, fence, overwrite.
            publish_fence()
            words[index] = use

    return release


class _Holder:
    """Clears HOLDS when a reader and all its loans are dead."""

    __slots__ = ("_index", "_process", "words")

    def __init__(self, words: memoryview, index: int) -> None:
        self.words = words
        self._index = index
        self._process = kernel_pid()

    def __del__(self) -> None:
        if kernel_pid() == self._process:
            # SYNC POINT loan: last read, NOTE, fence, its word | read its word, fence, read NOTE, overwrite.
            publish_fence()
            self.words[self._index] = 0


def _loan_releaser(holder: _Holder, index: int, use: int) -> Callable[[], None]:
    process = kernel_pid()

    def release() -> None:
        if kernel_pid() == process:
            # SYNC POINT loan: last read, NOTE, fence, its word | read its word, fence, read NOTE, overwrite.
            publish_fence()
            holder.words[index] = use

    return release


_pin_types: dict[int, Any] = {}


def _pin_type(size: int) -> Any:
    """A type that exports `size` bytes and calls back when its last view dies."""
    pin_type = _pin_types.get(size)
    if pin_type is None:

        def finalize(self: Any) -> None:
            self.release()

        pin_type = type("Pin", (ctypes.c_ubyte * size,), {"__del__": finalize, "release": staticmethod(lambda: None)})
        if len(_pin_types) > 256:
            _pin_types.clear()
        _pin_types[size] = pin_type
    return pin_type
