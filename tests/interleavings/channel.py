"""One writer and its readers, as actors for the explorer: the ends of a channel between processes (`mray._channel.shm`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from mray._channel.base import NOTHING, Failed
from mray._channel.shm import ReaderEnd, ShmReader, ShmWriter, WriterEnd
from mray._ipc import layout as at
from mray._ipc.doorbell import Doorbell, GroupDoorbell
from mray._ipc.layout import RingLayout
from tests.interleavings import explorer
from tests.interleavings.explorer import SEQUENTIAL, Explored, Explorer, Outcome, Run
from tests.interleavings.stand_ins import GRAIN, DoorbellFd, Process, Relay, Segment, View, in_place

SMALL_VALUES = (b"first", b"second word", b"3")


def array(letter: bytes, grains: int = 1) -> bytearray:
    """A value that lies in a slot; readers get a view of it."""
    return bytearray(letter * GRAIN * grains)


def formatted(ring: str, layout: RingLayout, readers: Sequence[int]) -> dict[Any, int]:
    """The words that `RingWriter.format` and readers of these pids, when they opened the ring, have written."""
    info = {at.VERSION: at.LAYOUT_VERSION, at.ENTRIES: layout.entries, at.ENTRY_BYTES: layout.entry_bytes}
    info |= {at.READERS: layout.readers, at.SLOTS: layout.slots}
    for reader, pid in enumerate(readers):
        line = layout.reader_block(reader)
        info |= {line + at.PID: pid, line + at.STARTED: pid, line + at.HOLDS: 1}
    return {(ring, word): value for word, value in info.items()}


class Channel:
    """The writer ends when it has written everything, a reader when it has read everything; both end, too, when the others are dead or
    closed.

    `closes`: the writer closes the channel when it has written everything. `hold`: so many views, at least, a reader keeps.
    `semaphores`: the doorbells are semaphores, and a group's readers are rung one by one.
    """

    def __init__(
        self,
        values: Sequence[Any] | None = None,
        *,
        readers: int = 1,
        entries: int = 2,
        messages: int = 2,
        slots: int = 2,
        hold: int = 0,
        grouped: bool = False,
        closes: bool = False,
        before: int = 0,
        spins: bool = False,
        semaphores: bool = False,
    ) -> None:
        self.layout = RingLayout(entries, 64, readers, slots)
        self.values = list(SMALL_VALUES[:messages]) if values is None else list(values)
        self.readers = [f"reader {number}" for number in range(readers)]
        self.names = ["writer", *self.readers]
        self.hold = hold
        self.grouped = grouped
        self.closes = closes
        self.before = before
        self.spins = spins
        self.semaphores = semaphores

    def formatted(self) -> dict[Any, Any]:
        """The words before the first step."""
        info = formatted("ring", self.layout, [self.names.index(name) + 1 for name in self.readers])
        explorer.current = run = Run([], info, SEQUENTIAL)
        try:
            self._make_writer(run)
        finally:
            explorer.current = None
        return info | {location: value for location, value in run.written.items() if location[0] != "table"}

    def _make_writer(self, run: Run) -> tuple[Process, ShmWriter, list[Doorbell]]:
        """The writer, when it has written what is there before anything happens."""
        process = Process(run, "writer", self.names)
        run.is_early = True
        doorbells = [process.doorbell_of(name, by_semaphore=self.semaphores) for name in self.readers]
        fd: Any = -1 if self.semaphores else DoorbellFd(run, "group", tuple(f"group of {name}" for name in self.readers))
        segment: Any = Segment(run, "ring", self.layout.size)
        writer = ShmWriter(WriterEnd(segment, 0, self.layout, "slot", doorbells, GroupDoorbell(fd, doorbells) if self.grouped else None))
        for value in self.values[: self.before]:
            assert writer.try_write(value)
        return process, writer, doorbells

    # ------------------------------------------------------------------------------------------ actors
    def relay(self, run: Run, name: str) -> None:
        """The thread of a process that waits for its semaphore."""
        Relay(Process(run, name, self.names))._run()

    def ending(self, actor: Callable[[Run], Any], name: str) -> Callable[[Run], Any]:
        """The actor of a process that ends its relay when it ends."""

        def run_and_end(run: Run) -> Any:
            result = actor(run)
            Relay(Process(run, name, self.names)).end()
            return result

        return run_and_end

    def write(self, run: Run) -> int:
        """How many values were written."""
        process, writer, doorbells = self._make_writer(run)
        if self.spins:
            process.spins()
        run.is_early = False
        put = writer._put

        def put_here(form: int, payload: bytes) -> None:
            process.mark("puts", number, writer)  # however it came to know that there is room
            put(form, payload)

        writer._put = put_here
        number = 0
        process.knows(lambda: (number, writer))
        for number, value in enumerate(self.values[self.before :], self.before):
            process.mark(number, writer)
            while not writer.try_write(value):
                process.wait_until(lambda: writer.has_room() or process.deaths, number, writer)
                if process.deaths and not writer.has_room():
                    return number
        if self.closes:
            writer.close()
            for doorbell in doorbells:
                doorbell.ring()
        return len(self.values)

    def read(self, run: Run, number: int) -> list[bytes]:
        """The values that were read."""
        process = Process(run, self.readers[number], self.names)
        if self.spins:
            process.spins()
        run.is_early = True
        if self.grouped and not self.semaphores:
            fd: Any = DoorbellFd(run, f"group of {process.name}")
            process.reactor.watch_wakeup(fd)
        segment: Any = Segment(run, "ring", self.layout.size)
        reader = ShmReader(
            ReaderEnd(segment, 0, self.layout, number, "slot", process.doorbell_of("writer", by_semaphore=self.semaphores), failure)
        )
        run.is_early = False
        got: list[bytes] = []
        held: list[tuple[View, bytes]] = []

        def let_go() -> None:
            view, copy = held.pop(0)
            assert bytes(view) == copy, f"a value that was {copy!r} has become {bytes(view)!r}"

        over = False
        process.knows(lambda: (got, reader, held, over))
        while len(got) < len(self.values):
            process.mark(got, reader, held)
            # Values written before the end are there once the end is seen, so the ring is looked at again after it.
            over = bool(process.deaths)
            value = reader.try_read()
            if isinstance(value, Failed):
                # Its slot has gone with the writer's end.
                assert value.payload == b"FileNotFoundError" and self.closes, f"reading failed: {value.payload!r}"
                break
            elif value is not NOTHING:
                got.append(bytes(value))
                if isinstance(value, View):
                    held.append((value, got[-1]))
                    value = None
                    if len(held) > self.hold:
                        let_go()
            elif over:
                break
            else:
                ends = got, reader, held
                process.wait_until(lambda: reader.ready() or process.deaths, *ends)
        while held:
            let_go()
        return got

    # ------------------------------------------------------------------------------------------ exploring
    def actors(self) -> dict[str, Callable[[Run], Any]]:
        readers = {name: functools.partial(self.read, number=number) for number, name in enumerate(self.readers)}
        actors: dict[str, Callable[[Run], Any]] = {"writer": self.write, **readers}
        if self.semaphores:
            actors = {name: self.ending(actor, name) for name, actor in actors.items()}
            actors |= {f"relay of {name}": functools.partial(self.relay, name=name) for name in self.names}
        return actors

    def check(self, outcome: Outcome) -> None:
        """Nobody sleeps; nothing was torn, lost, doubled or overwritten."""
        crashed = [name for name, end in outcome.actors.items() if end.how == "crashed"]
        for name, end in outcome.actors.items():
            if name.removeprefix("relay of ") in crashed:
                continue
            assert end.how != "asleep", f"{name} sleeps for ever in {end.value}"
        for name in self.readers:
            if name not in crashed:
                got = outcome.value(name)
                assert got == self.values[: len(got)], f"{name} read {got}"
                may_lose = self.closes and any(isinstance(value, bytearray) for value in self.values)
                assert crashed or may_lose or len(got) == len(self.values), f"{name} read no more than {got}"
        if not crashed:
            assert outcome.value("writer") == len(self.values)

    def explore(self, order: str = SEQUENTIAL, victim: str | None = None) -> Explored:
        """Raises Violation."""
        with in_place(order):
            explored = Explorer(self.actors(), initial=self.formatted(), order=order, victim=victim, check=self.check).explore()
        assert all(
            ends == ({"returned", "crashed"} if name == victim else {"returned"})
            for name, ends in explored.ends.items()
            if name != f"relay of {victim}"
        )
        return explored


def failure(error: BaseException) -> bytes:
    return type(error).__name__.encode()
