"""The threads of one process: the background reader, which dozes; a thread that begins to wait; an event loop that attends. And a peer that
publishes a word and rings.

    peer ── word, then doorbell ──▶ process: reader (`Reactor._read_in_background`)  ⇄  waiter (`wait_until`)  or  loop (`then`)

The word may also come as an entry of the ring of a connection, whose socket is the doorbell then.

Threads share locations that all of them see at once, because Python's own lock orders them. So the order of memory is SEQUENTIAL
here: what the fences are for is shown by the other scenarios, and what one thread of a process has announced another one may take back
is shown here.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._ipc import reactor, waiting
from mray._ipc.doorbell import Doorbell
from mray._ipc.reactor import Reactor
from mray._ipc.ring_pair import NO_ROOM, RingPair
from mray._ipc.ring_pair import PUBLISHED as PUBLISHED_ENTRY
from tests.interleavings import explorer
from tests.interleavings.explorer import AWAIT, CHANGE, GET, POLL, READ, SET, WRITE, Explored, Explorer, Outcome, Run
from tests.interleavings.stand_ins import DoorbellFd, Table, in_place

ROW = 1
STATE = ("table", ROW * reactor.ROW_WORDS + reactor.STATE)
PUBLISHED = ("ring", 0)
#: Of a connection's ring: entries published, and handed on.
ENTRIES = ("entries", 0)
HANDED_ON = ("entries", 1)


def _run() -> Run:
    assert explorer.current is not None
    return explorer.current


class Lock:
    """`threading.Lock` that all threads of the process see: its location is 1 while it is free."""

    def __init__(self, name: str) -> None:
        self.location = ("lock", name)
        self._owned = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        assert timeout == -1, "nothing here has a time limit"
        if _run().is_early:
            return True
        self._owned = _run().access(AWAIT if blocking else POLL, (self.location,)) >= 0
        return self._owned

    def release(self) -> None:
        self._owned = False
        if _run().access(CHANGE, self.location, lambda _old: 1):
            raise RuntimeError("release unlocked lock")

    def is_owned(self) -> bool:
        """Whether the thread that has this stand-in of its own has acquired it."""
        return self._owned


class Shared:
    """An attribute of the reactor that all its threads see."""

    def __init__(self, name: str, first: Any) -> None:
        self._location = ("attribute", name)
        self._first = first

    def __get__(self, _reactor: Any, _kind: Any = None) -> Any:
        return _run().access(GET, self._location) or self._first

    def __set__(self, _reactor: Any, value: Any) -> None:
        _run().access(SET, self._location, value)


class SharedList:
    """A list that all threads see: its location has the items as a tuple."""

    def __init__(self, name: str) -> None:
        self._location = ("list", name)

    def _items(self) -> tuple[Any, ...]:
        return _run().access(GET, self._location) or ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())

    def append(self, item: Any) -> None:
        _run().access(CHANGE, self._location, lambda old: (*(old or ()), item))

    def remove(self, item: Any) -> None:
        _run().access(CHANGE, self._location, lambda old: tuple(each for each in old if each != item))


class Waiter(reactor.Waiter):
    """The same one in every run of its thread."""

    __slots__ = ()

    def __init__(self, predicate: Callable[[], object]) -> None:
        super().__init__(predicate)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Waiter)

    def __hash__(self) -> int:
        return 1


def seen() -> bool:
    """The condition of the waiter."""
    return bool(_run().access(READ, PUBLISHED))


class RingConnection:
    """A connection whose peer publishes one message in its ring, as the reactor has it: the message sets the word."""

    def has_ring_entries(self) -> bool:
        return bool(_run().access(READ, ENTRIES)) and not _run().access(GET, HANDED_ON)

    def read_ring(self) -> bool:
        if not self.has_ring_entries():
            return False
        _run().access(SET, HANDED_ON, 1)
        _run().access(SET, PUBLISHED, 1)
        return True


class EntryWriter:
    """The `RingWriter` of the peer."""

    next, limit = 0, 1

    def __init__(self, run: Run) -> None:
        self._run = run

    def put(self, _form: int, _body: bytes) -> None:
        self._run.access(WRITE, ENTRIES, 1)


class SharedDict:
    """A dictionary that all threads see: its location has the items as a tuple."""

    def __init__(self, name: str) -> None:
        self._location = ("dict", name)

    def items(self) -> tuple[Any, ...]:
        return _run().access(GET, self._location) or ()

    def __len__(self) -> int:
        return len(self.items())

    def __setitem__(self, key: Any, value: Any) -> None:
        _run().access(CHANGE, self._location, lambda old: (*(item for item in old or () if item[0] != key), (key, value)))

    def pop(self, key: Any, _default: None) -> Any:
        old = _run().access(CHANGE, self._location, lambda old: tuple(item for item in old or () if item[0] != key))
        return dict(old or ()).get(key)


class WakeLoop:
    """The callback of the event loop, called by any thread."""

    def __call__(self) -> None:
        _run().access(SET, ("told", "loop"), 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WakeLoop)

    def __hash__(self) -> int:
        return 2


class _Reactor(Reactor):
    asleep = Shared("asleep", False)
    _dormant = Shared("dormant", False)
    _reader = Shared("reader", reactor.NO_READER)
    closed = False
    activity = 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("closed", "activity"):
            return  # nobody closes it, and nobody is active
        super().__setattr__(name, value)


def _reactor(run: Run, with_rings: bool = False) -> Any:
    """The process's reactor, as one of its threads has it."""
    run.is_early = True
    own = _Reactor()
    doorbell: Any = DoorbellFd(run, "process")
    own.wakeup_fd = doorbell
    epoll: Any = own._epoll
    epoll.watched[:] = []
    epoll.register(doorbell)
    table: Any = Table(run)
    own.table, own._words = table, table.words
    own._state_index = STATE[1]
    reading: Any = Lock("reading")
    own._reading, own._owns_reading = reading, reading.is_owned
    waiters: Any = SharedList("waiters")
    own._waiters = waiters
    polled: Any = SharedDict("polled")
    own._polled = polled
    rings: Any = (RingConnection(),) if with_rings else ()
    own._rings = rings
    run.is_early = False
    return own


class Threads:
    """`waiter`, `loop`: whether there is one. `ring`: the peer publishes in a connection's ring, not in one of a graph.

    The background reader reads once here. With both it may have to come again: when it hands over to a waiter that is just leaving, nobody
    reads until its next tick, and a lock that is free in the end is good enough.
    """

    def __init__(self, *, waiter: bool = False, loop: bool = False, ring: bool = False) -> None:
        self._comes_again = waiter and loop
        self._ring = ring
        peer = self.publish_entry if ring else self.publish
        self.actors: dict[str, Callable[[Run], Any]] = {"peer": peer, "reader": self.read_in_background}
        if waiter:
            self.actors["waiter"] = self.wait
        if loop:
            self.actors["loop"] = self.attend

    def publish(self, run: Run) -> None:
        table: Any = Table(run)
        doorbell: Any = DoorbellFd(run, "process")
        run.access(WRITE, PUBLISHED, 1)
        Doorbell(doorbell, table, ROW).ring()

    def publish_entry(self, run: Run) -> None:
        """The socket of the connection is whatever wakes the process besides."""
        table: Any = Table(run)
        pair: Any = RingPair.__new__(RingPair)
        pair._words, pair._asleep, pair._writer = table.words, STATE[1], EntryWriter(run)
        pair._page, pair._sent_beside = [0], 0
        outcome = pair.try_put(0, b"", 0)
        if outcome == NO_ROOM:  # the socket has the message, which wakes as a nudge does
            pair._writer.put(0, b"")
        if outcome != PUBLISHED_ENTRY:
            DoorbellFd(run, "process").write()

    def read_in_background(self, run: Run) -> None:
        """It is the reader from the beginning."""
        own = _reactor(run, self._ring)
        own._reader = reactor.BACKGROUND
        try:
            own._read_in_background(None)
        finally:
            own._release_reading()

    def wait(self, run: Run) -> None:
        own = _reactor(run, self._ring)
        own.wait_until(seen, None, spin=False)

    def attend(self, run: Run) -> None:
        own = _reactor(run)
        cancel = own.then(seen, WakeLoop())
        if not seen():
            run.access(AWAIT, (("told", "loop"),))
        cancel()

    def check(self, outcome: Outcome) -> None:
        """The waiter is woken. The background reader may sleep for ever, once nobody waits."""
        if self._comes_again and outcome.actors["reader"].how == "returned" and outcome.memory.get(("lock", "reading")):
            return
        for name, end in outcome.actors.items():
            assert end.how == "returned" or name == "reader", f"{name} sleeps for ever in {end.value}"
        if self._ring:
            assert outcome.memory.get(HANDED_ON), "nobody hands on what came through the ring"

    def explore(self) -> Explored:
        """Raises Violation."""
        locks = {("lock", "waiter"): 1}
        with in_place(), self._in_place():
            initial = {STATE: reactor.AWAKE, **locks}
            return Explorer(self.actors, initial=initial, check=self.check).explore()

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reactor, "Waiter", Waiter)
            stand_in = types.SimpleNamespace(
                Lock=lambda: Lock("waiter"), RLock=threading.RLock, get_ident=threading.get_ident, Thread=threading.Thread
            )
            patch.setattr(reactor, "threading", stand_in)
            patch.setattr(waiting, "threading", stand_in)  # a waiter's own lock is of that module
            yield
