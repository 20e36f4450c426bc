"""Host memory that several processes map and their devices copy from and to.

    owner                                        peer
    memfd, mapped, registered with its device    /proc/<pid>/fd/<fd>, mapped, registered with its own device

It has no name, so nothing is left of it. A handle has the inode, so that no process opens another file after the owner's exit.
"""

from __future__ import annotations

import mmap
from struct import Struct

from mray._common.kept import os
from mray._common.process_local import kernel_pid
from mray._device.device import Device
from mray._inside.processes import start_of
from mray._ipc.mapped import address_of

#: Owner's pid and start time, descriptor, inode, bytes.
_HANDLE = Struct("@QQQQQ")


def owner_of(handle: bytes) -> tuple[int, int]:
    """The pid and start time of a handle's process."""
    pid, started, *_rest = _HANDLE.unpack(handle)
    return pid, started


class PinnedMemory:
    """The pinned memory of one process, registered with one device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        #: Address -> mapping, and the descriptor by which others open it; -1: another process's.
        self._mapped: dict[int, tuple[mmap.mmap, int]] = {}

    def allocate(self, size: int) -> tuple[int, bytes]:
        """Its address, and the handle by which others open it. Raises MemoryError when the host is full."""
        fd = os.memfd_create("mray-pinned", os.MFD_CLOEXEC)
        try:
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError as error:
                raise MemoryError(f"{size} bytes of host memory could not be reserved") from error
            address = self._map(fd, size, kept=fd)
        except BaseException:
            os.close(fd)
            raise
        return address, _HANDLE.pack(kernel_pid(), start_of(kernel_pid()), fd, os.fstat(fd).st_ino, size)

    def open(self, handle: bytes) -> int:
        """Raises RuntimeError when the owner has exited, OSError when this process cannot open the memory."""
        pid, _started, fd, inode, size = _HANDLE.unpack(handle)
        gone = f"process {pid}, which owns this memory, has exited"
        try:
            own = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise RuntimeError(gone) from error
        try:
            if os.fstat(own).st_ino != inode:
                raise RuntimeError(gone)
            return self._map(own, size, kept=-1)
        finally:
            os.close(own)

    def _map(self, fd: int, size: int, kept: int) -> int:
        memory = mmap.mmap(fd, size)
        address = address_of(memory)
        self._device.register_host(address, size)
        self._mapped[address] = memory, kept
        return address

    def words(self, address: int) -> memoryview:
        """Words of allocated or opened memory; to be released before that is freed."""
        return memoryview(self._mapped[address][0]).cast("Q")

    def free(self, address: int) -> None:
        """Undo `allocate` or `open`. No work may be queued on it."""
        memory, fd = self._mapped.pop(address)
        self._device.unregister_host(address)
        memory.close()
        if fd >= 0:
            os.close(fd)
