"""Memory that other processes wrote, as this process has it mapped: copy-on-write, known by address, passed on by descriptor.

    writer of a slot, producer of an object               this process                           a third process
    shared mapping --- pages of the segment ---------- Mapped: private mapping             Mapped of the same pages
                                                       values are views of it              ^
                                                       find(address) -> Region --- (key, pid, fd, inode) --- in a message

*Copy-on-write.* A receiver's writes to its value go to its own pages, which come only from page faults and show in the page table. They
must be dropped before a mapping shows the next message (`Region.refresh`), and a value with such pages is copied to be passed on
(`Region.is_clean`). Where the kernel shows neither, every mapping counts as written after use.

*Claimed.* Code that writes into a value's read-only view, such as an in-place collective, claims the memory first (`claim`): that
succeeds if no other reading received it, and later readings receive other memory.

*By descriptor.* A segment's name is unlinked early. A process that passes a value on retains a descriptor, and the next one opens
``/proc/<pid>/fd/<fd>``; the inode proves that it is the right file. Where the kernel denies it, the next one asks for the descriptor.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import resource
import threading
import weakref
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Any

from mray._common.kept import fcntl, os
from mray._common.process_local import kernel_pid
from mray._ipc.limits import exhausted, lacks_descriptor
from mray._ipc.segment import PAGE, UNTRACKED, Ask, Descriptor, offer, open_read_only

#: Reserve no memory for pages that are rarely written.
_PRIVATE = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000)
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE

#: Eight bytes a page; of the highest byte, bit 7: present, 6: swapped, 5: a page of the file (not a copy).
_PAGEMAP = "/proc/self/pagemap"
_ENTRY = 8
_SHARED_PAGES = bytes(byte for byte in range(256) if not byte & 0xC0 or byte & 0x20)

#: ``struct pm_scan_arg``, the search of the page table, and the categories of pages.
_SCAN = Struct("@12Q")
_PAGEMAP_SCAN = 3 << 30 | _SCAN.size << 16 | ord("f") << 8 | 16
_REGION_BYTES = 24
_IS_FILE, _IS_PRESENT, _IS_SWAPPED = 4, 8, 16

_usage = resource.getrusage
_SELF = resource.RUSAGE_SELF


class _Buffer(ctypes.Structure):
    """``Py_buffer``, with padding for the fields after `len`."""

    _fields_ = (("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("rest", ctypes.c_char * 96))


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_Buffer),)
_release_buffer.restype = None


def address_of(exporter: Any) -> int:
    """The address of a contiguous bytes-like object."""
    buffer = _Buffer()
    _get_buffer(exporter, buffer, 0)
    address: int = buffer.buf or 0
    _release_buffer(buffer)
    return address


# ------------------------------------------------------------------------------------ whose views they are
class Claimable:
    """Memory whose only reading may claim it."""

    #: Readers that received it: one, or several (not counted exactly); 0: no owner, as a slot that the next message reuses.
    readings = 0
    #: Whether further readings receive other memory; whether its only reading has claimed it.
    is_parted = False
    is_claimed = False

    def part(self) -> None:
        """Make later readings receive other memory."""


class OwnBytes(Claimable, bytearray):
    """A copy of a small value for one reading."""

    readings = 1

    @classmethod
    def aligned(cls, payload: Any, to: int) -> memoryview:
        """A copy that begins at a multiple of `to` bytes, as numpy, arrow and jax need to share it."""
        size = len(payload)
        own = cls(size + to)
        lead = -ctypes.addressof(_first_byte(own)) % to
        own[lead : lead + size] = payload
        return memoryview(own)[lead : lead + size]


_first_byte = ctypes.c_char.from_buffer


def claim(view: memoryview) -> Any:
    """Return the memory of a view for its reading to write to; None if others received it too, or it has no owner."""
    memory = view.obj
    if not isinstance(memory, Claimable):
        return None
    if not memory.is_claimed:
        if memory.readings != 1:
            return None
        memory.is_parted = True
        memory.part()
        # A thread that is receiving the same memory has added its reading, or will see `is_parted`.
        if memory.readings != 1:
            return None
        memory.is_claimed = True
    return memory


class Mapped(Claimable, mmap.mmap):
    """A private mapping, kept alive by views."""

    region: Region
    #: Also kept alive by the views; may retain a weak reference to the mapping, `mapping`, for later readings.
    holder: Any = None

    @classmethod
    def of(cls, fd: int, size: int, key: str, descriptor: Descriptor | None = None) -> Mapped:
        """Map the first `size` bytes of `fd`. `key` names the segment's role, under which one mapping is cached; without `descriptor` it is
        the segment's name.
        """
        try:
            mapped = cls(fd, size, flags=_PRIVATE, prot=_READ_WRITE, **UNTRACKED)
        except OSError as error:
            if lacks_descriptor(error):
                raise exhausted(error, f"{size} bytes of shared memory could not be mapped.") from error
            raise
        mapped.region = Region(key, address_of(mapped), size, descriptor)
        register(mapped.region)
        return mapped

    def part(self) -> None:
        self.holder.part()

    def let_go(self) -> None:
        """Unmap, or leave that to the last view. The memory can no longer be passed on."""
        _unregister(self.region)
        self.region.descriptor = None
        try:
            self.close()
        except BufferError:
            pass


class Region:
    """An address range, and the state of its pages."""

    __slots__ = ("__weakref__", "_clean", "_faults", "_name", "_used", "address", "descriptor", "end", "key", "size")

    def __init__(self, key: str, address: int, size: int, descriptor: Descriptor | None) -> None:
        self.key = key
        self.address = address
        self.size = size
        self.end = address + size
        self.descriptor = descriptor
        #: Its name, while a descriptor can be opened by it.
        self._name = key if descriptor is None else None
        #: Bytes handed out since `refresh` last saw the mapping clean.
        self._used = 0
        self._faults = fault_count()
        #: The part last seen clean, and the fault count then. (The first write to a page is a fault.)
        self._clean: tuple[int, int, int] | None = None

    def described(self) -> Descriptor | None:
        """The descriptor by which other processes map the segment, or None."""
        name = self._name
        if self.descriptor is None and name is not None:
            self._name = None
            with contextlib.suppress(FileNotFoundError):
                self.descriptor = Descriptor(open_read_only(name))
        return self.descriptor

    def refresh(self, memory: Mapped, length: int) -> bool:
        """Show the segment's contents in the first `length` bytes, which have no views.

        Returns whether what was handed out before is known to have been written to.
        """
        written = False
        if self._used and (fault_count() != self._faults or not _probe().counts):
            own = has_own_pages(self.address, self._used)
            if own is not False:
                memory.madvise(mmap.MADV_DONTNEED)
                written = own is True
            self._used = 0
        if length > self._used:
            if not self._used:
                self._faults = fault_count()
            self._used = length
        return written

    def note_sent(self, *, copied: bool) -> None:
        """Record that a part of the region was sent, or is about to be."""

    def is_clean(self, address: int, length: int) -> bool:
        """Whether this process has not written there since the mapping was handed out; False also if unknown."""
        faults = fault_count()
        if _probe().counts and (faults == self._faults or (address, length, faults) == self._clean):
            return True
        if has_own_pages(address, length) is not False:
            return False
        self._clean = address, length, faults
        return True


# ------------------------------------------------------------------------------------------ by descriptor
#: Key, process, descriptor in it, inode that the descriptor must have.
Origin = tuple[str, int, int, int]


def _lent(inode: int) -> str:
    """The name under which passed-on memory is offered."""
    return f"inode {inode}"


def origin_of(region: Region) -> tuple[Origin, Descriptor] | None:
    """How another process maps this region, while the descriptor is retained; None when it cannot."""
    descriptor = region.described()
    if descriptor is None:
        return None
    offer(_lent(descriptor.inode), descriptor)
    return (region.key, kernel_pid(), descriptor.fd, descriptor.inode), descriptor


def open_origin(pid: int, fd: int, inode: int, ask: Ask | None) -> Descriptor:
    """Process `pid` has it open as `fd`; `ask` it where the kernel denies access."""
    try:
        opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        if ask is None:
            raise
        opened = ask(_lent(inode))
    return Descriptor(opened)


# ---------------------------------------------------------------------------------- what the kernel tells
def fault_count() -> int:
    usage = _usage(_SELF)
    return usage.ru_minflt + usage.ru_majflt


def has_own_pages(address: int, length: int) -> bool | None:
    """Whether this process has copies of private pages there; None if the kernel does not tell."""
    if not _probe().shows:
        return None
    return _has_own_pages(address, length)


def _has_own_pages(address: int, length: int) -> bool:
    first = address // PAGE
    last = (address + length - 1) // PAGE
    # Opened each time: after a fork, an old descriptor would show the parent's pages.
    fd = os.open(_PAGEMAP, os.O_RDONLY)
    try:
        try:
            return _scan(fd, first * PAGE, (last + 1) * PAGE)
        except OSError:  # before Linux 6.7
            entries = os.pread(fd, (last - first + 1) * _ENTRY, first * _ENTRY)
    finally:
        os.close(fd)
    return bool(entries[_ENTRY - 1 :: _ENTRY].translate(None, _SHARED_PAGES))


def _scan(fd: int, start: int, end: int) -> bool:
    """The kernel finds the first own page: untouched ones cost nothing."""
    found = ctypes.create_string_buffer(_REGION_BYTES)
    asked = _SCAN.pack(_SCAN.size, 0, start, end, 0, ctypes.addressof(found), 1, 1, _IS_FILE, _IS_FILE, _IS_PRESENT | _IS_SWAPPED, _IS_FILE)
    regions: int = fcntl.ioctl(fd, _PAGEMAP_SCAN, bytearray(asked))
    return regions > 0


class _Probe:
    """Where this kernel shows own pages; tried out once."""

    def __init__(self) -> None:
        #: Whether writing to a private mapping counts as a fault; whether the page table shows it.
        self.counts = self.shows = False
        try:
            fd = os.memfd_create("mray-probe")
            try:
                os.ftruncate(fd, PAGE)
                os.pwrite(fd, b"x", 0)
                with mmap.mmap(fd, PAGE, flags=_PRIVATE, prot=_READ_WRITE) as memory:
                    address = address_of(memory)
                    read = memory[0]
                    before = _has_own_pages(address, PAGE), fault_count()
                    memory[0] = read
                    after = fault_count(), _has_own_pages(address, PAGE)
            finally:
                os.close(fd)
        except (OSError, ValueError):
            return
        self.counts = after[0] > before[1]
        self.shows = after[1] and not before[0]


_probe = functools.cache(_Probe)


# ---------------------------------------------------------------------------------------- who lies where
_registering = threading.Lock()
#: Sorted addresses, some dead; the live regions by address.
_starts: list[int] = []
_regions: dict[int, weakref.ref[Region]] = {}
_LEAST_GONE = 64
_sweep_at = _LEAST_GONE


def register(region: Region) -> None:
    """While it lives, `find` returns it."""
    global _starts, _sweep_at
    with _registering:
        if len(_starts) >= _sweep_at:
            for address, reference in list(_regions.items()):
                if reference() is None:
                    del _regions[address]
            _starts = sorted(_regions)
            _sweep_at = 2 * len(_starts) + _LEAST_GONE
        _regions[region.address] = weakref.ref(region)
        place = bisect_left(_starts, region.address)
        if place == len(_starts) or _starts[place] != region.address:
            _starts.insert(place, region.address)


def _unregister(region: Region) -> None:
    with _registering:
        reference = _regions.get(region.address)
        if reference is not None and reference() is region:
            del _regions[region.address]


def find(address: int, length: int) -> Region | None:
    starts = _starts
    place = bisect_right(starts, address)
    while place:
        place -= 1
        reference = _regions.get(starts[place])
        region = None if reference is None else reference()
        if region is not None:
            return region if address + length <= region.end else None
    return None
