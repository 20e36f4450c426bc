"""The memory that one process shares with others for the tensors of edges: a pool for each device, and one of pinned host memory.

    Pool ── regions ── allocated whole, exported once; peers open each once and keep it open (`mray._device.imports`)
              └── blocks ── one for each tensor that is in flight or still in use

Opening another process's memory may take hundreds of milliseconds, so it must not happen for each message. Rejected: exporting the
tensors of the framework's own allocator one by one: each export pins its allocation until every peer has closed it.

A block is free *in the order of streams*: the caller that frees it names the streams that must reach their present end before it is
written again, and the caller that claims it for another stream makes that one wait for them. The host never waits.

`claim` is for the thread that writes edges, under a lock; `free` is for any thread and for finalizers, which may run between any two
byte codes: it takes no lock.
"""

from __future__ import annotations

import bisect
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from mray._common import settings
from mray._common.kept import os
from mray._device.device import Device, DeviceFaultError, DeviceOutOfMemoryError, NotExportedError
from mray._device.mappings import HOST, new_key
from mray._device.pinned_memory import PinnedMemory
from mray._device.timelines import PeerPoint, Point, mark

#: Alignment of blocks; suits every kernel.
ALIGN = 512
#: Granularity of regions, as of device memory.
GRAIN = 2 << 20


def block_size(size: int) -> int:
    """Bytes of a block for `size` bytes."""
    return max(ALIGN, (size + ALIGN - 1) // ALIGN * ALIGN)


@dataclass(slots=True, eq=False)
class PoolRegion:
    """Memory that was allocated whole."""

    #: Unique on the machine.
    key: bytes
    #: The uuid of its device, or `HOST`.
    place: str
    base: int
    size: int
    handle: bytes
    #: Free chunks, by offset. Invariant: no two are adjacent.
    chunks: list[MemoryChunk] = field(init=False)
    used: int = 0
    #: Stream -> the end of the work on it, once the region is to be freed.
    leaving: dict[int, Point] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chunks = [MemoryChunk(0, self.size, frozenset())]


@dataclass(slots=True, eq=False)
class MemoryChunk:
    """Free once these streams have reached their ends of that time, and peers these points."""

    offset: int
    size: int
    streams: frozenset[int]
    points: tuple[PeerPoint, ...] = ()


@dataclass(slots=True, eq=False)
class Block:
    """Part of a region, for one tensor."""

    region: PoolRegion
    offset: int
    size: int

    @property
    def address(self) -> int:
        return self.region.base + self.offset


def are_reached(points: Iterable[PeerPoint]) -> bool:
    """Whether peers have reached all points."""
    return all(point.reached() for point in points)


def _unreached(points: tuple[PeerPoint, ...]) -> tuple[PeerPoint, ...]:
    return tuple([point for point in points if not point.reached()])


class MemoryPool:
    """The shared memory of one device in this process; with `pinned`, host memory that its copies pass through."""

    def __init__(self, device: Device, *, pinned: bool = False) -> None:
        self.device = device
        self._pinned = PinnedMemory(device) if pinned else None
        self._lock = threading.RLock()
        #: Open edges that claim blocks: their readers may have any region open.
        self.users = 0
        self._regions: list[PoolRegion] = []
        #: Freed blocks not yet among the chunks, with the streams and points to wait for.
        self._freed: deque[tuple[Block, frozenset[int], tuple[PeerPoint, ...]]] = deque()

    # ------------------------------------------------------------------------------------ blocks
    def claim(self, size: int, stream: int) -> Block:
        """A block of `size` bytes for work on this stream. Raises DeviceOutOfMemoryError, NotExportedError."""
        size = block_size(size)
        with self._lock:
            self._take_back()
            first = None
            for region in self._regions:
                for position, chunk in enumerate(region.chunks):
                    if chunk.size >= size:
                        if are_reached(chunk.points):
                            return self._cut(region, position, size, stream)
                        first = first or (region, position)
            return self._cut(*(first or (self._grow(size), 0)), size, stream)

    def _cut(self, region: PoolRegion, position: int, size: int, stream: int) -> Block:
        chunk = region.chunks[position]
        others = chunk.streams - {stream}
        for other in others:
            mark(self.device, other).wait(stream)
        for point in chunk.points:
            point.wait(stream)
        block = Block(region, chunk.offset, size)
        if chunk.size == size:
            del region.chunks[position]
        else:
            chunk.offset += size
            chunk.size -= size
        region.used += size
        region.leaving.clear()
        return block

    def _grow(self, size: int) -> PoolRegion:
        usual = max(settings.DEVICE_POOL_BYTES.get(), size)
        for wanted in dict.fromkeys((usual, size)):
            wanted = (wanted + GRAIN - 1) // GRAIN * GRAIN
            try:
                region = self._allocate(wanted)
            except MemoryError as error:
                cause = error
                continue
            self._regions.append(region)
            return region
        free, total = self.device.memory()
        raise DeviceOutOfMemoryError(
            f"No memory is left on {self.device.name} ({self.device.uuid}) for a tensor of {size} bytes that an edge carries: {free} of "
            f"{total} bytes are free there, and the pool of process {os.getpid()} holds {self.held()}. Drop tensors that arrived along "
            "edges, leave more memory free, or send smaller ones."
        ) from cause

    def _allocate(self, size: int) -> PoolRegion:
        key = new_key()
        if self._pinned is not None:
            base, handle = self._pinned.allocate(size)
            return PoolRegion(key, HOST, base, size, handle)
        base = self.device.allocate(size)
        try:
            handle = self.device.export_memory(base)
        except BaseException as error:
            self.device.free(base)
            if isinstance(error, RuntimeError) and not isinstance(error, DeviceFaultError):
                raise NotExportedError(str(error)) from error
            raise
        return PoolRegion(key, self.device.uuid, base, size, handle)

    def free(self, block: Block, streams: Iterable[int] = (), points: Iterable[PeerPoint] = ()) -> None:
        """Take a block back, to be written once these streams have reached their present end, and peers these points. Any thread,
        finalizers too.
        """
        self._freed.append((block, frozenset(streams), tuple(points)))

    def _take_back(self) -> None:
        while self._freed:
            block, streams, points = self._freed.popleft()
            region = block.region
            region.used -= block.size
            chunks = region.chunks
            position = bisect.bisect(chunks, block.offset, key=lambda chunk: chunk.offset)
            chunk = MemoryChunk(block.offset, block.size, streams, _unreached(points))
            chunks.insert(position, chunk)
            if position + 1 < len(chunks) and chunks[position + 1].offset == chunk.offset + chunk.size:
                after = chunks.pop(position + 1)
                chunk.size += after.size
                chunk.streams |= after.streams
                chunk.points = _unreached((*chunk.points, *after.points))
            if position and chunks[position - 1].offset + chunks[position - 1].size == chunk.offset:
                before = chunks[position - 1]
                before.size += chunk.size
                before.streams |= chunk.streams
                before.points = _unreached((*before.points, *chunk.points))
                del chunks[position]

    # ------------------------------------------------------------------------------------ the whole
    def held(self) -> int:
        return sum(region.size for region in self._regions)

    def used(self) -> int:
        with self._lock:
            self._take_back()
            return sum(region.used for region in self._regions)

    def trim(self) -> bool:
        """Free the regions without blocks, unless an edge is open, or work is still queued on them. Returns whether none of those is left.

        Call when no peer has them open. Does not wait. A region used on a stream that is being captured stays for later.
        """
        with self._lock:
            self._take_back()
            if self.users:
                return False
            for region in [region for region in self._regions if not region.used and self._is_idle(region)]:
                self._regions.remove(region)
                if self._pinned is not None:
                    self._pinned.free(region.base)
                else:
                    self.device.free(region.base)
            return not any(not region.used for region in self._regions)

    def _is_idle(self, region: PoolRegion) -> bool:
        try:
            for chunk in region.chunks:
                if not are_reached(chunk.points):
                    return False
                for stream in chunk.streams:
                    if stream not in region.leaving:
                        region.leaving[stream] = mark(self.device, stream)
            return all(point.reached() for point in region.leaving.values())
        except RuntimeError:
            return False


_pools: weakref.WeakSet[MemoryPool] = weakref.WeakSet()
_pools_lock = threading.Lock()


def pool_of(device: Device, *, pinned: bool = False, staging: bool = False) -> MemoryPool:
    """This process's pool for a device."""
    name = "pinned pool" if pinned else "staging pool" if staging else "pool"
    with _pools_lock:
        pool: MemoryPool | None = device.belongings.get(name)
        if pool is None:
            pool = device.belongings[name] = MemoryPool(device, pinned=pinned)
            _pools.add(pool)
        return pool


def all_pools() -> list[MemoryPool]:
    with _pools_lock:
        return list(_pools)
