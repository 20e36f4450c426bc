"""Born memory: a segment in which this process makes a value, to send it without a copy, and to go on writing for itself alone.

    made                                    sealed, when it is first sent
    address --> shared mapping --> segment  address --> private mapping --+--> segment <-- mappings of readers
                                            apart   --> shared mapping ---+

Until a part of it is sent, the array that lies at `address` is the segment's own memory. Then the mapping becomes copy-on-write in place:
the pages of the shared mapping move to another address (`apart`), and a private mapping takes the range. From there on
the process writes to pages of its own. Readers go on seeing what was sent, and nothing is copied but what is written.

The page tables are moved rather than dropped (``mremap`` with MREMAP_DONTUNMAP, to an address with the same place in the tables' large
units): to drop them costs 45 nanoseconds a page, 2.9 milliseconds for 64 MiB, where to move them costs 50 microseconds for any size; and
when array and objects are gone they move back, so that the next array in this segment has no page faults (`reunite`). The range is
never without a mapping, so that no other thread's memory can come to lie there.

*Sent again.* An array that was not written to since is sent as before. One that was is known by its private pages (`mray._ipc.mapped`), and
must be copied. Parts are judged by themselves, in units of pages.

*Headers.* Behind the array lies room for what precedes it in each object that shows it (`take_header`): a part of a page for each.

*Forks.* Before a fork everything is sealed, so that parent and child have their own memory as with any other array, and its segments are
not used again: the child may read them for ever. Writes of the parent make copies necessary from then on.

Rejected: two mappings from the beginning (the pages of the array's must go all the same); to protect the mapping and to catch the fault of
the next write (every page's protection would have to change, and signals belong to the user); to count the references of the array and to
seal it only if there are others (C code that looks at it counts nothing).
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
#: A header is some hundred bytes, and a part that travels in a segment has a hundred thousand at least.
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
#: All that there is in this process.
_living: weakref.WeakSet[Born] = weakref.WeakSet()


class Counts:
    """Counts of the born memory of this process."""

    __slots__ = ("copied", "elsewhere", "made", "sent")

    def __init__(self) -> None:
        #: Arrays made; and those that were to be and for which there was no room, in ordinary memory.
        self.made = self.elsewhere = 0
        #: Times that an array or a part of one was sent without a copy, and with one after all.
        self.sent = self.copied = 0


counts = Counts()


def size_with_headers(size: int) -> int:
    """Bytes of the segment for a value of so many bytes."""
    return round_up(size) + round_up(size // _HEADER_SHARE)


class Born(Region):
    """The segment of one array, as the process that makes it has it mapped. The array holds it, and so does the store."""

    __slots__ = ("_apart", "_first", "_next", "_reserved", "again", "is_over", "is_sealed", "objects", "segment")

    def __init__(self, segment: Segment, size: int) -> None:
        super().__init__(segment.name, address_of(segment.memory), segment.size, None)
        self.segment = segment
        #: Objects that show it; and whether the array is gone.
        self.objects = 0
        self.is_over = False
        #: Whether the segment may be used again.
        self.again = True
        self.is_sealed = False
        #: Address of the shared mapping once it is sealed; the reservation in which it lies.
        self._apart = 0
        self._reserved = (0, 0)
        #: Where headers begin, and where the next one may.
        self._first = self._next = round_up(size)
        register(self)
        with _sealing:
            _living.add(self)

    def exporter(self, size: int) -> Any:
        """Exports the first `size` bytes, and has attributes."""
        exporter = _exporter_type(size).from_buffer(self.segment.memory)
        exporter.born = self
        return exporter

    def is_clean(self, address: int, length: int) -> bool:
        """As of any region. One of which nothing was sent is sealed: something is about to be."""
        return super().is_clean(address, length) if self.is_sealed else self.seal()

    def note_sent(self, *, copied: bool) -> None:
        if copied:
            counts.copied += 1
        else:
            counts.sent += 1

    def seal(self) -> bool:
        """Have this process write to pages of its own from here on; False if that is not to be had (the segment's name was removed)."""
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
        # The same place within a large unit: whole tables move then, rather than entries.
        length = size + _LARGE
        start = _mmap(None, length, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE, -1, 0)
        if start == _FAILED:
            return False
        apart = start + (address - start) % _LARGE
        moved = _mremap(address, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED | _MREMAP_DONTUNMAP, apart)
        if moved == _FAILED:  # before Linux 5.13: the pages are mapped anew where they are looked at
            moved = _mmap(apart, size, _READ_WRITE, mmap.MAP_SHARED | _MAP_FIXED, fd, 0)
        # POINT born apart
        if moved == _FAILED or _mmap(address, size, _READ_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED | _NORESERVE, fd, 0) == _FAILED:
            _munmap(start, length)
            return False
        self._apart, self._reserved = apart, (start, length)
        return True

    def reunite(self) -> bool:
        """Array and objects are gone: have the segment's memory shared again, with the pages that are mapped.

        False if that cannot be, or must not: others may look at the segment.
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
        # Not the whole reservation: where the pages were, other memory may lie already.
        if start < self._apart:
            _munmap(start, self._apart - start)
        if end < start + length:
            _munmap(end, start + length - end)
        self._apart, self._reserved = 0, (0, 0)
        self.is_sealed = False
        return True

    def take_header(self, size: int) -> int | None:
        """Where a header of so many bytes may lie, from the segment's beginning; None if there is no room left."""
        if not self.objects:
            self._next = self._first
        start = round_up(self._next, _ALIGN)
        if start + size > self.size:
            return None
        self._next = start + size
        return start

    def header(self, start: int, size: int) -> memoryview:
        """The bytes of a header, of sealed memory."""
        return memoryview((ctypes.c_ubyte * size).from_address(self._apart + start)).cast("B")

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it was not made whole
            start, length = self._reserved
            if length:
                _munmap(start, length)


@functools.lru_cache(256)
def _exporter_type(size: int) -> Any:
    return type("BornMemory", (ctypes.c_ubyte * size,), {})


def _before_fork() -> None:
    _sealing.acquire()
    for born in tuple(_living):
        born.again = False
        born.seal()


os.register_at_fork(before=_before_fork, after_in_parent=_sealing.release, after_in_child=_sealing.release)
