"""The session's table: one row of words per process, each word written by one process only.

The node creates the table, gives each joining process a row, and clears the row when the process is dead (and is its writer then). Its
descriptor comes with WELCOME.

    row = [ STATE | BYTES | POOLED | ... ]       a page

A process can write only to its own row (`mray._ipc.own_row`), but anything, so readers do not trust it: for an impossible word the node
ends the process, and sums leave it out.

Peers read STATE before they ring the process's doorbell; spinning processes count the awake ones.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Sequence

from mray._common.kept import os
from mray._ipc.segment import PAGE, Segment

ROW_WORDS = PAGE // 8
ROWS = 8192
#: Rows with memory from the start.
_FIRST_ROWS = 64

STATE = 0  #: ABSENT, AWAKE, PARKED or DOZING; written by the process, by the node once it is dead
BYTES = 1  #: of shared memory for objects (in use and pooled)
POOLED = 2  #: ... of which without references
SPILLED = 3  #: bytes of spilled files that are still needed
SPILLED_EVER = 4  #: ... of all that the process has written; row 0: of dead processes
SPILLED_OBJECTS = 5  #: ... and their number
LENT = 6  #: own objects that others hold, once per holder

HIGHEST = 7  #: row 0 only: rows given out so far

ABSENT = 0
AWAKE = 1
PARKED = 2  #: sleeps until an event, its doorbell included
DOZING = 3  #: sleeps, and none of its threads waits for a doorbell

#: Bounds bytes and objects of a process: an address, a negative number or a float is above it.
_MOST = 1 << 46
#: Words that a process writes, by index.
_NAMES = ("STATE", "BYTES", "POOLED", "SPILLED", "SPILLED_EVER", "SPILLED_OBJECTS", "LENT")


class SessionTable:
    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.rows = segment.size // PAGE
        self._descriptor = segment.descriptor
        #: Word w of row r is ``words[r * ROW_WORDS + w]``.
        self.words = segment.words()

    @classmethod
    def create(cls, name: str) -> SessionTable:
        """`name` exists for a moment only: processes get the descriptor. Fewer rows where this process may not create so large a file."""
        rows, first = measures()
        return cls(Segment.anonymous(name, rows * PAGE, reserve=first * PAGE))

    @classmethod
    def of(cls, name: str, fd: int) -> SessionTable:
        """Map the table that is open as `fd`, and close `fd`. Raises ValueError for another version."""
        segment = Segment.of(name, fd, writable=True)
        if not 2 * PAGE <= segment.size <= ROWS * PAGE:
            segment.close()
            raise ValueError(
                f"the table {name} has {segment.size} bytes, and at most {ROWS * PAGE} in this version: it belongs to another one"
            )
        return cls(segment)

    def add_row(self, row: int) -> None:
        """Node only: reserve memory. Raises OSError without memory, or such a row."""
        if row >= self.rows:
            number = errno.EAGAIN if self.rows == ROWS else errno.EFBIG
            raise OSError(number, f"a session has at most {self.rows - 1} processes")
        if row >= _FIRST_ROWS:
            assert self._descriptor is not None
            os.posix_fallocate(self._descriptor.fd, row * PAGE, PAGE)

    def rows_in_use(self) -> int:
        return min(max(1, self.words[HIGHEST]), self.rows)

    def set_rows_in_use(self, rows: int) -> None:
        """Node only."""
        self.words[HIGHEST] = rows

    def clear(self, row: int) -> None:
        """Node only: the process is dead; its counts are added to row 0."""
        base = row * ROW_WORDS
        for word in (SPILLED_EVER, SPILLED_OBJECTS):
            self.words[word] += _possible(self.words[base + word])
        for word in range(LENT + 1):
            self.words[base + word] = 0

    def word(self, row: int, word: int) -> int:
        """0 for an impossible word."""
        return _possible(self.words[row * ROW_WORDS + word])

    def total(self, word: int, rows: int) -> int:
        values: list[int] = self.words[word : rows * ROW_WORDS : ROW_WORDS].tolist()
        return sum(values if max(values) <= _MOST else map(_possible, values))

    def impossible(self, row: int) -> str:
        """The first impossible word, as text; "" if none."""
        base = row * ROW_WORDS
        return wrong_word(self.words[base : base + len(_NAMES)])

    def awake(self, rows: int) -> int:
        return self.words[STATE : rows * ROW_WORDS : ROW_WORDS].tolist().count(AWAKE)

    def close(self) -> None:
        self.words.release()
        self.segment.descriptor = self._descriptor = None
        self.segment.close()


def measures() -> tuple[int, int]:
    """Rows of a new table, and those with memory from the start."""
    most, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = ROWS if most == resource.RLIM_INFINITY else min(ROWS, max(2, most // PAGE))
    return rows, min(rows, _FIRST_ROWS)


def wrong_word(words: Sequence[int]) -> str:
    """Name and value of the first impossible word; "" if none."""
    for word, value in enumerate(words):
        if value > (DOZING if word == STATE else _MOST):
            return f"{_NAMES[word]} is {value:#x}"
    return ""


def _possible(value: int) -> int:
    return value if value <= _MOST else 0


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))
