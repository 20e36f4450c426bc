"""Opening the ends of a graph's channels in one process: the driver's, or an actor's.

All rings of a graph lie in one segment, which the driver creates. Its name is needed only until everyone has opened it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from mray._channel.base import ChannelReader, ChannelWriter
from mray._channel.shm import ShmReader, ShmWriter
from mray._graph.host import GraphHost
from mray._graph.plan import Channel
from mray._ipc.segment import Segment


class Ends:
    """The ends of one endpoint, by channel number."""

    def __init__(self, segment: Segment | None = None) -> None:
        self._segment = segment
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
        if self._segment is not None:
            self._segment.close()


def open_ends(
    host: GraphHost, endpoint: str, segment: Segment, prefix: str, channels: Iterable[Channel], processes: dict[str, str]
) -> Ends:
    """Open every end that `endpoint` has in these channels, which lie in `segment`; closing them closes the segment."""
    ends = Ends(segment)
    try:
        for channel in channels:
            own = f"{prefix}{channel.index:x}-"
            if channel.writer == endpoint:
                bells = [host.bell_of(processes[reader]) for reader in channel.readers]
                group = host.group_bell(own, bells) if len(bells) > 1 else None
                if group is not None:
                    ends.leave.append(partial(host.end_group_bell, own))
                ends.writers[channel.index] = ShmWriter(segment, channel.offset, channel.layout, own, bells, group)
            if endpoint in channel.readers:
                bell = host.bell_of(processes[channel.writer])
                if len(channel.readers) > 1:
                    ends.leave.append(host.join_group_bell(processes[channel.writer], own))
                number = channel.readers.index(endpoint)
                ends.readers[channel.index] = ShmReader(
                    segment, channel.offset, channel.layout, number, own, bell, lambda error: host.failure(error, "reading a value")
                )
    except BaseException:
        ends.close()
        raise
    return ends
