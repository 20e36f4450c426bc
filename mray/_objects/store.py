"""The object store of a process: values above the inline limit, each written once into a shared-memory segment.

The producer of a value writes it into a segment and tells the owner its name; whoever reads the value maps the segment copy-on-write
(`mray._ipc.mapped`): arrays are read-only, and who writes to a tensor does it for himself alone.
When the owner's last ref is gone, the segment goes back to its producer, which keeps it mapped for the next value: touching fresh pages
costs ten times the copy itself.

    producer: write -> (name, length) ------ reply -----> owner -------> readers: `read` maps it; arrays hold the mapping,
       ^                                                    |                      the mapping holds the entry of the object
       +---------------- FREE_SEGMENT (pooled) <------------+

Names carry the process that *owns* the value, ``/mray-<session>-<owner>-<producer><number>``: when an owner dies, the node unlinks what
was its.

How much all processes hold together is read from the session's table, where each writes its own words. Two processes that create at the
same moment may overshoot the limit by one object each; the pages themselves are reserved by the kernel, so the limit is never a crash.
"""

from __future__ import annotations

import itertools
import mmap
import threading
import weakref
from typing import Any

import posix_ipc

from mray._common.messages import PACKED, PICKLED
from mray._ipc.mapped import Mapped
from mray._ipc.segment import Segment, round_up, unlink
from mray._ipc.table import BYTES, POOLED, ROW_WORDS, SessionTable
from mray._objects.ownership import Entry
from mray._objects.serializer import Serialized, deserialize, has_tensors
from mray.exceptions import ObjectStoreFullError

#: A pooled segment serves a value if it is at most this many times too large.
_SLACK = 2
#: The share of the store's limit that one process keeps mapped for reuse.
_POOL_SHARE = 0.5
#: ... and at most so many segments.
_POOL_SEGMENTS = 256


def size_class(size: int) -> int:
    """Sizes are rounded up to four steps per power of two, so that pooled segments fit again."""
    size = round_up(size)
    step = 1 << max(12, size.bit_length() - 3)
    return round_up(size, step)


class SegmentStore:
    """The segments this process has produced."""

    def __init__(self, prefix: str, process: str, table: SessionTable, row: int, rows: Any, limit: int) -> None:
        self._prefix = prefix
        self._process = process
        self._words = table.words
        self._table = table
        self._rows = rows
        self._bytes = row * ROW_WORDS + BYTES
        self._pooled = row * ROW_WORDS + POOLED
        self.limit = limit
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        #: Segments whose value is alive, by name.
        self._used: dict[str, Segment] = {}
        #: Segments free for reuse by name, the longest unused first.
        self._free: dict[str, Segment] = {}

    def write(self, value: Serialized, owner: str) -> tuple[str, int, str]:
        """Store a value for `owner`; returns ``(name, length, producer)``, the payload of form SEGMENT.

        Raises `ObjectStoreFullError` when the store's limit or the machine's shared memory is reached.
        """
        segment = self._take(value.size, owner)
        try:
            view = memoryview(segment.memory)
            value.write_into(view)
            view.release()
        except BaseException:
            self.free(segment.name)
            raise
        return segment.name, value.size if value.buffers else -value.size, self._process

    def _take(self, size: int, owner: str) -> Segment:
        with self._lock:
            best = self._best_free(size, owner)
            if best is not None:
                del self._free[best.name]
                self._words[self._pooled] -= best.size
                self._used[best.name] = best
                return best
            wanted = size_class(size)
            if not self._fits(wanted):
                self._trim_locked()
                if not self._fits(wanted):
                    # Without the rounding, it may.
                    wanted = round_up(size)
                    if not self._fits(wanted):
                        raise ObjectStoreFullError(self._full_text(size))
            name = f"{self._prefix}{owner}-{self._process}{next(self._numbers)}"
            segment = Segment.create(name, wanted)
            self._words[self._bytes] += segment.size
            self._used[name] = segment
            return segment

    def _best_free(self, size: int, owner: str) -> Segment | None:
        """The smallest pooled segment of this owner that holds so much and is not far too large."""
        largest = max(size * _SLACK, 1 << 20)
        prefix = f"{self._prefix}{owner}-"
        best = None
        for name, segment in self._free.items():
            if size <= segment.size <= largest and (best is None or segment.size < best.size) and name.startswith(prefix):
                best = segment
        return best

    def _fits(self, size: int) -> bool:
        return self._table.total(BYTES, self._rows()) + size <= self.limit

    def _full_text(self, size: int) -> str:
        total = self._table.total(BYTES, self._rows())
        pooled = self._table.total(POOLED, self._rows())
        return (
            f"The object store is full: an object of {size} bytes does not fit, {total - pooled} of {self.limit} bytes hold live objects"
            f" and {pooled} are kept for reuse by other processes. Drop refs that are no longer needed, or start with a larger"
            " object_store_memory."
        )

    def free(self, name: str) -> None:
        """The owner of the value in this segment needs it no more: keep it for reuse, or let it go."""
        with self._lock:
            segment = self._used.pop(name, None)
            if segment is None:
                return
            most = int(self.limit * _POOL_SHARE)
            if segment.size > most:
                self._drop(segment)
                return
            self._free[name] = segment
            self._words[self._pooled] += segment.size
            # What was used last is wanted next: the longest unused make room.
            while self._words[self._pooled] > most or len(self._free) > _POOL_SEGMENTS:
                self._evict(next(iter(self._free)))

    def trim(self) -> None:
        """Let go of everything that is kept for reuse."""
        with self._lock:
            self._trim_locked()

    def forget_owner(self, owner: str) -> None:
        """A process has died: what it owned is unlinked by the node; let go of the mappings."""
        with self._lock:
            for name in [name for name in self._free if name.startswith(f"{self._prefix}{owner}-")]:
                self._evict(name)
            for name in [name for name in self._used if name.startswith(f"{self._prefix}{owner}-")]:
                self._drop(self._used.pop(name))

    def _trim_locked(self) -> None:
        for name in list(self._free):
            self._evict(name)

    def _evict(self, name: str) -> None:
        segment = self._free.pop(name)
        self._words[self._pooled] -= segment.size
        self._drop(segment)

    def _drop(self, segment: Segment) -> None:
        self._words[self._bytes] -= segment.size
        segment.unlink()
        segment.close()

    def close(self) -> None:
        """The process ends in order: unlink what it owns itself and what is pooled; values it produced for others stay theirs."""
        with self._lock:
            self._trim_locked()
            mine = f"{self._prefix}{self._process}-"
            for name, segment in self._used.items():
                if name.startswith(mine):
                    segment.unlink()
                segment.close()
            self._used.clear()


def read(payload: tuple[str, int, str], holder: Entry) -> Any:
    """The value in a segment. Arrays and tensors in it are views that keep `holder` alive, so the segment is not reused; as long as an
    array does, a second read shares its memory. Values with tensors, which may be written to, are mapped anew each time.

    Raises FileNotFoundError when the segment's name is gone (its owner has died).
    """
    name, length, _producer = payload
    known = holder.mapping and holder.mapping()
    if known is not None:
        return deserialize(PACKED, None, known)
    try:
        shared = posix_ipc.SharedMemory(name, read_only=True)
    except posix_ipc.ExistentialError as error:
        raise FileNotFoundError(f"the shared memory {name} of the object is gone") from error
    try:
        if length < 0:
            return deserialize(PICKLED, memoryview(mmap.mmap(shared.fd, -length, access=mmap.ACCESS_READ)))
        mapping = Mapped.of(shared.fd, length, name)
    finally:
        shared.close_fd()
    mapping.holder = holder
    if not has_tensors(mapping):
        holder.mapping = weakref.ref(mapping)
    return deserialize(PACKED, None, mapping)


def discard(name: str) -> None:
    """Unlink a segment whose producer is dead."""
    unlink(name)
