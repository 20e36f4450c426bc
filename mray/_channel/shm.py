"""Channel between processes: a ring in shared memory, payload slots for large values, doorbells for sleeping processes.

    writer                                                               reader
    str, bytes: as they are  ┐
    builtin values: pickle   ├── small ── entry of the ring ── copied out ── decoded
    arrays, tensors: as they │
    are                      ├── large ── payload slot ◀── the entry names it ── arrays and tensors are views of the slot
    the rest: serializer     ┘
    received values: stay in place ◀──────────── the entry names the place ── arrays and tensors are views of that
    then ring every reader's doorbell (no system call while the reader is awake)

The reader's views pin the slot until the last of them dies (`mray._ipc.slots`). Large arrays and tensors that this process has received
are passed on without another copy, also slices of them, alone or within other values, if they were not written to.

Waiting for room is rare, since a ring has as many entries as there may be executions in flight: the writer raises WANTED, and a reader
that finds it raised rings back, at every fourth message and before it sleeps.
"""

from __future__ import annotations

import marshal
import pickle
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from mray._channel.array_form import decode_array, encode_array
from mray._channel.base import NOTHING, ChannelReader, ChannelWriter, Failed
from mray._channel.tensor_form import decode_tensor, encode_tensor
from mray._common.messages import FAILED, PACKED, PICKLED
from mray._common.record import Record
from mray._ipc.copying import copy_into
from mray._ipc.doorbell import Doorbell, GroupDoorbell
from mray._ipc.frames import decode_short
from mray._ipc.layout import WORD, RingLayout
from mray._ipc.mapped import Origin, Region, address_of, find, origin_of
from mray._ipc.ring import STAYS, DamagedError, RingReader, RingWriter
from mray._ipc.segment import Ask, Segment
from mray._ipc.slots import PLACE, SlotReader, SlotWriter, WriterGoneError
from mray._objects.remote_error import UNPICKLABLE, serialization_error
from mray._objects.serializer import Serialized, deserialize, has_tensors, serialize
from mray._objects.tensors import is_tensor_memory

TEXT = 8
BYTES = 9
ARRAY = 10
TENSOR = 11
#: A value in foreign memory: number and use of the loan, origins of the memory, whether the value may be written to, form and part of the
#: value in the message (or its place), position in the first origin.
PASSED_ON = 12
#: A device tensor, see `mray._gpu.cuda_ipc`; one whose lease is to be remembered, and one more of it, see `mray._gpu.remembered`.
DEVICE = 13
FIRST_ON_DEVICE = 14
AGAIN_ON_DEVICE = 15

#: Bytes from which on passing on is cheaper than copying.
LEAST_PASSED_ON = 128 * 1024
#: Limited since their descriptions must fit an entry.
MOST_ORIGINS = 8

#: Forms that are decoded without a view of their bytes.
_WITHOUT_VIEWS = frozenset({PICKLED, TEXT, BYTES, FAILED})

_PLAIN = frozenset({int, float, bool, type(None), complex})
_CONTAINERS = frozenset({dict, list, tuple, set})
_dumps = pickle.dumps
_loads = pickle.loads


class WriterEnd(Record):
    """A writer's ring and readers."""

    #: The memory of the ring, and the ring's offset there, in bytes.
    segment: Segment
    offset: int
    layout: RingLayout
    #: Prefix of the names of payload slots.
    prefix: str
    #: One per reader.
    doorbells: Sequence[Doorbell]
    #: Wakes all readers.
    group: GroupDoorbell | None = None
    name: str = ""


class ReaderEnd(Record):
    """A reader's ring and writer."""

    #: As in `WriterEnd`.
    segment: Segment
    offset: int
    layout: RingLayout
    reader: int
    prefix: str
    #: The writer's doorbell.
    doorbell: Doorbell
    #: Pickles an error that replaces a message.
    failure: Callable[[BaseException], bytes]
    #: Asks the writer for unlinked slots.
    ask: Ask | None = None


class ShmWriter(ChannelWriter):
    """The writing end."""

    __slots__ = ("_doorbells", "_inline", "_only_doorbell", "_passed", "_put", "_refs", "_ring", "_slots", "_wanting")

    def __init__(self, end: WriterEnd) -> None:
        segment, offset, layout, prefix, doorbells, group, name = end
        self._ring = ring = RingWriter(segment, offset, layout)
        self._put = ring.put
        self._inline = layout.inline
        released = [offset // WORD + layout.released(reader) for reader in range(layout.readers)]
        self._slots = SlotWriter(prefix, ring, segment.words(), released, layout.slots, name)
        self._doorbells = tuple(doorbells)
        self._only_doorbell: Callable[[], None] = (
            doorbells[0].ring if len(doorbells) == 1 else self._ring_all if group is None else group.ring
        )
        #: Message number -> refs inside a value in flight, retained until every reader has read it.
        self._refs: deque[tuple[int, list[Any]]] = deque()
        self._wanting = False
        #: Passed-on bytes of the last message.
        self._passed = 0

    def try_write(self, value: Any) -> bool:
        ring = self._ring
        if ring.next >= ring.limit and not self.has_room():
            return False
        kind = value.__class__
        if kind is str:
            try:
                payload = value.encode()
                form = TEXT
            except UnicodeEncodeError:  # lone surrogates
                payload = _dumps(value, 5)
                form = PICKLED
        elif kind is bytes:
            payload = value
            form = BYTES
        elif kind in _PLAIN:
            payload = _dumps(value, 5)
            form = PICKLED
        elif kind is Failed:
            payload = value.payload
            form = FAILED
        else:
            self._write_any(value)
            self._only_doorbell()
            return True
        if len(payload) <= self._inline:
            self._put(form, payload)
        else:
            self._put_large(form, payload)
        self._only_doorbell()
        return True

    def _write_any(self, value: Any) -> None:
        if value.__class__ not in _CONTAINERS:
            encoded = encode_array(value)
            if encoded is not None:
                self._write_memory(ARRAY, *encoded)
                return
            encoded = encode_tensor(value)
            if encoded is not None:
                self._write_memory(TENSOR, *encoded)
                return
        serialized = self._serialize(value)
        if self._refs or serialized.refs:
            self._keep_refs(serialized.refs)
        if serialized.size >= LEAST_PASSED_ON and serialized.buffers and self._pass_on_parts(serialized):
            return
        if serialized.size <= self._inline:
            self._put(serialized.form, serialized.to_bytes())
        else:
            self._put(serialized.form + STAYS, self._fill_slot(serialized))

    def _serialize(self, value: Any) -> Serialized:
        try:
            return serialize(value, refuse_grad=True)
        except UNPICKLABLE as error:
            raise serialization_error(error, value, "the value {} of a graph") from None

    def _fill_slot(self, serialized: Serialized) -> bytes:
        slot = self._slots.claim(serialized.size)
        try:
            serialized.write_into(slot.view)
        except BaseException:
            self._slots.unclaim(slot)
            raise
        return self._slots.place(slot, serialized.size)

    def _write_memory(self, form: int, head: bytes, memory: memoryview) -> None:
        length = memory.nbytes
        start = len(head)
        size = start + length
        if size <= self._inline:
            self._put(form, head + memory)
            return
        if length >= LEAST_PASSED_ON and self._pass_on(form, head, memory):
            return
        slot = self._slots.claim(size)
        slot.view[:start] = head
        copy_into(slot.view[start:size], memory)
        self._put(form + STAYS, self._slots.place(slot, size))

    def _pass_on(self, form: int, head: bytes, memory: memoryview) -> bool:
        """Send the location of a value's memory, if others can map it. Returns whether it was sent."""
        address = address_of(memory)
        region = find(address, memory.nbytes)
        if region is None:
            return False
        passed = region.is_clean(address, memory.nbytes) and self._pass_on_from(region, address - region.address, form, head, memory)
        region.note_sent(copied=not passed)
        return passed

    def _pass_on_from(self, region: Region, offset: int, form: int, head: bytes, memory: memoryview) -> bool:
        described = origin_of(region)
        if described is None:
            return False
        origin, descriptor = described
        loan = self._slots.lend((memory, descriptor))
        if loan is None:
            return False
        payload = marshal.dumps((loan.index, loan.use, (origin,), form == TENSOR, form, head, offset, memory.nbytes))
        if len(payload) > self._inline:
            self._slots.unclaim(loan)
            return False
        self._put(PASSED_ON, payload)
        return True

    def _pass_on_parts(self, serialized: Serialized) -> bool:
        """Send a value that contains such memory. Returns whether it does."""
        elsewhere: dict[int, tuple[int, int]] = {}
        origins: list[Origin] = []
        keep: list[object] = []
        taken: list[tuple[int, int, int]] = []
        writable = False
        found: list[tuple[int, Region]] = []
        for number, buffer in enumerate(serialized.buffers):
            length = buffer.nbytes
            if length < LEAST_PASSED_ON:
                continue
            address = address_of(buffer)
            region = find(address, length)
            if region is None:
                continue
            found.append((number, region))
            if not region.is_clean(address, length):
                continue
            described = origin_of(region)
            if described is None:
                continue
            origin, descriptor = described
            piece = next((piece for piece, known in enumerate(origins) if known[0] == origin[0] and known[3] == origin[3]), len(origins))
            offset = address - region.address
            # Copied parts of a message share no memory, so parts that are passed on may not either.
            if piece == MOST_ORIGINS or any(piece == other and start < offset + length and offset < end for other, start, end in taken):
                continue
            if piece == len(origins):
                origins.append(origin)
            keep += (buffer, descriptor)
            taken.append((piece, offset, offset + length))
            elsewhere[number] = piece, offset
            writable = writable or is_tensor_memory(buffer.obj)
        loan = self._slots.lend(keep) if elsewhere else None
        for number, region in found:
            region.note_sent(copied=loan is None or number not in elsewhere)
        if loan is None:
            return False
        serialized.divert(elsewhere)
        self._passed = sum(end - start for _piece, start, end in taken)
        info = loan.index, loan.use, tuple(origins), writable, PACKED
        try:
            if serialized.size < self._inline:
                payload = marshal.dumps((*info, serialized.to_bytes(), 0, 0))
                if len(payload) <= self._inline:
                    self._put(PASSED_ON, payload)
                    return True
            self._put(PASSED_ON + STAYS, marshal.dumps((*info, self._fill_slot(serialized), 0, 0)))
        except BaseException:
            self._slots.unclaim(loan)
            raise
        return True

    def _put_large(self, form: int, payload: bytes) -> None:
        slot = self._slots.claim(len(payload))
        copy_into(slot.view[: len(payload)], payload)
        self._put(form + STAYS, self._slots.place(slot, len(payload)))

    def _keep_refs(self, refs: list[Any] | None) -> None:
        consumed = self._ring.consumed()
        while self._refs and self._refs[0][0] < consumed:
            self._refs.popleft()
        if refs:
            self._refs.append((self._ring.next, refs))

    def _ring_all(self) -> None:
        for doorbell in self._doorbells:
            doorbell.ring()

    def has_room(self) -> bool:
        ring = self._ring
        if not ring.has_room():
            ring.want_room(True)
            self._wanting = True
            if not ring.has_room():
                return False
        if self._wanting:
            self._wanting = False
            ring.want_room(False)
        return True

    def end_loans(self) -> None:
        self._slots.end_loans()

    def position(self) -> int:
        return self._ring.next

    def last_size(self) -> int:
        form, payload = self._ring.last()
        passed: int = 0
        if form % STAYS == PASSED_ON:
            *_lent, inner, payload, _offset, length = marshal.loads(payload)
            if inner != PACKED:
                return len(payload) + int(length)
            passed = self._passed
        return passed + (int(PLACE.unpack(payload)[3]) if form >= STAYS else len(payload))

    def statistics(self) -> dict[str, int]:
        """Messages written, not yet consumed, and the counters of the payload slots (`SlotWriter.statistics`)."""
        ring = self._ring
        return {"written": ring.next, "waiting": ring.next - ring.consumed(), **self._slots.statistics()}

    def close(self) -> None:
        self._ring.close()
        self._slots.close()
        self._refs.clear()


class ShmReader(ChannelReader):
    """The end of one reader.

    When the writer leaves, or dies, before a sent value could be mapped, no further message arrives.
    """

    __slots__ = ("_doorbell", "_failure", "_ring", "_slots", "_take")

    def __init__(self, end: ReaderEnd) -> None:
        segment, offset, layout, reader, prefix, doorbell, failure, ask = end
        self._ring = ring = RingReader(segment, offset, layout, reader)
        self._take = ring.take
        self._slots = SlotReader(prefix, segment.words(), offset // WORD + layout.released(reader), layout.slots, ask)
        self._doorbell = doorbell
        self._failure = failure

    def try_read(self) -> Any:
        try:
            message = self._take()
            if message is None:
                return NOTHING
            form, payload = message
            try:
                if form == TEXT:
                    return payload.decode()
                if form == PICKLED:
                    return _loads(payload)
                if form == BYTES:
                    return payload
                return self._decode(form, payload)
            except (WriterGoneError, DamagedError):
                raise
            except Exception as error:
                return Failed(self._failure(error))
        except WriterGoneError:
            self._ring.give_up()
            return NOTHING
        except DamagedError as error:
            self._ring.give_up()  # the rest cannot be trusted either
            return Failed(self._failure(error))
        finally:
            ring = self._ring
            if not ring.next & 3 and ring.room_wanted():
                self._doorbell.ring()

    def _decode(self, form: int, payload: bytes) -> Any:
        if form < STAYS:
            if form == ARRAY:
                return decode_array(payload, len(payload))
            if form == TENSOR:
                return decode_tensor(bytearray(payload))
            if form == PASSED_ON:
                return self._decode_passed_on(payload, False)
            return Failed(payload) if form == FAILED else deserialize(form, payload)
        form -= STAYS
        if form == PASSED_ON:
            return self._decode_passed_on(payload, True)
        if form in _WITHOUT_VIEWS:
            return self._decode_whole(form, payload)
        try:
            pin, length = self._slots.open(payload)
        finally:
            self._ring.consume()
        if form == ARRAY:
            return decode_array(pin, length)
        if form == TENSOR:
            tensor = decode_tensor(pin)
            return tensor.clone() if self._slots.wants_copy() else tensor
        if form == PACKED:
            return deserialize(PACKED, None, pin, copy_tensors=has_tensors(pin) and self._slots.wants_copy())
        raise DamagedError(f"no value has form {form}")

    def _decode_whole(self, form: int, place: bytes) -> Any:
        try:
            view, release = self._slots.look(place)
        finally:
            self._ring.consume()
        try:
            if form == PICKLED:
                return _loads(view)
            copied = bytes(view)
        finally:
            view.release()
            release()
        if form == TEXT:
            return copied.decode()
        return Failed(copied) if form == FAILED else copied

    def _decode_passed_on(self, payload: bytes, stays: bool) -> Any:
        pin = None
        try:
            loan, use, origins, writable, form, body, offset, length = decode_short(payload)
            pins = self._slots.borrow(loan, use, origins, writable)
            if stays:
                pin, _length = self._slots.open(body)
        finally:
            if stays:
                self._ring.consume()
        if form == ARRAY:
            return decode_array(body, length, pins[0], offset)
        copies = writable and self._slots.wants_copy()
        if form == TENSOR:
            tensor = decode_tensor(body, pins[0], offset)
            return tensor.clone() if copies else tensor
        return deserialize(form, body, pin, pins, copy_tensors=copies)

    def ready(self) -> bool:
        ring = self._ring
        if ring.words[ring.published] > ring.next:
            return True
        # SYNC POINT room: WANTED, fence, look at CONSUMED again | CONSUMED, fence before sleeping, look at WANTED.
        # (The fence is the reactor's: it calls this once more between saying that the process sleeps and sleeping.)
        if ring.words[ring.wanted]:
            self._doorbell.ring()
        return False

    def position(self) -> int:
        return self._ring.next

    def failed(self) -> bool:
        return self._ring.form() in (FAILED, FAILED + STAYS)

    def close(self) -> None:
        self._ring.close()
        self._slots.close()
