"""Opening the ends of a graph's channels in one process: the driver's, or an actor's.

All rings of a graph lie in one segment, which the driver creates. Its name is needed only until everyone has opened it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial

from mray._api.communicator import Communicator
from mray._channel.base import ChannelReader, ChannelWriter
from mray._channel.checked_writer import CheckedWriter
from mray._channel.communicator_edge import CommunicatorReader, CommunicatorWriter, EdgeRules
from mray._channel.cuda_ipc import CudaIpcReader, CudaIpcWriter, trim_pools
from mray._channel.pinned import PinnedReader, PinnedWriter
from mray._channel.placed import DEVICES, PlacedReader
from mray._channel.select import BLOCKING, CUDA_IPC, DEVICE, NCCL
from mray._channel.shm import ShmReader, ShmWriter
from mray._common.clock import monotonic, sleep
from mray._device.device import Platform
from mray._device.platform import platform
from mray._graph.communicators import leave
from mray._graph.host import GraphHost
from mray._graph.plan import Route
from mray._ipc.segment import Segment

#: Seconds that a process waits at most, when a graph ends, for devices and peers to let go of memory that edges have lent.
SETTLING = 0.05


def settle_devices(patience: float) -> None:
    """Give back the device memory of closed edges, once peers have let go of it: waits so many seconds at most.

    Memory that is not settled then, because a value is still held or a device is busy, goes when the next graph is made or ends here.
    """
    deadline = monotonic() + patience
    while not trim_pools() and monotonic() < deadline:
        sleep(0.001)


class ChannelEnds:
    """The ends of one endpoint, by channel number, and the communicators that it is a member of, by their number."""

    def __init__(self, segment: Segment | None = None, communicators: dict[int, Communicator] | None = None) -> None:
        self._segment = segment
        self.communicators = communicators if communicators is not None else {}
        self.readers: dict[int, ChannelReader] = {}
        self.writers: dict[int, ChannelWriter] = {}
        #: Callbacks for their end: doorbells that groups of readers share, and the files of `mray._graph.caller.liveness`.
        self.leave: list[Callable[[], None]] = []

    def close(self) -> None:
        """Let go of all of them. Idempotent."""
        # Each of them, also when a device is broken and one raises: peers wait for the others to be closed. The last is closed first.
        with ExitStack() as closing:
            if self._segment is not None:
                closing.callback(self._segment.close)
            closing.callback(leave, self.communicators)
            while self.leave:
                closing.callback(self.leave.pop(0))
            for writer in self.writers.values():
                closing.callback(writer.close)
            for reader in self.readers.values():
                closing.callback(reader.close)


def open_ends(
    host: GraphHost,
    endpoint: str,
    segment: Segment,
    prefix: str,
    channels: Iterable[Route],
    processes: Mapping[str, str],
    communicators: dict[int, Communicator] | None = None,
    ranks: Mapping[int, Mapping[str, int]] | None = None,
) -> ChannelEnds:
    """Open every end that `endpoint` has in these channels, which lie in `segment`; closing them closes the segment.

    `communicators` are those that the endpoint is a member of, by number; `ranks` of all members: number -> endpoint -> rank.
    """
    ends = ChannelEnds(segment, communicators)
    opener = _Opener(host, endpoint, segment, prefix, processes, ends, ranks or {})
    try:
        for channel in channels:
            if channel.writer == endpoint:
                ends.writers[channel.index] = opener.writer(channel)
            if endpoint in channel.readers:
                ends.readers[channel.index] = opener.reader(channel)
    except BaseException:
        ends.close()
        raise
    return ends


class _Opener:
    """Opens ends for one endpoint."""

    def __init__(
        self,
        host: GraphHost,
        endpoint: str,
        segment: Segment,
        prefix: str,
        processes: Mapping[str, str],
        ends: ChannelEnds,
        ranks: Mapping[int, Mapping[str, int]],
    ) -> None:
        self._host = host
        self._endpoint = endpoint
        self._segment = segment
        self._prefix = prefix
        self._processes = processes
        self._ends = ends
        self._ranks = ranks

    def _failure(self, error: BaseException) -> bytes:
        return self._host.failure(error, "reading a value")

    def _own_prefix(self, channel: Route) -> str:
        return f"{self._prefix}{channel.index:x}-"

    def writer(self, channel: Route) -> ChannelWriter:
        """The writing end of a channel."""
        host, own = self._host, self._own_prefix(channel)
        doorbells = [host.doorbell_of(self._processes[reader]) for reader in channel.readers]
        group = host.group_doorbell(own, doorbells) if len(doorbells) > 1 else None
        if group is not None:
            self._ends.leave.append(partial(host.end_group_doorbell, own))
        where = self._segment, channel.offset, channel.layout, own, doorbells, group
        rules = EdgeRules(channel.transfer.static_shape, channel.transfer.direct_return)
        if channel.transport in BLOCKING:
            ranks = self._ranks[channel.communicator]
            peers = [ranks[reader] for reader in channel.readers]
            carrier = self._ends.communicators[channel.communicator]
            devices = platform() if channel.transport == NCCL else None
            return CommunicatorWriter(ShmWriter(*where, channel.name), carrier, peers, rules, self._failure, devices)
        if channel.transport not in DEVICE:
            return ShmWriter(*where, channel.name)
        make = CudaIpcWriter if channel.transport == CUDA_IPC else PinnedWriter
        owned = _platform_for(channel)
        writer: ChannelWriter = make(*where, platform=owned, name=channel.name, proven=channel.proven)
        promised = channel.transfer.static_shape or channel.transfer.direct_return
        return CheckedWriter(writer, rules, owned.tensor_types(), self._failure) if promised else writer

    def reader(self, channel: Route) -> ChannelReader:
        """The endpoint's reading end of a channel."""
        host, own = self._host, self._own_prefix(channel)
        doorbell = host.doorbell_of(self._processes[channel.writer])
        if len(channel.readers) > 1:
            self._ends.leave.append(host.join_group_doorbell(self._processes[channel.writer], own))
        place = channel.readers.index(self._endpoint)
        where = (
            self._segment,
            channel.offset,
            channel.layout,
            place,
            own,
            doorbell,
            self._failure,
            host.ask_of(self._processes[channel.writer]),
        )
        if channel.transport in DEVICE:
            make = CudaIpcReader if channel.transport == CUDA_IPC else PinnedReader
            reader: ChannelReader = make(*where, platform=_platform_for(channel), name=channel.name)
        else:
            reader = ShmReader(*where)
        if channel.transport in BLOCKING:
            rank = self._ranks[channel.communicator][channel.writer]
            devices = platform() if channel.transport == NCCL else None
            reader = CommunicatorReader(reader, self._ends.communicators[channel.communicator], rank, self._failure, devices)
        if channel.transfer.device in DEVICES:
            reader = PlacedReader(reader, channel.transfer.device, self._failure, platform())
        return reader


def _platform_for(channel: Route) -> Platform:
    devices = platform()
    if devices is None:
        raise RuntimeError(f"{channel.name} needs a GPU at both ends, but this process sees none any more.")
    return devices
