"""Fixtures of tests of shared-memory channels: both ends of rings, in one process."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator

import pytest

from mray._channel.base import ChannelReader, ChannelWriter
from mray._channel.shm import ReaderEnd, ShmReader, ShmWriter, WriterEnd
from mray._ipc.doorbell import Doorbell, new_wakeup_fd
from mray._ipc.layout import RingLayout
from mray._ipc.ring import RingWriter
from mray._ipc.ring_loans import sweep_closed
from mray._ipc.segment import Segment
from mray._ipc.slots import unlink_all
from mray._ipc.table import SessionTable

Ends = tuple[ChannelWriter, list[ChannelReader]]


class Shared:
    """The doorbells and segments of one test's channels; closed with it."""

    #: Messages that a channel has room for.
    entries = 4

    def __init__(self) -> None:
        self.prefix = f"/mray-test-channel-{os.getpid()}-{id(self):x}-"
        self.table = SessionTable.create(self.prefix + "table")
        #: Row 0 is the writer's, row r + 1 reader r's.
        self.doorbells = [Doorbell(new_wakeup_fd(), self.table, row) for row in range(8)]
        self._rings: list[tuple[Segment, ShmWriter, list[ShmReader]]] = []

    def make(
        self,
        readers: int,
        make_writer: Callable[[WriterEnd], ShmWriter] = ShmWriter,
        make_reader: Callable[[ReaderEnd], ShmReader] = ShmReader,
        leases: int = 0,
        name: str = "an edge",
    ) -> Ends:
        layout = RingLayout(self.entries, 1024, readers, 6, leases)
        segment = Segment.create(self.prefix + "ring", layout.size)
        RingWriter.format(segment, 0, layout)
        prefix = f"{self.prefix}s{len(self._rings)}-"
        writer = make_writer(WriterEnd(segment, 0, layout, prefix, self.doorbells[1 : readers + 1], name=name))
        ends = [make_reader(ReaderEnd(segment, 0, layout, number, prefix, self.doorbells[0], pickle.dumps)) for number in range(readers)]
        segment.unlink()
        self._rings.append((segment, writer, ends))
        return writer, list(ends)

    def close_rings(self) -> None:
        for segment, writer, readers in self._rings:
            for end in (writer, *readers):
                end.close()
            segment.close()
        self._rings.clear()

    def close(self) -> None:
        self.close_rings()
        sweep_closed()
        for doorbell in self.doorbells:
            doorbell.close()
        self.table.close()
        unlink_all(self.prefix)


@pytest.fixture
def shm() -> Iterator[Shared]:
    shared = Shared()
    yield shared
    shared.close()
