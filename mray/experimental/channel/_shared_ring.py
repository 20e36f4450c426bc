"""A ring in shared memory that processes join once they hold a handle of it: what the public channels are made of.

    creator: the one that writes                             a process that reads
    segment = control block + ring   --- the handle --->     open the segment by its name, or ask the creator for it
                                                             claim a place: CLAIMED, while the word is locked
    doorbell of whoever has joined  <--- JOINED of the place --- write down who reads there
    try_write, ring them        --- message, doorbell ------>    try_read
    wait for room               <-- CONSUMED, doorbell ------    ring back, if the writer waits

Unlike a graph's, these rings are made before anyone knows which processes will read them, so the writer meets its readers while it
writes. A process keeps one end of a ring, however many handles of it come and go: what was read through one handle is not
read again through the next. A ring that has left its creator lives until it is closed, its creator dies or the session ends.

A waiting end is told of a close by a word and of a death by the runtime. CLOSED and CLAIMED are words with several writers: they only ever
become 1. Several processes that claim one place are told apart by a lock of the kernel on the word, which nobody waits for, and which ends
with its process.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mray._api.context import get_runtime_context
from mray._api.current import current_backend
from mray._channel.base import NOTHING, Failed
from mray._channel.shm import ShmReader, ShmWriter
from mray._common.kept import fcntl
from mray._common.process_local import ProcessLocal
from mray._graph.compiler.resolve import layout_for
from mray._graph.host import GraphHost
from mray._ipc import layout as at
from mray._ipc.doorbell import Doorbell
from mray._ipc.layout import LINE_WORDS, WORD, RingLayout
from mray._ipc.memory_order import fence, publish_fence, trust_fence
from mray._ipc.ring import RingWriter
from mray._ipc.segment import PAGE, Segment, round_up
from mray._ipc.slots import unlink_all
from mray._objects.remote_error import unpickle_error
from mray.exceptions import RayChannelError, RayChannelTimeoutError, RaySystemError

#: Word of the control block: 1 once anybody has closed the ring.
CLOSED = 0
#: Words of the control block that belong to one reader: JOINED, then the text of so many bytes: "<process> <actor>".
PLACE_WORDS = 2 * LINE_WORDS
#: ... and CLAIMED, the last one: 1 once somebody has the place.
CLAIMED = PLACE_WORDS - 1


@dataclass(frozen=True)
class RingFacts:
    """The fields of a handle."""

    #: The prefix of the ring's names; the segment has just this name.
    prefix: str
    #: The process that writes, and its actor ("" for a driver).
    creator: str
    writer: str
    #: The actors that are to read; "" for a driver.
    readers: tuple[str, ...]
    #: So many messages may wait for the slowest reader.
    capacity: int
    layout: RingLayout

    @property
    def control(self) -> int:
        """Bytes of the control block; the ring follows."""
        return round_up((LINE_WORDS + PLACE_WORDS * len(self.readers)) * WORD, PAGE)

    def place(self, place: int) -> int:
        """The word JOINED of a place."""
        return LINE_WORDS + PLACE_WORDS * place


class _Writer(ShmWriter):
    """Counts the capacity exactly; a ring has a power of two of entries."""

    __slots__ = ("capacity",)

    capacity: int

    def free(self) -> bool:
        """Whether there is room; asks nobody."""
        return self._ring.next - self._ring.consumed() < self.capacity

    def has_room(self) -> bool:
        if not self.free():
            self._ring.want_room(True)
            self._wanting = True
            if not self.free():
                return False
        if self._wanting:
            self._wanting = False
            self._ring.want_room(False)
        return self._ring.has_room()  # true, and fences what follows


class _Reader(ShmReader):
    """Rings back after each message: it may be long until this reader looks again."""

    __slots__ = ()

    def ring_back(self) -> None:
        """Wake the writer if it waits for room."""
        # SYNC POINT room: WANTED, fence, look at CONSUMED again | CONSUMED, fence before sleeping, look at WANTED.
        fence()
        if self._ring.room_wanted():
            self._doorbell.ring()


class _Parts:
    """The parts of a ring in one process, apart from the object that users of it share, so that a finalizer can let go of them."""

    def __init__(self, host: GraphHost, facts: RingFacts, segment: Segment) -> None:
        self.host = host
        self.facts = facts
        self.segment = segment
        #: The whole segment.
        self.words = segment.words()
        self.writer: _Writer | None = None
        self.reader: _Reader | None = None
        #: The place that this process has claimed, also while it could not open its end yet.
        self.place: int | None = None
        #: As the writer: the doorbells of those who have joined, by place; None for one who is dead.
        self.doorbells: dict[int, Doorbell | None] = {}
        #: Deaths that end a wait, by actor.
        self.deaths: dict[str, Exception] = {}
        self.watches: dict[str, Callable[[], None]] = {}
        #: The writer is dead and everything it wrote is read.
        self.over = False
        self.freed = False

    def closed(self) -> bool:
        return self.freed or self.over or self.words[CLOSED] != 0

    def who_reads(self, place: int) -> tuple[str, str] | None:
        """The process and actor at a place; None while nobody has joined there."""
        word = self.facts.place(place)
        length = self.words[word]
        if not length:
            return None
        # SYNC POINT place: write who reads, fence, JOINED | read JOINED, fence, read who reads.
        trust_fence()
        start = (word + 1) * WORD
        process, _, actor = bytes(self.segment.memory[start : start + length]).decode().partition(" ")
        return process, actor

    def ring(self) -> None:
        """Wake the readers that have joined. As the doorbell of the ring's writer: called after each message."""
        # SYNC POINT join: publish, fence, look at JOINED | JOINED, fence, look for messages.
        fence()
        for place in range(len(self.facts.readers)):
            if place not in self.doorbells:
                who = self.who_reads(place)
                if who is None:
                    continue
                try:
                    self.doorbells[place] = self.host.doorbell_of(who[0])
                except OSError:  # dead: whoever waits for it hears of that
                    self.doorbells[place] = None
            doorbell = self.doorbells[place]
            if doorbell is not None:
                doorbell.ring()

    def is_late(self, place: int) -> bool:
        """Whether the writer must wait for this reader."""
        ring = self.facts.control // WORD
        consumed = self.words[ring + self.facts.layout.reader_block(place) + at.CONSUMED]
        return bool(self.words[ring + at.PUBLISHED] - consumed >= self.facts.capacity)

    def watch(self, actor: str) -> None:
        """Have the actor's death in `deaths`."""
        if actor and actor not in self.watches:
            deaths = self.deaths
            self.watches[actor] = self.host.watch_actor(actor, lambda error: deaths.update({actor: error}))

    def free(self) -> None:
        """Let go of everything. Idempotent; also called by finalizers."""
        if self.freed:
            return
        self.freed = True
        for cancel in self.watches.values():
            cancel()
        if self.reader is not None:
            self.reader.close()
        if self.writer is not None:
            self.words[CLOSED] = 1
            self.writer.close()
            unlink_all(self.facts.prefix)
        # Bells and ends point at each other, and a doorbell is a file descriptor.
        self.writer = self.reader = None
        self.doorbells.clear()
        self.watches.clear()
        self.words.release()
        self.segment.close()


class SharedRing:
    """One process's end of a ring: the writing end in the process that made it, a reading end wherever it is read.

    Any thread may call; one writes at a time and one reads at a time.
    """

    def __init__(self, rings: Rings, parts: _Parts) -> None:
        self.facts = parts.facts
        self._rings = rings
        self._parts = parts
        self._host = parts.host
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._state = threading.Lock()
        #: Threads inside of `write` or `read`.
        self._users = 0
        weakref.finalize(self, parts.free).atexit = False

    # -------------------------------------------------------------------------------------- writing
    def check_writer(self) -> None:
        """Raises RaySystemError unless this process writes the ring."""
        if self._host.process != self.facts.creator:
            who = f"actor {self.facts.writer}" if self.facts.writer else "the driver"
            raise RaySystemError(f"Only the process that made a channel writes it: {who} (process {self.facts.creator}).")

    def write(self, value: Any, timeout: float | None) -> None:
        """Send a value once there is room. Raises RayChannelTimeoutError, and RayChannelError when the ring is closed or a reader dead."""
        self.check_writer()
        with self._using(), self._writing:
            parts = self._parts
            writer = parts.writer
            if parts.closed() or writer is None:
                raise _closed()
            if not writer.has_room():
                for actor in self._late_readers():
                    parts.watch(actor)
                self._host.wait_until(lambda: parts.closed() or writer.free() or bool(parts.deaths), timeout)
                if parts.closed():
                    raise _closed()
                if not writer.has_room():
                    late = self._late_readers()
                    self._raise_deaths(late, "reader")
                    raise RayChannelTimeoutError(
                        f"No room in the channel within {timeout} s: {len(late)} of its {len(self.facts.readers)} readers have not "
                        f"read yet what was written before: {', '.join(map(_name, late))}."
                    )
            if not writer.try_write(value):
                raise AssertionError("a ring with room refuses a message")

    def _late_readers(self) -> list[str]:
        """The actors that must read before there is room; the declared ones where nobody has joined."""
        parts = self._parts
        return [
            declared if (who := parts.who_reads(place)) is None else who[1]
            for place, declared in enumerate(self.facts.readers)
            if parts.is_late(place)
        ]

    # -------------------------------------------------------------------------------------- reading
    def join_as_reader(self) -> None:
        """Take a reader's place, unless this process has one. Raises RaySystemError when all are taken."""
        with self._using(), self._reading:
            self._reader()

    def read(self, timeout: float | None) -> Any:
        """The next value, or the exception in its place. Raises RayChannelTimeoutError, and RayChannelError when the ring is closed or
        its writer dead.
        """
        with self._using(), self._reading:
            reader = self._reader()
            parts = self._parts
            message = reader.try_read()
            if message is NOTHING:
                self._host.wait_until(lambda: parts.closed() or reader.ready() or bool(parts.deaths), timeout, spin=True)
                if parts.closed():
                    raise _closed()
                message = reader.try_read()
                if message is NOTHING:
                    parts.over = self.facts.writer in parts.deaths
                    self._raise_deaths([self.facts.writer], "writer")
                    raise RayChannelTimeoutError(f"Nothing was written to the channel within {timeout} s.")
            reader.ring_back()
            return unpickle_error(message.payload) if message.__class__ is Failed else message

    def _reader(self) -> _Reader:
        parts, facts = self._parts, self.facts
        if parts.closed():
            raise _closed()
        if parts.reader is None:
            actor = own_actor()
            doorbell = _doorbell_of_writer(parts)
            if parts.place is None:
                parts.place = _claim(parts, actor)
            place = parts.place
            parts.watch(facts.writer if facts.creator != self._host.process else "")
            parts.reader = _Reader(
                parts.segment,
                facts.control,
                facts.layout,
                place,
                _slots_prefix(facts),
                doorbell,
                lambda error: self._host.failure(error, "reading a value"),
                self._host.ask_of(facts.creator),
            )
            if facts.creator != self._host.process:
                parts.segment.descriptor = None
            self._rings.keep(self)
            text = f"{self._host.process} {actor}".encode()
            word = facts.place(place)
            start = (word + 1) * WORD
            parts.segment.memory[start : start + len(text)] = text
            # SYNC POINT place: write who reads, fence, JOINED | read JOINED, fence, read who reads.
            publish_fence()
            parts.words[word] = len(text)
            # SYNC POINT join: publish, fence, look at JOINED | JOINED, fence, look for messages.
            fence()
        return parts.reader

    # -------------------------------------------------------------------------------------- ending
    def close(self) -> None:
        """Nothing can be written or read any more, here and elsewhere; whoever waits is woken. Idempotent, does not wait."""
        parts = self._parts
        with self._using():
            if parts.freed:
                return
            parts.words[CLOSED] = 1
            processes = {who[0] for place in range(len(self.facts.readers)) if (who := parts.who_reads(place)) is not None}
            for process in {*processes, self.facts.creator, self._host.process}:
                with contextlib.suppress(OSError):  # the dead need no doorbell
                    self._host.doorbell_of(process).ring()

    def abandon(self) -> None:
        """The session ends."""
        with self._state:
            if not self._parts.freed:
                self._parts.words[CLOSED] = 1
            idle = not self._users
        if idle:
            self._parts.free()

    def disown(self) -> None:
        """In a forked child, which shares the ring's memory with its parent: here it is closed, and nothing of it is let go of."""
        self._parts.freed = True
        for lock in (self._writing, self._reading, self._state):  # other threads of the parent may hold them
            lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001  (Python's)

    def free_if_closed(self) -> None:
        """Let go of a closed ring, unless somebody is inside, who will."""
        if self._parts.closed():
            with self._using():
                pass

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """The parts stay while somebody is inside; whoever leaves a closed ring last lets go of them."""
        with self._state:
            self._users += 1
        try:
            yield
        finally:
            with self._state:
                self._users -= 1
                last = not self._users and self._parts.closed()
            if last:
                self._rings.forget(self)
                self._parts.free()

    def _raise_deaths(self, actors: Sequence[str], role: str) -> None:
        for actor in actors:
            error = self._parts.deaths.get(actor)
            if error is not None:
                raise RayChannelError(f"Channel closed: its {role}, {_name(actor)}, has died. {error}") from error


def _closed() -> RayChannelError:
    return RayChannelError("Channel closed.")


def _name(actor: str) -> str:
    return f"actor {actor}" if actor else "the driver"


def _slots_prefix(facts: RingFacts) -> str:
    return f"{facts.prefix}s"


def _doorbell_of_writer(parts: _Parts) -> Doorbell:
    try:
        return parts.host.doorbell_of(parts.facts.creator)
    except OSError as error:
        raise RayChannelError(f"Channel closed: its writer, {_name(parts.facts.writer)}, has died.") from error


def _claim(parts: _Parts, actor: str) -> int:
    """A place that nobody has: the actor's own, or one of those that are not declared for somebody who is sure to come."""
    facts, words, descriptor = parts.facts, parts.words, parts.segment.descriptor
    assert descriptor is not None, "it is kept as long as this process has no place"
    places = range(len(facts.readers))
    own = [place for place in places if facts.readers[place] == actor]
    others = sorted((place for place in places if facts.readers[place] != actor), key=lambda place: facts.readers[place] != "")
    for place in own + others:
        word = facts.place(place) + CLAIMED
        try:
            fcntl.lockf(descriptor.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, WORD, word * WORD)
        except (BlockingIOError, PermissionError):
            continue  # somebody is claiming it
        try:
            # SYNC POINT claim: CLAIMED, fence, unlock | lock, fence, read CLAIMED.
            fence()
            if not words[word]:
                words[word] = 1
                # SYNC POINT claim: CLAIMED, fence, unlock | lock, fence, read CLAIMED.
                fence()
                return place
        finally:
            fcntl.lockf(descriptor.fd, fcntl.LOCK_UN, WORD, word * WORD)
    raise RaySystemError(
        f"The channel was made for {len(facts.readers)} readers ({', '.join(map(_name, facts.readers))}), and so many processes read it "
        f"already; {_name(actor)} would be one more."
    )


def own_actor() -> str:
    """The id of the actor this is called in; "" in a driver. RaySystemError in a task: nobody would hear of its end."""
    context = get_runtime_context()
    actor = context.get_actor_id()
    if actor is None and current_backend().context()["mode"] != "driver":
        raise RaySystemError("Channels are made and read by drivers and actors, not by tasks.")
    return actor or ""


# ---------------------------------------------------------------------------------------------- registry
#: At most one: those of the present session.
_own_rings: ProcessLocal[list[Rings]] = ProcessLocal(list)
_rings_lock = threading.Lock()


class Rings:
    """The rings of this process in one session."""

    def __init__(self, host: GraphHost) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._open: weakref.WeakValueDictionary[str, SharedRing] = weakref.WeakValueDictionary()
        #: Those that stay when their last handle is gone: others have handles, or the ring knows what was read.
        self._kept: set[SharedRing] = set()
        # The process that ends the session ends its graphs, and this with them.
        host.ending.add(self)

    def create(self, readers: tuple[str, ...], capacity: int) -> SharedRing:
        """A new ring that this process writes. Raises ObjectStoreFullError."""
        self._sweep()
        host = self._host
        prefix = f"{host.prefix}c{uuid.uuid4().hex[:16]}-"
        facts = RingFacts(prefix, host.process, own_actor(), readers, capacity, layout_for(capacity, len(readers)))
        segment = Segment.create(prefix, facts.control + facts.layout.size, offer=True)
        RingWriter.format(segment, facts.control, facts.layout)
        parts = _Parts(host, facts, segment)
        parts.writer = _Writer(segment, facts.control, facts.layout, _slots_prefix(facts), [cast("Doorbell", parts)])
        parts.writer.capacity = capacity
        with self._lock:
            ring = self._open[prefix] = SharedRing(self, parts)
        return ring

    def find(self, facts: RingFacts) -> SharedRing:
        """The ring that a handle means. Raises RayChannelError when it is closed."""
        ring = self._open.get(facts.prefix)
        if ring is not None:
            return ring
        self._sweep()
        with self._lock:
            ring = self._open.get(facts.prefix)
            if ring is None:
                try:
                    segment = Segment.open(facts.prefix, writable=True, ask=self._host.ask_of(facts.creator), keep=True)
                except (FileNotFoundError, ConnectionError):
                    raise _closed() from None
                ring = self._open[facts.prefix] = SharedRing(self, _Parts(self._host, facts, segment))
        return ring

    def is_of(self, host: Any) -> bool:
        """Whether they are of the session that this host is of."""
        return self._host is host

    def keep(self, ring: SharedRing) -> None:
        """It outlives its handles."""
        with self._lock:
            self._kept.add(ring)

    def forget(self, ring: SharedRing) -> None:
        """It is closed."""
        with self._lock:
            self._kept.discard(ring)
            if self._open.get(ring.facts.prefix) is ring:
                del self._open[ring.facts.prefix]

    def _sweep(self) -> None:
        """Let go of rings that others have closed and nobody here has touched since."""
        for ring in list(self._kept):
            ring.free_if_closed()

    def end_with(self, _cause: Exception) -> None:
        """The session ends."""
        with self._lock:
            rings = list(self._open.values())
            self._kept.clear()
        for ring in rings:
            ring.abandon()
        own = _own_rings.get()
        if self in own:
            own.remove(self)

    def disown(self, _error: Exception) -> None:
        """In a forked child."""
        for ring in list(self._open.values()):
            ring.disown()


def rings() -> Rings:
    """The rings of this process in its present session."""
    host = current_backend().host()
    own = _own_rings.get()
    with _rings_lock:
        if not own or not own[0].is_of(host):
            own[:] = [Rings(host)]
        return own[0]
