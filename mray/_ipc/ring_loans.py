"""Loans of a ring's writer: memory that lies in none of its slots, and that readers may look at until each has let go, or is dead.

    writer                                                   reader r
    lend(number, use, thing) ------ in a message ---------->  looks at it
    sweep: every reader's word of the number is the use  <--  its word = use, when the last view of it is gone

A use never comes twice for one number. Memory that is passed on is lent so (`mray._ipc.slots`: the words are RELEASED), and that of devices
(`mray._gpu.channel_leases`: ENDED, with a note). Each word has one writer, so whoever lends and whoever borrows may die between any two
steps.

A loan outlives the ends of its ring, for a value that was read stays valid. Loans that are out when the writer closes stay in a list of the
process, until `sweep_closed` finds that every reader has let go or holds nothing. A reader says so in the line before its words: HOLDS is
one from its opening until it is closed and nothing lives any more that was lent to it; PID and STARTED say which process it is, should it
never get so far.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from mray._common.process_local import kernel_pid
from mray._ipc import layout as at
from mray._ipc.memory_order import publish_fence, trust_fence
from mray._ipc.pidfd import is_dead
from mray._ipc.process import namespace_mark, start_of

Thing = TypeVar("Thing")

#: Above so many bits of the word PID stands the mark of the namespace that it is of.
_PID_BITS = 32


def sign(words: memoryview, line: int) -> None:
    """Say in its line which process this is, and that it may hold something."""
    words[line + at.PID] = kernel_pid() | namespace_mark() << _PID_BITS
    words[line + at.STARTED] = start_of(kernel_pid())
    publish_fence()
    words[line + at.HOLDS] = 1


def has_died(words: memoryview, line: int) -> bool:
    """Whether the process that has signed a line has ended. False for one in another namespace of pids, of which nobody here knows."""
    mark, pid = divmod(words[line + at.PID], 1 << _PID_BITS)
    if mark and mark != namespace_mark():
        return False
    return is_dead((pid, words[line + at.STARTED]))


class RingLoans(Generic[Thing]):
    """The loans of one writer. `firsts`: the index of each reader's word of number 0; from each number to the next it is `stride`."""

    __slots__ = ("_firsts", "_is_closed", "_stride", "_then", "out", "words")

    def __init__(self, words: memoryview, firsts: list[int], stride: int = 1) -> None:
        self.words = words
        self._firsts = firsts
        self._stride = stride
        self._is_closed = False
        self._then: Callable[[], None] | None = None
        #: Number -> its use, and what is lent.
        self.out: dict[int, tuple[int, Thing]] = {}

    def over(self, number: int, use: int, thing: Thing, dead: Collection[int]) -> bool:
        """Every reader has let go, but for these that are dead (by their first words): whether it is over, or to be told again."""
        raise NotImplementedError

    def held(self) -> int:
        """How many are out that a reader has not let go of. Any thread."""
        words, stride = self.words, self._stride
        loans = tuple(self.out.items())
        return sum(any(words[first + number * stride] != use for first in self._firsts) for number, (use, _thing) in loans)

    def sweep(self) -> None:
        """End the loans that every reader has let go of."""
        if self.out:
            self._end(self._firsts)

    def _end(self, holders: list[int], dead: Collection[int] = ()) -> None:
        words, stride = self.words, self._stride
        for number, (use, thing) in list(self.out.items()):
            for first in holders:
                if words[first + number * stride] != use:
                    break
            else:
                # SYNC POINT loan: last read, NOTE, fence, its word | read its word, fence, read NOTE, overwrite.
                trust_fence()
                if self.over(number, use, thing, dead):
                    self.out.pop(number, None)

    def close(self, then: Callable[[], None] | None = None) -> None:
        """Lend no more; `sweep_closed` ends the loans that are out, and calls `then` when no reader holds anything. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._then = then
            self.sweep()
            if self.out or then is not None:
                _closed.append(self)
            else:
                self.words.release()

    def is_settled(self) -> bool:
        """After `close`: whether all is over."""
        words = self.words
        holders = [first for first in self._firsts if words[first - at.LINE_WORDS + at.HOLDS]]
        dead = [first for first in holders if has_died(words, first - at.LINE_WORDS)]
        holders = [first for first in holders if first not in dead]
        self._end(holders, dead)
        if self.out or (self._then is not None and holders):
            return False
        if self._then is not None:
            self._then()
        self.words.release()
        return True


_closed: list[RingLoans[Any]] = []
_sweeping = threading.Lock()


def sweep_closed() -> bool:
    """End the loans of closed writers that readers have let go of; whether none is left. Any thread, no finalizers."""
    if _closed and _sweeping.acquire(False):
        try:
            for loans in tuple(_closed):
                if loans.is_settled():
                    _closed.remove(loans)
        finally:
            _sweeping.release()
    return not _closed
