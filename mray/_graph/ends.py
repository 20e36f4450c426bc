"""Opening the ends of a graph's channels in one process: the driver's, or an actor's.

All rings of a graph lie in one segment, which the driver creates. Its name is needed only until everyone has opened it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from mray._api.communicator import Communicator
from mray._channel.base import ChannelReader, ChannelWriter
from mray._channel.communicator_edge import CommunicatorReader, CommunicatorWriter, EdgeRules
from mray._channel.placed import DEVICES, PlacedReader
from mray._channel.select import COMMUNICATOR
from mray._channel.shm import ShmReader, ShmWriter
from mray._graph.communicators import leave
from mray._graph.host import GraphHost
from mray._graph.plan import Channel
from mray._ipc.segment import Segment


class Ends:
    """The ends of one endpoint, by channel number, and the communicators that it is a member of, by their number."""

    def __init__(self, segment: Segment | None = None, communicators: dict[int, Communicator] | None = None) -> None:
        self._segment = segment
        self.communicators = communicators if communicators is not None else {}
        self.readers: dict[int, ChannelReader] = {}
        self.writers: dict[int, ChannelWriter] = {}
        #: What else ends with them: bells that groups of readers share.
        self.leave: list[Callable[[], None]] = []

    def close(self) -> None:
        """Let go of all of them. Idempotent."""
        for reader in self.readers.values():
            reader.close()
        for writer in self.writers.values():
            writer.close()
        while self.leave:
            self.leave.pop()()
        leave(self.communicators)
        if self._segment is not None:
            self._segment.close()


def open_ends(
    host: GraphHost,
    endpoint: str,
    segment: Segment,
    prefix: str,
    channels: Iterable[Channel],
    processes: Mapping[str, str],
    communicators: dict[int, Communicator] | None = None,
    ranks: Mapping[int, Mapping[str, int]] | None = None,
) -> Ends:
    """Open every end that `endpoint` has in these channels, which lie in `segment`; closing them closes the segment.

    `communicators` are those the endpoint is a member of, by number; `ranks` of all members: number -> endpoint -> rank.
    """
    ends = Ends(segment, communicators)

    def failure(error: BaseException) -> bytes:
        return host.failure(error, "reading a value")

    try:
        for channel in channels:
            own = f"{prefix}{channel.index:x}-"
            if channel.writer == endpoint:
                bells = [host.bell_of(processes[reader]) for reader in channel.readers]
                group = host.group_bell(own, bells) if len(bells) > 1 else None
                if group is not None:
                    ends.leave.append(partial(host.end_group_bell, own))
                writer: ChannelWriter = ShmWriter(segment, channel.offset, channel.layout, own, bells, group)
                if channel.transport == COMMUNICATOR:
                    assert ranks is not None
                    number = channel.transfer.communicator
                    rules = EdgeRules(channel.transfer.static_shape, channel.transfer.direct_return)
                    peers = [ranks[number][reader] for reader in channel.readers]
                    writer = CommunicatorWriter(writer, ends.communicators[number], peers, rules, failure)
                ends.writers[channel.index] = writer
            if endpoint in channel.readers:
                bell = host.bell_of(processes[channel.writer])
                if len(channel.readers) > 1:
                    ends.leave.append(host.join_group_bell(processes[channel.writer], own))
                place = channel.readers.index(endpoint)
                reader: ChannelReader = ShmReader(segment, channel.offset, channel.layout, place, own, bell, failure)
                if channel.transport == COMMUNICATOR:
                    assert ranks is not None
                    number = channel.transfer.communicator
                    reader = CommunicatorReader(reader, ends.communicators[number], ranks[number][channel.writer], failure)
                if channel.transfer.device in DEVICES:
                    reader = PlacedReader(reader, channel.transfer.device, failure)
                ends.readers[channel.index] = reader
    except BaseException:
        ends.close()
        raise
    return ends
