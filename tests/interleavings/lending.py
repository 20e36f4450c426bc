"""A writer that lends memory beside its ring, and readers whose devices go on reading after they have let go (`channel_leases`).

    writer: fill the block, lend, send (lease, use) ── ring ──▶ reader: read the block, end the lease with a note
            the note says which event ends what the reader has queued ◀── the reader's device reads once more, then the event
            wait for that event, fill the block again

There is one block and one lease, so each value but the first waits for the one before. The block lies where everybody looks and nobody is
kept from writing: only the leases are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mray._channel.shm import ReaderEnd, WriterEnd
from mray._device.timelines import Where
from mray._gpu import remembered
from mray._gpu.channel_leases import LeaseHolder, Lender, Note
from mray._gpu.remembered import AGAIN, LentMessage, RememberedLeases
from mray._ipc import layout as at
from mray._ipc import ring_loans
from mray._ipc.layout import RingLayout
from mray._ipc.ring import RingReader, RingWriter
from tests.interleavings import explorer
from tests.interleavings.channel import failure, formatted
from tests.interleavings.explorer import GET, READ, SEQUENTIAL, SET, WRITE, Explored, Explorer, Outcome, Plain, Run, dead
from tests.interleavings.stand_ins import Process, Segment, Silent, in_place

BLOCK = Plain(("block", 0))


class _Lent(Silent):
    """One value in the block."""

    def __init__(self, returned: Callable[[list[Note]], None]) -> None:
        self.returned = returned


class _Has(Silent, SimpleNamespace):
    """Something that has these attributes."""


class _Message(Silent, LentMessage):
    """A message on a lease that is remembered."""


class Lending:
    """`notes`: what each reader says of each value; a note that begins with "=" names no event, as when one and the same is used again.
    `before`: so many values were lent and sent before anything happens.
    """

    def __init__(self, *notes: bytes, readers: int = 1, before: int = 0) -> None:
        self.notes = notes
        self.before = before
        self.layout = RingLayout(len(notes) if len(notes) != 3 else 4, 64, readers, 1, leases=1)
        self.readers = [f"reader {number}" for number in range(readers)]
        self.names = ["writer", *self.readers]

    def initial(self) -> dict[Any, int]:
        """The words once both ends have been made."""
        layout = self.layout
        info = formatted("ring", layout, [2 + reader for reader in range(len(self.readers))])
        for line, pid in [(layout.lender, 1), *((layout.board(reader), 2 + reader) for reader in range(len(self.readers)))]:
            info |= {("ring", line + at.PID): pid, ("ring", line + at.STARTED): pid, ("ring", line + at.HOLDS): 1}
        explorer.current = run = Run([], info, SEQUENTIAL)
        try:
            self._make_writer(run, _Lent(lambda _notes: None))
        finally:
            explorer.current = None
        return info | {location: value for location, value in run.written.items() if location[0] != "table"}

    def _make_writer(self, run: Run, lent: _Lent) -> tuple[Process, RingWriter, Lender]:
        process = Process(run, "writer", self.names)
        run.is_early = True
        segment: Any = Segment(run, "ring", self.layout.size)
        ring = RingWriter(segment, 0, self.layout)
        lender = Lender(WriterEnd(segment, 0, self.layout, "", ()))
        for number in range(self.before):
            self._send(run, number, ring, lender, lent)
        return process, ring, lender

    def _send(self, run: Run, number: int, ring: RingWriter, lender: Lender, lent: _Lent) -> None:
        run.access(WRITE, BLOCK, number + 1)
        lease = lender.lend(lent)
        assert lease is not None and ring.has_room()
        ring.put(0, bytes(lease))

    #: Whether a note says by itself which event it names, without the number.
    is_told_by_note = True

    def event(self, reader: int, note: object) -> Any:
        return ("event", reader, note)

    # ------------------------------------------------------------------------------------------ actors
    def write(self, run: Run) -> int:
        """How many values were lent."""
        #: Events that are to come before the block is touched again.
        awaited: list[tuple[int, bytes]] = []
        lent = self.before

        def returned(notes: list[Note]) -> None:
            said = {reader: note for reader, note, _number in notes}
            assert all(number == lent for _reader, _note, number in notes), f"{notes} of value {lent - 1}"
            for reader, note in said.items():
                assert note == self.notes[lent - 1], f"reader {reader} has said {note!r} of value {lent - 1}"
            missing = {number for number in range(len(self.readers)) if number not in said}
            assert all(run.access(GET, dead(self.readers[number])) for number in missing), f"{missing} have not said anything"
            awaited.extend((reader, note) for reader, note in said.items() if not note.startswith(b"="))

        thing = _Lent(returned)
        process, ring, lender = self._make_writer(run, thing)
        doorbells = [process.doorbell_of(name) for name in self.readers]
        run.is_early = False

        def is_free() -> bool:
            """Whether the devices are done with the block."""
            for reader, note in tuple(awaited):
                if run.access(GET, self.event(reader, note)) or run.access(GET, dead(self.readers[reader])):
                    awaited.remove((reader, note))
            return not awaited

        def knows() -> Any:
            return lent, tuple(awaited), ring.next, tuple(lender._free), tuple(lender.out), tuple(lender._notes.items()), lender._is_closed

        process.knows(knows)
        for number in range(self.before, len(self.notes)):
            process.mark(knows())
            process.wait_until(lambda: (lender.sweep(), lender._free or process.deaths)[1], knows())
            if not lender._free:
                break
            process.wait_until(is_free, knows())
            self._send(run, number, ring, lender, thing)
            lent += 1
            for doorbell in doorbells:
                doorbell.ring()
        freed: list[bool] = []
        lender.close(lambda: freed.append(True))
        process.wait_until(ring_loans.sweep_closed, knows())
        process.wait_until(is_free, knows())
        run.access(WRITE, BLOCK, -1)
        assert freed == [True]
        return lent

    def read(self, run: Run, number: int) -> int:
        """How many values were seen."""
        process = Process(run, self.readers[number], self.names)
        run.is_early = True
        segment: Any = Segment(run, "ring", self.layout.size)
        ring = RingReader(segment, 0, self.layout, number)
        doorbell = process.doorbell_of("writer")
        borrower = LeaseHolder(ReaderEnd(segment, 0, self.layout, number, "", doorbell, failure))
        run.is_early = False
        seen = 0
        over = False
        process.knows(lambda: (seen, ring.next, over))
        while seen < len(self.notes):
            process.mark(seen)
            over = bool(process.deaths)
            message = ring.take()
            if message is None:
                if over:
                    break
                process.wait_until(lambda: ring.ready() or process.deaths, seen)
                continue
            lease, use = message[1]
            note = self.notes[seen]
            seen += 1
            assert run.access(READ, BLOCK) == seen, f"not the value {seen - 1}"
            borrower.end(lease, use, note, seen)
            if not note.startswith(b"="):
                doorbell.ring()
                # The device uses it later.
                assert run.access(READ, BLOCK) == seen, f"not the value {seen - 1}, on the device"
                run.access(SET, self.event(number, note if self.is_told_by_note else seen), 1)
            if seen < len(self.notes):
                doorbell.ring()
        borrower.gone()
        doorbell.ring()
        return seen

    # ------------------------------------------------------------------------------------------ exploring
    def check(self, outcome: Outcome) -> None:
        crashed = [name for name, end in outcome.actors.items() if end.how == "crashed"]
        for name, end in outcome.actors.items():
            assert end.how != "asleep", f"{name} sleeps for ever in {end.value}"
        assert crashed or all(end.value == len(self.notes) for end in outcome.actors.values())

    def explore(self, order: str = SEQUENTIAL, victim: str | None = None) -> Explored:
        """Raises Violation."""
        readers = {name: functools.partial(self.read, number=number) for number, name in enumerate(self.readers)}
        with in_place(order):
            actors: dict[str, Callable[[Run], Any]] = {"writer": self.write, **readers}
            return Explorer(actors, initial=self.initial(), order=order, victim=victim, check=self.check).explore()


class Remembering(Lending):
    """The same where both ends remember the lease: the note stays, and from the second value on a message is a number (`remembered`)."""

    is_told_by_note = False

    def __init__(self, values: int) -> None:
        super().__init__(*[b"note"] * values)

    def write(self, run: Run) -> int:
        lent = 0

        def is_reached(number: int) -> bool:
            return bool(run.access(GET, self.event(0, number)) or run.access(GET, dead(self.readers[0])))

        def fill(_target: int, value: int, _size: int, _stream: int) -> None:
            run.access(WRITE, BLOCK, value)

        class Words(Silent):
            """The reader's timeline: how far its device has come."""

            def __getitem__(self, _index: int) -> int:
                return lent if is_reached(lent) else lent - 1

        timeline = _Has(mark=lambda _stream: lent)
        device: Any = _Has(belongings={"timelines": _Has(of=lambda _stream: timeline)}, current_stream=lambda: 0, copy=fill)
        platform: Any = _Has(look=lambda value: ("kind", value), use_on=lambda _value, _stream: None)
        exports: Any = _Has(may_take_another=lambda _waiting, _size: True, copied=0, sent=0)
        point = _Has(number=0, reached=lambda: is_reached(lent))
        peers: Any = _Has(point=lambda _device, _where: point, open=lambda _device, _key, _handle: _Has(words=Words()))
        message: Any = _Has(device=device, stream=0, blocks=[_Has(address=0)], end=lambda _points, _peers: True)
        first = _Message(message, peers, lambda _reader, _opens: None)
        process, ring, lender = self._make_writer(run, _Lent(lambda _notes: None))
        doorbell = process.doorbell_of(self.readers[0])
        leases = RememberedLeases(platform, exports, lender, peers)
        run.is_early = False

        def knows() -> Any:
            known = [(lease.use, lease.mark) for lease in leases._all]
            return lent, ring.next, tuple(known), tuple(lender._free), tuple(lender.out), tuple(lender._notes.items()), lender._is_closed

        def again() -> bool:
            nonlocal payload
            payload = payload or leases.again(lent + 1, [])
            return payload is not None

        process.knows(knows)
        for _value in self.notes:
            process.mark(knows())
            payload = None
            if not lent:
                run.access(WRITE, BLOCK, 1)
                found = lender.lend(first)
                assert found is not None
                leases.add("kind", (*found, *[0] * 14))  # type: ignore[arg-type]
            else:
                process.wait_until(lambda: again() or process.deaths, knows())
                if payload is None:
                    break
                found = AGAIN.unpack(payload)[:2]
            ring.put(0, bytes(found))
            lent += 1
            doorbell.ring()
        leases.forget()
        freed: list[bool] = []
        lender.close(lambda: freed.append(True))
        process.wait_until(ring_loans.sweep_closed, knows())
        process.wait_until(lambda: is_reached(lent), knows())
        run.access(WRITE, BLOCK, -1)
        assert freed == [True]
        return lent

    def explore(self, order: str = SEQUENTIAL, victim: str | None = None) -> Explored:
        """Raises Violation."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(remembered, "point_of", lambda _note, number: Where(b"", b"", 0, number))
            return super().explore(order, victim)
