"""The ring, both ends in one process. (Every order of the steps of several: `tests/interleavings`.)"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from mray._ipc import layout as at
from mray._ipc.layout import RingLayout, entries_for
from mray._ipc.ring import STAYS, DamagedError, RingReader, RingWriter
from mray._ipc.segment import Segment
from mray._ipc.slots import PLACE, SlotReader, WriterGoneError


@pytest.fixture
def segment(request: pytest.FixtureRequest) -> Iterator[Segment]:
    made = Segment.create(f"/mray-test-ring-{id(request):x}", 1 << 16)
    made.unlink()
    yield made
    made.close()


def test_a_full_ring_takes_no_more_until_every_reader_has_consumed(segment: Segment) -> None:
    layout = RingLayout(2, 64, 2, 0)
    RingWriter.format(segment, 0, layout)
    writer = RingWriter(segment, 0, layout)
    quick, slow = RingReader(segment, 0, layout, 0), RingReader(segment, 0, layout, 1)
    writer.put(0, b"a")
    writer.put(0, b"b")
    assert not writer.has_room()
    assert quick.take() == (0, b"a")
    assert not writer.has_room()
    assert slow.take() == (0, b"a")
    assert writer.has_room()


def test_a_message_that_stays_is_consumed_in_a_second_step(segment: Segment) -> None:
    layout = RingLayout(1, 64, 1, 0)
    RingWriter.format(segment, 0, layout)
    writer, reader = RingWriter(segment, 0, layout), RingReader(segment, 0, layout, 0)
    writer.put(STAYS, b"place")
    assert reader.take() == (STAYS, b"place")
    assert not writer.has_room()
    reader.consume()
    assert writer.has_room()
    assert reader.take() is None


def test_wanting_room_is_seen_by_the_reader(segment: Segment) -> None:
    layout = RingLayout(1, 64, 1, 0)
    RingWriter.format(segment, 0, layout)
    writer, reader = RingWriter(segment, 0, layout), RingReader(segment, 0, layout, 0)
    assert not reader.room_wanted()
    writer.want_room(True)
    assert reader.room_wanted()
    writer.want_room(False)
    assert not reader.room_wanted()


def test_a_ring_of_another_layout_is_refused(segment: Segment) -> None:
    layout = RingLayout(2, 64, 1, 0)
    RingWriter.format(segment, 0, layout)
    with pytest.raises(ValueError, match="another layout"):
        RingReader(segment, 0, RingLayout(4, 64, 1, 0), 0)
    segment.words()[at.VERSION] += 1
    with pytest.raises(ValueError, match="another layout"):
        RingReader(segment, 0, layout, 0)


@pytest.mark.parametrize("offset", [-8, 4, 1 << 16])
def test_a_ring_that_lies_outside_its_segment_is_refused(segment: Segment, offset: int) -> None:
    with pytest.raises(ValueError, match=f"no ring of .* bytes lies at {offset} of {segment.name}, which has 65536 bytes"):
        RingReader(segment, offset, RingLayout(2, 64, 1, 0), 0)


@pytest.mark.parametrize(("in_flight", "entries"), [(1, 2), (2, 2), (3, 4), (8, 8), (10, 16), (1000, 1024)])
def test_rings_hold_what_may_be_in_flight(in_flight: int, entries: int) -> None:
    assert entries_for(in_flight) == entries


@pytest.mark.parametrize("layout", [RingLayout(1, 64, 1, 0), RingLayout(8, 128, 3, 5), RingLayout(4, 4096, 2, 64)])
def test_no_two_writers_share_a_line(layout: RingLayout) -> None:
    line = at.LINE_WORDS * at.WORD
    starts = [
        0,
        *[layout.reader_block(reader) * at.WORD for reader in range(layout.readers)],
        *[layout.entry(i) for i in range(layout.entries)],
    ]
    assert all(start % line == 0 for start in starts)
    assert len(set(starts)) == len(starts)
    assert layout.released(layout.readers - 1) * at.WORD + layout.slots * at.WORD <= layout.entry(0)
    assert layout.entry(layout.entries) <= layout.size


@pytest.fixture
def slots(segment: Segment) -> Iterator[tuple[SlotReader, Segment]]:
    prefix = f"/mray-test-slots-{os.getpid()}-"
    slot = Segment.create(f"{prefix}1.7", 4096)
    reader = SlotReader(prefix, segment.words(), 16, 4)
    yield reader, slot
    reader.close()
    slot.unlink()
    slot.close()


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (b"short", f"5 bytes give the place of a value, instead of {PLACE.size}"),
        (PLACE.pack(4, 7, 1, 100), "a value lies in slot 4 of a ring that has 4"),
        (PLACE.pack(1, 7, 1, 1 << 20), "a value of 1048576 bytes lies in a slot of 4096"),
    ],
    ids=["size", "slot", "length"],
)
def test_a_place_where_no_value_can_lie_is_damage(slots: tuple[SlotReader, Segment], place: bytes, text: str) -> None:
    reader, _slot = slots
    with pytest.raises(DamagedError, match=text):
        reader.open(place)


def test_the_error_of_a_value_names_the_process_that_has_exited(slots: tuple[SlotReader, Segment], child: subprocess.Popen[bytes]) -> None:
    reader, _slot = slots
    child.kill()
    child.wait()
    with pytest.raises(WriterGoneError, match=f"process {child.pid}, which passed this value on, has exited"):
        reader.borrow(0, 1, [("a value", child.pid, 3, 1)], False)
