"""Zero-copy buffers: a segment in which this process creates an array, sends it without a copy, and goes on writing to it privately.

    created                                 sealed, when it is first sent
    address --> shared mapping --> segment  address --> private mapping --+--> segment <-- mappings of readers
                                            apart   --> shared mapping ---+

When a part of the array is sent, the mapping becomes copy-on-write in place: the shared mapping's page tables move to another address
(``mremap`` with MREMAP_DONTUNMAP, at the same offset in the tables' large units), which is much cheaper than dropping them, and a
private mapping takes the range. When array and objects are dead they move back (`reunite`). The range is never unmapped: another
thread's memory could be placed there.

*Sent again.* An array that was written to since, as its private pages show (`mray._ipc.mapped`), is copied. Parts are judged separately,
in pages.

*Headers.* Behind the array is room for the headers of its objects (`take_header`).

*Forks.* Before a fork everything is sealed, and its segments are not reused afterwards, since the child may read them indefinitely.

Rejected: two mappings from the beginning (the array's pages must still be dropped); write protection (signals belong to the user);
sealing by reference counts (C code that reads the array counts nothing).
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

#: Granularity in which page tables move fast.
_LARGE = 2 << 20
_MREMAP_MAYMOVE, _MREMAP_FIXED, _MREMAP_DONTUNMAP = 1, 2, 4
_PROT_NONE, _MAP_FIXED = 0, 0x10
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value
#: The ratio of a part to its header.
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
_living: weakref.WeakSet[ZeroCopyBuffer] = weakref.WeakSet()


class Counts:
    """Counts of this process."""

    __slots__ = ("copied", "elsewhere", "made", "sent")

    def __init__(self) -> None:
        #: Arrays created; arrays that lacked room and lie in ordinary memory.
        self.made = self.elsewhere = 0
        #: Times that an array or a part was sent without a copy, and with one.
        self.sent = self.copied = 0


counts = Counts()


def size_with_headers(size: int) -> int:
    """Bytes for a value of `size` bytes."""
    return round_up(size) + round_up(size // _HEADER_SHARE)


class ZeroCopyBuffer(Region):
    """The segment of one array, in the process that creates it. The array and the store hold it."""

    __slots__ = ("_apart", "_first", "_next", "_reserved", "again", "is_over", "is_sealed", "objects", "segment")

    def __init__(self, segment: Segment, size: int) -> None:
        super().__init__(segment.name, address_of(segment.memory), segment.size, None)
        self.segment = segment
        #: Objects that show it; whether the array is dead.
        self.objects = 0
        self.is_over = False
        self.again = True
        self.is_sealed = False
        #: Address of the shared mapping once sealed; the reservation in which it lies.
        self._apart = 0
        self._reserved = (0, 0)
        #: Offsets.
        self._first = self._next = round_up(size)
        register(self)
        with _sealing:
            _living.add(self)

    def exporter(self, size: int) -> Any:
        """Exports the first `size` bytes; takes attributes."""
        exporter = _exporter_type(size).from_buffer(self.segment.memory)
        exporter.buffer = self
        return exporter

    def is_clean(self, address: int, length: int) -> bool:
        """An unsent one is sealed first, since a part is about to be sent."""
        return super().is_clean(address, length) if self.is_sealed else self.seal()

    def note_sent(self, *, copied: bool) -> None:
        if copied:
            counts.copied += 1
        else:
            counts.sent += 1

    def seal(self) -> bool:
        """Make this process write to its own pages; False if the segment's name was removed."""
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
        # The same offset within a large unit, so that whole tables move.
        length = size + _LARGE
        start = _mmap(None, length, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE, -1, 0)
        if start == _FAILED:
            return False
        apart = start + (address - start) % _LARGE
        moved = _mremap(address, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED | _MREMAP_DONTUNMAP, apart)
        if moved == _FAILED:  # before Linux 5.13: pages are mapped again when they are read
            moved = _mmap(apart, size, _READ_WRITE, mmap.MAP_SHARED | _MAP_FIXED, fd, 0)
        # POINT born apart
        if moved == _FAILED or _mmap(address, size, _READ_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED | _NORESERVE, fd, 0) == _FAILED:
            _munmap(start, length)
            return False
        self._apart, self._reserved = apart, (start, length)
        return True

    def reunite(self) -> bool:
        """Share the segment's memory again, once array and objects are dead. False if impossible, or if others may read the segment."""
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
        """Offset of a header of `size` bytes; None if there is no room."""
        if not self.objects:
            self._next = self._first
        start = round_up(self._next, _ALIGN)
        if start + size > self.size:
            return None
        self._next = start + size
        return start

    def header(self, start: int, size: int) -> memoryview:
        """The header of sealed memory."""
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
