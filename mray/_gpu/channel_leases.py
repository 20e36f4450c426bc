"""Leases: memory that a writer lends its readers beside the ring's slots, until each of them has let go, with a note.

    writer                                                 reader r
    Lender.lend(thing) -> (lease, use) --- a message --->  Borrower
    Lender.sweep: ENDED of every reader is use  <--------  Borrower.end(lease, use, note): NOTE, then ENDED = use
    thing.returned(notes)

For tensors of devices a note ends with the point that marks the end of the reader's work. The words are on the boards that follow a
ring's entries (`mray._ipc.layout`); loans end as those of slots do (`mray._ipc.ring_loans`), also when a reader is dead.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from mray._ipc import layout as at
from mray._ipc.layout import MOST_NOTE, WORD, RingLayout
from mray._ipc.memory_order import publish_fence
from mray._ipc.ring_loans import RingLoans, has_died, sign
from mray._ipc.segment import Segment


class Lent(Protocol):
    """Something that is lent to the readers."""

    def returned(self, notes: list[tuple[int, bytes]]) -> object:
        """Every reader has let go: (reader, note) of those that left one. True: it is not over yet, and is to be told again."""


class Lender(RingLoans[Lent]):
    """The writer's side."""

    __slots__ = ("_free", "_notes", "_uses")

    def __init__(self, segment: Segment, offset: int, layout: RingLayout) -> None:
        first = offset // WORD
        ended = [first + layout.lease(reader, 0) + at.ENDED for reader in range(layout.readers)]
        super().__init__(segment.words(), ended, at.LEASE_WORDS)
        self._uses = 0
        #: The lowest last: a reader that lets go at once sees few of them.
        self._free = list(range(layout.leases - 1, -1, -1))
        #: The latest note of each reader on each lease, by its place, and the word that changes with it.
        self._notes: dict[int, tuple[int, bytes]] = {}
        sign(self._words, first + layout.lender)

    def lend(self, thing: Lent) -> tuple[int, int] | None:
        """A lease for the readers of the next message, and its use; None: all are taken."""
        self.sweep()
        if not self._free:
            return None
        lease = self._free.pop()
        self._uses += 1
        self.out[lease] = self._uses, thing
        return lease, self._uses

    def cancel_loan(self, lease: int) -> None:
        """The message was not sent: nobody will end the lease."""
        _use, thing = self.out.pop(lease)
        self._free.append(lease)
        thing.returned([])

    def over(self, number: int, use: int, thing: Lent, dead: Collection[int]) -> bool:
        notes = []
        for reader, first in enumerate(self._firsts):
            start = first + number * at.LEASE_WORDS
            # Work that a dead reader had queued is not done any more: there is no need to wait for its mark.
            if first not in dead and self._words[start] == use and (note := self._note(start)):
                notes.append((reader, note))
        if thing.returned(notes) is True:
            return False
        self._free.append(number)
        return True

    def _note(self, start: int) -> bytes:
        mark = self._words[start + at.NOTE_LENGTH]
        known = self._notes.get(start)
        if known is None or known[0] != mark:
            length = min(mark & 0xFF, MOST_NOTE)
            note = bytes(self._words[start + at.NOTE : start + at.LEASE_WORDS].cast("B")[:length])
            known = self._notes[start] = mark, note
        return known[1]


class LeaseHolder:
    """Reader number `reader`'s side."""

    __slots__ = ("_board", "_first", "_lender", "_notes", "_words")

    def __init__(self, segment: Segment, offset: int, layout: RingLayout, reader: int) -> None:
        first = offset // WORD
        self._words = words = segment.words()
        self._board = first + layout.board(reader)
        self._first = first + layout.lease(reader, 0)
        #: The latest note of each lease.
        self._notes: dict[int, bytes] = {}
        self._lender = first + layout.lender
        sign(words, self._board)

    def end(self, lease: int, use: int, note: bytes) -> None:
        """Let go, leaving a note. For finalizers: writes words of its own, and nothing else."""
        assert len(note) <= MOST_NOTE
        words = self._words
        start = self._first + lease * at.LEASE_WORDS
        if self._notes.get(lease) != note:
            padded = note.ljust(MOST_NOTE, b"\0")
            words[start + at.NOTE : start + at.LEASE_WORDS] = memoryview(padded).cast("Q")
            words[start + at.NOTE_LENGTH] = use << 8 | len(note)
            self._notes[lease] = note
        # SYNC POINT loan: last read, NOTE, fence, its word | read its word, fence, read NOTE, overwrite.
        publish_fence()
        words[start + at.ENDED] = use

    def lender_is_dead(self) -> bool:
        """Whether the writer's process has ended."""
        return has_died(self._words, self._lender)

    def gone(self) -> None:
        """Nothing that was lent is held or open here any more; once."""
        publish_fence()
        self._words[self._board + at.HOLDS] = 0
        self._words.release()
