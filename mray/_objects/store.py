"""The object store of a process: values above the inline limit, each written once into a shared-memory segment.

Readers map the segment copy-on-write (`mray._ipc.mapped`): arrays are read-only, and writes to a tensor stay private. When the owner's
last ref is released, the segment returns to its producer, which keeps it mapped for the next value: faulting in fresh pages costs far
more than the copy.

    producer: write -> (name, length) ------ reply -----> owner -------> readers: `read` maps it; arrays hold the mapping,
       ^                                                    |                      the mapping holds the entry of the object
       +---------------- FREE_SEGMENT (pooled) <------------+

An array that was allocated in a segment (`bear`, `mray._ipc.zero_copy`) is not copied: the header is added behind it, and the segment
gets a further name if another process owns the value (`_place`). The segment returns when all its values and the array are released.

Names contain the process that *owns* the value, ``/mray-<session>-<owner>-<producer><number>``: when an owner dies, the node unlinks its
segments.

Each process writes its sizes into the session's table, and reads the total there. Concurrent creators may exceed the limit by one object
each; since the kernel reserves the pages, that causes no crash.

When the limit is reached, or ``/dev/shm`` is full, new values are *spilled*: their segment is a file in the session's directory, named
and read the same way. Values never move between memory and disk.

Rejected: spilling the least recently read values, as Ray does. A mapped segment would have to stay, owner and borrowers would have to
agree on the new location, and the page cache is written back anyway when memory gets short.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import mmap
import sys
import weakref
from collections.abc import Callable
from typing import Any

from mray._common.kept import os
from mray._common.messages import PACKED, PICKLED
from mray._ipc.copying import end_helpers
from mray._ipc.mapped import Claimable, Mapped, address_of, find
from mray._ipc.quiet_lock import QuietLock
from mray._ipc.segment import SHM, Segment, is_file, is_there, link, new_nonce, open_read_only, round_up, shared_memory_left, unlink
from mray._ipc.table import BYTES, POOLED, ROW_WORDS, SPILLED, SPILLED_EVER, SPILLED_OBJECTS, SessionTable
from mray._ipc.zero_copy import ZeroCopyBuffer, counts, size_with_headers
from mray._objects.ownership import Entry
from mray._objects.serializer import HERE, Serialized, deserialize, has_tensors
from mray.exceptions import ObjectStoreFullError, OutOfDiskError

#: Largest ratio of a pooled segment's size to the value's.
_SLACK = 2
_POOL_SEGMENTS = 256

#: Above this, checking a retained mapping for writes costs more than mapping anew.
KEPT_BYTES = 4 << 20


LEAST_PLACED = 64 * 1024

#: Where a value lies: segment, bytes, producer; for a zero-copy buffer also the start and end of its header.
Payload = tuple[str, int, str] | tuple[str, int, str, int, int]


def size_class(size: int) -> int:
    """Round a size up to sixteen steps per power of two, so that pooled segments fit again."""
    size = round_up(size)
    step = 1 << max(12, size.bit_length() - 5)
    return round_up(size, step)


class SegmentStore:
    """The segments this process has produced."""

    def __init__(
        self,
        prefix: str,
        process: str,
        table: SessionTable,
        row: int,
        rows: Any,
        limit: int,
        directory: str,
        most_of_disk: float = 1.0,
        most_kept: float = 0.5,
    ) -> None:
        """`directory` takes spilled values, as long as its file system is at most `most_of_disk` full.

        `most_kept`: the share of the limit that this process may pool.
        """
        self._prefix = prefix
        self._process = process
        self._words = table.words
        self._table = table
        self._rows = rows
        self._row = row * ROW_WORDS
        #: This process's fields of the table; never read back from there, where a stray write would persist.
        self._counts = dict.fromkeys((BYTES, POOLED, SPILLED, SPILLED_EVER, SPILLED_OBJECTS), 0)
        self._directory = directory
        self._most_of_disk = most_of_disk
        self.limit = limit
        self._most_kept = int(limit * most_kept)
        self._numbers = itertools.count()
        self._lock = QuietLock()
        #: Segments of live values, by name.
        self._used: dict[str, Segment] = {}
        #: Least recently used first.
        self._free: dict[str, Segment] = {}
        #: Buffers by the segment's name and by its further names.
        self._zero_copy: dict[str, ZeroCopyBuffer] = {}
        self._spilled: dict[str, int] = {}

    def write(self, value: Serialized, owner: str) -> Payload:
        """Store a value for `owner`; returns the payload of form SEGMENT.

        Raises `ObjectStoreFullError` when the store's limit or the machine's shared memory is exhausted.
        """
        if self._zero_copy and value.buffers:
            placed = self._place(value, owner)
            if placed is not None:
                return placed
        segment = self._take(value.size, owner)
        if segment is None:
            segment = self._make(value.size, owner, value.write_to)
        else:
            self._fill(segment, value)
        # POINT segment written
        return segment.name, value.size if value.buffers else -value.size, self._process

    # ------------------------------------------------------------------------------------ values that are made in segments
    def bear(self, size: int) -> ZeroCopyBuffer:
        """Allocate a segment for an array of `size` bytes in this process, until `end_of_array`.

        Raises `ObjectStoreFullError`.
        """
        whole = size_with_headers(size)
        segment = self._take(whole, self._process) or self._make(whole, self._process)
        segment.touch(size)
        buffer = ZeroCopyBuffer(segment, size)
        with self._lock:
            self._zero_copy[segment.name] = buffer
        counts.made += 1
        return buffer

    def _place(self, value: Serialized, owner: str) -> Payload | None:
        """Store a value whose arrays lie in a zero-copy buffer there, with a header; None if they do not, or must be copied."""
        buffers = value.buffers
        elsewhere: dict[int, tuple[int, int]] = {}
        taken: list[tuple[int, int]] = []
        buffer: ZeroCopyBuffer | None = None
        seen = 0
        for number in sorted(range(len(buffers)), key=lambda number: -buffers[number].nbytes):
            length = buffers[number].nbytes
            if length < LEAST_PLACED:
                break
            address = address_of(buffers[number])
            region = find(address, length)
            if type(region) is not ZeroCopyBuffer or self._zero_copy.get(region.key) is not region:
                continue
            seen += 1
            start = address - region.address
            # Copies of values share no memory between their parts, so placed parts must not overlap either.
            if buffer not in (None, region) or any(start < other_end and other < start + length for other, other_end in taken):
                continue
            if region.is_clean(address, length):
                buffer = region
                elsewhere[number] = HERE, start
                taken.append((start, start + length))
        payload = None if buffer is None else self._add_header(value, buffer, elsewhere, owner)
        counts.copied += seen if payload is None else seen - len(elsewhere)
        return payload

    def _add_header(self, value: Serialized, buffer: ZeroCopyBuffer, elsewhere: dict[int, tuple[int, int]], owner: str) -> Payload | None:
        whole = value.size
        value.divert(elsewhere)
        with self._lock:
            start = buffer.take_header(value.size)
            name = buffer.key
            if start is not None and owner != self._process:
                name = f"{self._prefix}{owner}-{self._process}{new_nonce():x}"
                try:
                    link(buffer.key, name)
                except OSError:  # its name was removed
                    start = None
            if start is None:
                value.divert({})
                return None
            # POINT born placed
            self._zero_copy[name] = buffer
            buffer.objects += 1
        with buffer.header(start, value.size) as header:
            value.write_into(header, start)
        counts.sent += len(elsewhere)
        return name, whole, self._process, start, start + value.size

    def end_of_array(self, buffer: ZeroCopyBuffer) -> None:
        with self._lock:
            buffer.is_over = True
            self._end_zero_copy(buffer)

    def _disown(self, name: str, buffer: ZeroCopyBuffer, again: bool) -> None:
        if name != buffer.key:
            del self._zero_copy[name]
            unlink(name)
        buffer.objects -= 1
        buffer.again = buffer.again and again
        self._end_zero_copy(buffer)

    def _end_zero_copy(self, buffer: ZeroCopyBuffer) -> None:
        if buffer.is_over and not buffer.objects and self._zero_copy.get(buffer.key) is buffer:
            del self._zero_copy[buffer.key]
            self._put_back(self._used.pop(buffer.key), again=buffer.reunite())

    # ------------------------------------------------------------------------------------ memory
    def _count(self, word: int, more: int) -> None:
        """Add to one of this process's fields of the table. Lock held."""
        self._words[self._row + word] = self._counts[word] = self._counts[word] + more

    def _fill(self, segment: Segment, value: Serialized) -> None:
        try:
            segment.touch(value.size)
            with memoryview(segment.memory) as view:
                value.write_into(view)
        except BaseException:
            self.free(segment.name)
            raise

    def spill(self, value: Serialized, owner: str) -> Payload:
        """As `write`, into a file on disk. Raises `OutOfDiskError` when the disk is full too, `ObjectStoreFullError` when it cannot be
        written to.
        """
        size = round_up(value.size)
        name = f"{self._directory}/{owner}-{self._process}{next(self._numbers)}"
        try:
            self._check_disk(size)
            self._new_file(name, size, value)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            # The parent directory is not created: its absence may mean an unmounted disk.
            place = os.path.realpath(self._directory)
            raise ObjectStoreFullError(
                f"{self._full_text(size)} Nor can objects go to disk: {place}: {os.strerror(error.errno or 0)}. Make it a directory that "
                "may be written to again, or name another one with init(object_spilling_directory=...)."
            ) from error
        with self._lock:
            # POINT spill created
            self._spilled[name] = size
            self._count(SPILLED, size)
            self._count(SPILLED_EVER, size)
            self._count(SPILLED_OBJECTS, 1)
        return name, value.size if value.buffers else -value.size, self._process

    def _new_file(self, name: str, size: int, value: Serialized) -> None:
        try:
            Segment.create_file(name, size, value.write_to)
        except FileNotFoundError:  # the first of the session
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._directory, 0o700)
            Segment.create_file(name, size, value.write_to)

    def _check_disk(self, size: int) -> None:
        place = self._directory if os.path.isdir(self._directory) else os.path.dirname(self._directory)
        info = os.statvfs(place)
        free, whole = info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize
        if whole and whole - free + size > whole * self._most_of_disk:
            raise OutOfDiskError(
                f"{self._full_text(size)} Nor is there room for it on disk: {os.path.realpath(place)} has {free} bytes free, and would be "
                f"more than {self._most_of_disk:.0%} full. Name a larger place with init(object_spilling_directory=...)."
            )

    def others_could_make_room(self, size: int) -> bool:
        """Whether a value of this size would fit if the other processes trimmed their pools."""
        rows = self._rows()
        pooled = self._table.total(POOLED, rows)
        return pooled > self._counts[POOLED] and self._table.total(BYTES, rows) - pooled + size <= self.limit

    def _take(self, size: int, owner: str) -> Segment | None:
        with self._lock:
            while (best := self._best_free(size, owner)) is not None:
                if not is_there(best.name):  # its name was removed: no reader would find it
                    self._evict(best.name)
                    continue
                del self._free[best.name]
                self._count(POOLED, -best.size)
                self._used[best.name] = best
                return best
        return None

    def _make(self, size: int, owner: str, fill: Callable[[int], None] | None = None) -> Segment:
        """Create a segment, and fill it through its descriptor with `fill`. Raises `ObjectStoreFullError`."""
        name = f"{self._prefix}{owner}-{self._process}{new_nonce():x}"
        with self._lock:
            wanted = size_class(size)
            if not self._fits(wanted):
                # The pool is dropped only if that helps. Without rounding, the value may fit.
                if self._fits(round_up(size) - self._counts[POOLED]):
                    self._trim_locked()
                if not self._fits(wanted):
                    wanted = round_up(size)
                    if not self._fits(wanted):
                        raise ObjectStoreFullError(self._full_text(size))
            # Counted before it exists, because other processes may check the total while it is filled.
            self._count(BYTES, wanted)
        try:
            try:
                segment = Segment.create(name, wanted, fill=fill)
            except ObjectStoreFullError:  # /dev/shm has less room than the store may take
                with self._lock:
                    if not self._free:
                        raise
                    self._trim_locked()
                segment = Segment.create(name, round_up(size), fill=fill)
        except BaseException:
            with self._lock:
                self._count(BYTES, -wanted)
            raise
        with self._lock:
            # POINT segment created
            self._count(BYTES, segment.size - wanted)
            self._used[name] = segment
        return segment

    def _best_free(self, size: int, owner: str) -> Segment | None:
        largest = max(size * _SLACK, 1 << 20)
        prefix = f"{self._prefix}{owner}-"
        best = None
        for name, segment in self._free.items():
            if size <= segment.size <= largest and (best is None or segment.size <= best.size) and name.startswith(prefix):
                best = segment
        return best

    def _fits(self, size: int) -> bool:
        return self._table.total(BYTES, self._rows()) + size <= self.limit

    def _full_text(self, size: int) -> str:
        total = self._table.total(BYTES, self._rows())
        pooled = self._table.total(POOLED, self._rows())
        return (
            f"The object store is full: an object of {size} bytes does not fit, {total - pooled} of {self.limit} bytes hold live objects"
            f" and {pooled} are kept for reuse by other processes, {SHM} has {shared_memory_left()} bytes free. Drop refs that are no"
            " longer needed, or start with a larger object_store_memory (docker: --shm-size)."
        )

    def free(self, name: str, *, again: bool = True) -> None:
        """Return a released segment to the pool, or remove it (always unless `again`)."""
        with self._lock:
            buffer = self._zero_copy.get(name)
            if buffer is not None:
                self._disown(name, buffer, again)
                return
            segment = self._used.pop(name, None)
            if segment is None:
                self._remove(name)
                return
            self._put_back(segment, again=again)

    def _put_back(self, segment: Segment, *, again: bool) -> None:
        if segment.size > self._most_kept or not again:
            self._drop(segment)
            return
        # POINT segment freed
        self._free[segment.name] = segment
        self._count(POOLED, segment.size)
        # The most recently used segment is the likeliest to be reused.
        while self._counts[POOLED] > self._most_kept or len(self._free) > _POOL_SEGMENTS:
            self._evict(next(iter(self._free)))

    def _remove(self, name: str) -> None:
        size = self._spilled.pop(name, None)
        if size is not None:
            self._count(SPILLED, -size)
            unlink(name)

    def trim(self) -> None:
        with self._lock:
            self._trim_locked()

    def give_away(self, name: str) -> None:
        with self._lock:
            segment = self._used.pop(name, None)
            if segment is not None:
                self._count(BYTES, -segment.size)
                segment.close()
            self._count(SPILLED, -self._spilled.pop(name, 0))

    def forget_owner(self, owner: str) -> None:
        """Release the mappings of a dead owner's segments, which the node unlinks."""
        with self._lock:
            for name in [name for name in self._free if name.startswith(f"{self._prefix}{owner}-")]:
                self._evict(name)
            for name in [name for name in self._zero_copy if name.startswith(f"{self._prefix}{owner}-")]:
                self._disown(name, self._zero_copy[name], again=False)
            for name in [name for name in self._used if name.startswith(f"{self._prefix}{owner}-")]:
                self._drop(self._used.pop(name))
            for name in [name for name in self._spilled if name.startswith(f"{self._directory}/{owner}-")]:
                self._remove(name)

    def _trim_locked(self) -> None:
        for name in list(self._free):
            self._evict(name)

    def _evict(self, name: str) -> None:
        segment = self._free.pop(name)
        self._count(POOLED, -segment.size)
        self._drop(segment)

    def _drop(self, segment: Segment) -> None:
        self._count(BYTES, -segment.size)
        segment.unlink()
        segment.close()

    def close(self) -> None:
        """Unlink the pool and the segments that this process owns; values of other owners stay."""
        with self._lock:
            self._trim_locked()
            mine = f"{self._prefix}{self._process}-"
            self._zero_copy.clear()  # arrays outlive the session
            for name, segment in self._used.items():
                if name.startswith(mine):
                    segment.unlink()
                segment.close()
            self._used.clear()
            for name in [name for name in self._spilled if name.startswith(f"{self._directory}/{self._process}-")]:
                self._remove(name)
            self._spilled.clear()
        end_helpers()


@functools.cache
def _class_of_readings(numpy: Any) -> Any:
    class Reading(Claimable, numpy.ndarray):  # type: ignore[misc]
        """The bytes of a mapping for one reading of an object: views of them keep the object alive. The mapping may outlive it.

        An array, because arrays support views before Python 3.12 too.
        """

        #: The object's entry, or a stand-in with the same methods.
        holder: Any

        def part(self) -> None:
            self.holder.part()

    return Reading


def reading_of(memory: Any, holder: Any) -> Any:
    """A reading of memory that may be retained; None while numpy is not imported, and so no array exists."""
    if "numpy" not in sys.modules:
        return None
    import numpy  # noqa: PLC0415  (another thread may be importing it: this waits)

    reading: Any = numpy.frombuffer(memory, numpy.uint8).view(_class_of_readings(numpy))
    reading.holder = holder
    return reading


def read(payload: Payload, holder: Entry) -> Any:
    """The value in a segment. Arrays and tensors in it are views that keep `holder` alive, so that the segment is not reused; while such an
    array lives, a second read shares its memory. Values with tensors, which are writable, and those above `KEPT_BYTES` are mapped anew
    each time; the mapping of others is retained by `holder`, since mapping and faulting in pages cost more than all else.

    Raises FileNotFoundError when the segment's name was removed (its owner has died) or the segment was truncated.
    """
    name, length, _producer, *place = payload
    begin, length = place or (0, length)
    known = holder.mapping and holder.mapping()
    if known is not None:
        known.readings += 1
        if not known.is_parted:
            return deserialize(PACKED, None, known, at=begin)
    if length < 0:
        fd = _open_whole(name, -length)
        try:
            return deserialize(PICKLED, memoryview(mmap.mmap(fd, -length, access=mmap.ACCESS_READ)))
        finally:
            os.close(fd)
    # One thread takes the retained mapping, if it has no living reading; the others map anew.
    mapping, living = vars(holder).pop("kept", None), holder.mapping and holder.mapping()
    if mapping is not None and mapping.region.key == name and living is None:
        if _size_of(name) < length:
            raise _cut_short(name)
    else:
        mapping = mapped(payload)
    if has_tensors(mapping, begin):
        mapping.holder = holder
        mapping.readings = 1
        return deserialize(PACKED, None, mapping, at=begin)
    reading = reading_of(mapping, holder) if length <= KEPT_BYTES else None
    if reading is None:
        reading = mapping
        mapping.holder = holder
    else:
        mapping.region.refresh(mapping, length)
    reading.readings = 1
    holder.mapping = weakref.ref(reading)
    if reading is not mapping:
        holder.kept = mapping
    return deserialize(PACKED, None, reading, at=begin)


def mapped(payload: Payload, holder: Entry | None = None) -> Mapped:
    """Map the segment of a PACKED value; the mapping outlives the name. Raises FileNotFoundError like `read`.

    Views of it keep `holder` alive.
    """
    name, length = payload[0], payload[-1] if len(payload) > 3 else payload[1]
    fd = _open_whole(name, length)
    # POINT segment opened
    try:
        mapping = Mapped.of(fd, length, name)
    finally:
        os.close(fd)
    mapping.holder = holder
    return mapping


def _open_whole(name: str, length: int) -> int:
    """Open a segment of at least `length` bytes: touching pages beyond its end would raise SIGBUS."""
    fd = open_read_only(name)
    if os.fstat(fd).st_size < length:
        os.close(fd)
        raise _cut_short(name)
    return fd


def _size_of(name: str) -> int:
    return os.stat(name if is_file(name) else SHM + name).st_size


def _cut_short(name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "another program has truncated it", name)


def is_spilled(payload: Payload) -> bool:
    """Whether the value lies on disk."""
    return is_file(payload[0])


def discard(name: str) -> None:
    """Unlink a segment whose producer has died."""
    unlink(name)
