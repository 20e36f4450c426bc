"""Named shared memory: one POSIX shared-memory object, mapped; or, where that is short, a file on disk, mapped.

Any process of a session creates and opens segments. A name is ``/mray-<session>-<rest>``, so that whoever cleans
after the dead (`mray._ipc.reaper`) finds every name of a session; it is 0600, and unlinked as soon as everyone
who needs it has it open, or when its owner lets it go.

Other users can list the names, and make names of their own beside them. So the rest of a name is not to be guessed before it is there
(`new_nonce`), and what is opened must be ours: once a name is gone, anybody may put something else in its place.

Anybody of our user may take a name away while it is needed (a logout does, with RemoveIPC=yes). So nothing depends on it: who makes a
segment for others *offers* it, which keeps a descriptor for as long as the name, and who does not find the name asks that process for the
descriptor (`Ask`). A segment whose descriptor goes where it is needed anyway has no name (`anonymous`). Only objects are where names say.

A file's name is its path (``/tmp/.../spilled/<rest>``): whoever has the name of a segment tells by it where the segment lies, and opens,
maps and unlinks both alike. A file is as fast as memory for as long as the machine has memory to spare: what is mapped is the page cache.
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
#: The C library's beginning of the names of semaphores there, before their own.
SEMAPHORE = "sem."

_MADV_POPULATE_WRITE = 23

_NO_ROOM = (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT)

#: Errors of opening a name whose file somebody else has replaced, or has taken rights from.
_NOT_FOR_US = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR)

#: A mapping needs no descriptor once it is made; before Python 3.13 each keeps one.
UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


#: Asks the process that offers a segment of this name for a descriptor. FileNotFoundError if it offers it no more or is not there,
#: ConnectionError if it has ended; other OSErrors for want of descriptors.
Ask = Callable[[str], int]


class Descriptor:
    """An open file, closed with the last reference."""

    __slots__ = ("__weakref__", "exposed", "fd", "inode", "named", "size")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        status = os.fstat(fd)
        self.inode = status.st_ino
        self.size = status.st_size
        #: Whether others may have the segment mapped for ever, unknown to this process.
        self.exposed = False
        #: Whether the segment had a name when it was opened.
        self.named = status.st_nlink > 0

    def is_named(self) -> bool:
        """Whether the segment has a name still."""
        return os.fstat(self.fd).st_nlink > 0

    def __del__(self) -> None:
        os.close(self.fd)


#: The files that this process offers, by name. Without a lock: a finalizer may let go of a segment while another thread answers who asks
#: for it.
_offered: weakref.WeakValueDictionary[str, Descriptor] = weakref.WeakValueDictionary()


def offer(name: str, descriptor: Descriptor) -> None:
    """Give others this descriptor, as long as it is kept, when they ask for that name."""
    _offered[name] = descriptor


def offered(name: str) -> Descriptor:
    """A segment that this process offers. Raises FileNotFoundError."""
    descriptor = _offered.get(name)
    if descriptor is None:
        raise FileNotFoundError(errno.ENOENT, "no segment of that name is offered", name)
    return descriptor


def round_up(size: int, unit: int = PAGE) -> int:
    """The least multiple of `unit` that is at least `size` (and at least one unit)."""
    return max(unit, (size + unit - 1) // unit * unit)


def new_nonce() -> int:
    """A number of 62 bits that nobody guesses, for a name."""
    return int.from_bytes(os.urandom(8), "big") >> 2  # (the module `secrets` takes OpenSSL along: 3 ms of every node's start)


class Segment:
    """A shared-memory object and this process's mapping of it."""

    __slots__ = ("__weakref__", "_touched", "descriptor", "memory", "name", "size")

    def __init__(self, name: str, size: int, memory: mmap.mmap, descriptor: Descriptor | None = None) -> None:
        self.name = name
        self.size = size
        self.memory = memory
        #: Kept while it is needed, by this process or by those to which the segment is offered.
        self.descriptor = descriptor
        #: Bytes whose pages are mapped, at least.
        self._touched = 0

    @classmethod
    def create(
        cls, name: str, size: int, *, offer: bool = False, fill: Callable[[int], None] | None = None, reserve: int | None = None
    ) -> Segment:
        """Make a segment of at least `size` bytes and reserve its pages, or only those of its first `reserve` bytes; `offer` it to
        processes that do not find its name, until `unlink`.

        `fill` is called with its descriptor, to write to it. That has the kernel neither clear pages that are written to at once, nor take
        a fault for each: 64 MiB in 29 rather than 49 milliseconds.

        Raises `ObjectStoreFullError` when the machine's shared memory is full (and never SIGBUS later).
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
            # Without its pages reserved, the first touch of a full /dev/shm would be a SIGBUS.
            os.posix_fallocate(shared.fd, 0, size if reserve is None else reserve)
            memory = _map(shared.fd, size)
        except BaseException as error:  # Ctrl-C as well: pages are reserved for seconds when there are many
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
        """As `create`; its name is there for a moment only, and its `descriptor` is kept."""
        segment = cls.create(name, size, offer=True, reserve=reserve)
        unlink(name)
        return segment

    @staticmethod
    def create_file(path: str, size: int, fill: Callable[[int], None]) -> None:
        """Make a file of at least `size` bytes, reserve its blocks and `fill` it.

        Writing to reserved blocks is the quickest way (measured on ext4, 100 MB: 28 milliseconds; 51 to 130 through a mapping, 29 to 90
        without the blocks). Raises `OutOfDiskError` when there are none, FileNotFoundError when its directory is gone.
        """
        size = round_up(size)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:  # a disk may have no room for names
            if error.errno in _NO_ROOM:
                raise _disk_full(path, size, error) from error
            if lacks_descriptor(error):
                raise exhausted(error, f"The file {path} could not be made.") from error
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
        """Map an existing segment; FileNotFoundError if its name is gone and nobody is to be asked, else errors of `Ask`."""
        return cls.of(name, open_memory(name, writable=writable, ask=ask), writable=writable)

    @classmethod
    def of(cls, name: str, fd: int, *, writable: bool = False) -> Segment:
        """Map the segment that is open as `fd`, which is closed."""
        descriptor = Descriptor(fd)
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return cls(name, descriptor.size, _map(fd, descriptor.size, access))

    def touch(self, size: int) -> None:
        """Have the pages of the first `size` bytes mapped: they are about to be written to. A fault for each costs three times that."""
        start = self._touched
        if start < size:
            end = self._touched = min(round_up(size), self.size)
            with contextlib.suppress(OSError):  # before Linux 5.14
                self.memory.madvise(_MADV_POPULATE_WRITE, start, end - start)

    def words(self, start: int = 0, count: int | None = None) -> memoryview:
        """The eight-byte words from byte offset `start` on."""
        end = self.size if count is None else start + 8 * count
        return memoryview(self.memory)[start:end].cast("Q")

    def close(self) -> None:
        """Unmap, unless views of the memory are still held: then the mapping goes with the last of them."""
        try:
            self.memory.close()
        except BufferError:
            pass

    def unlink(self) -> None:
        """Take the name away, and the offer; what is mapped stays mapped. Unlinking twice is safe."""
        self.descriptor = None
        unlink(self.name)


def _map(fd: int, size: int, access: int = mmap.ACCESS_DEFAULT) -> mmap.mmap:
    try:
        return mmap.mmap(fd, size, access=access, **UNTRACKED)
    except OSError as error:
        if lacks_descriptor(error):  # before Python 3.13 each mapping keeps one
            raise exhausted(error, f"A segment of {size} bytes could not be mapped.") from error
        raise


def is_file(name: str) -> bool:
    """Whether the segment of this name is a file on disk."""
    return "/" in name[1:]


def is_there(name: str) -> bool:
    """Whether there is anything of a segment's name."""
    return os.access(name if is_file(name) else SHM + name, os.F_OK)


def open_read_only(name: str) -> int:
    """A descriptor of a segment, or a file, of this name; FileNotFoundError if its name is gone, also if another user has it now."""
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
    """A descriptor of shared memory of this name. FileNotFoundError if the name is gone, also if another user has it now: then `ask`."""
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
        if error.errno is None:  # as it comes for want of a descriptor
            raise exhausted(OSError(errno.EMFILE, ""), f"The shared memory {name} could not be opened.") from error
        if not flags and error.errno in _NOT_FOR_US:
            raise FileNotFoundError(errno.ENOENT, error.strerror, name) from error
        raise
    except ValueError:  # as it comes for a file that is larger than this process may make
        raise exhausted(OSError(errno.EFBIG, ""), f"{options.get('size')} bytes of shared memory could not be made.") from None


def _wrong_place() -> OSError | None:
    """The reason for which nobody can make shared memory on this machine or in this container, and what to do; None if there is none."""
    try:
        facts = os.statvfs(SHM)
    except OSError as error:
        number, wrong, advice = error.errno, f"is not there ({error.strerror})", f"mount one: mkdir -p {SHM} && mount -t tmpfs tmpfs {SHM}"
    else:
        if facts.f_flag & os.ST_RDONLY:
            number, wrong, advice = errno.EROFS, "is mounted read-only", f"mount -o remount,rw {SHM}"
        elif not os.access(SHM, os.W_OK | os.X_OK):
            number, wrong, advice = errno.EACCES, "may not be written to by this user", f"chmod 1777 {SHM}"
        else:
            return None
    return OSError(number, f"mray needs shared memory, and {SHM} {wrong}. As root: {advice}. In a container, see that it is mounted so")


def for_what(error: OSError | ObjectStoreFullError, what: str) -> Exception:
    """The error of making shared memory, which says for what that was to be; to be raised from None, for it stands for the other."""
    if isinstance(error, ObjectStoreFullError):
        return ObjectStoreFullError(f"{what}: {error}")
    return type(error)(error.errno, f"{what}: {error.strerror}")


def check_place(prefix: str, size: int) -> None:
    """OSError or `ObjectStoreFullError` where no shared memory of so many bytes can be made, which says why and what to do."""
    segment = Segment.create(f"{prefix}try-{new_nonce():x}", size)
    segment.unlink()
    segment.close()


def unlink(name: str) -> None:
    """Take away a name, of either kind, whose segment this process need not have mapped. Safe when it is gone, or another user's."""
    try:
        if is_file(name):
            os.unlink(name)
        else:
            posix_ipc.unlink_shared_memory(name)
    except (FileNotFoundError, posix_ipc.ExistentialError, posix_ipc.PermissionsError):
        pass


def unlink_semaphore(name: str) -> None:
    """As `unlink`, of a semaphore."""
    unlink(f"/{SEMAPHORE}{name[1:]}")


def link(name: str, other: str) -> None:
    """Give a segment in memory another name: it lives until both are taken away."""
    os.link(SHM + name, SHM + other, follow_symlinks=False)


def shared_memory_left() -> int:
    """Bytes that the machine's shared memory has room for; none, also where there is none, or there may be no more names."""
    try:
        facts = os.statvfs(SHM)
    except OSError:
        return 0
    return 0 if facts.f_files and not facts.f_favail else facts.f_bavail * facts.f_frsize


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
