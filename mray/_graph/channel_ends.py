"""Opening the ends of a graph's channels in one process.

All rings of a graph lie in one segment, which the driver creates. Its name lives until all processes have opened it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from mray._api.communicator import Communicator
from mray._channel.base import ChannelReader, ChannelWriter
from mray._channel.communicator_edge import CommunicatorReader, CommunicatorWriter, EdgeRules
from mray._channel.select import BLOCKING, ON_DEVICES
from mray._channel.shm import ReaderEnd, ShmReader, ShmWriter, WriterEnd
from mray._graph.communicators import leave
from mray._graph.gpu_edges import Carriage
from mray._graph.host import GraphHost
from mray._graph.plan import Route
from mray._ipc.segment import Segment

#: Values of `mray._api.type_hint.Device` that name a device.
PLACES = frozenset({"cpu", "gpu", "cuda"})


@dataclass(eq=False)
class ChannelEnds:
    """The ends of one endpoint by channel number, and its communicators by number."""

    segment: Segment | None = None
    communicators: dict[int, Communicator] = field(default_factory=dict)
    readers: dict[int, ChannelReader] = field(default_factory=dict)
    writers: dict[int, ChannelWriter] = field(default_factory=dict)
    #: Callbacks of `close`.
    leave: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        """Close all ends. Idempotent."""
        # All of them even if one raises, since peers wait for the others.
        with ExitStack() as closing:
            if self.segment is not None:
                closing.callback(self.segment.close)
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
    """Open the ends of `endpoint` in these channels; closing them closes the segment. `communicators`: the endpoint's, by number; `ranks`:
    number -> endpoint -> rank.
    """
    ends = ChannelEnds(segment, {} if communicators is None else communicators)
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


class _Opener(NamedTuple):
    host: GraphHost
    endpoint: str
    segment: Segment
    prefix: str
    processes: Mapping[str, str]
    ends: ChannelEnds
    ranks: Mapping[int, Mapping[str, int]]

    def _failure(self, error: BaseException) -> bytes:
        return self.host.failure(error, "reading a value")

    def _own_prefix(self, channel: Route) -> str:
        return f"{self.prefix}{channel.index:x}-"

    def writer(self, channel: Route) -> ChannelWriter:
        host, own = self.host, self._own_prefix(channel)
        doorbells = [host.doorbell_of(self.processes[reader]) for reader in channel.readers]
        group = host.group_doorbell(own, doorbells) if len(doorbells) > 1 else None
        if group is not None:
            self.ends.leave.append(partial(host.end_group_doorbell, own))
        end = WriterEnd(self.segment, channel.offset, channel.layout, own, doorbells, group, channel.name)
        carriage = self._carriage(channel, channel.readers)
        if channel.transport in ON_DEVICES:
            return host.gpus().writer(channel, end, carriage, self._failure)
        writer = ShmWriter(end)
        if carriage is None:
            return writer
        rules = EdgeRules(channel.transfer.static_shape, channel.transfer.direct_return)
        return CommunicatorWriter(writer, carriage.communicator, carriage.ranks, rules, self._failure)

    def reader(self, channel: Route) -> ChannelReader:
        host, own = self.host, self._own_prefix(channel)
        doorbell = host.doorbell_of(self.processes[channel.writer])
        if len(channel.readers) > 1:
            self.ends.leave.append(host.join_group_doorbell(self.processes[channel.writer], own))
        end = ReaderEnd(
            self.segment,
            channel.offset,
            channel.layout,
            channel.readers.index(self.endpoint),
            own,
            doorbell,
            self._failure,
            host.ask_of(self.processes[channel.writer]),
        )
        carriage = self._carriage(channel, (channel.writer,))
        if channel.transport in ON_DEVICES:
            reader: ChannelReader = host.gpus().reader(channel, end, carriage)
        else:
            reader = ShmReader(end)
            if carriage is not None:
                reader = CommunicatorReader(reader, carriage.communicator, carriage.ranks[0], self._failure)
        if channel.transfer.device in PLACES:
            reader = host.gpus().placed(reader, channel.transfer.device, self._failure)
        return reader

    def _carriage(self, channel: Route, others: Iterable[str]) -> Carriage | None:
        if channel.transport not in BLOCKING:
            return None
        ranks = self.ranks[channel.communicator]
        return Carriage(self.ends.communicators[channel.communicator], [ranks[other] for other in others])
