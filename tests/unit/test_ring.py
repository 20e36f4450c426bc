"""The ring: every order in which the steps of one writer and its readers can happen, crashes included.

The real code runs in threads that take turns: each access to shared memory is a step, and a scheduler tries all orders of steps.
(The order of memory itself is not modelled: that is what `mray._ipc.memory_order` is for.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

import pytest

from mray._ipc import layout as at
from mray._ipc import ring as ring_module
from mray._ipc.layout import RingLayout, entries_for
from mray._ipc.ring import STAYS, RingReader, RingWriter
from mray._ipc.segment import Segment


class Crashed(BaseException):
    """The process of this thread ends here."""


class Turns:
    """Runs functions in threads, one step at a time, in the order that `choices` says; then always the first that can."""

    def __init__(self, functions: list[Callable[[], Any]], choices: list[int], crash: tuple[int, int] | None) -> None:
        self.choices = choices
        self.crash = crash
        #: How many threads could have moved at each step.
        self.widths: list[int] = []
        self.results: list[Any] = [None] * len(functions)
        self.steps = [0] * len(functions)
        self._go = [threading.Lock() for _ in functions]
        self._back = threading.Lock()
        self._alive = [True] * len(functions)
        self._local = threading.local()
        self._errors: list[BaseException] = []
        for lock in (*self._go, self._back):
            lock.acquire()
        self._threads = [threading.Thread(target=self._run, args=(number, function)) for number, function in enumerate(functions)]

    def run(self) -> list[Any]:
        for thread in self._threads:
            thread.start()
        for number in range(len(self._threads)):
            self._turn(number)  # to the first step
        while any(self._alive):
            runnable = [number for number, alive in enumerate(self._alive) if alive]
            position = len(self.widths)
            choice = self.choices[position] if position < len(self.choices) else 0
            self.widths.append(len(runnable))
            self._turn(runnable[choice])
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return self.results

    def step(self) -> None:
        """Called by the code under test before each access to shared memory."""
        number = getattr(self._local, "number", None)
        if number is None:
            return
        self._back.release()
        self._go[number].acquire()
        self.steps[number] += 1
        if self.crash is not None and self.crash[0] == number and self.steps[number] > self.crash[1]:
            raise Crashed

    def _turn(self, number: int) -> None:
        self._go[number].release()
        self._back.acquire()

    def _run(self, number: int, function: Callable[[], Any]) -> None:
        self._go[number].acquire()
        self._local.number = number
        try:
            self.results[number] = function()
        except Crashed:
            self.results[number] = Crashed
        except BaseException as error:
            self._errors.append(error)
        self._alive[number] = False
        self._back.release()


class SteppedMemory:
    """A mapping and its words; every access is a step."""

    name = "stepped"

    def __init__(self, size: int) -> None:
        self.bytes = bytearray(size)
        self.step: Callable[[], None] = lambda: None
        self.memory = self

    def words(self, start: int = 0, count: int | None = None) -> SteppedWords:
        end = len(self.bytes) if count is None else start + 8 * count
        return SteppedWords(self, memoryview(self.bytes)[start:end].cast("Q"))

    def __getitem__(self, where: slice) -> bytes:
        self.step()
        return bytes(self.bytes[where])

    def __setitem__(self, where: slice, payload: bytes) -> None:
        self.step()
        self.bytes[where] = payload


class SteppedWords:
    def __init__(self, memory: SteppedMemory, words: memoryview) -> None:
        self._memory = memory
        self._words = words

    def __getitem__(self, index: int) -> int:
        self._memory.step()
        return self._words[index]

    def __setitem__(self, index: int, value: int) -> None:
        self._memory.step()
        self._words[index] = value

    def release(self) -> None:
        pass


@pytest.fixture
def stepped_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    header = Struct("@QQ")

    def pack(memory: SteppedMemory, offset: int, form: int, length: int) -> None:
        memory.step()
        header.pack_into(memory.bytes, offset, form, length)

    def unpack(memory: SteppedMemory, offset: int) -> tuple[int, ...]:
        memory.step()
        return header.unpack_from(memory.bytes, offset)

    monkeypatch.setattr(ring_module, "_pack_header", pack)
    monkeypatch.setattr(ring_module, "_unpack_header", unpack)


MESSAGES = [(1, b"first"), (2, b"second, and longer")]


def explore(entries: int, readers: int, messages: int, looks: int, crash: tuple[int, int] | None = None) -> Iterator[list[Any]]:
    """The outcome of every order of steps: what the writer wrote, then what each reader took."""
    choices: list[int] = []
    while True:
        layout = RingLayout(entries, 64, readers, 0)
        memory: Any = SteppedMemory(layout.size)
        RingWriter.format(memory, 0, layout)
        writer = RingWriter(memory, 0, layout)
        ends = [RingReader(memory, 0, layout, number) for number in range(readers)]

        def write(writer: RingWriter = writer) -> list[Any]:
            written = []
            for form, payload in MESSAGES[:messages]:
                if not writer.has_room() and not writer.has_room():
                    break
                writer.put(form, payload)
                written.append((form, payload))
            return written

        def read(end: RingReader) -> list[Any]:
            return [message for message in (end.take() for _ in range(looks)) if message is not None]

        turns = Turns([write, *[lambda end=end: read(end) for end in ends]], choices, crash)
        memory.step = turns.step
        yield turns.run()
        # The next order: the last choice that can be raised is.
        taken = [*choices, *[0] * (len(turns.widths) - len(choices))]
        while taken and taken[-1] + 1 >= turns.widths[len(taken) - 1]:
            taken.pop()
        if not taken:
            return
        taken[-1] += 1
        choices = taken


@pytest.mark.usefixtures("stepped_headers")
@pytest.mark.parametrize(("entries", "readers", "messages", "looks"), [(1, 1, 2, 4), (2, 1, 2, 4), (1, 2, 1, 1)])
def test_readers_see_a_prefix_of_what_was_written_in_any_order_of_steps(entries: int, readers: int, messages: int, looks: int) -> None:
    outcomes = set()
    for written, *taken in explore(entries, readers, messages, looks):
        for each in taken:
            assert each == MESSAGES[: len(each)]
            assert len(each) <= len(written)
        outcomes.add((len(written), *[len(each) for each in taken]))
    assert len(outcomes) > 1


@pytest.mark.usefixtures("stepped_headers")
@pytest.mark.parametrize("step", range(8))
def test_a_writer_may_die_after_any_step(step: int) -> None:
    for _written, taken in explore(1, 1, 2, 2, crash=(0, step)):
        assert taken == MESSAGES[: len(taken)]


@pytest.mark.usefixtures("stepped_headers")
@pytest.mark.parametrize("step", range(6))
def test_a_reader_may_die_after_any_step(step: int) -> None:
    for written, taken in explore(1, 1, 2, 2, crash=(1, step)):
        assert taken is Crashed or taken == MESSAGES[: len(taken)]
        assert written == MESSAGES[: len(written)]


# --------------------------------------------------------------------------------- one process, no steps
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


def test_ends_tell_each_other_that_they_are_closed(segment: Segment) -> None:
    layout = RingLayout(1, 64, 2, 4)
    RingWriter.format(segment, 0, layout)
    writer, reader = RingWriter(segment, 0, layout), RingReader(segment, 0, layout, 1)
    assert not reader.writer_closed()
    assert not writer.readers_closed()
    other = RingReader(segment, 0, layout, 0)
    reader.close()
    assert writer.readers_closed()
    writer.close()
    assert other.writer_closed()
    writer.close()
    reader.close()


def test_a_ring_of_another_layout_is_refused(segment: Segment) -> None:
    layout = RingLayout(2, 64, 1, 0)
    RingWriter.format(segment, 0, layout)
    with pytest.raises(ValueError, match="another layout"):
        RingReader(segment, 0, RingLayout(4, 64, 1, 0), 0)
    segment.words()[at.VERSION] += 1
    with pytest.raises(ValueError, match="another layout"):
        RingReader(segment, 0, layout, 0)


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
