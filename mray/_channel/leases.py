"""Leases: memory that a writer lends its readers beside the ring's slots, until each of them has let go, with a note.

    writer                                                 reader r
    Lender.lend(thing) -> (lease, use) --- a message --->  Borrower
    Lender.sweep: ENDED of every reader is use  <--------  Borrower.end(lease, use, note): NOTE, then ENDED = use
    thing.end(notes)

For tensors of devices a note ends with the point that marks the end of the reader's work. The words are on the boards that follow a
ring's entries (`mray._ipc.layout`); they outlive the ring's ends, for a value that was read stays valid: what is lent when a lender
closes becomes an orphan, which `sweep_orphans` ends, also when its reader is dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Protocol

from mray._common.process_local import kernel_pid
from mray._device.death_watch import is_dead
from mray._ipc import layout as at
from mray._ipc.layout import MOST_NOTE, WORD, RingLayout
from mray._ipc.memory_order import publish_fence, trust_fence
from mray._ipc.process import start_of
from mray._ipc.segment import Segment


class Lent(Protocol):
    """Something that is lent to the readers."""

    def returned(self, notes: list[tuple[int, bytes]]) -> object:
        """Every reader has let go: (reader, note) of those that left one. True: it is not over yet, and is to be told again."""


class _Board:
    """Where a reader's words are, among the words of the segment."""

    __slots__ = ("ended", "is_open", "signature")

    def __init__(self, offset: int, layout: RingLayout, reader: int) -> None:
        first = offset // WORD
        start = first + layout.board(reader)
        self.signature = start
        self.is_open = start + at.OPEN
        #: Of each lease; NOTE_LENGTH and NOTE follow.
        self.ended = [first + layout.lease(reader, lease) + at.ENDED for lease in range(layout.leases)]


class Lender:
    """The writer's side."""

    __slots__ = ("_boards", "_closed", "_free", "_lent", "_notes", "_then", "_uses", "_words")

    def __init__(self, segment: Segment, offset: int, layout: RingLayout) -> None:
        self._words = segment.words()
        self._boards = [_Board(offset, layout, reader) for reader in range(layout.readers)]
        self._uses = 0
        #: The lowest last: a reader that lets go at once sees few of them.
        self._free = list(range(layout.leases - 1, -1, -1))
        #: Lease -> its use, and what is lent.
        self._lent: dict[int, tuple[int, Lent]] = {}
        #: (reader, lease) -> the latest note there, and the word that changes with it.
        self._notes: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._closed = False
        _sign(self._words, offset // WORD + layout.lender)

    def lend(self, thing: Lent) -> tuple[int, int] | None:
        """A lease for the readers of the next message, and its use; None: all are taken."""
        self.sweep()
        if not self._free:
            return None
        lease = self._free.pop()
        self._uses += 1
        self._lent[lease] = self._uses, thing
        return lease, self._uses

    def cancel_loan(self, lease: int) -> None:
        """The message was not sent: nobody will end the lease."""
        _use, thing = self._lent.pop(lease)
        self._free.append(lease)
        thing.returned([])

    def sweep(self) -> None:
        """End the leases that every reader has let go of."""
        words = self._words
        for lease, (use, thing) in list(self._lent.items()):
            for board in self._boards:
                if words[board.ended[lease]] != use:
                    break
            else:
                self._end(lease, use, thing)

    def _end(self, lease: int, use: int, thing: Lent, dead: Collection[int] = ()) -> None:
        # SYNC POINT lease: NOTE, fence, ENDED | read ENDED, fence, read NOTE.
        trust_fence()
        notes = []
        for reader, board in enumerate(self._boards):
            if reader not in dead and self._words[board.ended[lease]] == use and (note := self._note(reader, lease, board.ended[lease])):
                notes.append((reader, note))
        if thing.returned(notes) is not True:
            del self._lent[lease]
            self._free.append(lease)

    def _note(self, reader: int, lease: int, start: int) -> bytes:
        mark = self._words[start + at.NOTE_LENGTH]
        known = self._notes.get((reader, lease))
        if known is None or known[0] != mark:
            length = min(mark & 0xFF, MOST_NOTE)
            note = bytes(self._words[start + at.NOTE : start + at.LEASE_WORDS].cast("B")[:length])
            known = self._notes[reader, lease] = mark, note
        return known[1]

    @property
    def lent(self) -> int:
        """How many leases are out, as of the last sweep."""
        return len(self._lent)

    def is_settled(self) -> bool:
        """After `close`: whether nothing is lent, and no reader has anything open of what was."""
        dead = self.dead_readers()
        gone = [reader in dead or not self._words[board.is_open] for reader, board in enumerate(self._boards)]
        for lease, (use, thing) in list(self._lent.items()):
            if all(left or self._words[board.ended[lease]] == use for left, board in zip(gone, self._boards, strict=True)):
                # Work that a dead reader had queued is not done any more: there is no need to wait for its mark.
                self._end(lease, use, thing, dead)
        if self._lent or not all(gone):
            return False
        self._then()
        self._boards.clear()  # there is nothing to be looked at any more
        self._words.release()
        return True

    def dead_readers(self) -> frozenset[int]:
        """Those of the readers that have something open, whose processes have ended. Before, or within, the end of `close`."""
        words = self._words
        return frozenset([reader for reader, board in enumerate(self._boards) if words[board.is_open] and _is_dead(words, board.signature)])

    def close(self, then: Callable[[], None] = lambda: None) -> None:
        """Lend no more. Loans that are out stay so until `sweep_orphans` finds them ended, and calls `then`. Idempotent."""
        if not self._closed:
            self._closed = True
            self._then = then
            self.sweep()
            with _lock:
                _orphans.append(self)


class Borrower:
    """Reader number `reader`'s side."""

    __slots__ = ("_board", "_lender", "_notes", "_words")

    def __init__(self, segment: Segment, offset: int, layout: RingLayout, reader: int) -> None:
        self._words = words = segment.words()
        self._board = board = _Board(offset, layout, reader)
        #: The latest note of each lease.
        self._notes: dict[int, bytes] = {}
        self._lender = offset // WORD + layout.lender
        words[board.is_open] = 1
        _sign(words, board.signature)

    def end(self, lease: int, use: int, note: bytes) -> None:
        """Let go, leaving a note. For finalizers: writes words of its own, and nothing else."""
        assert len(note) <= MOST_NOTE
        words = self._words
        start = self._board.ended[lease]
        if self._notes.get(lease) != note:
            padded = note.ljust(MOST_NOTE, b"\0")
            words[start + at.NOTE : start + at.LEASE_WORDS] = memoryview(padded).cast("Q")
            words[start + at.NOTE_LENGTH] = use << 8 | len(note)
            self._notes[lease] = note
        # SYNC POINT lease: NOTE, fence, ENDED | read ENDED, fence, read NOTE.
        publish_fence()
        words[start] = use

    def lender_is_dead(self) -> bool:
        """Whether the writer's process has ended."""
        return _is_dead(self._words, self._lender)

    def gone(self) -> None:
        """Nothing that was lent is held or open here any more; once."""
        publish_fence()
        self._words[self._board.is_open] = 0
        self._words.release()


def _sign(words: memoryview, line: int) -> None:
    """Say which process this is."""
    words[line + at.PID] = kernel_pid()
    words[line + at.STARTED] = start_of(kernel_pid())


def _is_dead(words: memoryview, line: int) -> bool:
    return is_dead((words[line + at.PID], words[line + at.STARTED]))


_orphans: list[Lender] = []
_lock = threading.Lock()


def sweep_orphans() -> bool:
    """End the loans of closed lenders that readers have let go of; whether none is left. Any thread, no finalizers."""
    with _lock:
        for lender in list(_orphans):
            if lender.is_settled():
                _orphans.remove(lender)
        return not _orphans
