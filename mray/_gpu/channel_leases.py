"""Leases: memory that a writer lends its readers beside the ring's slots, until each of them releases it with a note.

    writer                                                 reader r
    Lender.lend(thing) -> (lease, use) --- a message --->  LeaseHolder
    Lender.sweep: ENDED of every reader is use  <--------  LeaseHolder.end(lease, use, note, number): NOTE, NUMBER, then ENDED = use
    thing.returned(notes)

For device tensors, note and number are the point that ends the reader's work: the number changes with every message, the note is
written only when it changes. The words are on the boards behind a ring's entries (`mray._ipc.layout`); loans end as those of slots do
(`mray._ipc.ring_loans`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from mray._inside.memory import publish_fence
from mray._inside.transports import ReaderEnd, WriterEnd
from mray._ipc import layout as at
from mray._ipc.ring_loans import RingLoans, has_died, sign

#: A reader's index, note and number.
Note = tuple[int, bytes, int]


class Lent(Protocol):
    def returned(self, notes: list[Note]) -> object:
        """Called when every reader has released it. Returns True if it is not over yet, and is to be reported again."""


class Lender(RingLoans[Lent]):
    """The writer's side."""

    __slots__ = ("_free", "_notes", "_uses")

    def __init__(self, end: WriterEnd) -> None:
        layout = end.layout
        first = end.offset // at.WORD
        ended = [first + layout.lease(reader, 0) + at.ENDED for reader in range(layout.readers)]
        super().__init__(end.segment.words(), ended, at.LEASE_WORDS)
        self._uses = 0
        #: The lowest last, so that a reader that releases immediately sees few of them.
        self._free = list(range(layout.leases - 1, -1, -1))
        #: Lease -> each reader's latest note, and the word that changes with it.
        self._notes: dict[int, tuple[int, bytes]] = {}
        sign(self.words, first + layout.lender)

    def lend(self, thing: Lent) -> tuple[int, int] | None:
        """A lease for the readers of the next message, and its use; None: none is free."""
        if not self._free:
            self.sweep()
            if not self._free:
                return None
        lease = self._free.pop()
        return lease, self.lend_again(lease, thing)

    def lend_again(self, lease: int, thing: Lent) -> int:
        """The next use of a lease that every reader has released, and that is not over."""
        self._uses = use = self._uses + 1
        self.out[lease] = use, thing
        return use

    def cancel_loan(self, lease: int) -> None:
        """The message was not sent, so no reader will end the lease."""
        _use, thing = self.out.pop(lease)
        self._free.append(lease)
        thing.returned([])

    def over(self, number: int, use: int, thing: Lent, dead: Collection[int]) -> bool:
        notes = []
        for reader, first in enumerate(self._firsts):
            start = first + number * at.LEASE_WORDS
            # Queued work of a dead reader is not done, so its mark is not awaited.
            if first not in dead and self.words[start] == use and (note := self.note(start)):
                notes.append((reader, note, self.words[start + at.NUMBER]))
        if thing.returned(notes) is True:
            return False
        self._free.append(number)
        return True

    def first_word(self, lease: int) -> int:
        return self._firsts[0] + lease * at.LEASE_WORDS

    def note(self, start: int) -> bytes:
        mark = self.words[start + at.NOTE_LENGTH]
        known = self._notes.get(start)
        if known is None or known[0] != mark:
            length = min(mark & 0xFF, at.MOST_NOTE)
            note = bytes(self.words[start + at.NOTE : start + at.LEASE_WORDS].cast("B")[:length])
            known = self._notes[start] = mark, note
        return known[1]


class LeaseHolder:
    """One reader's side."""

    __slots__ = ("_board", "_first", "_lender", "_notes", "_words")

    def __init__(self, end: ReaderEnd) -> None:
        layout, reader = end.layout, end.reader
        first = end.offset // at.WORD
        self._words = words = end.segment.words()
        self._board = first + layout.board(reader)
        self._first = first + layout.lease(reader, 0)
        #: Keyed by lease.
        self._notes: dict[int, bytes] = {}
        self._lender = first + layout.lender
        sign(words, self._board)

    def end(self, lease: int, use: int, note: bytes, number: int = 0) -> None:
        """Release, leaving a note and a number. Callable in finalizers."""
        words = self._words
        start = self._first + lease * at.LEASE_WORDS
        if self._notes.get(lease) != note:
            assert len(note) <= at.MOST_NOTE
            padded = note.ljust(at.MOST_NOTE, b"\0")
            words[start + at.NOTE : start + at.LEASE_WORDS] = memoryview(padded).cast("Q")
            words[start + at.NOTE_LENGTH] = use << 8 | len(note)
            self._notes[lease] = note
        words[start + at.NUMBER] = number
        # SYNC POINT loan: last read, NOTE, fence, its word | read its word, fence, read NOTE, overwrite.
        publish_fence()
        words[start + at.ENDED] = use

    def lender_is_dead(self) -> bool:
        return has_died(self._words, self._lender)

    def gone(self) -> None:
        """Report that nothing lent is held or open here any more."""
        publish_fence()
        self._words[self._board + at.HOLDS] = 0
        self._words.release()
