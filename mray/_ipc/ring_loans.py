"""Loans of a ring's writer: memory that lies in none of its slots, which readers may read until each has released it, or is dead.

    writer                                                   reader r
    lend(number, use, thing) ------ in a message ---------->  reads it
    sweep: every reader's word of the number is the use  <--  its word = use, when its last view dies

A use never repeats for one number. The words are RELEASED in `mray._ipc.slots`, ENDED in `mray._gpu.channel_leases`. Lender and borrower
may die between any two steps.

A loan outlives both ends of its ring, since a value that was read stays valid. Loans that are out when the writer closes stay in a list
of the process, until `sweep_closed` finds that every reader has released them or holds nothing. In the line before a reader's words,
HOLDS is one from its opening until it is closed and its last loan is dead; PID and STARTED identify its process, in case it dies before.
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

#: Above these: the pid namespace.
_PID_BITS = 32


def sign(words: memoryview, line: int) -> None:
    """Write this process's identity into a line, and set HOLDS."""
    words[line + at.PID] = kernel_pid() | namespace_mark() << _PID_BITS
    words[line + at.STARTED] = start_of(kernel_pid())
    publish_fence()
    words[line + at.HOLDS] = 1


def has_died(words: memoryview, line: int) -> bool:
    """Whether the process that signed a line has exited. False in another pid namespace, which cannot be checked."""
    mark, pid = divmod(words[line + at.PID], 1 << _PID_BITS)
    if mark and mark != namespace_mark():
        return False
    return is_dead((pid, words[line + at.STARTED]))


class RingLoans(Generic[Thing]):
    """One writer's loans. `firsts`: the index of each reader's word of number 0; `stride`: the distance between numbers."""

    __slots__ = ("_firsts", "_is_closed", "_stride", "_then", "out", "words")

    def __init__(self, words: memoryview, firsts: list[int], stride: int = 1) -> None:
        self.words = words
        self._firsts = firsts
        self._stride = stride
        self._is_closed = False
        self._then: Callable[[], None] | None = None
        #: Number -> (use, what is lent).
        self.out: dict[int, tuple[int, Thing]] = {}

    def over(self, number: int, use: int, thing: Thing, dead: Collection[int]) -> bool:
        """All readers, except these dead ones (by their first words), have released it. Returns whether the loan is over, or is to be
        reported again.
        """
        raise NotImplementedError

    def held(self) -> int:
        """Loans that a reader has not released. Any thread."""
        words, stride = self.words, self._stride
        loans = tuple(self.out.items())
        return sum(any(words[first + number * stride] != use for first in self._firsts) for number, (use, _thing) in loans)

    def sweep(self) -> None:
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
        """Lend no more; `sweep_closed` ends the loans that are out, then calls `then` when no reader holds anything. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._then = then
            self.sweep()
            if self.out or then is not None:
                _closed.append(self)
            else:
                self.words.release()

    def is_settled(self) -> bool:
        """Whether every loan is over. After `close`."""
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
    """End released loans of closed writers. Returns whether none is left. Any thread except finalizers."""
    if _closed and _sweeping.acquire(False):
        try:
            for loans in tuple(_closed):
                if loans.is_settled():
                    _closed.remove(loans)
        finally:
            _sweeping.release()
    return not _closed
