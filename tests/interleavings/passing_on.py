"""A value that is passed on: the writer's slot is read by two more processes, of which the writer knows one.

    writer ── ring "first" ──▶ relay ── ring "second" ──▶ reader
      slot ═════════════════════ the same memory ═══════▶ a view

The relay reads, passes on, lets go; it may close its end of the second ring while the reader holds what came through it, and the first
goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._channel.base import NOTHING, Failed
from mray._channel.shm import ReaderEnd, ShmReader, ShmWriter, WriterEnd
from mray._ipc import ring_loans
from mray._ipc.layout import RingLayout
from tests.interleavings.channel import array, failure, formatted
from tests.interleavings.explorer import SEQUENTIAL, Explored, Explorer, Outcome, Run
from tests.interleavings.stand_ins import Process, Segment, View, in_place

FIRST = RingLayout(2, 64, 1, 1)
SECOND = RingLayout(2, 64, 1, 2)
NAMES = ["writer", "relay", "reader"]


class PassingOn:
    """The writer sends `values`, the relay passes on the first `passed` of them and takes the rest for itself, or leaves them in the ring.

    `closes`: the relay closes the second ring when it has passed on what it will. The reader closes its end before it lets go of the last.
    """

    def __init__(self, *, values: int = 2, passed: int = 1, closes: bool = True, leaves: bool = False, grains: int = 1) -> None:
        self.values = [array(b"abc"[number : number + 1], grains) for number in range(values)]
        self.passed = passed
        self.taken = passed if leaves else values
        self.closes = closes

    def initial(self) -> dict[Any, int]:
        return formatted("first", FIRST, [2]) | formatted("second", SECOND, [3])

    # ------------------------------------------------------------------------------------------ actors
    def write(self, run: Run) -> int:
        process = Process(run, "writer", NAMES)
        run.is_early = True
        segment: Any = Segment(run, "first", FIRST.size)
        writer = ShmWriter(WriterEnd(segment, 0, FIRST, "a", [process.doorbell_of("relay")]))
        run.is_early = False
        number = 0
        process.knows(lambda: (number, writer))
        for number, value in enumerate(self.values):
            process.mark(number, writer)
            assert writer.try_write(value), "as many entries as values"
        return len(self.values)

    def relay(self, run: Run) -> list[bytes]:
        process = Process(run, "relay", NAMES)
        run.is_early = True
        first: Any = Segment(run, "first", FIRST.size)
        second: Any = Segment(run, "second", SECOND.size)
        reader = ShmReader(ReaderEnd(first, 0, FIRST, 0, "a", process.doorbell_of("writer"), failure))
        doorbell = process.doorbell_of("reader")
        writer = ShmWriter(WriterEnd(second, 0, SECOND, "b", [doorbell]))
        run.is_early = False
        got: list[bytes] = []
        over = False
        process.knows(lambda: (got, reader, writer, over))
        while len(got) < self.taken:
            process.mark(got, reader, writer)
            over = bool(process.deaths)
            value = reader.try_read()
            if value is NOTHING:
                if over:
                    break
                ends = got, reader, writer
                process.wait_until(lambda: reader.ready() or process.deaths, *ends)
                continue
            got.append(bytes(value))
            if len(got) <= self.passed:
                before = writer._slots.passed_on
                assert writer.try_write(value)
                assert writer._slots.passed_on == before + 1, "it was copied"
            del value
            if self.closes and len(got) == self.passed:
                writer.close()
                doorbell.ring()
        if not self.closes:
            process.wait_until(lambda: (writer.end_loans(), not writer._slots._loans.out)[1], got, writer)
        # The reader rings when it is done; if it dies, that is heard, too.
        process.wait_until(lambda: ring_loans.sweep_closed(), got)
        return got

    def read(self, run: Run) -> list[bytes]:
        process = Process(run, "reader", NAMES)
        run.is_early = True
        segment: Any = Segment(run, "second", SECOND.size)
        doorbell = process.doorbell_of("relay")
        reader = ShmReader(ReaderEnd(segment, 0, SECOND, 0, "b", doorbell, failure))
        run.is_early = False
        got: list[bytes] = []
        held: list[View] = []
        while len(got) < self.passed:
            process.mark(got, reader, held)
            over = bool(process.deaths)
            value = reader.try_read()
            if value is not NOTHING:
                assert not isinstance(value, Failed), value.payload
                got.append(bytes(value))
                held.append(value)
                value = None
            elif over:
                break
            else:
                ends = got, reader, held
                process.wait_until(lambda: reader.ready() or process.deaths, *ends)
        reader.close()
        ends = reader = None
        while held:
            view = held.pop(0)
            copy = got[len(got) - len(held) - 1]
            assert bytes(view) == copy, f"a value that was {copy[:1]!r} has become {bytes(view)!r}"
            del view
        doorbell.ring()
        return got

    # ------------------------------------------------------------------------------------------ exploring
    def check(self, outcome: Outcome) -> None:
        crashed = [name for name, end in outcome.actors.items() if end.how == "crashed"]
        for name, end in outcome.actors.items():
            assert end.how != "asleep", f"{name} sleeps for ever in {end.value}"
        for name in ("relay", "reader"):
            if name not in crashed:
                got = outcome.value(name)
                assert got == self.values[: len(got)], f"{name} read {got}"
        if not crashed:
            assert len(outcome.value("relay")) == self.taken

    def explore(self, order: str = SEQUENTIAL, victim: str | None = None) -> Explored:
        """Raises Violation."""
        actors: dict[str, Callable[[Run], Any]] = {"writer": self.write, "relay": self.relay, "reader": self.read}
        with in_place(order):
            return Explorer(actors, initial=self.initial(), order=order, victim=victim, check=self.check).explore()
