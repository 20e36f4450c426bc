"""Rings and bells: one writer, its readers, and whoever of them sleeps, in every order of their steps.

The writer and the readers are the ends of a channel between processes (`mray._channel.shm`), waiting in a reactor as they do in graphs.
A fault put into any step must be found: see the mutants.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from mray._channel.base import NOTHING
from mray._channel.shm import ShmReader, ShmWriter
from mray._ipc import layout as at
from mray._ipc.doorbell import Doorbell, GroupBell
from mray._ipc.layout import RingLayout
from mray._ipc.reactor import Reactor
from mray._ipc.ring import RingReader, RingWriter
from tests.interleavings.explorer import SEQUENTIAL, TOTAL, WEAK, Explored, Explorer, Outcome, Run, Violation
from tests.interleavings.stand_ins import BellFd, Process, Segment, in_place, mutated

MESSAGES = [b"first", b"second word", b"3"]

Actors = dict[str, Callable[[Run], Any]]


def formatted(layout: RingLayout) -> dict[Any, int]:
    """What `RingWriter.format` has written before anybody opens the ring."""
    return {
        ("ring", at.VERSION): at.LAYOUT_VERSION,
        ("ring", at.ENTRIES): layout.entries,
        ("ring", at.ENTRY_BYTES): layout.entry_bytes,
        ("ring", at.READERS): layout.readers,
        ("ring", at.SLOTS): layout.slots,
    }


class Channel:
    """One writer and its readers. The writer ends when it has written everything, a reader when it has read everything; both end, too,
    when they have nothing more to expect of the others.
    """

    def __init__(self, *, readers: int = 1, entries: int = 2, messages: int = 2, grouped: bool = False, closes: bool = False) -> None:
        self.layout = RingLayout(entries, 64, readers, 2)
        self.messages = MESSAGES[:messages]
        self.readers = [f"reader {number}" for number in range(readers)]
        self.names = ["writer", *self.readers]
        self.grouped = grouped
        self.closes = closes

    def write(self, run: Run) -> int:
        process = Process(run, "writer", self.names)
        run.is_early = True
        bells = [process.bell_of(name) for name in self.readers]
        fd: Any = BellFd(run, "group", tuple(f"group of {name}" for name in self.readers))
        group = GroupBell(fd, bells) if self.grouped else None
        segment: Any = Segment(run, "ring", self.layout.size)
        writer = ShmWriter(segment, 0, self.layout, "slot", bells, group)
        run.is_early = False
        for number, message in enumerate(self.messages):
            process.mark(number, writer)
            while not writer.try_write(message):
                process.wait_until(lambda: writer.has_room() or process.deaths, number, writer)
                if process.deaths and not writer.has_room():
                    return number
        if self.closes:
            writer.close()
            for bell in bells:
                bell.ring()
        return len(self.messages)

    def read(self, run: Run, number: int) -> list[bytes]:
        process = Process(run, self.readers[number], self.names)
        run.is_early = True
        if self.grouped:
            fd: Any = BellFd(run, f"group of {process.name}")
            process.reactor.watch_bell(fd)
        segment: Any = Segment(run, "ring", self.layout.size)
        reader = ShmReader(segment, 0, self.layout, number, "slot", process.bell_of("writer"), lambda error: repr(error).encode())
        run.is_early = False
        ring = reader._ring
        got: list[bytes] = []
        while self.closes or len(got) < len(self.messages):
            process.mark(got, reader)
            # What is written before the end is there once the end is seen, so the ring is looked at again after it.
            over = bool(process.deaths) or (self.closes and ring.writer_closed())
            message = reader.try_read()
            if message is not NOTHING:
                got.append(message)
            elif over:
                return got
            else:
                process.wait_until(lambda: reader.ready() or process.deaths or (self.closes and ring.writer_closed()), got, reader)
        return got

    def actors(self) -> Actors:
        readers = {name: functools.partial(self.read, number=number) for number, name in enumerate(self.readers)}
        return {"writer": self.write, **readers}

    def check(self, outcome: Outcome) -> None:
        """Nobody sleeps; nothing was torn, lost, doubled or overwritten."""
        crashed = [name for name, end in outcome.actors.items() if end.how == "crashed"]
        for name, end in outcome.actors.items():
            assert end.how != "asleep", f"{name} sleeps for ever in {end.value}"
        for name in self.readers:
            if name not in crashed:
                got = outcome.value(name)
                assert got == self.messages[: len(got)], f"{name} read {got}"
                assert crashed or len(got) == len(self.messages), f"{name} read no more than {got}"
        if not crashed:
            assert outcome.value("writer") == len(self.messages)

    def explore(self, order: str = SEQUENTIAL, victim: str | None = None) -> Explored:
        with in_place(order):
            explorer = Explorer(self.actors(), initial=formatted(self.layout), order=order, victim=victim, check=self.check)
            explored = explorer.explore()
        assert all(ends == ({"returned", "crashed"} if name == victim else {"returned"}) for name, ends in explored.ends.items())
        return explored


SMALL = [
    pytest.param({"entries": 1, "messages": 3}, id="one entry, three messages"),
    pytest.param({"entries": 2, "messages": 3}, id="two entries, three messages"),
    pytest.param({"readers": 2, "entries": 1, "messages": 1}, id="two readers"),
    pytest.param({"readers": 2, "messages": 1, "grouped": True}, id="two readers with one bell"),
    pytest.param({"entries": 2, "messages": 2, "closes": True}, id="the writer closes"),
]
LARGE = [
    pytest.param({"readers": 2}, id="two readers, two messages"),
    pytest.param({"readers": 3, "messages": 1}, id="three readers"),
    pytest.param({"readers": 3, "messages": 1, "grouped": True}, id="three readers with one bell"),
]


@pytest.mark.parametrize("shape", [*SMALL, *LARGE])
def test_every_reader_gets_every_message_in_every_order_of_steps(shape: dict[str, Any]) -> None:
    explored = Channel(**shape).explore()
    assert explored.states > explored.outcomes > 1


@pytest.mark.parametrize("victim", ["writer", "reader 0"])
@pytest.mark.parametrize("shape", SMALL)
def test_a_process_may_die_after_any_step(shape: dict[str, Any], victim: str) -> None:
    Channel(**shape).explore(victim=victim)


@pytest.mark.parametrize("victim", [None, "writer", "reader 0"])
@pytest.mark.parametrize("shape", SMALL)
def test_stores_may_be_held_back_in_a_queue(shape: dict[str, Any], victim: str | None) -> None:
    Channel(**shape).explore(TOTAL, victim)


def test_stores_and_loads_may_pass_each_other_between_fences() -> None:
    Channel(entries=1, messages=1).explore(WEAK)
    Channel(entries=2, messages=2).explore(WEAK)


# --------------------------------------------------------------------------------------- what must be found
MUTANTS = [
    pytest.param(
        RingWriter.put,
        "memory[start : start + length] = payload",
        "self._words[self._published] = number + 1; memory[start : start + length] = payload",
        {"entries": 1, "messages": 1},
        SEQUENTIAL,
        id="publishes before it writes",
    ),
    pytest.param(
        RingReader.take,
        "payload = memory[offset : offset + length]",
        "words[self._consumed] = number + 1; payload = memory[offset : offset + length]",
        {"entries": 1},
        SEQUENTIAL,
        id="consumes before it copies out",
    ),
    pytest.param(RingWriter._refresh, "min(", "max(", {"readers": 2, "entries": 1}, SEQUENTIAL, id="waits for the quickest reader only"),
    pytest.param(RingWriter._refresh, "layout.entries", "layout.entries + 1", {"entries": 1}, SEQUENTIAL, id="counts one entry too many"),
    pytest.param(RingReader.take, "<= number", "< number", {"messages": 1}, SEQUENTIAL, id="reads what is not there yet"),
    pytest.param(Reactor._park, "or predicate() ", "", {"messages": 1}, SEQUENTIAL, id="parks without a second look"),
    pytest.param(
        Reactor._park,
        "table.words[self._state_index] = PARKED",
        "ready = predicate(); predicate = lambda: ready; table.words[self._state_index] = PARKED",
        {"messages": 1},
        SEQUENTIAL,
        id="looks, then announces that it parks",
    ),
    pytest.param(
        ShmWriter.try_write,
        "if len(payload) <= self._inline:",
        "self._only_bell(); self._only_bell = lambda: None\n    if len(payload) <= self._inline:",
        {"messages": 1},
        SEQUENTIAL,
        id="rings, then publishes",
    ),
    pytest.param(ShmReader.ready, "if ring.room_wanted():", "if False:", {"entries": 1}, SEQUENTIAL, id="never tells of room"),
    pytest.param(ShmWriter.has_room, "ring.want_room(True)", "pass", {"entries": 1}, SEQUENTIAL, id="never asks for room"),
    pytest.param(Doorbell.ring, "fence()", "pass", {"messages": 1}, TOTAL, id="rings without a fence"),
    pytest.param(Reactor._park, "fence()", "pass", {"messages": 1}, TOTAL, id="parks without a fence"),
    pytest.param(
        RingWriter.put,
        "publish_fence()",
        "pass",
        {"messages": 1},
        WEAK,
        id="publishes without a fence",
    ),
    pytest.param(RingReader.take, "trust_fence()", "pass", {"messages": 1}, WEAK, id="trusts without a fence"),
    pytest.param(RingReader.take, "publish_fence()", "pass", {"entries": 1}, WEAK, id="consumes without a fence"),
    pytest.param(RingWriter._refresh, "trust_fence()", "pass", {"entries": 1}, WEAK, id="overwrites without a fence"),
]


@pytest.mark.parametrize(("function", "old", "new", "shape", "order"), MUTANTS)
def test_a_protocol_with_one_fault_is_caught(function: Any, old: str, new: str, shape: dict[str, Any], order: str) -> None:
    with mutated(function, old, new), pytest.raises(Violation):
        Channel(**shape).explore(order)
