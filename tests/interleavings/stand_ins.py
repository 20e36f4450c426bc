"""Stand-ins for shared memory, names in /dev/shm, eventfds and epoll: every access is a step of the explorer.

A word is eight bytes; what is longer is read and written word by word, in the order of addresses, so that torn values are seen.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import select
import sys
import textwrap
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._channel import shm
from mray._gpu import channel_leases, remembered
from mray._ipc import closed_descriptors, doorbell, mapped, reactor, ring, ring_loans, semaphore, slots, spin
from mray._ipc.layout import WORD, RingLayout
from tests.interleavings import explorer
from tests.interleavings.explorer import (
    AWAIT,
    CHOOSE,
    GET,
    POLL,
    READ,
    SEQUENTIAL,
    SET,
    SET_ALL,
    WEAK,
    WRITE,
    Plain,
    Run,
    fence,
    fence_if_weak,
    hangup,
    words_of,
)


# ------------------------------------------------------------------------------------------ memory
class Words:
    """``memoryview(segment).cast("Q")``."""

    def __init__(self, run: Run, name: str, first: int = 0) -> None:
        self._run = run
        self._name = name
        self._first = first

    def __getitem__(self, index: Any) -> Any:
        if index == slice(None):
            return self
        if isinstance(index, slice):
            read = self._run.access(READ, Plain((self._name, self._first + index.start, "and more")))
            return memoryview(read or bytes(WORD * (index.stop - index.start)))
        return self._run.access(READ, (self._name, self._first + index))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            assert value.nbytes == WORD * (index.stop - index.start)
            self._run.access(WRITE, Plain((self._name, self._first + index.start, "and more")), bytes(value))
        else:
            self._run.access(WRITE, (self._name, self._first + index), int(value))

    def release(self) -> None:
        pass


#: Bytes of a slot that are written, and read, in one step.
GRAIN = 64
#: The size of the smallest slot.
LEAST_SLOT = GRAIN


class Memory:
    """The mapping: slices of bytes that begin at a word. In a slot, steps are larger."""

    def __init__(self, run: Run, name: str) -> None:
        self.run = run
        self.name = name

    def __getitem__(self, where: slice) -> bytes:
        start, end = where.start or 0, where.stop
        words = [self.run.access(READ, Plain((self.name, index))) for index in range(start // WORD, (end + WORD - 1) // WORD)]
        return b"".join(word.to_bytes(WORD, "little") for word in words)[: end - start]

    def __setitem__(self, where: slice, payload: bytes) -> None:
        start = where.start or 0
        for index, word in enumerate(words_of(bytes(payload))):
            self.run.access(WRITE, Plain((self.name, start // WORD + index)), word)

    def release(self) -> None:
        pass


class SlotMemory(Memory):
    """The mapping of a slot."""

    def __init__(self, run: Run, name: str, size: int) -> None:
        super().__init__(run, name)
        self.size = size

    def __getitem__(self, where: slice) -> bytes:
        end = where.stop
        pieces = [self.run.access(READ, Plain((self.name, piece))) for piece in range((end + GRAIN - 1) // GRAIN)]
        return b"".join(piece or bytes(GRAIN) for piece in pieces)[:end]

    def __setitem__(self, where: slice, payload: bytes) -> None:
        assert not where.start
        payload = bytes(payload)
        assert len(payload) <= self.size, "written beyond the end"
        for piece, start in enumerate(range(0, len(payload), GRAIN)):
            self.run.access(WRITE, Plain((self.name, piece)), payload[start : start + GRAIN].ljust(GRAIN, b"\0"))


class Segment:
    """`mray._ipc.segment.Segment`. Its name is a location of its own: 1 while it is there."""

    def __init__(self, run: Run, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.run = run
        self.memory = Memory(run, name)

    @classmethod
    def create(cls, name: str, size: int, *, offer: bool) -> Segment:
        assert explorer.current is not None
        explorer.current.access(SET, ("name", name), size)
        slot = cls(explorer.current, name, size)
        slot.memory = SlotMemory(slot.run, name, size)
        return slot

    def words(self, start: int = 0, count: int | None = None) -> Words:
        return Words(self.run, self.name, start // WORD)

    def close(self) -> None:
        pass

    def unlink(self) -> None:
        self.run.access(SET, ("name", self.name), 0)


def _pack_header(memory: Memory, offset: int, form: int, length: int) -> None:
    memory[offset : offset + 16] = form.to_bytes(8, "little") + length.to_bytes(8, "little")


def _unpack_header(memory: Memory, offset: int) -> tuple[int, int]:
    both = memory[offset : offset + 16]
    return int.from_bytes(both[:8], "little"), int.from_bytes(both[8:], "little")


class Mapping:
    """`mray._ipc.mapped.Mapped`, of a slot."""

    def __init__(self, run: Run, name: str, size: int) -> None:
        self.memory = SlotMemory(run, name, size)
        self.region = Region(name, size)

    def let_go(self) -> None:
        self.region.descriptor = None


class Region:
    """`mray._ipc.mapped.Region`, of a mapping to which nobody writes."""

    address = 0

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.descriptor: Descriptor | None = None

    def refresh(self, _mapping: Mapping, _length: int) -> bool:
        return False

    def is_clean(self, _address: int, _length: int) -> bool:
        return True

    def note_sent(self, *, copied: bool) -> None:
        pass


class Descriptor:
    """A process's open segment: a location that holds the segment's size as long as it is open."""

    inode = 1

    def __init__(self, region: Region) -> None:
        assert explorer.current is not None
        self.run = explorer.current
        self.location = ("descriptor", self.run.pid, region.name)
        self.run.access(SET, self.location, region.size)

    def __del__(self) -> None:
        self.run.access(SET, self.location, 0)


class Address(int):
    """Where a view's bytes lie."""

    region: Region | None = None


def _address_of(memory: Any) -> Address:
    address = Address(0)
    if isinstance(memory, View):
        address.region = memory.mapping.region
    return address


def _origin_of(region: Region) -> tuple[mapped.Origin, Descriptor]:
    descriptor = region.descriptor
    if descriptor is None:
        descriptor = region.descriptor = Descriptor(region)
    return (region.name, descriptor.run.pid, 3, Descriptor.inode), descriptor


def _map_of(pid: int, _fd: int, inode: int, key: str, _ask: None) -> slots.Borrowed:
    run = explorer.current
    assert run is not None
    size = run.access(GET, ("descriptor", pid, key))
    if not size or not _start_of(pid):
        raise slots.WriterGoneError(key)
    return slots.Borrowed(inode, True, Mapping(run, key, size))  # type: ignore[arg-type]


def _getpid() -> int:
    """The process that runs; finalizers that Python runs in the middle of another one are nobody's."""
    return 0 if explorer.current is None else explorer.current.pid


def _start_of(pid: int) -> int:
    run = explorer.current
    assert run is not None
    return 0 if run.access(GET, explorer.dead(run.names[pid - 1])) else pid


class PerProcess:
    """A list that a module keeps in a global."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def _list(self) -> list[Any]:
        return [] if explorer.current is None else explorer.current.globals.setdefault(self._name, [])

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(self._list))

    def __len__(self) -> int:
        return len(self._list)

    def __setitem__(self, where: slice, items: list[Any]) -> None:
        self._list[where] = items

    def append(self, item: Any) -> None:
        self._list.append(item)

    def remove(self, item: Any) -> None:
        self._list.remove(item)


class Tokens:
    """Stands for `marshal` where what is written is not the point: a word for each thing that was ever dumped."""

    def __init__(self) -> None:
        self._things: list[Any] = []

    def dumps(self, thing: Any) -> bytes:
        if thing not in self._things:
            self._things.append(thing)
        return self._things.index(thing).to_bytes(WORD, "little")

    def loads(self, token: bytes) -> Any:
        number = int.from_bytes(token, "little")
        assert number < len(self._things), "a torn message"
        return self._things[number]


def _map_named(name: str, _key: str, _ask: None) -> Mapping:
    assert explorer.current is not None
    size = explorer.current.access(GET, ("name", name))
    if not size:
        raise FileNotFoundError(name)
    return Mapping(explorer.current, name, size)


class Pin:
    """The class that `mray._ipc.slots._pin_type` makes: exports the bytes of a slot until it dies."""

    release: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping
        self.memory = mapping.memory

    @classmethod
    def from_buffer(cls, mapping: Mapping) -> Pin:
        return cls(mapping)

    def __getitem__(self, where: slice) -> bytes:
        return self.memory[where]

    def __del__(self) -> None:
        self.release()


class View:
    """A memoryview of a pin, or of a slot that is being filled; also what a reader gets for an array (here: a bytearray)."""

    def __init__(self, viewed: Any, length: int | None = None) -> None:
        self._viewed = viewed
        self._length = length

    @property
    def mapping(self) -> Mapping:
        return self._viewed.mapping

    @property
    def nbytes(self) -> int:
        return self._length or 0

    def cast(self, _code: str) -> View:
        return self

    def __getitem__(self, where: slice) -> View:
        return View(self._viewed, where.stop)

    def __setitem__(self, where: slice, payload: bytes) -> None:
        self._viewed[where] = payload

    def __bytes__(self) -> bytes:
        return bytes(self._viewed[0 : self._length])

    def release(self) -> None:
        pass


def _view(viewed: Any) -> Any:
    if isinstance(viewed, Mapping):
        viewed = viewed.memory
    return View(viewed) if isinstance(viewed, (Memory, Pin)) else memoryview(viewed)


# ------------------------------------------------------------------------------------------ doorbells and epoll
class DoorbellFd:
    """An eventfd as one of the processes has it that watch it. Writing to it is an edge for each of them."""

    def __init__(self, run: Run, process: str, watchers: tuple[str, ...] = ()) -> None:
        self.run = run
        self.location = ("doorbell", process)
        self._all = tuple(("doorbell", each) for each in watchers or (process,))

    def __lt__(self, _other: int) -> bool:
        return False

    def __ge__(self, _other: int) -> bool:
        return False  # to be closed by nobody

    def write(self) -> None:
        if len(self._all) == 1:
            self.run.access(SET, *self._all, 1)
        else:
            self.run.access(SET_ALL, self._all, 1)


def _eventfd_write(fd: DoorbellFd, _count: int) -> None:
    fd.write()


class Semaphore:
    """`posix_ipc.Semaphore`, one for each process that sleeps; posts that nobody has waited for yet are one."""

    def __init__(self, name: str, *_arguments: Any, **_options: Any) -> None:
        assert explorer.current is not None
        self.run = explorer.current
        self.location = ("semaphore", name)

    def release(self) -> None:
        self.run.access(SET, self.location, 1)

    def acquire(self) -> None:
        self.run.mark("waits for", self.location)
        self.run.access(AWAIT, (self.location,))

    def close(self) -> None:
        pass


class Relay(semaphore.Relay):
    """The relay of a process, whose thread is an actor of its own: `_run`."""

    def __init__(self, process: Process) -> None:
        self._semaphore = Semaphore(process.name)
        self._wake = process.reactor.wake
        self._location = ("relay is over", process.name)

    @property
    def _is_over(self) -> bool:  # type: ignore[override]
        return bool(self._semaphore.run.access(GET, self._location))

    @_is_over.setter
    def _is_over(self, over: bool) -> None:
        self._semaphore.run.access(SET, self._location, int(over))


class Epoll:
    """Watches doorbells and hang-ups, all of them edges. A location is what is reported in place of a descriptor."""

    def __init__(self) -> None:
        assert explorer.current is not None
        self.run = explorer.current
        self.watched: list[Any] = []

    def register(self, fd: Any, _events: int = 0) -> None:
        self.watched.append(fd.location if isinstance(fd, DoorbellFd) else fd)

    def poll(self, timeout: float = -1) -> list[tuple[Any, int]]:
        places = tuple(self.watched)
        position = self.run.access(POLL if timeout == 0 else AWAIT, places)
        return [] if position < 0 else [(places[position], select.EPOLLIN)]

    def close(self) -> None:
        pass


# ------------------------------------------------------------------------------------------ spinning
def _choose(what: str) -> bool:
    assert explorer.current is not None
    return bool(explorer.current.access(CHOOSE, what, (0, 1)))


class _Window:
    """How long a wait spins: until any of its looks at the clock."""

    def __radd__(self, _now: float) -> _Window:
        return self

    def __le__(self, _now: float) -> bool:
        return _choose("has spun long enough")

    def __gt__(self, _other: float) -> bool:
        return False  # it is the earlier one


class Spinner(spin.AdaptiveSpinner):
    """`mray._ipc.spin.Spinner`, whatever it decides."""

    window = _Window()  # type: ignore[assignment]
    oversubscribed = True
    _failures = 1

    def __init__(self) -> None:
        pass

    def may_spin(self, takes_turns: bool = False) -> bool:
        return _choose("spins")

    def succeeded(self) -> None:
        pass

    def failed(self) -> None:
        pass

    def slept(self, _seconds: float) -> None:
        pass


def _yield(_self: Any = None) -> None:
    pass


def _encode_array(value: Any) -> tuple[bytes, Any] | None:
    if isinstance(value, bytearray):
        return b"", memoryview(value)
    return (b"", value) if isinstance(value, View) else None


def _decode_array(own: Any, length: int, pin: Pin | None = None, _offset: int = 0) -> View:
    return View(own if pin is None else pin, length)


def _marked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of something that an actor has one of, or one for each peer. The answer is all that is left of the way to it.

    Called from code that, apart from where it is, knows no more than what the actor says (`Process.knows`).
    """

    @functools.wraps(function)
    def marked(self: Any = None, *arguments: Any) -> Any:
        answer = function(self, *arguments)
        run = explorer.current
        if run is not None and run.knows is not None and run.is_new and not run.is_early:
            places = []
            frame = sys._getframe(1)
            while frame is not None and frame.f_code is not explorer.Explorer._grow.__code__:
                places.append((frame.f_code, frame.f_lasti))  # its `f_locals` would keep alive what is there
                frame = frame.f_back
            run.mark("has done", function.__name__, getattr(self, "_index", 0), answer, run.knows(), *places)
        return answer

    return marked


_MODULES = (doorbell, channel_leases, remembered, reactor, ring, ring_loans, shm, slots)


@contextlib.contextmanager
def in_place(order: str = SEQUENTIAL) -> Iterator[None]:
    """The modules of `_ipc` use the stand-ins."""
    with pytest.MonkeyPatch.context() as patch:
        for module in _MODULES:
            for name, stand_in in (("fence", fence), ("publish_fence", fence_if_weak), ("trust_fence", fence_if_weak)):
                if hasattr(module, name):
                    patch.setattr(module, name, stand_in)
        patch.setattr(ring.RingWriter, "_refresh", _marked(ring.RingWriter._refresh))
        patch.setattr(ring.RingWriter, "consumed", _marked(ring.RingWriter.consumed))
        patch.setattr(doorbell.Doorbell, "ring", _marked(doorbell.Doorbell.ring))
        patch.setattr(doorbell.GroupDoorbell, "ring", _marked(doorbell.GroupDoorbell.ring))
        patch.setattr(ring, "_WEAK_ORDER", order == WEAK)
        patch.setattr(ring, "_pack_header", _pack_header)
        patch.setattr(ring, "_unpack_header", _unpack_header)
        patch.setattr(slots, "Segment", Segment)
        patch.setattr(slots, "LEAST_SLOT", LEAST_SLOT)
        patch.setattr(slots, "_next_generation", lambda generation: generation + 1)  # each run does the same
        patch.setattr(slots, "_map_named", _map_named)
        patch.setattr(slots, "_pin_type", lambda _size: Pin)
        patch.setattr(slots, "memoryview", _view, raising=False)
        patch.setattr(shm, "memoryview", _view, raising=False)
        patch.setattr(slots, "_map_of", _map_of)
        patch.setattr(slots, "kernel_pid", _getpid)
        patch.setattr(ring_loans, "kernel_pid", _getpid)
        patch.setattr(ring_loans, "start_of", _start_of)
        patch.setattr(ring_loans, "is_dead", lambda process: _start_of(process[0]) != process[1])
        patch.setattr(ring_loans, "_closed", PerProcess("closed loans"))
        patch.setattr(shm, "encode_array", _encode_array)
        patch.setattr(shm, "decode_array", _decode_array)
        patch.setattr(shm, "LEAST_PASSED_ON", GRAIN)
        patch.setattr(shm, "address_of", _address_of)
        patch.setattr(shm, "find", lambda address, _length: getattr(address, "region", None))
        patch.setattr(shm, "origin_of", _origin_of)
        tokens = Tokens()
        patch.setattr(shm, "marshal", tokens)
        patch.setattr(shm, "decode_short", tokens.loads)
        system = types.SimpleNamespace(eventfd_write=_eventfd_write, getpid=os.getpid, close=lambda _fd: None)
        patch.setattr(spin, "sched_yield", _marked(_yield))
        patch.setattr(doorbell, "os", system)
        patch.setattr(reactor, "os", system)
        patch.setattr(closed_descriptors, "os", system)
        patch.setattr(semaphore, "_semaphore", Semaphore)
        patch.setattr(semaphore, "unlink_semaphore", lambda _name: None)
        patch.setattr(reactor, "select", types.SimpleNamespace(**{**vars(select), "epoll": Epoll}))
        patch.setattr(reactor, "new_wakeup_fd", lambda: None)
        patch.setattr(reactor, "monotonic", lambda: 0.0)
        patch.setattr(spin, "monotonic", lambda: 0.0)
        yield


# ------------------------------------------------------------------------------------------ processes
class Table:
    """The session's table, as far as waiting needs it."""

    def __init__(self, run: Run) -> None:
        self.words = Words(run, "table")


class Process:
    """The process of an actor: a reactor that waits as the real one does."""

    def __init__(self, run: Run, name: str, names: list[str]) -> None:
        self.run = run
        self.name = name
        self.table = Table(run)
        self._names = names
        run.names = names
        run.pid = self.row(name)
        self.deaths: list[str] = []
        #: Called with the name of a process that has died.
        self.on_death: Callable[[str], None] = lambda _other: None
        run.is_early = True
        self.reactor = reactor.Reactor()
        self.reactor.wakeup_fd = DoorbellFd(run, name)
        self.reactor._epoll.watched[:] = []
        self.reactor._epoll.register(self.reactor.wakeup_fd)
        self.reactor.table, self.reactor._words = self.table, self.table.words
        self.reactor._state_index = self.row(name) * reactor.ROW_WORDS + reactor.STATE
        for other in names:
            if other != name:
                location = hangup(other, name)
                self.reactor._epoll.register(location)
                self.reactor._callbacks[location] = functools.partial(self._hear, other)
        run.is_early = False

    def row(self, name: str) -> int:
        return 1 + self._names.index(name)

    def _hear(self, other: str, _events: int) -> None:
        self.deaths.append(other)
        self.on_death(other)

    def doorbell_of(self, name: str, *, by_semaphore: bool = False) -> doorbell.Doorbell:
        if by_semaphore:
            table: Any = self.table
            doorbell_of_name = semaphore.SemaphoreDoorbell("", table, lambda _name: self.row(name))
            doorbell_of_name._semaphore = Semaphore(name)
            return doorbell_of_name
        return doorbell.Doorbell(DoorbellFd(self.run, name), self.table, self.row(name))

    def wait_until(self, predicate: Callable[[], object], *local: Any) -> None:
        """Sleep until the predicate holds. `local`: all else that the actor knows (see `Run.mark`)."""
        park = reactor.Reactor._park

        def park_here(predicate: Callable[[], object], timeout: float | None) -> None:
            self.run.mark("parks", self.name, summary(local), summary(self.run.globals), tuple(self.deaths))
            park(self.reactor, predicate, timeout)

        self.reactor._park = park_here
        self.reactor.wait_until(predicate, None, spin=self.reactor.spinner is not None)

    def spins(self) -> None:
        """Its waits may spin before they sleep."""
        spinner: Any = Spinner()
        self.reactor.spinner = spinner

    def knows(self, local: Callable[[], Any]) -> None:
        """`local`: all that the actor knows, from now on, apart from where it is in its code."""
        self.run.knows = lambda: (self.name, summary(local()), summary(self.run.globals), tuple(self.deaths))

    def mark(self, *local: Any) -> None:
        self.run.mark("goes on", self.name, summary(local), summary(self.run.globals), tuple(self.deaths))


class Silent:
    """An object whose whole state the actor reports."""


def summary(thing: Any) -> Any:
    """All that an object knows, comparable."""
    if thing is None or isinstance(thing, (int, str, bytes, float, RingLayout)):
        return thing
    if isinstance(thing, (list, tuple, deque, set)):
        return tuple(summary(each) for each in thing)
    if isinstance(thing, dict):
        return tuple((key, summary(value)) for key, value in thing.items())
    if isinstance(thing, (Words, Memory, Silent, doorbell.Doorbell, doorbell.GroupDoorbell)) or callable(thing):
        return None  # they know nothing by themselves
    if isinstance(thing, (Segment, Mapping, Pin)):
        return thing.memory.name
    if isinstance(thing, Descriptor):
        return thing.location
    if isinstance(thing, memoryview):
        return bytes(thing)
    if isinstance(thing, View):
        return thing._length, summary(thing._viewed)
    assert type(thing).__module__.startswith("mray."), type(thing)
    names = [name for each in type(thing).__mro__ for name in getattr(each, "__slots__", ())] + list(getattr(thing, "__dict__", ()))
    return tuple((name, summary(getattr(thing, name))) for name in names if name != "__weakref__" and hasattr(thing, name))


# ------------------------------------------------------------------------------------------ mutants
@contextlib.contextmanager
def mutated(function: Callable[..., Any], old: str, new: str) -> Iterator[None]:
    """The function of a module, or method of a class, with a piece of its text replaced by another."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{function.__qualname__} has changed: {old!r} is to be there once"
    module = inspect.getmodule(function)
    assert module is not None
    scope: dict[str, Any] = {}
    code = compile(source.replace(old, new), f"<mutant of {function.__qualname__}>", "exec")
    exec(code, module.__dict__, scope)
    owner: Any = module
    *path, name = function.__qualname__.split(".")
    for each in path:
        owner = getattr(owner, each)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, scope[name])
        yield
