"""The session's table: one row of words per process, each word written by one process only.

The node creates the table when the session starts, gives each joining process a row, and clears the row when the process is dead (from
then the node is its writer). Every process of the session maps the table; its descriptor comes with WELCOME.

    row = [ STATE | BYTES | POOLED | ... ]       a page

Each row is a page, and a process can write only to the page of its own row (`mray._ipc.own_row`): a wild write of its program to another
row is a SIGSEGV. It can write anything to its own row, so readers do not trust it: `impossible` names words that cannot be, for which
the node ends that process, and sums leave such words out.

STATE says whether the process sleeps: a peer that publishes something for it reads the word to learn whether to ring its doorbell, and a
process that would like to spin first counts the awake ones.
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
BYTES = 1  #: bytes of shared memory that the process holds for objects (in use and pooled)
POOLED = 2  #: ... of which without references
SPILLED = 3  #: bytes of spilled files of the process that are still needed
SPILLED_EVER = 4  #: ... and of all that it has written; row 0: of dead processes
SPILLED_OBJECTS = 5  #: ... and their number
LENT = 6  #: objects that the process owns and others hold, once per holder

HIGHEST = 7  #: row 0 only: rows given out so far

ABSENT = 0
AWAKE = 1
PARKED = 2  #: sleeps until an event, its doorbell included
DOZING = 3  #: sleeps, and none of its threads waits for a doorbell

#: An upper bound of bytes and objects of a process: an address, a negative number or a float that lands in a word is above it.
_MOST = 1 << 46
#: The names of the words that a process writes, by index.
_NAMES = ("STATE", "BYTES", "POOLED", "SPILLED", "SPILLED_EVER", "SPILLED_OBJECTS", "LENT")


class SessionTable:
    """The mapped table."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.rows = segment.size // PAGE
        self._descriptor = segment.descriptor
        #: All words; word w of row r is ``words[r * ROW_WORDS + w]``.
        self.words = segment.words()

    @classmethod
    def create(cls, name: str) -> SessionTable:
        """Create a table whose first rows have memory. `name` exists for a moment only: processes get the segment's descriptor.

        It has fewer rows where this process may not create so large a file.
        """
        rows, first = measures()
        return cls(Segment.anonymous(name, rows * PAGE, reserve=first * PAGE))

    @classmethod
    def of(cls, name: str, fd: int) -> SessionTable:
        """Map the table that is open as `fd`, and close it. Raises ValueError for another version."""
        segment = Segment.of(name, fd, writable=True)
        if not 2 * PAGE <= segment.size <= ROWS * PAGE:
            segment.close()
            raise ValueError(f"the table {name} has {segment.size} bytes, and at most {ROWS * PAGE} in this version: it is of another one")
        return cls(segment)

    def add_row(self, row: int) -> None:
        """Node only: reserve memory for a row. Raises OSError when there is none, or no such row."""
        if row >= self.rows:
            number = errno.EAGAIN if self.rows == ROWS else errno.EFBIG
            raise OSError(number, f"a session has {self.rows - 1} processes at most")
        if row >= _FIRST_ROWS:
            assert self._descriptor is not None
            os.posix_fallocate(self._descriptor.fd, row * PAGE, PAGE)

    def rows_in_use(self) -> int:
        """Rows up to the highest ever given out (recorded in row 0)."""
        return min(max(1, self.words[HIGHEST]), self.rows)

    def set_rows_in_use(self, rows: int) -> None:
        """Node only."""
        self.words[HIGHEST] = rows

    def clear(self, row: int) -> None:
        """Node only: the process of this row is dead. Its counts are added to row 0."""
        base = row * ROW_WORDS
        for word in (SPILLED_EVER, SPILLED_OBJECTS):
            self.words[word] += _possible(self.words[base + word])
        for word in range(LENT + 1):
            self.words[base + word] = 0

    def word(self, row: int, word: int) -> int:
        """A word of a row; 0 for an impossible one."""
        return _possible(self.words[row * ROW_WORDS + word])

    def total(self, word: int, rows: int) -> int:
        """Sum of a word over the first `rows` rows."""
        values: list[int] = self.words[word : rows * ROW_WORDS : ROW_WORDS].tolist()
        return sum(values if max(values) <= _MOST else map(_possible, values))

    def impossible(self, row: int) -> str:
        """The first impossible word of a row, as text; "" if there is none."""
        base = row * ROW_WORDS
        return wrong_word(self.words[base : base + len(_NAMES)])

    def awake(self, rows: int) -> int:
        """The number of the first `rows` processes that are not parked."""
        return self.words[STATE : rows * ROW_WORDS : ROW_WORDS].tolist().count(AWAKE)

    def close(self) -> None:
        self.words.release()
        self.segment.descriptor = self._descriptor = None
        self.segment.close()


def measures() -> tuple[int, int]:
    """Rows of a table that this process creates, and the number of those with memory from the start."""
    most, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = ROWS if most == resource.RLIM_INFINITY else min(ROWS, max(2, most // PAGE))
    return rows, min(rows, _FIRST_ROWS)


def wrong_word(words: Sequence[int]) -> str:
    """The name and the value of the first impossible word; "" if there is none."""
    for word, value in enumerate(words):
        if value > (DOZING if word == STATE else _MOST):
            return f"{_NAMES[word]} is {value:#x}"
    return ""


def _possible(value: int) -> int:
    return value if value <= _MOST else 0


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))
