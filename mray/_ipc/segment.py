"""Named shared memory: one POSIX shared-memory object, mapped; or, where memory is short, a file on disk, mapped.

A name is ``/mray-<session>-<rest>``, so that `mray._ipc.reaper` finds all names of a session. It is unlinked when every process that
needs it has it open, or when its owner releases it.

Other users can list and create names. So a name is unguessable until it exists (`new_nonce`), and an opened segment must belong to this
user.

This user's programs may unlink a name while it is needed (a logout does, with RemoveIPC=yes). So a process that creates a segment for
others *offers* it, which retains a descriptor as long as the name, and a process that does not find the name asks for it (`Ask`). Only
objects depend on their names.

A file's name is its path (``/tmp/.../spilled/<rest>``).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import sys
import weakref
from collections.abc import Callable
from typing import Any

import posix_ipc

from mray._common.kept import os
from mray._ipc.limits import exhausted, lacks_descriptor
from mray.exceptions import ObjectStoreFullError, OutOfDiskError

PAGE = mmap.PAGESIZE

SHM = "/dev/shm"
#: Prefix of semaphore names in /dev/shm.
SEMAPHORE = "sem."

_MADV_POPULATE_WRITE = 23

_NO_ROOM = (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT)

#: Opening a name that another user has replaced or protected.
_NOT_FOR_US = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR)

#: Before Python 3.13 each mapping retains a descriptor.
UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


#: Returns a descriptor from the process that offers this name. FileNotFoundError if it no longer does, ConnectionError if it has exited;
#: other OSErrors for lack of descriptors.
Ask = Callable[[str], int]


class Descriptor:
    """Closed with the last reference."""

    __slots__ = ("__weakref__", "exposed", "fd", "inode", "named", "size")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        status = os.fstat(fd)
        self.inode = status.st_ino
        self.size = status.st_size
        #: Whether others may have the segment mapped indefinitely.
        self.exposed = False
        #: Whether it had a name when it was opened.
        self.named = status.st_nlink > 0

    def is_named(self) -> bool:
        return os.fstat(self.fd).st_nlink > 0

    def __del__(self) -> None:
        os.close(self.fd)


#: Without a lock: a finalizer may release a segment while another thread answers a request for it.
_offered: weakref.WeakValueDictionary[str, Descriptor] = weakref.WeakValueDictionary()


def offer(name: str, descriptor: Descriptor) -> None:
    """Give this descriptor, while it lives, to processes that ask."""
    _offered[name] = descriptor


def offered(name: str) -> Descriptor:
    """Raises FileNotFoundError."""
    descriptor = _offered.get(name)
    if descriptor is None:
        raise FileNotFoundError(errno.ENOENT, "no segment of that name is offered", name)
    return descriptor


def round_up(size: int, unit: int = PAGE) -> int:
    """Round up to a multiple of `unit`, at least one."""
    return max(unit, (size + unit - 1) // unit * unit)


def new_nonce() -> int:
    """62 bits, for a name."""
    return int.from_bytes(os.urandom(8), "big") >> 2  # (`secrets` loads OpenSSL, slowly)


class Segment:
    __slots__ = ("__weakref__", "_touched", "descriptor", "memory", "name", "size")

    def __init__(self, name: str, size: int, memory: mmap.mmap, descriptor: Descriptor | None = None) -> None:
        self.name = name
        self.size = size
        self.memory = memory
        #: Open while this process or one to which it is offered needs it.
        self.descriptor = descriptor
        #: Bytes whose pages are mapped.
        self._touched = 0

    @classmethod
    def create(
        cls, name: str, size: int, *, offer: bool = False, fill: Callable[[int], None] | None = None, reserve: int | None = None
    ) -> Segment:
        """Create a segment of at least `size` bytes and reserve its pages, or its first `reserve` bytes; `offer` it until `unlink`.

        `fill` is called with its descriptor, to write to it: then the kernel neither clears the pages first nor takes a fault for each.
        Raises `ObjectStoreFullError`.
        """
        size = round_up(size)
        try:
            shared = _shared_memory(name, posix_ipc.O_CREX, mode=0o600, size=size)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise _full(name, size) from error
            raise
        try:
            if fill is not None:
                fill(shared.fd)
            # Else the first touch of a full /dev/shm would be a SIGBUS.
            os.posix_fallocate(shared.fd, 0, size if reserve is None else reserve)
            memory = _map(shared.fd, size)
        except BaseException as error:  # Ctrl-C as well
            shared.close_fd()
            unlink(name)
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise _full(name, size) from error
            raise
        if not offer:
            shared.close_fd()
            return cls(name, size, memory)
        descriptor = _offered[name] = Descriptor(shared.fd)
        return cls(name, size, memory, descriptor)

    @classmethod
    def anonymous(cls, name: str, size: int, *, reserve: int | None = None) -> Segment:
        """`create` without a lasting name; `descriptor` is retained."""
        segment = cls.create(name, size, offer=True, reserve=reserve)
        unlink(name)
        return segment

    @staticmethod
    def create_file(path: str, size: int, fill: Callable[[int], None]) -> None:
        """Create a file of at least `size` bytes, reserve its blocks and `fill` it.

        Raises `OutOfDiskError` when the disk is full, FileNotFoundError without its directory.
        """
        size = round_up(size)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:  # a disk may lack room for names
            if error.errno in _NO_ROOM:
                raise _disk_full(path, size, error) from error
            if lacks_descriptor(error):
                raise exhausted(error, f"The file {path} could not be created.") from error
            raise
        try:
            os.posix_fallocate(fd, 0, size)
            fill(fd)
        except BaseException as error:
            os.unlink(path)
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise _disk_full(path, size, error) from error
            if isinstance(error, OSError) and error.errno == errno.EFBIG:
                raise exhausted(error, f"{size} bytes could not be written to {path}.") from error
            raise
        finally:
            os.close(fd)

    @classmethod
    def open(cls, name: str, *, writable: bool = False, ask: Ask | None = None) -> Segment:
        """FileNotFoundError if the name is unlinked and there is no `ask`, else the errors of `Ask`."""
        return cls.of(name, open_memory(name, writable=writable, ask=ask), writable=writable)

    @classmethod
    def of(cls, name: str, fd: int, *, writable: bool = False) -> Segment:
        """Map the segment that is open as `fd`, which is closed."""
        descriptor = Descriptor(fd)
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return cls(name, descriptor.size, _map(fd, descriptor.size, access))

    def touch(self, size: int) -> None:
        """Map the pages of the first `size` bytes, to be written: cheaper than faults."""
        start = self._touched
        if start < size:
            end = self._touched = min(round_up(size), self.size)
            with contextlib.suppress(OSError):  # before Linux 5.14
                self.memory.madvise(_MADV_POPULATE_WRITE, start, end - start)

    def words(self, start: int = 0, count: int | None = None) -> memoryview:
        end = self.size if count is None else start + 8 * count
        return memoryview(self.memory)[start:end].cast("Q")

    def close(self) -> None:
        """Or leave that to the last view."""
        try:
            self.memory.close()
        except BufferError:
            pass

    def unlink(self) -> None:
        """Withdraw the offer, too; mappings stay. Idempotent."""
        self.descriptor = None
        unlink(self.name)


def _map(fd: int, size: int, access: int = mmap.ACCESS_DEFAULT) -> mmap.mmap:
    try:
        return mmap.mmap(fd, size, access=access, **UNTRACKED)
    except OSError as error:
        if lacks_descriptor(error):  # before Python 3.13 each mapping retains one
            raise exhausted(error, f"A segment of {size} bytes could not be mapped.") from error
        raise


def is_file(name: str) -> bool:
    """Whether it is on disk."""
    return "/" in name[1:]


def is_there(name: str) -> bool:
    return os.access(name if is_file(name) else SHM + name, os.F_OK)


def open_read_only(name: str) -> int:
    """Of a segment or file; FileNotFoundError if the name is unlinked or belongs to another user."""
    if not is_file(name):
        return open_memory(name)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if lacks_descriptor(error):
            raise exhausted(error, f"The file {name} could not be opened.") from error
        if error.errno in _NOT_FOR_US:
            raise FileNotFoundError(errno.ENOENT, error.strerror, name) from error
        raise
    return _ours(fd, name)


def open_memory(name: str, *, writable: bool = False, ask: Ask | None = None) -> int:
    """FileNotFoundError if the name is unlinked or belongs to another user: then `ask`."""
    try:
        try:
            fd: int = _shared_memory(name, read_only=not writable).fd
        except (posix_ipc.ExistentialError, posix_ipc.PermissionsError) as error:
            raise FileNotFoundError(errno.ENOENT, "no shared-memory segment of that name", name) from error
        return _ours(fd, name)
    except FileNotFoundError:
        if ask is None:
            raise
    return ask(name)


def _ours(fd: int, name: str) -> int:
    if os.fstat(fd).st_uid != os.geteuid():
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "the segment of that name belongs to another user", name)
    return fd


def _shared_memory(name: str, flags: int = 0, **options: Any) -> posix_ipc.SharedMemory:
    try:
        return posix_ipc.SharedMemory(name, flags, **options)
    except (posix_ipc.ExistentialError, posix_ipc.PermissionsError, OSError) as error:
        wrong = _wrong_place() if flags and not isinstance(error, FileExistsError) else None
        if wrong is not None:
            raise wrong from None
        if not isinstance(error, OSError):
            raise
        if error.errno is None:  # for lack of a descriptor
            raise exhausted(OSError(errno.EMFILE, ""), f"The shared memory {name} could not be opened.") from error
        if not flags and error.errno in _NOT_FOR_US:
            raise FileNotFoundError(errno.ENOENT, error.strerror, name) from error
        raise
    except ValueError:  # raised for a file larger than this process may create
        raise exhausted(OSError(errno.EFBIG, ""), f"{options.get('size')} bytes of shared memory could not be allocated.") from None


def _wrong_place() -> OSError | None:
    """Why shared memory cannot be created here, and what to do; None if it can."""
    try:
        info = os.statvfs(SHM)
    except OSError as error:
        number, wrong, advice = (
            error.errno,
            f"does not exist ({error.strerror})",
            f"mount one: mkdir -p {SHM} && mount -t tmpfs tmpfs {SHM}",
        )
    else:
        if info.f_flag & os.ST_RDONLY:
            number, wrong, advice = errno.EROFS, "is mounted read-only", f"mount -o remount,rw {SHM}"
        elif not os.access(SHM, os.W_OK | os.X_OK):
            number, wrong, advice = errno.EACCES, "is not writable by this user", f"chmod 1777 {SHM}"
        else:
            return None
    return OSError(
        number, f"mray needs shared memory, and {SHM} {wrong}. As root: {advice}. In a container, make sure that it is mounted like this"
    )


def for_what(error: OSError | ObjectStoreFullError, what: str) -> Exception:
    """An error that names its purpose; raise it from None."""
    if isinstance(error, ObjectStoreFullError):
        return ObjectStoreFullError(f"{what}: {error}")
    return type(error)(error.errno, f"{what}: {error.strerror}")


def check_place(prefix: str, size: int) -> None:
    """Raise OSError or `ObjectStoreFullError`, with advice, where shared memory of `size` bytes cannot be created."""
    segment = Segment.create(f"{prefix}try-{new_nonce():x}", size)
    segment.unlink()
    segment.close()


def unlink(name: str) -> None:
    """Safe when it does not exist or belongs to another user."""
    try:
        if is_file(name):
            os.unlink(name)
        else:
            posix_ipc.unlink_shared_memory(name)
    except (FileNotFoundError, posix_ipc.ExistentialError, posix_ipc.PermissionsError):
        pass


def unlink_semaphore(name: str) -> None:
    unlink(f"/{SEMAPHORE}{name[1:]}")


def link(name: str, other: str) -> None:
    os.link(SHM + name, SHM + other, follow_symlinks=False)


def shared_memory_left() -> int:
    """Free bytes; 0 also where no more names are possible."""
    try:
        info = os.statvfs(SHM)
    except OSError:
        return 0
    return 0 if info.f_files and not info.f_favail else info.f_bavail * info.f_frsize


def _full(name: str, size: int) -> ObjectStoreFullError:
    return ObjectStoreFullError(
        f"shared memory is full: {size} bytes could not be reserved for {name}, {SHM} has {shared_memory_left()} bytes free. Free objects "
        "(drop their refs), lower object_store_memory, or give /dev/shm more room (docker: --shm-size)."
    )


def _disk_full(path: str, size: int, error: OSError) -> OutOfDiskError:
    place = os.path.realpath(os.path.dirname(path))
    return OutOfDiskError(
        f"{os.strerror(error.errno or 0)}: {size} bytes could not be reserved in {place}. Free objects (drop "
        "their refs), or name a larger place with init(object_spilling_directory=...)."
    )
