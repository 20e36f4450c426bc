"""Timelines: progress of streams, as words in host memory that streams of any process wait for.

    this process                                                another process
    mark(device, stream) -> Point: the next number n  ---(region, place, n) in a message---> Peers.wait(device, stream, ...)
    its stream, when it gets there: word := n                   its stream: until word >= n

A *timeline* is eight bytes of pinned host memory, which one stream counts up (`Device.set_word`); a *point* is a number on it.

When the process of a region is dead, each process that has it open sets all of its words above any number (`mray._device.mappings`), as
a process does itself whose device has failed: waiting streams continue. No driver is involved, so no full queue can delay it. The words
still show how far the dead process had come.

The regions of this process stay open until it exits: a stream may still read a word, here or elsewhere, long after an edge is closed.

Rejected: exported events. Each is a handle to open and leaves a name behind, and on hardware a stream that waits for an event of a dead
process waits forever.

Any thread, finalizers too.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from struct import Struct
from typing import NamedTuple, Protocol

from mray._common.kept import os
from mray._device.device import CaptureError, Device, DeviceFaultError, NotOpenedError
from mray._device.mappings import FORSAKEN, KEY_SIZE, PeerTimelines, close_unused, forsake, leave, new_key, open_timelines
from mray._device.pinned_memory import PinnedMemory
from mray._inside.memory import PAGE, trust_fence

#: CUDA's default stream, which is never destroyed.
_DEFAULT = (0, 1)


class Where(NamedTuple):
    """A point, for other processes. Plain data."""

    #: The region's key and handle, the timeline's byte offset in it, and the number.
    key: bytes
    handle: bytes
    offset: int
    number: int


_OFFSET = Struct("@Q")


def point_of(note: bytes, number: int) -> Where:
    """A number on the timeline with this note."""
    start = _OFFSET.size + KEY_SIZE
    (offset,) = _OFFSET.unpack_from(note)
    return Where(note[_OFFSET.size : start], note[start:], offset, number)


class Timeline:
    """Of the streams of this process that have had one handle, one after the other; `is_lasting`: of one stream only."""

    __slots__ = ("_address", "_device", "_index", "_is_lasting", "_lock", "_number", "_queued", "_region", "_stream_id", "note")

    def __init__(self, device: Device, region: _Region, index: int, *, is_lasting: bool = False) -> None:
        self._device = device
        self._is_lasting = is_lasting
        #: The stream of the last mark.
        self._stream_id = -1
        self._region = region
        self._index = index
        self._address = region.address + 8 * index
        #: Identifies it for other processes: `point_of`.
        self.note = b"".join((_OFFSET.pack(8 * index), region.key, region.handle))
        self._lock = threading.RLock()
        #: The latest number, and the latest that is known to be queued. Invariant: none is used twice.
        self._number = self._queued = 0

    def mark(self, stream: int) -> int:
        """Mark the present end of the stream's work; returns its number."""
        with self._lock:
            if not self._is_lasting:
                stream_id = self._device.stream_id(stream)
                if stream_id != self._stream_id:
                    # It must not overtake the previous stream of this handle.
                    self.wait(stream, self._queued)
                    self._stream_id = stream_id
            self._number = number = self._number + 1
            while True:
                # The later one, if a finalizer has marked in between and would be overtaken.
                last = max(number, self._queued)
                self._device.set_word(self._address, last, stream)
                if self._queued <= last:
                    break
            self._queued = last
            return number

    def reached(self, number: int | None = None) -> bool:
        """Whether the stream has reached a number; None: all queued work."""
        if number is None:
            number = self._queued
        try:
            if self._region.words[self._index] < number:
                return False
        except ValueError:  # closed: no stream waits any more
            return True
        # SYNC POINT timeline: work, fence, word | read word, fence, work.
        trust_fence()
        return True

    def wait(self, stream: int, number: int) -> None:
        if not self.reached(number):
            self._device.await_word(self._address, number, stream)

    def where(self, number: int) -> Where:
        return Where(self._region.key, self._region.handle, 8 * self._index, number)


class Point:
    """A place in the work of a stream."""

    __slots__ = ("_number", "_timeline")

    def __init__(self, timeline: Timeline, number: int) -> None:
        self._timeline = timeline
        self._number = number

    def wait(self, stream: int) -> None:
        """Make a stream of the same device wait for it."""
        self._timeline.wait(stream, self._number)

    def reached(self) -> bool:
        return self._timeline.reached(self._number)

    @property
    def where(self) -> Where:
        return self._timeline.where(self._number)


class _Region:
    def __init__(self, device: Device) -> None:
        self._memory = PinnedMemory(device)
        self.key = new_key()
        self.address, self.handle = self._memory.allocate(PAGE)
        self.words = self._memory.words(self.address)
        self.unused = deque(range(PAGE // 8))

    def close(self) -> None:
        self.words.release()
        self._memory.free(self.address)


class Timelines:
    """Timelines of one device in this process."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.RLock()
        #: Timelines by stream handle.
        self._of: dict[int, Timeline] = {}
        #: The last one has room.
        self._regions: list[_Region] = []

    def of(self, stream: int) -> Timeline:
        timeline = self._of.get(stream)
        if timeline is None:
            with self._lock:
                # A finalizer in between may have created it.
                timeline = self._of.setdefault(stream, self._new(is_lasting=stream in _lasting(self._device)))
        return timeline

    def _new(self, *, is_lasting: bool) -> Timeline:
        while True:
            for region in self._regions[-1:]:
                with contextlib.suppress(IndexError):
                    return Timeline(self._device, region, region.unused.popleft(), is_lasting=is_lasting)
            self._regions.append(_Region(self._device))

    def forsake(self) -> None:
        """The device has failed: release all waiting streams."""
        for region in self._regions:
            forsake(region.words)

    def close(self) -> None:
        """No process waits or marks any more. Idempotent."""
        self._of.clear()
        while self._regions:
            self._regions.pop().close()


def _lasting(device: Device) -> set[int]:
    streams: set[int] = device.belongings.setdefault("lasting streams", set(_DEFAULT))
    return streams


def keep_stream(device: Device, stream: int) -> None:
    """Declare that this stream, which has no mark yet, is never destroyed."""
    _lasting(device).add(stream)


def timelines_of(device: Device) -> Timelines:
    """Raises RuntimeError where streams of the device cannot set host words."""
    found: Timelines | None = device.belongings.get("timelines")
    if found is None:
        if device.why_unordered():
            raise RuntimeError(device.why_unordered())
        found = device.belongings.setdefault("timelines", Timelines(device))
    return found


def mark(device: Device, stream: int) -> Point:
    """Mark the present end of a stream's work.

    Raises CaptureError, DeviceFaultError, and RuntimeError where streams cannot be waited for; the first mark of a stream also
    MemoryError and OSError.
    """
    timeline = timelines_of(device).of(stream)
    return Point(timeline, timeline.mark(stream))


class PeerPoint:
    """A place in the work of another process's stream, after which memory may be reused."""

    __slots__ = ("_offset", "_peers", "_timelines", "number")

    def __init__(self, peers: Peers, timelines: PeerTimelines, offset: int, number: int) -> None:
        self._peers = peers
        self._timelines = timelines
        self._offset = offset
        self.number = number

    def reached(self) -> bool:
        """Whether the stream has reached it, or its process is dead."""
        return self._timelines.reached(self._offset, self.number)

    def wait(self, stream: int) -> None:
        """Make a stream of the device for which the timelines are open wait for it."""
        if not self.reached():
            self._peers.await_word(self._timelines, self._offset, self.number, stream)


class Peers:
    """The timelines of other processes that streams of one end of an edge wait for, and the streams that use what others have lent."""

    #: Tensors of other processes in use.
    held = 0

    def __init__(self) -> None:
        self._opened: dict[tuple[bytes, Device], PeerTimelines] = {}
        #: Streams that use lent memory, with their timelines once requested.
        self.streams: dict[tuple[Device, int], Timeline | None] = {}
        #: Timeline -> the latest number that memory waits for.
        self._latest: dict[tuple[PeerTimelines, int], int] = {}
        #: Once nothing is in use: the ends of the streams' work.
        self._last: list[Point] = []

    def open(self, device: Device, key: bytes, handle: bytes) -> PeerTimelines:
        """Open a region ahead of a wait. Raises NotOpenedError when its process has exited, or streams here cannot wait."""
        found = self._opened.get((key, device))
        if found is None:
            if device.why_unordered():
                raise NotOpenedError(device.why_unordered())
            found = self._opened[key, device] = open_timelines(device, key, handle)
        return found

    def wait(self, device: Device, stream: int, key: bytes, handle: bytes, offset: int, number: int) -> PeerTimelines | None:
        """Make the stream wait for another process's point. Raises NotOpenedError.

        Returns the region unless the point is reached; `has_lost` is known when the stream has continued.
        """
        found = self.open(device, key, handle)
        if not found.reached(offset, number):
            self.await_word(found, offset, number, stream)
        elif found.words[offset // 8] < FORSAKEN:
            return None
        return found

    def await_word(self, timelines: PeerTimelines, offset: int, number: int, stream: int) -> None:
        device = timelines.device
        self.used_on(device, stream)
        device.await_word(timelines.address + offset, number, stream)

    def point(self, device: Device, where: Where) -> PeerPoint:
        """A point for which streams of the device may wait later; what they need stays open until it is reached. Raises NotOpenedError."""
        key, handle, offset, number = where
        found = self.open(device, key, handle)
        timeline = found, offset
        self._latest[timeline] = max(number, self._latest.get(timeline, 0))
        return PeerPoint(self, found, offset, number)

    def used_on(self, device: Device, stream: int) -> None:
        self.streams.setdefault((device, stream))

    def timeline(self, device: Device, stream: int) -> Timeline:
        """The timeline of a stream on which memory of other processes is used. Raises as `mark`."""
        found = self.streams[device, stream] = timelines_of(device).of(stream)
        return found

    def retire(self) -> bool:
        """Close what is open, if streams have done all work so far. Returns whether it is closed. Idempotent."""
        if not all(timelines.reached(offset, number) for (timelines, offset), number in self._latest.items()):
            return False
        self._latest.clear()
        while self.streams:
            (device, stream), _timeline = self.streams.popitem()
            try:
                self._last.append(mark(device, stream))
            except DeviceFaultError:  # nothing can be closed any more
                return False
            except BaseException as error:
                self.used_on(device, stream)
                if isinstance(error, CaptureError):
                    return False
                raise
        if not all(point.reached() for point in self._last):
            return False
        self._last.clear()
        while self._opened:
            (key, device), _timelines_there = self._opened.popitem()
            leave(device, key)
        return True


# ------------------------------------------------------------------------------------ the end of edges
class Retired(Protocol):
    """A closed end of an edge, with memory of other processes still open."""

    held: int

    def retire(self) -> bool:
        """Close it, if nothing is held and the device has finished with it. Returns whether it is closed."""


_retired: deque[Retired] = deque()


def retire_later(end: Retired, *, sweep: bool = True) -> None:
    """Close what it has open as soon as it is unused: now, or (`sweep=False`) at the earliest at the next sweep."""
    _retired.append(end)
    if sweep:
        sweep_retired()


def sweep_retired() -> bool:
    """Close what the device has finished with. Returns whether only held tensors are left.

    Any thread, no finalizers. Closing may wait for the device.
    """
    for _ in range(len(_retired)):
        try:
            end = _retired.popleft()
        except IndexError:
            break
        is_over = False
        try:
            is_over = end.retire()
        finally:  # one that raises is retried
            if not is_over:
                _retired.append(end)
    close_unused()
    return not any(not end.held for end in list(_retired))


os.register_at_fork(after_in_child=_retired.clear)
