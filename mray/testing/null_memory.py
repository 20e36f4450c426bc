"""Memory of pretended devices: anonymous files, mapped by the processes that use them.

    owner                                          peer
    allocate: memfd "mray-null-<scope>-<device>"   open_exported: /proc/<pid>/fd/<fd>, whose inode must match
    Region: mapped, its descriptor open            Region: mapped, its descriptor open

The used memory of a device is the sum of the files of its name that any process has open, and so is right however a process dies.

*Addresses do not repeat.* Regions are mapped at ever higher addresses of a reserved, inaccessible range, so the use of an address
after its memory was freed finds nothing (`resolve`). Addresses are resolved when work runs, and the region is held meanwhile, so that
no access hits an unmapped page.

Any thread. Finalizers may run between any two byte codes and drop regions, so nothing is locked: each change of a table is one
uninterrupted call into C.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import weakref
from _thread import allocate_lock
from collections.abc import Callable
from struct import Struct

import numpy as np

from mray._common.process_local import kernel_pid
from mray._inside.memory import PAGE, round_up
from mray._inside.processes import all_pids

_PROT_NONE, _PROT_READ_WRITE = 0, 3
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS, _MAP_NORESERVE = 0x01, 0x02, 0x10, 0x20, 0x4000
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_mmap.restype = ctypes.c_void_p

_RESERVED = 1 << 40

#: Owner's pid, descriptor, inode, bytes, machine-wide number of the device.
_HANDLE = Struct("@QQQQQ")
HANDLE_SIZE = _HANDLE.size


# ---------------------------------------------------------------------------------------------- addresses
class _Addresses:
    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._next = self._end = 0

    def take(self, size: int) -> int:
        """The first of as many addresses never used; a page after them stays free forever."""
        size += PAGE
        with self._lock:
            if self._next + size > self._end:
                reserved = max(_RESERVED, size)
                start = _map(0, reserved, _PROT_NONE, _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE, -1)
                self._next, self._end = start, start + reserved
            address = self._next
            self._next += size
        return address


_addresses = _Addresses()


def _map(address: int, size: int, protection: int, flags: int, fd: int) -> int:
    mapped: int = _mmap(address, size, protection, flags, fd, 0)
    if mapped == _FAILED:
        raise MemoryError(f"{size} bytes could not be mapped: {os.strerror(ctypes.get_errno())}")
    return mapped


# ------------------------------------------------------------------------------------------------ regions
# Note [finalizers in cycles]
# When a cycle of objects dies, the finalizers of all of them run, in any order, also of those that another finalizer brings back to life:
# the finalizer of an array queues the return of its memory, which must not be unmapped by then. So what is unmapped or closed hangs on an
# object that the search for cycles passes over, and that dies only when nothing refers to it: an array of numpy.


def at_end(function: Callable[..., object], *arguments: object) -> object:
    """An object whose last reference calls the function. See Note [finalizers in cycles]."""
    token = np.empty(0)
    weakref.finalize(token, function, *arguments).atexit = False  # at exit the kernel does it
    return token


class OpenFile:
    """A descriptor, closed with the last reference."""

    __slots__ = ("_end", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._end = at_end(os.close, fd)


def _unmap(address: int, size: int) -> None:
    _mmap(address, size, _PROT_NONE, _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_FIXED | _MAP_NORESERVE, -1, 0)


class NullRegion:
    """Memory of a device, mapped in this process; unmapped with the last reference."""

    __slots__ = ("__weakref__", "_end", "base", "device", "end", "file", "is_live", "is_opened", "size")

    def __init__(self, device: int, file: OpenFile, size: int, *, is_opened: bool = False) -> None:
        self.file = file
        self.size = size
        self.base = _addresses.take(self.size)
        self.end = self.base + self.size
        self.device = device
        self.is_opened = is_opened
        self.is_live = True
        _map(self.base, size, _PROT_READ_WRITE, _MAP_SHARED | _MAP_FIXED, file.fd)
        self._end = at_end(_unmap, self.base, size)


_regions: dict[int, NullRegion] = {}
_bases: list[int] = []


def _keep(region: NullRegion) -> NullRegion:
    _regions[region.base] = region
    bisect.insort(_bases, region.base)
    return region


def drop(region: NullRegion) -> None:
    """Mark the region as not in use, and hide it from `find`. Idempotent."""
    region.is_live = False
    if _regions.pop(region.base, None) is not None:
        _bases.remove(region.base)


def find(address: int) -> NullRegion | None:
    """The region that contains an address, in use or not."""
    bases = _bases.copy()
    place = bisect.bisect_right(bases, address)
    region = _regions.get(bases[place - 1]) if place else None
    return region if region is not None and address < region.end else None


def resolve(address: int, size: int) -> NullRegion:
    """The region in use that contains these bytes, to be held while they are touched. Raises RuntimeError if there is none."""
    region = find(address)
    if region is None or not region.is_live:
        raise RuntimeError(f"illegal address: work touched {size} bytes at {address:#x}, which are not, or no more, memory of a device")
    if address + size > region.end:
        raise RuntimeError(f"illegal address: work touched {size} bytes at {address:#x}, past the end of memory at {region.end:#x}")
    return region


def drop_all() -> None:
    """Mark every region as not in use."""
    for region in list(_regions.values()):
        drop(region)


def _after_fork() -> None:
    _regions.clear()
    _bases.clear()


os.register_at_fork(after_in_child=_after_fork)


# --------------------------------------------------------------------------------------------- allocation
def _file_name(scope: str, device: int) -> str:
    return f"mray-null-{scope}-{device}"


def used_bytes(scope: str, device: int) -> int:
    """Bytes that processes have allocated, or opened and not closed."""
    link = f"/memfd:{_file_name(scope, device)} (deleted)"
    user = os.getuid()
    sizes: dict[int, int] = {}
    for pid in all_pids():
        folder = f"/proc/{pid}/fd"
        try:
            if os.stat(folder).st_uid != user:
                continue
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            path = f"{folder}/{name}"
            try:
                if os.readlink(path) == link:
                    status = os.stat(path)
                    sizes[status.st_ino] = status.st_size
            except OSError:
                continue
    return sum(sizes.values())


def allocate(scope: str, device: int, total: int, size: int) -> NullRegion:
    """Allocate memory of a device that has `total` bytes. Raises MemoryError when it is full."""
    size = round_up(size)
    try:
        file = OpenFile(os.memfd_create(_file_name(scope, device), os.MFD_CLOEXEC))
    except OSError as error:
        raise MemoryError(f"no memory for a device: {error}") from error
    os.ftruncate(file.fd, size)
    # Counted afterwards: when several processes take the last bytes concurrently, none gets more than exists.
    if used_bytes(scope, device) > total:
        del file  # now, not with the error
        raise MemoryError(f"{size} bytes were asked for on a pretended device of {total} bytes, which does not have them")
    return _keep(NullRegion(device, file, size))


def exported(region: NullRegion) -> bytes:
    """The handle by which other processes open it."""
    fd = region.file.fd
    return _HANDLE.pack(kernel_pid(), fd, os.fstat(fd).st_ino, region.size, region.device)


def device_of(handle: bytes) -> int:
    """A handle's device, by its number on the machine."""
    device: int = _HANDLE.unpack(handle)[4]
    return device


def open_exported(handle: bytes) -> NullRegion:
    """Map memory of another process. Raises RuntimeError when it is released."""
    pid, number, inode, size, device = _HANDLE.unpack(handle)
    try:
        file = OpenFile(os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise RuntimeError(f"process {pid}, which owns this memory, has exited or has freed it") from error
    info = os.fstat(file.fd)
    if info.st_ino != inode or not 0 < size <= info.st_size:
        raise RuntimeError(f"process {pid}, which owns this memory, has exited or has freed it")
    return _keep(NullRegion(device, file, size, is_opened=True))
