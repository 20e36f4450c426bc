"""A ring that processes join once they hold a handle of it (`mray.experimental.channel`): the writer meets its readers while it writes.

    writer: write, ring whoever has joined ── ring ──▶ readers: claim a place, write down who reads there, JOINED, read
    any of them: close

The words before the ring, the locks of places and the ring are stand-ins; the ends (`SharedRing`) are real.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._ipc.layout import RingLayout
from mray._ipc.ring import RingWriter
from mray.exceptions import RayChannelError
from mray.experimental.channel import _shared_ring
from mray.experimental.channel._shared_ring import RingFacts, SharedRing, _Parts, _Writer
from tests.interleavings import explorer
from tests.interleavings.explorer import CHANGE, GET, SEQUENTIAL, SET, Explored, Explorer, Outcome, Run, dead, fence, fence_if_weak
from tests.interleavings.stand_ins import Process, Segment, in_place

VALUES = (b"1", b"2", b"3")


def _run() -> Run:
    assert explorer.current is not None
    return explorer.current


class _Host:
    """The part of its process that a ring uses."""

    def __init__(self, process: Process) -> None:
        self.process = process.name
        self._process = process
        self._watches: dict[str, Callable[[Exception], None]] = {}
        self.known: Callable[[], Any] = lambda: None
        process.on_death = self._on_death

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None, *, spin: bool = False) -> bool:
        assert timeout is None
        self._process.wait_until(predicate, self.known())
        return True

    def doorbell_of(self, process: str) -> Any:
        if process in self._process.deaths:
            raise OSError(f"{process} is dead")
        return self._process.doorbell_of(process)

    def ask_of(self, _process: str) -> None:
        """Names stay."""

    def watch_actor(self, actor: str, callback: Callable[[Exception], None]) -> Callable[[], None]:
        self._watches[actor] = callback
        if actor in self._process.deaths:
            callback(RuntimeError("crashed"))
        return lambda: None

    def _on_death(self, name: str) -> None:
        if name in self._watches:
            self._watches[name](RuntimeError("crashed"))

    def exception(self, payload: bytes) -> Exception:
        raise AssertionError(payload)

    def failure(self, error: BaseException, name: str) -> bytes:
        return repr((error, name)).encode()


class Joining:
    """The writer writes so many `messages`, of which `capacity` may wait; every reader reads as many, or `reads`, and goes.

    `closes`: this one closes the ring after so many messages, and does not read or write the others. `declared`: whom the places are for,
    if not for each reader its own.
    """

    def __init__(
        self,
        *,
        readers: int = 1,
        messages: int = 2,
        capacity: int = 1,
        reads: int | None = None,
        closes: dict[str, int] | None = None,
        declared: tuple[str, ...] = (),
    ) -> None:
        self.readers = [f"r{number}" for number in range(readers)]
        self.names = ["w", *self.readers]
        self.values = list(VALUES[:messages])
        self.reads = messages if reads is None else reads
        self.closes = closes or {}
        layout = RingLayout(capacity, 64, readers, 2)
        self.facts = RingFacts("ring", "w", "w", declared or tuple(self.readers), capacity, layout)

    def initial(self) -> dict[Any, Any]:
        explorer.current = run = Run([], {}, SEQUENTIAL)
        run.is_early = True
        segment: Any = Segment(run, "ring", self.facts.control + self.facts.layout.size)
        RingWriter.format(segment, self.facts.control, self.facts.layout)
        explorer.current = None
        return dict(run.written)

    def _begin(self, run: Run, name: str) -> tuple[Process, SharedRing, Callable[[], Any], list[bytes]]:
        process = Process(run, name, self.names)
        run.is_early = True
        segment: Any = Segment(run, "ring", self.facts.control + self.facts.layout.size)
        segment.descriptor = types.SimpleNamespace(fd=3)
        host = _Host(process)
        kept: Any = types.SimpleNamespace(keep=lambda _ring: None, forget=lambda _ring: None)
        parts = _Parts(host, self.facts, segment)  # type: ignore[arg-type]
        if name == "w":
            doorbells: Any = [parts]
            parts.writer = _Writer(segment, self.facts.control, self.facts.layout, "slot", doorbells)
            parts.writer.capacity = self.facts.capacity
        ring = SharedRing(kept, parts)
        run.is_early = False
        done: list[bytes] = []

        def known() -> Any:
            doorbells = tuple((place, doorbell is None) for place, doorbell in parts.doorbells.items())
            writer = parts.writer and (parts.writer._ring, parts.writer._slots, parts.writer._wanting)
            return done, writer, parts.reader, doorbells, tuple(parts.deaths), tuple(parts.watches), parts.over, parts.freed, ring._users

        host.known = known
        process.knows(known)
        return process, ring, known, done

    # ------------------------------------------------------------------------------------------ actors
    def write(self, run: Run) -> list[bytes]:
        """The values that were written."""
        process, ring, known, done = self._begin(run, "w")
        with contextlib.suppress(RayChannelError):
            for value in self.values[: self.closes.get("w", len(self.values))]:
                process.mark(known())
                ring.write(value, None)
                done.append(value)
        if "w" in self.closes:
            run.knows = None  # who is to be rung is known there only
            ring.close()
        return done

    def read(self, run: Run, name: str) -> list[bytes]:
        """The values that were read."""
        process, ring, known, done = self._begin(run, name)
        with contextlib.suppress(RayChannelError):
            while len(done) < self.closes.get(name, self.reads):
                process.mark(known())
                done.append(ring.read(None))
        if name in self.closes:
            run.knows = None
            ring.close()
        return done

    # ------------------------------------------------------------------------------------------ exploring
    def check(self, outcome: Outcome) -> None:
        """Nobody sleeps, and who is not crashed, nor cut off by others, has read everything."""
        crashed = [name for name, end in outcome.actors.items() if end.how == "crashed"]
        for name, end in outcome.actors.items():
            assert end.how != "asleep", f"{name} sleeps for ever in {end.value}"
        for name in self.names:
            if name not in crashed:
                done = outcome.value(name)
                assert done == self.values[: len(done)], f"{name} has {done}"
                assert crashed or self.closes or len(done) >= self.reads, f"{name} has no more than {done}"

    def explore(self, order: str = SEQUENTIAL, victim: str | None = None) -> Explored:
        """Raises Violation."""
        readers = {name: functools.partial(self.read, name=name) for name in self.readers}
        actors: dict[str, Callable[[Run], Any]] = {"w": self.write, **readers}
        with in_place(order), self._in_place():
            return Explorer(actors, initial=self.initial(), order=order, victim=victim, check=self.check).explore()

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        def lock(_fd: int, how: int, _length: int, start: int) -> None:
            """The kernel gives the lock of a process that crashes back."""
            run, place = _run(), ("lock", start)
            if how == fcntl.LOCK_UN:
                run.access(SET, place, 0)
                return
            crashed = [pid for pid, name in enumerate(run.names, 1) if run.access(GET, dead(name))]
            if run.access(CHANGE, place, lambda holder: holder if holder and holder not in crashed else run.pid) not in (0, *crashed):
                raise BlockingIOError

        system = types.SimpleNamespace(**{**vars(fcntl), "lockf": lock})
        no_finalizers = types.SimpleNamespace(finalize=lambda *_what: types.SimpleNamespace(atexit=False))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_shared_ring, "fcntl", system)
            patch.setattr(_shared_ring, "weakref", no_finalizers)
            patch.setattr(_shared_ring, "own_actor", lambda: _run().names[_run().pid - 1])
            patch.setattr(_shared_ring, "unlink_all", lambda prefix: _run().access(SET, ("name", prefix), 0))
            for name, stand_in in (("fence", fence), ("publish_fence", fence_if_weak), ("trust_fence", fence_if_weak)):
                patch.setattr(_shared_ring, name, stand_in)
            yield
