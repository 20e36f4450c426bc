"""Ring pairs: how two processes that are both awake talk without the kernel.

A page of shared memory beside the socket of a connection, with a small ring (`mray._ipc.ring`) for each direction::

    process A                        one page                       process B
    Connection ─ RingWriter ──▶ │ ring from A to B │ ──▶ RingReader ─ Connection
               ◀─ RingReader ── │ ring from B to A │ ◀── RingWriter ─

A pair that talks often opens it: OFFER_RING with the name of the page, TAKE_RING with the answer, after which the name is gone. Where both
offer one at once, each calling the other, that of the lower row in the session's table is taken. One that is idle when another pair needs
its place is closed: each end says RETIRE_RING when it has written its last entry, and lets go of the page when it has heard the other say
so. A message takes the ring while it is small, the ring has room, the other process says in the session's table that it is awake, and it
has read all that went through the socket; else the socket, which is always there. So the socket wakes who sleeps, carries what is large,
and tells of the end.

Guarantee: messages of one direction are handed on in the order in which they were sent, whichever way each has taken. A reader says in the
page how many bytes of the socket it has handed on since the ring was opened (BESIDE): as long as some are under way nothing is put into
the ring, so no entry overtakes a frame. And before it hands on what it has read from the socket, it hands on what lies in the ring: that
was published before.

Guarantee: whoever sleeps is woken. The writer publishes, and looks again whether the reader is awake; if it is not, a frame without
meaning goes through the socket (NUDGE). The reader says that it is going to sleep, and looks into its rings again.

Rejected: a position in each entry, that of the socket's frames before it, so that the ring may be used while they are under way: entries
then wait in the reader for frames, frames are counted at four places, and what is left of a frame that the socket has begun is easily taken
for a whole one.

Rejected: an eventfd for the ring. It would be one descriptor more at each end, and whoever sleeps waits for the socket anyway.
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

#: The forms of an entry: the body of one frame, several frames.
ONE, SEVERAL = range(2)


class RingPair:
    """One end of the two rings. The writing half is used under the connection's lock, the reading half by the thread that reads."""

    __slots__ = ("_asleep", "_looked", "_page", "_read_beside", "_reader", "_segment", "_sent_beside", "_words", "_writer")

    #: The most bytes that an entry holds.
    MOST = _LAYOUT.inline

    def __init__(self, segment: Segment, end: int, table: SessionTable) -> None:
        self._segment = segment
        self._writer = RingWriter(segment, _OFFSETS[end], _LAYOUT)
        self._reader = RingReader(segment, _OFFSETS[1 - end], _LAYOUT, 0)
        self._words = table.words
        #: Where the other process says whether it sleeps.
        self._asleep = 0
        self._page = self._reader.words
        #: The words BESIDE of the other process, for what it has read of our writing, and of this one.
        self._sent_beside, self._read_beside = (_OFFSETS[each] // WORD + _LAYOUT.reader_block(0) + BESIDE for each in (end, 1 - end))
        #: Entries of both directions when somebody last asked whether it is used.
        self._looked = 0

    @classmethod
    def offer(cls, name: str, table: SessionTable) -> RingPair:
        """Make the page, for the other process to open by its name. OSError or ObjectStoreFullError when there is no room."""
        segment = Segment.create(name, PAGE)
        for offset in _OFFSETS:
            RingWriter.format(segment, offset, _LAYOUT)
        return cls(segment, 0, table)

    @classmethod
    def take(cls, name: str, table: SessionTable) -> RingPair:
        """Map the page that the other process has made. OSError when the name is gone, ValueError when it is no such page."""
        segment = Segment.open(name, writable=True)
        segment.unlink()
        return cls(segment, 1, table)

    def meet(self, row: int) -> None:
        """The other process has this row in the table: from now on messages may be written."""
        self._asleep = row * ROW_WORDS + STATE

    def has_room(self, beside: int) -> bool:
        """Whether the other process is awake, has read so many bytes of the socket, and its ring has room."""
        writer = self._writer
        return (
            self._words[self._asleep] == AWAKE
            and self._page[self._sent_beside] == beside
            and (writer.next < writer.limit or writer.has_room())
        )

    def put(self, form: int, body: bytes | memoryview) -> bool:
        """Publish an entry. False: the other process has fallen asleep, and has to be nudged."""
        self._writer.put(form, body)
        # SYNC POINT bell: publish, fence, read the sleeper's word | write the own word, fence, look again.
        fence()
        return self._words[self._asleep] == AWAKE

    def next(self) -> tuple[int, bytes] | None:
        """The next entry, if there is one: form and body. DamagedError when no process of ours has written it."""
        reader = self._reader
        return reader.take() if reader.words[reader.published] > reader.next else None

    def has_more(self) -> bool:
        """Whether there is an entry."""
        reader = self._reader
        return reader.words[reader.published] > reader.next

    def has_read(self, beside: int) -> None:
        """This process has handed on so many bytes of the socket, and all entries before them. (No fence: the word guards no memory.)"""
        self._page[self._read_beside] = beside

    def was_used(self) -> bool:
        """Whether there were entries, of either direction, since this was asked before."""
        before, self._looked = self._looked, self._writer.next + self._reader.next
        return self._looked != before

    def unlink(self) -> None:
        """Take the name away: the other process has mapped the page. More than once is safe."""
        self._segment.unlink()

    def close(self) -> None:
        """Let go of the page. Closing twice is safe."""
        self._writer.close()
        self._reader.close()
        self._segment.unlink()
        self._segment.close()
