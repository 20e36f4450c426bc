"""Zero-copy buffers: a segment in which this process creates an array, sends it without a copy, and goes on writing to it privately.

    created                                 sealed, when it is first sent
    address --> shared mapping --> segment  address --> private mapping --+--> segment <-- mappings of readers
                                            apart   --> shared mapping ---+

Until a part of it is sent, the array at `address` is the segment's own memory. Then the mapping becomes copy-on-write in place: the
pages of the shared mapping move to another address (`apart`), and a private mapping takes the range. Afterwards the process writes to
pages of its own, readers still see what was sent, and only what is written is copied.

The page tables are moved (``mremap`` with MREMAP_DONTUNMAP, to an address with the same offset in the tables' large units), which is
much cheaper than dropping them; when array and objects are dead they move back, so that the next array in this segment has no page
faults (`reunite`). The range is never unmapped, so that no other thread's memory can be placed there.

*Sent again.* An array that was not written to since is sent as before. One that was is known by its private pages (`mray._ipc.mapped`),
and is copied. Parts are judged separately, in pages.

*Headers.* Behind the array is room for the header of each object that shows it (`take_header`): a part of a page for each.

*Forks.* Before a fork everything is sealed, so that parent and child have separate memory as with any other array, and its segments are
not reused, since the child may read them indefinitely. Later writes of the parent make copies necessary.

Rejected: two mappings from the beginning (the array's pages must still be dropped); write protection (every page's protection would have
to change, and signals belong to the user); sealing by reference counts (C code that reads the array counts nothing).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import threading
import weakref
from typing import Any

from mray._common.kept import os
from mray._ipc.mapped import Region, address_of, fault_count, register
from mray._ipc.segment import Segment, open_memory, round_up

#: The unit in which page tables move fast.
_LARGE = 2 << 20
_MREMAP_MAYMOVE, _MREMAP_FIXED, _MREMAP_DONTUNMAP = 1, 2, 4
_PROT_NONE, _MAP_FIXED = 0, 0x10
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value
#: The ratio of a part that travels in a segment to its header.
_HEADER_SHARE = 256
_ALIGN = 64

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_mremap = _libc.mremap
_mremap.restype = ctypes.c_void_p
_mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_munmap = _libc.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

_sealing = threading.RLock()
#: All instances of this process.
_living: weakref.WeakSet[ZeroCopyBuffer] = weakref.WeakSet()


class Counts:
    """Counters of this process's born memory."""

    __slots__ = ("copied", "elsewhere", "made", "sent")

    def __init__(self) -> None:
        #: Arrays created; arrays that lacked room and lie in ordinary memory.
        self.made = self.elsewhere = 0
        #: Times that an array or a part of one was sent without a copy, and with one.
        self.sent = self.copied = 0


counts = Counts()


def size_with_headers(size: int) -> int:
    """Bytes of the segment for a value of `size` bytes."""
    return round_up(size) + round_up(size // _HEADER_SHARE)


class ZeroCopyBuffer(Region):
    """The segment of one array, as the process that creates it has it mapped. The array and the store hold it."""

    __slots__ = ("_apart", "_first", "_next", "_reserved", "again", "is_over", "is_sealed", "objects", "segment")

    def __init__(self, segment: Segment, size: int) -> None:
        super().__init__(segment.name, address_of(segment.memory), segment.size, None)
        self.segment = segment
        #: The number of objects that show it; whether the array is dead.
        self.objects = 0
        self.is_over = False
        #: Whether the segment may be reused.
        self.again = True
        self.is_sealed = False
        #: Address of the shared mapping once it is sealed; the reservation in which it lies.
        self._apart = 0
        self._reserved = (0, 0)
        #: Offsets of the first header and of the next one.
        self._first = self._next = round_up(size)
        register(self)
        with _sealing:
            _living.add(self)

    def exporter(self, size: int) -> Any:
        """Exports the first `size` bytes, and has attributes."""
        exporter = _exporter_type(size).from_buffer(self.segment.memory)
        exporter.buffer = self
        return exporter

    def is_clean(self, address: int, length: int) -> bool:
        """As of any region. An unsent one is sealed first, since a part is about to be sent."""
        return super().is_clean(address, length) if self.is_sealed else self.seal()

    def note_sent(self, *, copied: bool) -> None:
        if copied:
            counts.copied += 1
        else:
            counts.sent += 1

    def seal(self) -> bool:
        """Make this process write to pages of its own; False if that is impossible (the segment's name was removed)."""
        with _sealing:
            if not self.is_sealed:
                try:
                    fd = open_memory(self.key, writable=True)
                except OSError:
                    return False
                try:
                    self.is_sealed = self._divide(fd)
                finally:
                    os.close(fd)
                self._used = self.size
                self._faults = fault_count()
            return self.is_sealed

    def _divide(self, fd: int) -> bool:
        address, size = self.address, self.size
        # The same offset within a large unit, so that whole tables move rather than entries.
        length = size + _LARGE
        start = _mmap(None, length, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE, -1, 0)
        if start == _FAILED:
            return False
        apart = start + (address - start) % _LARGE
        moved = _mremap(address, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED | _MREMAP_DONTUNMAP, apart)
        if moved == _FAILED:  # before Linux 5.13: the pages are mapped again when they are read
            moved = _mmap(apart, size, _READ_WRITE, mmap.MAP_SHARED | _MAP_FIXED, fd, 0)
        # POINT born apart
        if moved == _FAILED or _mmap(address, size, _READ_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED | _NORESERVE, fd, 0) == _FAILED:
            _munmap(start, length)
            return False
        self._apart, self._reserved = apart, (start, length)
        return True

    def reunite(self) -> bool:
        """Array and objects are dead: share the segment's memory again, with its mapped pages.

        Returns False if that is impossible, or if others may read the segment.
        """
        if not self.again or (self.descriptor is not None and self.descriptor.exposed):
            return False
        if not self.is_sealed:
            return True
        size = self.size
        start, length = self._reserved
        end = self._apart + size
        if _mremap(self._apart, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED, self.address) == _FAILED:
            return False
        # Not the whole reservation: other memory may lie where the pages were.
        if start < self._apart:
            _munmap(start, self._apart - start)
        if end < start + length:
            _munmap(end, start + length - end)
        self._apart, self._reserved = 0, (0, 0)
        self.is_sealed = False
        return True

    def take_header(self, size: int) -> int | None:
        """Offset of a header of `size` bytes; None if there is no room left."""
        if not self.objects:
            self._next = self._first
        start = round_up(self._next, _ALIGN)
        if start + size > self.size:
            return None
        self._next = start + size
        return start

    def header(self, start: int, size: int) -> memoryview:
        """The bytes of a header of sealed memory."""
        return memoryview((ctypes.c_ubyte * size).from_address(self._apart + start)).cast("B")

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # the constructor failed
            start, length = self._reserved
            if length:
                _munmap(start, length)


@functools.lru_cache(256)
def _exporter_type(size: int) -> Any:
    return type("BornMemory", (ctypes.c_ubyte * size,), {})


def _before_fork() -> None:
    _sealing.acquire()
    for buffer in tuple(_living):
        buffer.again = False
        buffer.seal()


os.register_at_fork(before=_before_fork, after_in_parent=_sealing.release, after_in_child=_sealing.release)
