"""The object store of a process: values above the inline limit, each written once into a shared-memory segment.

The producer of a value writes it into a segment and tells the owner its name; whoever reads the value maps the segment copy-on-write
(`mray._ipc.mapped`): arrays are read-only, and who writes to a tensor does it for himself alone.
When the owner's last ref is gone, the segment goes back to its producer, which keeps it mapped for the next value: touching fresh pages
costs ten times the copy itself.

    producer: write -> (name, length) ------ reply -----> owner -------> readers: `read` maps it; arrays hold the mapping,
       ^                                                    |                      the mapping holds the entry of the object
       +---------------- FREE_SEGMENT (pooled) <------------+

An array that its maker has made in a segment (`bear`, `mray._ipc.born`) is not written again: what precedes it is added behind it, and the
segment gets a further name if another process owns the value (`_place`). It goes back when all its values and the array are gone.

A new segment is written to through its descriptor, and mapped when it is used again.

Names carry the process that *owns* the value, ``/mray-<session>-<owner>-<producer><number>``: when an owner dies, the node unlinks what
was its.

How much all processes hold together is read from the session's table, where each writes its own words. Two processes that create at the
same moment may overshoot the limit by one object each; the pages themselves are reserved by the kernel, so the limit is never a crash.

When the limit is reached, or ``/dev/shm`` itself is full, new values are *spilled*: their segment is a file in the session's directory, of
the same names and for the same readers, and stays where it is. Nothing is ever moved from memory to disk or back.

Rejected: to move the longest unread values out, and to bring them back when they are read, as Ray does. A segment that a process has mapped
would have to stay; owner and borrowers would have to agree on the new place; and it would gain nothing: a file's pages are the page cache,
so a new value on disk is written and read at the speed of memory while there is memory; when memory gets short it is the kernel that
chooses what has not been used for long, and a value that dies young is never written to the disk at all. Files are not pooled: it is when
memory is short that there are any.
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
from mray._ipc.born import Born, counts, size_with_headers
from mray._ipc.copying import end_helpers
from mray._ipc.mapped import Claimable, Mapped, address_of, find
from mray._ipc.quiet_lock import QuietLock
from mray._ipc.segment import SHM, Segment, is_file, is_there, link, new_nonce, open_read_only, round_up, shared_memory_left, unlink
from mray._ipc.table import BYTES, POOLED, ROW_WORDS, SPILLED, SPILLED_EVER, SPILLED_OBJECTS, SessionTable
from mray._objects.ownership import Entry
from mray._objects.serializer import HERE, Serialized, deserialize, has_tensors
from mray.exceptions import ObjectStoreFullError, OutOfDiskError

#: A pooled segment serves a value if it is at most this many times too large.
_SLACK = 2
#: Segments that a process keeps for reuse, at most.
_POOL_SEGMENTS = 256

#: Bytes of a value whose mapping is kept for its next reading, at most: with more it costs more to know that nobody has written to it.
KEPT_BYTES = 4 << 20


#: A buffer of fewer bytes is copied.
LEAST_PLACED = 64 * 1024

#: Where a value lies: segment, bytes, producer; of one that is shown in born memory also where its header begins and ends.
Payload = tuple[str, int, str] | tuple[str, int, str, int, int]


def size_class(size: int) -> int:
    """Sizes are rounded up to sixteen steps per power of two, so that pooled segments fit again.

    (An array of a power of two, with its header, gets a sixteenth more than it needs. With four steps it was a quarter, all of it cleared.)
    """
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
        """`directory` is for what memory has no room for, while it leaves its file system at most `most_of_disk` full.

        `most_kept`: the share of the limit that this process keeps mapped for reuse.
        """
        self._prefix = prefix
        self._process = process
        self._words = table.words
        self._table = table
        self._rows = rows
        self._row = row * ROW_WORDS
        #: This process's words of the table that this store writes. They are not read from there: a wild write would stay for ever.
        self._counts = dict.fromkeys((BYTES, POOLED, SPILLED, SPILLED_EVER, SPILLED_OBJECTS), 0)
        self._directory = directory
        self._most_of_disk = most_of_disk
        self.limit = limit
        self._most_kept = int(limit * most_kept)
        self._numbers = itertools.count()
        self._lock = QuietLock()
        #: Segments whose value is alive, by name.
        self._used: dict[str, Segment] = {}
        #: Segments free for reuse by name, the longest unused first.
        self._free: dict[str, Segment] = {}
        #: Memory in which this process makes arrays, by the segment's name, and by the names of the objects that show it.
        self._born: dict[str, Born] = {}
        #: Bytes of the files whose value is alive, by name.
        self._spilled: dict[str, int] = {}

    def write(self, value: Serialized, owner: str) -> Payload:
        """Store a value for `owner`; returns the payload of form SEGMENT.

        Raises `ObjectStoreFullError` when the store's limit or the machine's shared memory is reached.
        """
        if self._born and value.buffers:
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
    def bear(self, size: int) -> Born:
        """A segment for an array of so many bytes that this process is about to make; `end_of_array` ends it.

        Raises `ObjectStoreFullError`.
        """
        whole = size_with_headers(size)
        segment = self._take(whole, self._process) or self._make(whole, self._process)
        segment.touch(size)
        born = Born(segment, size)
        with self._lock:
            self._born[segment.name] = born
        counts.made += 1
        return born

    def _place(self, value: Serialized, owner: str) -> Payload | None:
        """Store a value whose arrays lie in born memory there, with a header; None if they do not, or are to be copied."""
        buffers = value.buffers
        elsewhere: dict[int, tuple[int, int]] = {}
        taken: list[tuple[int, int]] = []
        born: Born | None = None
        seen = 0
        for number in sorted(range(len(buffers)), key=lambda number: -buffers[number].nbytes):
            length = buffers[number].nbytes
            if length < LEAST_PLACED:
                break
            address = address_of(buffers[number])
            region = find(address, length)
            if type(region) is not Born or self._born.get(region.key) is not region:
                continue
            seen += 1
            start = address - region.address
            # Parts of a value that is copied share no memory, so those that are not may not either.
            if born not in (None, region) or any(start < other_end and other < start + length for other, other_end in taken):
                continue
            if region.is_clean(address, length):
                born = region
                elsewhere[number] = HERE, start
                taken.append((start, start + length))
        payload = None if born is None else self._add_header(value, born, elsewhere, owner)
        counts.copied += seen if payload is None else seen - len(elsewhere)
        return payload

    def _add_header(self, value: Serialized, born: Born, elsewhere: dict[int, tuple[int, int]], owner: str) -> Payload | None:
        whole = value.size
        value.divert(elsewhere)
        with self._lock:
            start = born.take_header(value.size)
            name = born.key
            if start is not None and owner != self._process:
                name = f"{self._prefix}{owner}-{self._process}{new_nonce():x}"
                try:
                    link(born.key, name)
                except OSError:  # its name was removed
                    start = None
            if start is None:
                value.divert({})
                return None
            # POINT born placed
            self._born[name] = born
            born.objects += 1
        with born.header(start, value.size) as header:
            value.write_into(header, start)
        counts.sent += len(elsewhere)
        return name, whole, self._process, start, start + value.size

    def end_of_array(self, born: Born) -> None:
        """The array is gone, and all views of it."""
        with self._lock:
            born.is_over = True
            self._end_born(born)

    def _disown(self, name: str, born: Born, again: bool) -> None:
        """An object that shows born memory is needed no more."""
        if name != born.key:
            del self._born[name]
            unlink(name)
        born.objects -= 1
        born.again = born.again and again
        self._end_born(born)

    def _end_born(self, born: Born) -> None:
        if born.is_over and not born.objects and self._born.get(born.key) is born:
            del self._born[born.key]
            self._put_back(self._used.pop(born.key), again=born.reunite())

    # ------------------------------------------------------------------------------------ memory
    def _count(self, word: int, more: int) -> None:
        """Add to one of this process's words of the table. With the lock held."""
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
        """As `write`, into a file on disk. Raises `OutOfDiskError` when the disk has no room either, `ObjectStoreFullError` when it cannot
        be written to.
        """
        size = round_up(value.size)
        name = f"{self._directory}/{owner}-{self._process}{next(self._numbers)}"
        try:
            self._check_disk(size)
            self._new_file(name, size, value)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            # Not made again where it was named and is gone: that may be a disk that is mounted no more.
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
        facts = os.statvfs(place)
        free, whole = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
        if whole and whole - free + size > whole * self._most_of_disk:
            raise OutOfDiskError(
                f"{self._full_text(size)} Nor is there room for it on disk: {os.path.realpath(place)} has {free} bytes free, and would be "
                f"more than {self._most_of_disk:.0%} full. Name a larger place with init(object_spilling_directory=...)."
            )

    def others_could_make_room(self, size: int) -> bool:
        """Whether a value of this size would fit if the other processes let go of what they keep for reuse."""
        rows = self._rows()
        pooled = self._table.total(POOLED, rows)
        return pooled > self._counts[POOLED] and self._table.total(BYTES, rows) - pooled + size <= self.limit

    def _take(self, size: int, owner: str) -> Segment | None:
        """A pooled segment."""
        with self._lock:
            while (best := self._best_free(size, owner)) is not None:
                if not is_there(best.name):  # nobody would find it
                    self._evict(best.name)
                    continue
                del self._free[best.name]
                self._count(POOLED, -best.size)
                self._used[best.name] = best
                return best
        return None

    def _make(self, size: int, owner: str, fill: Callable[[int], None] | None = None) -> Segment:
        """A new segment, filled by writing to its descriptor if it is to be. Raises `ObjectStoreFullError`."""
        name = f"{self._prefix}{owner}-{self._process}{new_nonce():x}"
        with self._lock:
            wanted = size_class(size)
            if not self._fits(wanted):
                # The pool goes only if that helps. Without the rounding, the value may fit.
                if self._fits(round_up(size) - self._counts[POOLED]):
                    self._trim_locked()
                if not self._fits(wanted):
                    wanted = round_up(size)
                    if not self._fits(wanted):
                        raise ObjectStoreFullError(self._full_text(size))
            # Counted before it is there, since others may look while it is filled.
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
        """The smallest pooled segment of this owner that holds so much and is not far too large, of those the one used last."""
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
        """The owner of the value in this segment needs it no more: keep it for reuse, or let it go (always unless `again`)."""
        with self._lock:
            born = self._born.get(name)
            if born is not None:
                self._disown(name, born, again)
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
        # The segment that was used last is wanted next: the longest unused make room.
        while self._counts[POOLED] > self._most_kept or len(self._free) > _POOL_SEGMENTS:
            self._evict(next(iter(self._free)))

    def _remove(self, name: str) -> None:
        """Remove a file, if it is one of ours."""
        size = self._spilled.pop(name, None)
        if size is not None:
            self._count(SPILLED, -size)
            unlink(name)

    def trim(self) -> None:
        """Let go of everything that is kept for reuse."""
        with self._lock:
            self._trim_locked()

    def give_away(self, name: str) -> None:
        """The value in this segment outlives this process, and is counted among its own no more."""
        with self._lock:
            segment = self._used.pop(name, None)
            if segment is not None:
                self._count(BYTES, -segment.size)
                segment.close()
            self._count(SPILLED, -self._spilled.pop(name, 0))

    def forget_owner(self, owner: str) -> None:
        """A process has died: what it owned is unlinked by the node; let go of the mappings."""
        with self._lock:
            for name in [name for name in self._free if name.startswith(f"{self._prefix}{owner}-")]:
                self._evict(name)
            for name in [name for name in self._born if name.startswith(f"{self._prefix}{owner}-")]:
                self._disown(name, self._born[name], again=False)
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
        """The process ends in order: unlink what it owns itself and what is pooled; values it produced for others stay theirs."""
        with self._lock:
            self._trim_locked()
            mine = f"{self._prefix}{self._process}-"
            self._born.clear()  # arrays outlive the session
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
        """The bytes of a mapping for one reading of an object: views of them keep the object alive. The mapping may be kept for the next.

        An array because that may have attributes and be shown by views, before Python 3.12 as well.
        """

        #: The object's entry, which knows the reading (`mapping`) and the mapping (`kept`), or whatever stands for it.
        holder: Any

        def part(self) -> None:
            self.holder.part()

    return Reading


def reading_of(memory: Any, holder: Any) -> Any:
    """A reading of memory that may be kept; None in a process that has not imported numpy, and so has read no array yet."""
    if "numpy" not in sys.modules:
        return None
    import numpy  # noqa: PLC0415  (another thread may be importing it: this waits)

    reading: Any = numpy.frombuffer(memory, numpy.uint8).view(_class_of_readings(numpy))
    reading.holder = holder
    return reading


def read(payload: Payload, holder: Entry) -> Any:
    """The value in a segment. Arrays and tensors in it are views that keep `holder` alive, so the segment is not reused; as long as an
    array does, a second read shares its memory. Values with tensors, which may be written to, are mapped anew each time, and so are
    those above `KEPT_BYTES`; the mapping of others is kept by `holder`: mapping anew, and touching pages for the first time, cost more
    than all else.

    Raises FileNotFoundError when the segment's name is gone (its owner has died), or somebody has cut it short.
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
    # Of several threads one has the kept mapping, if no reading of it lives; the others map anew.
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
    """The segment of a PACKED value in this process's memory, where it stays when its name goes. FileNotFoundError as of `read`.

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
    """A descriptor of a segment that holds so many bytes: to touch what is not there any more would be a SIGBUS."""
    fd = open_read_only(name)
    if os.fstat(fd).st_size < length:
        os.close(fd)
        raise _cut_short(name)
    return fd


def _size_of(name: str) -> int:
    """Bytes of a segment; FileNotFoundError when its name is gone."""
    return os.stat(name if is_file(name) else SHM + name).st_size


def _cut_short(name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "somebody has cut it short", name)


def is_spilled(payload: Payload) -> bool:
    """Whether the value lies on disk."""
    return is_file(payload[0])


def discard(name: str) -> None:
    """Unlink a segment whose producer is dead."""
    unlink(name)
