"""A board: what one member of a group of processes publishes to the others, in one segment of shared memory.

    member r                                                         the others
    its half of the step --- ARRIVED ----------------------------->  read it
    RING to each of the others, for what is sent to one of them -->  read it

All members take the same *steps* in the same order. A board has two halves, and step k uses half ``k % 2``:

    A1 wait until every ARRIVED >= k               they have read what this half held two steps before
    A2 write the half and SIGNATURE                not visible: ARRIVED does not cover it
    A3 ARRIVED = k + 1                             visible
    A4 wait until ARRIVED >= k + 1 of the members to read from, then read their halves

A member arrives at a step when it has finished reading in the previous one. So A1 holds already after a step in which all waited for
all, and a member may be a step ahead of the others. A member with nothing to write may skip A1, and so be two steps ahead of one that
still compares its SIGNATURE: hence four.

NEED publishes what a member waits for (before it sleeps), so that an arriving member rings only those whose wait that ends. The board's
member writes all words, except the readers' words of the rings.

REFUSED publishes that the member was refused a collective before it began (a wrong shape, a read-only array), and where: ``after <<
PLACE | count``, refused `count` times after `after` steps (on streams: collectives). A member that waits for one refused more often than
itself waits `GRACE` for its next call; where all are refused the same, nothing has happened, and a member that went on since is not
refused any more. NOT_SENT and NOT_RECEIVED do the same for messages to or from one peer, counted by SENT and RECEIVED.
"""

from __future__ import annotations

from typing import Any

from mray._ipc.layout import LINE_WORDS, WORD, RingLayout
from mray._ipc.memory_order import publish_fence
from mray._ipc.ring import RingWriter
from mray._ipc.segment import PAGE, Ask, Segment, round_up

BOARD_VERSION = 4

# ------------------------------------------------------------------------------------------------ facts
VERSION = 0
WORLD = 1
NONCE = 2

# ---------------------------------------------------------------------------------------- the moving line
ARRIVED = LINE_WORDS
#: step << 16 | rank + 1, where 0 for rank + 1 means all; 0 when it does not wait.
NEED = LINE_WORDS + 1
LEFT = LINE_WORDS + 2
#: The signature of step k is at ``k % SIGNATURES``.
SIGNATURE = LINE_WORDS + 3
SIGNATURES = 4
REFUSED = LINE_WORDS + 7

#: Values of LEFT. LOST: destroyed, with work on streams that others may wait for.
HERE, DESTROYED, BROKEN, LOST = range(4)

#: PARTNER[r]: the nonce of the board that this member has opened as rank r's.
PARTNER = 2 * LINE_WORDS

#: After the partners: what a member has sent or queued on streams (`mray._gpu.stream_group`), its own words and those for each peer.
DONE, COLLECTIVES = range(2)
SENT, RECEIVED, LAST, NOT_SENT, NOT_RECEIVED = range(5)
_QUEUED = 2
_QUEUED_FOR = 5
#: A refusal: the position above these bits, the number of refusals in them.
PLACE = 24

#: Seconds in which a refused member may call again.
GRACE = 2.0
#: Room for the text of the last refusal or failure.
REASON_BYTES = 1024

RING = RingLayout(entries=8, entry_bytes=4096, readers=1, slots=8)

#: Bytes of a half for a member's contribution; it has a further 1 / world size of that for the part of a block that it has computed.
BLOCK = 1 << 20
#: Alignment of parts within a half.
ALIGN = 64


class Board:
    """A member's segment, mapped by it or another member."""

    __slots__ = ("_computed", "_half_bytes", "_halves", "segment", "words", "world_size")

    def __init__(self, segment: Segment, world_size: int) -> None:
        self.segment = segment
        self.world_size = world_size
        self.words = segment.words()
        self._halves, self._half_bytes = _halves(world_size)
        self._computed = self._half_bytes - _computed_bytes(world_size)

    @classmethod
    def create(cls, name: str, world_size: int, nonce: int) -> Board:
        """Create the own board. Raises ObjectStoreFullError when shared memory is full."""
        first, half = _halves(world_size)
        segment = Segment.create(name, first + 2 * half, offer=True)
        board = cls(segment, world_size)
        for peer in range(world_size):
            RingWriter.format(segment, board.ring(peer), RING)
        board.words[WORLD] = world_size
        board.words[NONCE] = nonce
        publish_fence()
        board.words[VERSION] = BOARD_VERSION
        return board

    @classmethod
    def open(cls, name: str, world_size: int, nonce: int, ask: Ask | None = None) -> Board:
        """Map another member's board. Raises FileNotFoundError when it is unlinked, ValueError when it differs."""
        segment = Segment.open(name, writable=True, ask=ask)
        first, half = _halves(world_size)
        if segment.size != first + 2 * half:
            segment.close()
            raise ValueError(f"the board {name} has {segment.size} bytes, expected {first + 2 * half} for a world of {world_size}")
        board = cls(segment, world_size)
        info = tuple(board.words[index] for index in (VERSION, WORLD, NONCE))
        if info != (BOARD_VERSION, world_size, nonce):
            board.close()
            raise ValueError(f"the board {name} has another layout: {info}, expected {(BOARD_VERSION, world_size, nonce)}")
        return board

    def ring(self, peer: int) -> int:
        """The byte offset of the ring to a peer."""
        return _rings(self.world_size) + peer * RING.size

    def half(self, number: int) -> int:
        return self._halves + number * self._half_bytes

    def computed(self, number: int) -> int:
        return self.half(number) + self._computed

    @property
    def queued(self) -> int:
        """The index of DONE; COLLECTIVES follows."""
        return PARTNER + self.world_size

    def queued_for(self, peer: int) -> int:
        """The index of SENT for a peer; RECEIVED and so on follow."""
        return self.queued + _QUEUED + _QUEUED_FOR * peer

    def tell_reason(self, text: str) -> None:
        start = _reason(self.world_size)
        self.segment.memory[start : start + REASON_BYTES] = text.encode("utf-8", "replace")[:REASON_BYTES].ljust(REASON_BYTES, b"\0")

    def reason(self) -> str:
        start = _reason(self.world_size)
        return bytes(self.segment.memory[start : start + REASON_BYTES]).rstrip(b"\0").decode("utf-8", "ignore")

    def view(self, offset: int, count: int, dtype: Any, library: str) -> Any:
        """`count` elements from a byte offset, as a tensor or array that keeps the mapping alive."""
        if library == "torch":
            import torch  # noqa: PLC0415

            return torch.frombuffer(self.segment.memory, dtype=dtype, count=count, offset=offset)
        import numpy  # noqa: PLC0415

        return numpy.frombuffer(self.segment.memory, dtype, count, offset)

    def close(self) -> None:
        """Unmap, once no view is left. Idempotent."""
        self.words.release()
        self.segment.close()


def _reason(world_size: int) -> int:
    return (PARTNER + world_size + _QUEUED + _QUEUED_FOR * world_size) * WORD


def _rings(world_size: int) -> int:
    return round_up(_reason(world_size) + REASON_BYTES)


def _computed_bytes(world_size: int) -> int:
    return round_up(BLOCK // world_size + ALIGN, ALIGN)


def _halves(world_size: int) -> tuple[int, int]:
    """The offset of the halves, and the bytes of each."""
    return _rings(world_size) + world_size * RING.size, round_up(BLOCK + _computed_bytes(world_size), PAGE)
