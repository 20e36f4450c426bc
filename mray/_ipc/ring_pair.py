"""Ring pairs: how two awake processes exchange messages without system calls.

    process A                        one page                       process B
    Connection ─ RingWriter ──▶ │ ring from A to B │ ──▶ RingReader ─ Connection
               ◀─ RingReader ── │ ring from B to A │ ◀── RingWriter ─

A busy connection opens it: OFFER_RING with the name of the page, TAKE_RING with the answer. When both offer concurrently, the offer of
the lower row in the session's table wins. An idle pair whose page another needs is closed: each end sends RETIRE_RING after its last
entry, and releases the page when it has received the other's. A message takes the ring if it is small, the ring has room, the other
process is awake, and it has read everything sent over the socket; else it takes the socket.

Guarantee: messages of one direction are delivered in the order in which they were sent. A reader publishes in the page how many bytes of
the socket it has delivered since the ring was opened (BESIDE): while some are in flight nothing is put into the ring, so no entry
overtakes a frame. Before it delivers what it read from the socket, it delivers the ring's entries, which were published earlier.

Guarantee: a sleeping process is woken. The writer publishes, then checks again whether the reader is awake; if not, an empty frame goes
through the socket (NUDGE). The reader announces that it is going to sleep, then polls its rings again.

Rejected: each entry names the position of the preceding frames (entries wait in the reader, and frames are counted in four places); an
eventfd for the ring (one more descriptor at each end, and a sleeping process waits for the socket anyway).
"""

from __future__ import annotations

from mray._ipc.layout import BESIDE, WORD, RingLayout
from mray._ipc.memory_order import fence
from mray._ipc.ring import RingReader, RingWriter
from mray._ipc.segment import PAGE, Segment
from mray._ipc.table import AWAKE, ROW_WORDS, STATE, SessionTable

_LAYOUT = RingLayout(entries=4, entry_bytes=448, readers=1, slots=0)
_OFFSETS = (0, PAGE // 2)
assert _LAYOUT.extent <= PAGE // 2

#: Forms of an entry: one frame's body, several frames.
ONE, SEVERAL = range(2)
#: Outcomes of `RingPair.try_put`.
NO_ROOM, PUBLISHED, NEEDS_NUDGE = range(3)


class RingPair:
    """One end. The writing half is used under the connection's lock, the reading half by the thread that reads."""

    __slots__ = ("_asleep", "_looked", "_page", "_read_beside", "_segment", "_sent_beside", "_words", "_writer", "reader")

    #: Bytes of an entry.
    MOST = _LAYOUT.inline

    def __init__(self, segment: Segment, end: int, table: SessionTable) -> None:
        self._segment = segment
        self._writer = RingWriter(segment, _OFFSETS[end], _LAYOUT)
        self.reader = RingReader(segment, _OFFSETS[1 - end], _LAYOUT, 0)
        self._words = table.words
        self._asleep = 0
        self._page = self.reader.words
        self._sent_beside, self._read_beside = (_OFFSETS[each] // WORD + _LAYOUT.reader_block(0) + BESIDE for each in (end, 1 - end))
        #: Entries of both directions at the last `was_used`.
        self._looked = 0

    @classmethod
    def offer(cls, name: str, table: SessionTable) -> RingPair:
        """Create the page. Raises OSError or ObjectStoreFullError."""
        segment = Segment.create(name, PAGE)
        for offset in _OFFSETS:
            RingWriter.format(segment, offset, _LAYOUT)
        return cls(segment, 0, table)

    @classmethod
    def take(cls, name: str, table: SessionTable) -> RingPair:
        """Map the offered page. Raises OSError when the name is unlinked, ValueError for another kind of page."""
        segment = Segment.open(name, writable=True)
        segment.unlink()
        return cls(segment, 1, table)

    def meet(self, row: int) -> None:
        """Set the other process's row; messages may be written afterwards."""
        self._asleep = row * ROW_WORDS + STATE

    def try_put(self, form: int, body: bytes | memoryview, beside: int) -> int:
        """Publish an entry if the other process is awake and has read `beside` bytes of the socket, and the ring has room.

        NEEDS_NUDGE: it is published, and the other process has fallen asleep.
        """
        words, asleep, writer = self._words, self._asleep, self._writer
        if words[asleep] != AWAKE or self._page[self._sent_beside] != beside or (writer.next >= writer.limit and not writer.has_room()):
            return NO_ROOM
        writer.put(form, body)
        # SYNC POINT bell: publish, fence, read the sleeper's word | write the own word, fence, look again.
        fence()
        return PUBLISHED if words[asleep] == AWAKE else NEEDS_NUDGE

    def has_read(self, beside: int) -> None:
        """Publish how many bytes of the socket were delivered, with all entries before them. (No fence: the word guards no memory.)"""
        self._page[self._read_beside] = beside

    def was_used(self) -> bool:
        before, self._looked = self._looked, self._writer.next + self.reader.next
        return self._looked != before

    def unlink(self) -> None:
        """The other process has mapped the page. Idempotent."""
        self._segment.unlink()

    def close(self) -> None:
        """Idempotent."""
        self._writer.close()
        self.reader.close()
        self._segment.unlink()
        self._segment.close()
