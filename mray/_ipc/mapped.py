"""Memory that other processes wrote, as this process has it mapped: copy-on-write, known by address, passed on by descriptor.

    writer of a slot, producer of an object               this process                           a third process
    shared mapping --- pages of the segment ---------- Mapped: private mapping             Mapped of the same pages
                                                       values are views of it              ^
                                                       find(address) -> Region --- (key, pid, fd, inode) --- in a message

*Copy-on-write.* Whoever is handed a value may do with it what it likes: torch has no read-only tensors, and libraries look past numpy's
flag. The writes of a process land in pages of its own; the writer and all other readers go on seeing what was sent. Nobody pays for
this but who writes. Two questions follow, and both are answered by `Region`:

* Before a mapping shows the next message, pages of its own must go (`refresh`), or they would hide it.
* What was written to is not what was sent, and must be copied to be passed on (`is_clean`).

*Claimed.* A value's arrays are read-only views of memory that its reading was handed. Code that is to write into such a view, as a
collective that works in place is, claims its memory first (`claim`): it is had where no other reading was handed the same, as those of one
object in one process are while one lives; later ones get other memory. References are not counted: that is the interpreter's affair.

Such pages come only from page faults, so a process that has had no fault since the value was handed out has written nothing (0.8
microseconds to know). Otherwise its page table tells, at some nanoseconds a page. Where the kernel tells neither, every mapping counts as
written to after use: values are then copied to be passed on.

*Known by address.* A tensor does not say whose memory it lies in; `find` knows by where it lies.

*By descriptor.* A segment's name is gone as soon as its readers have mapped it. A process that passes a value on keeps a descriptor, and
the next one opens ``/proc/<pid>/fd/<fd>``, which the kernel grants to processes of the same user; the inode proves that it is the right
one. Where the kernel does not grant it, to a process that has changed its user for instance, the next one asks for the descriptor.
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

#: Private, and without a claim on memory for pages that nobody will write.
_PRIVATE = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000)
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE

#: /proc/self/pagemap: eight bytes a page; of the highest byte, bit 7: present, 6: swapped, 5: a page of the file (not a copy).
_PAGEMAP = "/proc/self/pagemap"
_ENTRY = 8
_SHARED_PAGES = bytes(byte for byte in range(256) if not byte & 0xC0 or byte & 0x20)

#: The request that has the kernel search the page table, ``struct pm_scan_arg``, and the categories of pages.
_SCAN = Struct("@12Q")
_PAGEMAP_SCAN = 3 << 30 | _SCAN.size << 16 | ord("f") << 8 | 16
_REGION_BYTES = 24
_IS_FILE, _IS_PRESENT, _IS_SWAPPED = 4, 8, 16

_usage = resource.getrusage
_SELF = resource.RUSAGE_SELF


class _Buffer(ctypes.Structure):
    """``Py_buffer`` of the C API; the fields after `len` are room."""

    _fields_ = (("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("rest", ctypes.c_char * 96))


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_Buffer),)
_release_buffer.restype = None


def address_of(exporter: Any) -> int:
    """Where the bytes of a contiguous bytes-like object lie."""
    buffer = _Buffer()
    _get_buffer(exporter, buffer, 0)
    address: int = buffer.buf or 0
    _release_buffer(buffer)
    return address


# ------------------------------------------------------------------------------------ whose views they are
class Claimable:
    """Memory of which a value's reading has read-only views, and which that reading may have for itself."""

    #: How many readings it was handed to, as far as that matters: one, or several; 0: it is nobody's, as a slot's, which the next message
    #: comes into.
    readings = 0
    #: Whether no more readings share it, and whether it belongs to the only one there is.
    is_parted = False
    is_claimed = False

    def part(self) -> None:
        """See to it that later readings have other memory."""


class OwnBytes(Claimable, bytearray):
    """A copy of a small value's bytes for one reading."""

    readings = 1

    @classmethod
    def aligned(cls, payload: Any, to: int) -> memoryview:
        """The copy in this memory, from an address on that is a multiple of so many bytes: numpy, arrow and jax share what begins there."""
        size = len(payload)
        own = cls(size + to)
        lead = -ctypes.addressof(_first_byte(own)) % to
        own[lead : lead + size] = payload
        return memoryview(own)[lead : lead + size]


_first_byte = ctypes.c_char.from_buffer


def claim(view: memoryview) -> Any:
    """The memory of this view, for its reading to write to; None if it was handed to others as well, or is nobody's to give."""
    memory = view.obj
    if not isinstance(memory, Claimable):
        return None
    if not memory.is_claimed:
        if memory.readings != 1:
            return None
        memory.is_parted = True
        memory.part()
        # Another thread that is just handed the same has added its reading, or will see that no more share it, and take other memory.
        if memory.readings != 1:
            return None
        memory.is_claimed = True
    return memory


class Mapped(Claimable, mmap.mmap):
    """A private mapping of a segment. Views keep it alive."""

    region: Region
    #: A further object that the views keep alive; may know the mapping for later readings, by a weak reference called `mapping`.
    holder: Any = None

    @classmethod
    def of(cls, fd: int, size: int, key: str, descriptor: Descriptor | None = None) -> Mapped:
        """Map the first `size` bytes of `fd`.

        `key` names the segment's role: who keeps mappings keeps one of each. It is the segment's name if there is no `descriptor`.
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
        """Unmap, unless views of it are held: then the mapping goes with the last of them. It cannot be passed on any more."""
        _unregister(self.region)
        self.region.descriptor = None
        try:
            self.close()
        except BufferError:
            pass


class Region:
    """Where a mapping lies and what has become of its pages."""

    __slots__ = ("__weakref__", "_clean", "_faults", "_name", "_used", "address", "descriptor", "end", "key", "size")

    def __init__(self, key: str, address: int, size: int, descriptor: Descriptor | None) -> None:
        self.key = key
        self.address = address
        self.size = size
        self.end = address + size
        self.descriptor = descriptor
        #: The segment's name, while a descriptor can be had for it.
        self._name = key if descriptor is None else None
        #: Bytes that may have been handed out since `refresh` last saw the mapping clean.
        self._used = 0
        self._faults = fault_count()
        #: The part that was last seen to be clean, and the faults until then. (The first write to any page of it is a fault.)
        self._clean: tuple[int, int, int] | None = None

    def described(self) -> Descriptor | None:
        """The descriptor by which other processes map the segment, as long as it is kept; None when they cannot."""
        name = self._name
        if self.descriptor is None and name is not None:
            self._name = None
            with contextlib.suppress(FileNotFoundError):
                self.descriptor = Descriptor(open_read_only(name))
        return self.descriptor

    def refresh(self, memory: Mapped, length: int) -> bool:
        """Nobody has views of the mapping, and its first `length` bytes are about to be handed out: show what is in the segment.

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
        """A part of the region was sent, or is about to be."""

    def is_clean(self, address: int, length: int) -> bool:
        """Whether this process has written nothing there since the mapping was handed out; False also if that cannot be known."""
        faults = fault_count()
        if _probe().counts and (faults == self._faults or (address, length, faults) == self._clean):
            return True
        if has_own_pages(address, length) is not False:
            return False
        self._clean = address, length, faults
        return True


# ------------------------------------------------------------------------------------------ by descriptor
#: How another process finds memory: what it is called, and a descriptor of it in a process, with the inode it must have.
Origin = tuple[str, int, int, int]


def _lent(inode: int) -> str:
    """The name under which memory that is passed on is offered."""
    return f"inode {inode}"


def origin_of(region: Region) -> tuple[Origin, Descriptor] | None:
    """How another process maps this region, as long as the descriptor is kept; None when it cannot."""
    descriptor = region.described()
    if descriptor is None:
        return None
    offer(_lent(descriptor.inode), descriptor)
    return (region.key, kernel_pid(), descriptor.fd, descriptor.inode), descriptor


def open_origin(pid: int, fd: int, inode: int, ask: Ask | None) -> Descriptor:
    """The file that process `pid` has open as `fd`; `ask` it if the kernel does not let this process look into it."""
    try:
        opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        if ask is None:
            raise
        opened = ask(_lent(inode))
    return Descriptor(opened)


# ---------------------------------------------------------------------------------- what the kernel tells
def fault_count() -> int:
    """Page faults of this process so far."""
    usage = _usage(_SELF)
    return usage.ru_minflt + usage.ru_majflt


def has_own_pages(address: int, length: int) -> bool | None:
    """Whether any page of a private mapping there is a copy of this process's own; None if the kernel does not tell."""
    if not _probe().shows:
        return None
    return _has_own_pages(address, length)


def _has_own_pages(address: int, length: int) -> bool:
    first = address // PAGE
    last = (address + length - 1) // PAGE
    # Opened anew each time: after a fork, the old descriptor would show the parent's pages.
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
    """Have the kernel look for the first page of one's own: what was not touched costs nothing then, and other pages a tenth."""
    found = ctypes.create_string_buffer(_REGION_BYTES)
    asked = _SCAN.pack(_SCAN.size, 0, start, end, 0, ctypes.addressof(found), 1, 1, _IS_FILE, _IS_FILE, _IS_PRESENT | _IS_SWAPPED, _IS_FILE)
    regions: int = fcntl.ioctl(fd, _PAGEMAP_SCAN, bytearray(asked))
    return regions > 0


class _Probe:
    """The file in which this kernel counts page faults; tried out once."""

    def __init__(self) -> None:
        #: Whether writing to a private mapping counts as a fault, and whether the page table shows it.
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
#: Addresses of regions in order, also of some that are gone; the regions that are not, by address.
_starts: list[int] = []
_regions: dict[int, weakref.ref[Region]] = {}
_LEAST_GONE = 64
_sweep_at = _LEAST_GONE


def register(region: Region) -> None:
    """Have `find` know it, as long as it lives."""
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
    """The region in which these bytes lie."""
    starts = _starts
    place = bisect_right(starts, address)
    while place:
        place -= 1
        reference = _regions.get(starts[place])
        region = None if reference is None else reference()
        if region is not None:
            return region if address + length <= region.end else None
    return None
