"""Memory of other processes that is open here: each region once, for all edges and loans.

    owner                                              this process
    a region of a pool   -- handle -->                 Mapping, counted by its users; closed with the last
    a region of timelines -- handle -->                PeerTimelines; closed when unused, and the owner is dead

Closing memory waits for all queued work of a device, so it is never done for a message, nor while a lock is held that messages need.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from struct import Struct
from typing import TypeVar

from mray._common.kept import os
from mray._common.process_local import kernel_pid
from mray._device import death_watch
from mray._device.device import Device, DeviceFaultError, NotOpenedError
from mray._device.device_faults import report
from mray._device.pinned_memory import PinnedMemory, owner_of
from mray._inside.memory import trust_fence
from mray._ipc.pidfd import is_dead

#: The place of pinned host memory; otherwise it is a device's uuid.
HOST = "host"

_KEY = Struct("@QQ")
KEY_SIZE = _KEY.size
#: Distinguishes this process from others that had its pid.
_nonce = 0
#: For all regions: a reader may have several open on one device of its own.
_numbers = itertools.count(1)


def new_key() -> bytes:
    """A region's name, unique on the machine."""
    global _nonce
    if not _nonce:
        _nonce = int.from_bytes(os.urandom(8), "little")
    return _KEY.pack(_nonce, next(_numbers))


#: Added to a timeline's last number: above any number that is waited for. CUDA compares by the sign of the difference, so it leaves room
#: above.
FORSAKEN = 1 << 62


def forsake(words: memoryview) -> None:
    """Release all waits for these timelines. Several processes may do so: they store the same."""
    for index in range(len(words)):
        words[index] |= FORSAKEN


class Mapping:
    """One region of another process; host memory where the place is `HOST`."""

    __slots__ = ("__weakref__", "_memory", "address", "device")

    def __init__(self, device: Device, place: str, handle: bytes) -> None:
        self.device = device
        self._memory = PinnedMemory(device) if place == HOST else None
        self.address = device.open_memory(handle) if self._memory is None else self._memory.open(handle)

    @property
    def is_kept(self) -> bool:
        return False

    def close(self) -> None:
        """Close it: neither users nor queued work are left."""
        if self._memory is None:
            self.device.close_memory(self.address)
        else:
            self._memory.free(self.address)


class PeerTimelines(Mapping):
    """A region of another process's timelines. When that process is dead, all waits for one end."""

    __slots__ = ("_end_watch", "_last", "_owner", "words")

    def __init__(self, device: Device, place: str, handle: bytes) -> None:
        super().__init__(device, place, handle)
        assert self._memory is not None
        self._owner = owner_of(handle)
        self.words = self._memory.words(self.address)
        try:
            self._end_watch = death_watch.then(self._owner, self._forsake)
        except BaseException:
            self.words.release()
            super().close()
            raise

    def _forsake(self) -> None:
        """Called repeatedly while open: another process, such as a child, may keep the driver's work of the dead one alive."""
        forsake(self.words)

    @property
    def is_kept(self) -> bool:
        return self._owner[0] != kernel_pid() and not is_dead(self._owner)

    def reached(self, offset: int, number: int) -> bool:
        """Whether the timeline at this byte offset has reached the number, or its process is dead. Also once closed."""
        try:
            if self.words[offset // 8] < number:
                return False
        except ValueError:  # closed: everything that was waited for was reached
            return True
        # SYNC POINT timeline: work, fence, word | read word, fence, work.
        trust_fence()
        return True

    def has_lost(self, offset: int, number: int) -> bool:
        """Whether the timeline was forsaken before this number was reached. Also once closed."""
        try:
            word = self.words[offset // 8]
        except ValueError:  # closed
            word = self._last[offset // 8]
        return FORSAKEN <= word < FORSAKEN + number

    def close(self) -> None:
        self._end_watch()
        self._last = self.words.tolist()
        self.words.release()
        super().close()


@contextlib.contextmanager
def _opening() -> Iterator[None]:
    try:
        yield
    except DeviceFaultError as error:
        report(error)
        raise
    except (RuntimeError, OSError) as error:
        raise NotOpenedError(str(error)) from error


_Kind = TypeVar("_Kind", bound=Mapping)
#: Region key and device -> the mapping, and its number of users; guarded by the lock.
_known: dict[tuple[bytes, Device], tuple[Mapping, int]] = {}
_lock = threading.RLock()


def _open(kind: type[_Kind], device: Device, place: str, key: bytes, handle: bytes) -> _Kind:
    with _lock:
        mapping, users = _known.get((key, device), (None, 0))
        if mapping is None:
            with _opening():
                mapping = kind(device, place, handle)
        assert isinstance(mapping, kind)
        _known[key, device] = mapping, users + 1
        return mapping


def open_region(device: Device, place: str, key: bytes, handle: bytes) -> Mapping:
    """Open a peer's region. May take long. Raises NotOpenedError."""
    return _open(Mapping, device, place, key, handle)


def open_timelines(device: Device, key: bytes, handle: bytes) -> PeerTimelines:
    """As `open_region`."""
    return _open(PeerTimelines, device, HOST, key, handle)


def leave(device: Device, key: bytes) -> None:
    """One user less, without queued work."""
    with _lock:
        mapping, users = _known[key, device]
        _known[key, device] = mapping, users - 1


def close_unused() -> None:
    """Close unused mappings. Waits for the queued work of the devices."""
    with _lock:
        unused = [known for known, (mapping, users) in _known.items() if not users and not mapping.is_kept]
        mappings = [_known.pop(known)[0] for known in unused]
    for mapping in mappings:
        mapping.close()


def _after_fork() -> None:
    global _known, _lock, _nonce
    _known, _lock, _nonce = {}, threading.RLock(), 0


os.register_at_fork(after_in_child=_after_fork)
