"""The session's table: one row of words per process, each word written by one process only.

The node creates the table when the session starts, gives each process that joins a row, and clears the row when the
process is dead (it is the row's writer from then on). Every process of the session maps it; its descriptor comes with the WELCOME.

    row = [ STATE | BYTES | POOLED | ... ]       a page

Each row is a page of its own, and a process can write to that of its own row only (`mray._ipc.own_row`): a wild write of its program to
the row of another is its own SIGSEGV. To its own row it can write anything, so whoever reads a row does not trust it: `impossible` says
what cannot be, for which the node ends that process, and sums leave such words out.

STATE says whether the process sleeps: a peer that publishes something for it reads the word to learn whether to ring its doorbell, and a
process that would like to spin counts the awake ones first (spinning with more of them than cores makes everybody slower).
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Sequence

from mray._common.kept import os
from mray._ipc.segment import PAGE, Segment

ROW_WORDS = PAGE // 8
ROWS = 8192
#: Rows whose memory is there from the beginning.
_FIRST_ROWS = 64

STATE = 0  #: ABSENT, AWAKE, PARKED or DOZING; written by the process (by the node once it is dead)
BYTES = 1  #: bytes of shared memory that the process holds for objects (in use and pooled)
POOLED = 2  #: ... of which nothing refers to
SPILLED = 3  #: bytes of files that the process has written because memory was full, and that are needed still
SPILLED_EVER = 4  #: ... and of all that it has written; row 0: of processes that are dead
SPILLED_OBJECTS = 5  #: ... and how many these were
LENT = 6  #: objects that the process owns and others hold, once for each of these

HIGHEST = 7  #: row 0 only: rows given out so far

ABSENT = 0
AWAKE = 1
PARKED = 2  #: sleeps until something happens, its doorbell included
DOZING = 3  #: sleeps, and nobody in it waits for a doorbell

#: No process has so many bytes, or objects: an address, a negative number or a fraction that lands in a word is above it.
_MOST = 1 << 46
#: Of the words that a process writes, by their numbers.
_NAMES = ("STATE", "BYTES", "POOLED", "SPILLED", "SPILLED_EVER", "SPILLED_OBJECTS", "LENT")


class SessionTable:
    """The mapped table."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.rows = segment.size // PAGE
        self._descriptor = segment.descriptor
        #: All words; the word w of row r is ``words[r * ROW_WORDS + w]``.
        self.words = segment.words()

    @classmethod
    def create(cls, name: str) -> SessionTable:
        """`name` is for a moment: the table goes to its processes as the descriptor of its segment. The first rows have memory.

        It has fewer rows where this process may not make a file of so many.
        """
        rows, first = measures()
        return cls(Segment.anonymous(name, rows * PAGE, reserve=first * PAGE))

    @classmethod
    def of(cls, name: str, fd: int) -> SessionTable:
        """Map the table that is open as `fd`, which this closes; ValueError if it is that of another version."""
        segment = Segment.of(name, fd, writable=True)
        if not 2 * PAGE <= segment.size <= ROWS * PAGE:
            segment.close()
            raise ValueError(f"the table {name} has {segment.size} bytes, and at most {ROWS * PAGE} in this version: it is of another one")
        return cls(segment)

    def add_row(self, row: int) -> None:
        """Node only: see that a row has memory. OSError when there is none, or the table has no such row."""
        if row >= self.rows:
            number = errno.EAGAIN if self.rows == ROWS else errno.EFBIG
            raise OSError(number, f"a session has {self.rows - 1} processes at most")
        if row >= _FIRST_ROWS:
            assert self._descriptor is not None
            os.posix_fallocate(self._descriptor.fd, row * PAGE, PAGE)

    def rows_in_use(self) -> int:
        """Rows up to the highest that was ever given out (the node keeps it in its own row, row 0)."""
        return min(max(1, self.words[HIGHEST]), self.rows)

    def set_rows_in_use(self, rows: int) -> None:
        """Node only."""
        self.words[HIGHEST] = rows

    def clear(self, row: int) -> None:
        """Node only: the process of this row is dead. Its counts are added to the node's own row."""
        base = row * ROW_WORDS
        for word in (SPILLED_EVER, SPILLED_OBJECTS):
            self.words[word] += _possible(self.words[base + word])
        for word in range(LENT + 1):
            self.words[base + word] = 0

    def word(self, row: int, word: int) -> int:
        """A word of a row; 0 for what cannot be."""
        return _possible(self.words[row * ROW_WORDS + word])

    def total(self, word: int, rows: int) -> int:
        """Sum of a word over the first `rows` rows."""
        values: list[int] = self.words[word : rows * ROW_WORDS : ROW_WORDS].tolist()
        return sum(values if max(values) <= _MOST else map(_possible, values))

    def impossible(self, row: int) -> str:
        """The first impossible word of a row, in words; empty if there is none."""
        base = row * ROW_WORDS
        return wrong_word(self.words[base : base + len(_NAMES)])

    def awake(self, rows: int) -> int:
        """How many of the first `rows` processes are not parked."""
        return self.words[STATE : rows * ROW_WORDS : ROW_WORDS].tolist().count(AWAKE)

    def close(self) -> None:
        self.words.release()
        self.segment.descriptor = self._descriptor = None
        self.segment.close()


def measures() -> tuple[int, int]:
    """Rows of a table that this process makes, and how many of them have memory from the beginning."""
    most, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = ROWS if most == resource.RLIM_INFINITY else min(ROWS, max(2, most // PAGE))
    return rows, min(rows, _FIRST_ROWS)


def wrong_word(words: Sequence[int]) -> str:
    """The name and the value of the first of a row's words that no process of ours writes; empty if there is none."""
    for word, value in enumerate(words):
        if value > (DOZING if word == STATE else _MOST):
            return f"{_NAMES[word]} is {value:#x}"
    return ""


def _possible(value: int) -> int:
    return value if value <= _MOST else 0


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))
