"""The session's table: one row of words per process, each word written by one process only.

The node creates the table when the session starts, gives each process that joins a row, and clears the row when the
process is dead (it is the row's writer from then on). Every process of the session maps it; its descriptor comes with the WELCOME.

    row = [ STATE | BYTES | POOLED | ... ]       eight words

STATE says whether the process sleeps: a peer that publishes something for it reads the word to learn whether to ring its doorbell, and a
process that would like to spin counts the awake ones first (spinning with more of them than cores makes everybody slower).
"""

from __future__ import annotations

import os

from mray._ipc.segment import Segment

ROW_WORDS = 8
ROWS = 8192

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


class SessionTable:
    """The mapped table."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        #: All words; the word w of row r is ``words[r * ROW_WORDS + w]``.
        self.words = segment.words()

    @classmethod
    def create(cls, name: str) -> SessionTable:
        """`name` is for a moment: the table goes to its processes as the descriptor of its segment."""
        return cls(Segment.anonymous(name, ROWS * ROW_WORDS * 8))

    @classmethod
    def of(cls, name: str, fd: int) -> SessionTable:
        """Map the table that is open as `fd`, which this closes; ValueError if it is that of another version."""
        segment = Segment.of(name, fd, writable=True)
        if segment.size != ROWS * ROW_WORDS * 8:
            segment.close()
            raise ValueError(f"the table {name} has {segment.size} bytes and should have {ROWS * ROW_WORDS * 8}: it is of another version")
        return cls(segment)

    def rows_in_use(self) -> int:
        """Rows up to the highest that was ever given out (the node keeps it in its own row, row 0)."""
        return max(1, self.words[HIGHEST])

    def set_rows_in_use(self, rows: int) -> None:
        """Node only."""
        self.words[HIGHEST] = rows

    def clear(self, row: int) -> None:
        """Node only: the process of this row is dead. Its counts are added to the node's own row."""
        base = row * ROW_WORDS
        for word in (SPILLED_EVER, SPILLED_OBJECTS):
            self.words[word] += self.words[base + word]
        for word in range(ROW_WORDS):
            self.words[base + word] = 0

    def total(self, word: int, rows: int) -> int:
        """Sum of a word over the first `rows` rows."""
        return sum(self.words[word : rows * ROW_WORDS : ROW_WORDS].tolist())

    def awake(self, rows: int) -> int:
        """How many of the first `rows` processes are not parked."""
        return self.words[STATE : rows * ROW_WORDS : ROW_WORDS].tolist().count(AWAKE)

    def close(self) -> None:
        self.words.release()
        self.segment.descriptor = None
        self.segment.close()


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))
