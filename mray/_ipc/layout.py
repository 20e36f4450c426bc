"""The layout of a ring in memory: named offsets, one version.

A ring starts on a line and is made of eight-byte words, in lines of 64 bytes so that two writers never share a line:

    line 0   WRITER LINE    PUBLISHED | WANTED | - | VERSION | ENTRIES | ENTRY_BYTES | READERS | SLOTS
    then     READER BLOCK   one per reader: a line CONSUMED | BESIDE | PID | STARTED | HOLDS | ...,
                            then RELEASED[slot] for each payload slot
    then     ENTRIES        `entries` times `entry_bytes`: FORM | LENGTH | the payload itself
    then     LEASE BOARDS   only with `leases`: a line - | - | PID | STARTED | ... of the writer, then one board per reader:
                            a line - | - | PID | STARTED | HOLDS | ..., then for each lease two lines
                            ENDED | NOTE_LENGTH (with the use, above eight bits) | NUMBER | NOTE (104 bytes)

The writer of each word:

    PUBLISHED, WANTED, the header, the entries, the first line of the boards   the writer
    the first line and RELEASED of block r, board r                            reader r

PUBLISHED counts the messages written, CONSUMED those that a reader has finished with: message n lies in entry ``n % entries``, and the
writer may write it once ``n - CONSUMED < entries`` for every reader. WANTED is one while the writer waits for room: a reader that sees
it rings the writer's doorbell after consuming. BESIDE counts what a reader has read of a stream beside the ring (`mray._ipc.ring_pair`).
RELEASED[slot] is the latest use of a payload slot that this reader has released (`mray._ipc.slots`), ENDED the same of a lease, with a
NUMBER and a NOTE from the reader (`mray._gpu.channel_leases`). HOLDS, PID and STARTED: see `mray._ipc.ring_loans`.
"""

from __future__ import annotations

from struct import Struct

from mray._common.record import Record
from mray._ipc.segment import PAGE, round_up

#: A process refuses to map a ring of another version.
LAYOUT_VERSION = 5

WORD = 8
LINE_WORDS = 8

# ---------------------------------------------------------------------------------- the writer's line
PUBLISHED = 0
WANTED = 1
VERSION = 3
ENTRIES = 4
ENTRY_BYTES = 5
READERS = 6
SLOTS = 7

# ---------------------------------------------------------------------------------- a reader's block
CONSUMED = 0
BESIDE = 1
#: Also of a board.
PID = 2
STARTED = 3
HOLDS = 4

# ---------------------------------------------------------------------------------- a lease on a reader's board
ENDED = 0
NOTE_LENGTH = 1
NUMBER = 2
NOTE = 3
LEASE_WORDS = 2 * LINE_WORDS
MOST_NOTE = (LEASE_WORDS - NOTE) * WORD

# -------------------------------------------------------------------------------------------- an entry
#: FORM and LENGTH.
ENTRY_HEADER = Struct("@QQ")


class RingLayout(Record):
    #: A power of two.
    entries: int
    #: Whole lines.
    entry_bytes: int
    readers: int
    slots: int
    #: Leases of memory that lies in no slot.
    leases: int = 0

    @property
    def inline(self) -> int:
        return self.entry_bytes - ENTRY_HEADER.size

    @property
    def reader_words(self) -> int:
        """The length of a reader's block, in whole lines."""
        return LINE_WORDS + (self.slots + LINE_WORDS - 1) // LINE_WORDS * LINE_WORDS

    def reader_block(self, reader: int) -> int:
        """The first word of a reader's block, relative to the ring."""
        return LINE_WORDS + reader * self.reader_words

    def released(self, reader: int) -> int:
        return self.reader_block(reader) + LINE_WORDS

    def entry(self, index: int) -> int:
        return (LINE_WORDS + self.readers * self.reader_words) * WORD + index * self.entry_bytes

    @property
    def lender(self) -> int:
        """The writer's line before the boards, in words."""
        return self.entry(self.entries) // WORD

    def board(self, reader: int) -> int:
        """The first word of a reader's board."""
        return self.lender + LINE_WORDS + reader * (LINE_WORDS + self.leases * LEASE_WORDS)

    def lease(self, reader: int, lease: int) -> int:
        """The first word of a lease."""
        return self.board(reader) + LINE_WORDS + lease * LEASE_WORDS

    @property
    def extent(self) -> int:
        return self.entry(self.entries) if not self.leases else self.board(self.readers) * WORD

    @property
    def size(self) -> int:
        """Bytes of the ring, in whole pages."""
        return round_up(self.extent, PAGE)


def entries_for(in_flight: int) -> int:
    """The least power of two for `in_flight` messages."""
    return 1 << max(1, in_flight - 1).bit_length()
