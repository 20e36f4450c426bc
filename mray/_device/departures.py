"""Tensors on their way out: where readers in other processes find them, and what is kept until those have let go.

    the thread that writes                                        later, the same thread
    Departures.add(tensor) -> facts        each tensor            Shipment.end(events of the readers)
    Departures.seal()                      the whole message        its stream waits for them, then the memory is used again

A tensor that lies in memory which others can open (a pool's, or that of `Device.outputs`), and which nobody else in this process looks at,
goes as it is. Any other is copied within its device, on the current stream; through pinned memory, to the host. Readers get plain data
(`Facts of a departure`)::

    lease, use, ready event's handle, place, region's key, region's handle, offset, size, dtype, shape, strides, device index here

The tensors of one device in one message share a lease and an event. Nobody on the host waits for a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mray._device.base import Device, Event, Platform
from mray._device.events import lend_event, return_event
from mray._device.pool import Block, Pool, block_size, pool_of

#: Blocks that an edge keeps for its next messages, so that tensors of one shape lie at the same few addresses.
MOST_SPARE = 16

#: The facts of one tensor; see the module.
DepartureFacts = tuple[int, int, bytes, str, bytes, bytes, int, int, str, tuple[int, ...], "tuple[int, ...] | None", int]


class Shipment:
    """The tensors of one device that left in one message."""

    __slots__ = ("_blocks", "_departures", "_kept", "device", "lease", "ready", "stream", "use")

    def __init__(self, departures: Departures, device: Device, stream: int) -> None:
        self._departures = departures
        self.device = device
        self.stream = stream
        #: Marks the place on the stream where the tensors are complete.
        self.ready = lend_event(device)
        #: Which of the lender's leases it has, and for the how manieth message.
        self.lease = -1
        self.use = 0
        self._blocks: list[Block] = []
        self._kept: list[Any] = []

    @property
    def size(self) -> int:
        """Bytes of the pool that it holds."""
        return sum(block.size for block in self._blocks)

    def put(self, block: Block) -> None:
        """Hold a block of the pool."""
        self._blocks.append(block)

    def keep(self, tensor: Any) -> None:
        """Hold a tensor that goes as it is."""
        self._kept.append(tensor)

    def end(self, events: Iterable[Event] = ()) -> None:
        """Every reader has let go, as of these events: the memory is used again once the stream has come that far."""
        for event in events:
            event.wait(self.stream)
        self._departures.take_back(self.device, self._blocks, self.stream)
        self._blocks = []
        self._kept.clear()
        return_event(self.device, self.ready)


class Departures:
    """The tensors that one edge (or one holder of tensors) sends off. `lend` finds a lease for a shipment: (lease, use), or None when all
    are taken.

    For one thread at a time; `pinned`: through host memory.
    """

    def __init__(self, platform: Platform, lend: Callable[[Shipment], tuple[int, int] | None], *, pinned: bool = False) -> None:
        self._platform = platform
        self._lend = lend
        self._pinned = pinned
        #: Those of the message that is being written, by device.
        self._loading: dict[int, Shipment] = {}
        #: Blocks for next messages, with the streams that they were last used on: (device, size) -> the latest last.
        self._spare: dict[tuple[int, int], list[tuple[Block, int]]] = {}
        self._spares = 0
        self._closed = False
        #: How many tensors were copied into the pool, went as they were, and found no lease.
        self.copied = 0
        self.shared = 0
        self.refused = 0
        #: Bytes of those that went.
        self.sent = 0
        #: Bytes of the pools that it holds, on their way and for next messages.
        self.held = 0
        self._pools: dict[int, Pool] = {}

    def add(self, tensor: Any, *, sole: bool = False) -> DepartureFacts | None:
        """Have a tensor leave with the message; None when all leases are taken. `sole`: the caller holds the only reference to it.

        Raises DeviceOutOfMemoryError, and RuntimeError for a tensor that requires grad.
        """
        dense, facts = self._platform.facts(tensor)
        device = self._platform.devices[facts.device]
        shipment = self._loading.get(facts.device) or self._load(device)
        if shipment is None:
            self.refused += 1
            return None
        pool = self._pool(device)
        region = None
        if sole and dense is tensor and facts.size and not self._pinned and self._platform.is_sole(tensor):
            region = pool.find(facts.address)
        if region is not None:
            shipment.keep(tensor)
            offset = facts.address - region.base
            self.shared += 1
        else:
            block = self._claim(pool, max(facts.size, 1), shipment.stream)
            shipment.put(block)
            if facts.size:
                device.copy(block.address, facts.address, facts.size, shipment.stream)
            region = block.region
            offset = block.offset
            self.copied += 1
        self.sent += facts.size
        return (
            shipment.lease,
            shipment.use,
            shipment.ready.handle,
            region.place,
            region.key,
            region.handle,
            offset,
            facts.size,
            facts.dtype,
            facts.shape,
            facts.strides,
            facts.device,
        )

    def _load(self, device: Device) -> Shipment | None:
        shipment = Shipment(self, device, device.current_stream())
        lease = self._lend(shipment)
        if lease is None:
            shipment.end()
            return None
        shipment.lease, shipment.use = lease
        self._loading[device.index] = shipment
        return shipment

    def seal(self) -> list[Shipment]:
        """The message is complete: mark it on the streams. Commit the added tensors, which are on their way from now on."""
        shipments = list(self._loading.values())
        for shipment in shipments:
            shipment.ready.record(shipment.stream)
        self._loading.clear()
        return shipments

    def abandon(self) -> list[Shipment]:
        """The message will not be sent; what was added since the last `seal`."""
        shipments = list(self._loading.values())
        self._loading.clear()
        return shipments

    # ------------------------------------------------------------------------------------ blocks
    def _claim(self, pool: Pool, size: int, stream: int) -> Block:
        size = block_size(size)
        spare = self._spare.get((pool.device.index, size))
        if spare:
            block, last = spare.pop()
            self._spares -= 1
            if last == stream:
                return block
            self._free(pool, block, last)
        elif self._spares:
            self._give_back_spares()  # shapes have changed: do not hoard
        self.held += size
        try:
            return pool.claim(size, stream)
        except BaseException:
            self.held -= size
            raise

    def _pool(self, device: Device) -> Pool:
        pool = self._pools.get(device.index)
        if pool is None:
            pool = self._pools[device.index] = pool_of(device, pinned=self._pinned)
            pool.users += 1
        return pool

    def _free(self, pool: Pool, block: Block, stream: int) -> None:
        pool.free(block, (stream,))
        self.held -= block.size

    def take_back(self, device: Device, blocks: Iterable[Block], stream: int) -> None:
        """Use these blocks again, after what is on the stream now."""
        for block in blocks:
            if self._closed or self._spares >= MOST_SPARE:
                self._free(self._pools[device.index], block, stream)
            else:
                self._spare.setdefault((device.index, block.size), []).append((block, stream))
                self._spares += 1

    def _give_back_spares(self) -> None:
        for (index, _size), spare in self._spare.items():
            for block, stream in spare:
                self._free(self._pools[index], block, stream)
        self._spare.clear()
        self._spares = 0

    def close(self) -> None:
        """Give back what is held for next messages. Shipments that are on their way end as ever. Idempotent."""
        if not self._closed:
            self._closed = True
            self._give_back_spares()
            for pool in self._pools.values():
                pool.users -= 1
