"""Sent tensors: where readers in other processes find them, and what is retained until those have released it.

    the thread that writes                                        later, the same thread
    TensorExports.add(tensor) -> facts        each tensor            ExportedMessage.end(points of the readers)
    TensorExports.seal()                      the whole message        the memory is reused when they are reached

A tensor is copied within its device, on the current stream, into the pool's memory. Readers get plain data (`ExportedTensor`)::

    lease, use, place, timeline's region's key, its handle, timeline's offset, number of each chunk, size of a chunk, region's key,
    region's handle, offset, size, dtype, shape, strides, device index here

The timeline is that of the copying stream; at the last of the numbers the whole tensor is there.

A block is reused when its readers have reached their points, the oldest first; until then another block is taken, so that a reader whose
device is late delays no other. Only with `MOST_AHEAD` blocks, or as many bytes as a pool grows by, does the stream wait; the host never
does.

Rejected: sending a tensor of torch's allocator in place when it has no other holder. Its memory lies among others', which would be
exported with it, and is reused as soon as it dies.

The tensors of one device in one message share a lease.

*Through pinned memory* tensors are copied chunk by chunk, each with a number, so that the reader's device copies the first chunks while
the last ones still arrive. Later work of the current stream, which could change the tensor, waits for the copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mray._common import settings
from mray._device.device import Device, DeviceOutOfMemoryError, NotExportedError, NotOpenedError, Platform
from mray._device.device_faults import promise
from mray._device.lending import lend_stream, return_stream
from mray._device.memory_pool import Block, MemoryPool, are_reached, block_size, pool_of
from mray._device.pinned_memory import owner_of
from mray._device.timelines import PeerPoint, Peers, Where, mark
from mray._ipc.pidfd import is_dead

#: Blocks that an edge caches, so that tensors of one shape lie at the same few addresses.
MOST_SPARE = 16
#: With this many blocks of one size in use by readers, a stream waits instead of taking another.
MOST_AHEAD = 8

#: Through pinned memory: the least bytes of a chunk, whose transfer outweighs its overhead; and the most chunks.
LEAST_CHUNK = 2 << 20
MOST_CHUNKS = 8

#: The note of a reader that can open nothing.
OPENS_NOTHING = b"\1"


#: The fields are in the module's docstring.
# fmt: off
ExportedTensor = tuple[
    int, int, str, bytes, bytes, int, tuple[int, ...], int,
    bytes, bytes, int, int, str, tuple[int, ...], "tuple[int, ...] | None", int,
]
# fmt: on


@dataclass(slots=True, eq=False)
class ExportedMessage:
    """The tensors of one device in one message."""

    exports: TensorExports
    device: Device
    #: The stream that created the tensors, and the one that copies them.
    user: int
    stream: int
    lease: int = -1
    use: int = 0
    blocks: list[Block] = field(default_factory=list)

    def copy(self, target: int, source: int, size: int, chunk: int) -> list[Where]:
        if self.stream != self.user:
            mark(self.device, self.user).wait(self.stream)
        places = []
        for start in range(0, size, chunk) if size else (0,):
            self.device.copy(target + start, source + start, min(chunk, size - start), self.stream)
            point = mark(self.device, self.stream)
            places.append(point.where)
        if self.stream != self.user:
            point.wait(self.user)
        promise(self.device, point)
        return places

    def end(self, points: Iterable[Where] = (), peers: Peers | None = None) -> bool:
        """Reuse the memory once these points of all readers are reached.

        Returns False if a live reader cannot be waited for now, for lack of descriptors; call again.
        """
        ends = []
        for point in points:
            assert peers is not None
            try:
                ends.append(peers.point(self.device, point))
            except NotOpenedError:
                if not is_dead(owner_of(point.handle)):
                    return False
                # Else its work is, too.
        self.exports.take_back(self.device, self.blocks, self.stream, ends)
        self.blocks = []
        return True


class TensorExports:
    """The tensors that one edge (or one holder of tensors) sends. `lend` finds a lease for a message: (lease, use), or None when all are
    taken.

    `sweep` ends messages that readers have released. For one thread at a time; `pinned`: through host memory.
    """

    def __init__(
        self,
        platform: Platform,
        lend: Callable[[ExportedMessage], tuple[int, int] | None],
        sweep: Callable[[], object] = lambda: None,
        *,
        pinned: bool = False,
    ) -> None:
        self._platform = platform
        self._lend = lend
        self._sweep = sweep
        self._pinned = pinned
        #: Device -> the message being written.
        self._loading: dict[int, ExportedMessage] = {}
        #: (device, size) -> cached blocks, streams of their last use, readers' points; the latest last.
        self._spare: dict[tuple[int, int], deque[tuple[Block, int, Sequence[PeerPoint]]]] = {}
        self._spares = 0
        self._closed = False
        #: Tensors copied into the pool; those that found no lease.
        self.copied = 0
        self.refused = 0
        #: Bytes.
        self.sent = 0
        #: Bytes of the pools, in flight and cached.
        self.held = 0
        self._pools: dict[int, MemoryPool] = {}
        #: Device -> the stream that copies tensors to the host.
        self._streams: dict[int, int] = {}

    def add(self, tensor: Any) -> ExportedTensor | None:
        """Add a tensor to the message; None when all leases are taken.

        Raises DeviceOutOfMemoryError, NotExportedError, and RuntimeError for a tensor that requires grad, or while a graph is captured.
        """
        dense, info = self._platform.info(tensor)
        device = self._platform.devices[info.device]
        reason = device.why_unordered()
        if reason:
            raise NotExportedError(reason)
        message = self._loading.get(info.device) or self._load(device)
        if message is None:
            self.refused += 1
            return None
        block = self._claim(self._pool(device), max(info.size, 1), message.stream)
        message.blocks.append(block)
        # It may belong to another stream, and be dropped before the copy is made, for which the current stream waits.
        if dense is tensor and info.size:
            self._platform.use_on(tensor, message.user)
        chunk = max(LEAST_CHUNK, block_size(-(-info.size // MOST_CHUNKS))) if self._pinned else max(info.size, 1)
        places = message.copy(block.address, info.address, info.size, chunk)
        region = block.region
        self.copied += 1
        self.sent += info.size
        return (
            message.lease,
            message.use,
            region.place,
            *places[0][:3],
            tuple([place.number for place in places]),
            chunk,
            region.key,
            region.handle,
            block.offset,
            info.size,
            info.dtype,
            info.shape,
            info.strides,
            info.device,
        )

    def _load(self, device: Device) -> ExportedMessage | None:
        user = device.current_stream()
        message = ExportedMessage(self, device, user, self._stream_of(device) if self._pinned else user)
        lease = self._lend(message)
        if lease is None:
            return None
        message.lease, message.use = lease
        self._loading[device.index] = message
        return message

    def seal(self) -> None:
        self._loading.clear()

    # ------------------------------------------------------------------------------------ blocks
    def _claim(self, pool: MemoryPool, size: int, stream: int) -> Block:
        kind = pool.device.index, block_size(size)
        size = kind[1]
        spare, ready = self._look_for(kind)
        if ready is None and (spare or not self._has_room(size)):
            self._sweep()
            spare, ready = self._look_for(kind)
        if spare and (ready is not None or not self.may_take_another(len(spare), size)):
            return self._reuse(pool, spare, ready or 0, stream)
        if not spare and self._spares:
            self._give_back_spares()  # shapes have changed: do not hoard
        self.held += size
        try:
            return pool.claim(size, stream)
        except BaseException as error:
            self.held -= size
            if spare and isinstance(error, DeviceOutOfMemoryError):
                return self._reuse(pool, spare, 0, stream)
            raise

    def _look_for(self, kind: tuple[int, int]) -> tuple[deque[tuple[Block, int, Sequence[PeerPoint]]] | None, int | None]:
        """The cached blocks of a size, and the index of the first that readers' devices have finished with."""
        spare = self._spare.get(kind)
        return spare, next((place for place, (_block, _last, ends) in enumerate(spare or ()) if are_reached(ends)), None)

    def may_take_another(self, waiting: int, size: int) -> bool:
        """Whether to take one more block of a size, though `waiting` are released but still in use by devices."""
        return waiting < MOST_AHEAD and (waiting < 2 or self._has_room(size))

    def _has_room(self, size: int) -> bool:
        return self.held + size <= settings.DEVICE_POOL_BYTES.get()

    def may_keep(self, blocks: int, size: int) -> bool:
        """Whether to take a block of a new size beside `blocks` of other sizes that stay in use."""
        return blocks < MOST_SPARE and self._has_room(size)

    def _reuse(self, pool: MemoryPool, spare: deque[tuple[Block, int, Sequence[PeerPoint]]], place: int, stream: int) -> Block:
        block, last, ends = spare[place]
        # The readers' work came after the stream's, for which they had waited.
        for end in ends:
            end.wait(stream)
        if last != stream and not ends:
            mark(pool.device, last).wait(stream)
        del spare[place]
        self._spares -= 1
        return block

    def _pool(self, device: Device) -> MemoryPool:
        pool = self._pools.get(device.index)
        if pool is None:
            pool = self._pools[device.index] = pool_of(device, pinned=self._pinned)
            pool.users += 1
        return pool

    def _stream_of(self, device: Device) -> int:
        stream = self._streams.get(device.index)
        if stream is None:
            stream = self._streams[device.index] = lend_stream(device)
        return stream

    def _free(self, pool: MemoryPool, block: Block, stream: int, ends: Iterable[PeerPoint]) -> None:
        pool.free(block, (stream,), ends)
        self.held -= block.size

    def take_back(self, device: Device, blocks: Iterable[Block], stream: int, ends: Sequence[PeerPoint] = ()) -> None:
        """Reuse these blocks after the stream's present work, and these points of readers."""
        for block in blocks:
            if self._closed or self._spares >= MOST_SPARE:
                self._free(self._pools[device.index], block, stream, ends)
            else:
                self._spare.setdefault((device.index, block.size), deque()).append((block, stream, ends))
                self._spares += 1

    def _give_back_spares(self) -> None:
        for (index, _size), spare in self._spare.items():
            for block, stream, ends in spare:
                self._free(self._pools[index], block, stream, ends)
        self._spare.clear()
        self._spares = 0

    def close(self) -> None:
        """Free cached blocks. Messages in flight end as usual. Idempotent."""
        if not self._closed:
            self._closed = True
            self._give_back_spares()
            for pool in self._pools.values():
                pool.users -= 1
            for index, stream in self._streams.items():
                return_stream(self._platform.devices[index], stream)
