"""Whether to spin before sleeping, decided per process from what spinning has brought lately.

Spinning hands a message over in about two microseconds and sleeping in twenty to fifty, but a spinning process holds a core
that somebody else may need: with more awake processes than cores, spinning makes everybody slower. Two rules:

* *Count*: nobody spins while the session's table shows more awake processes than usable cores.
* *Learn*: a wait that did not end within the window was a failure. After a few in a row the process waits without spinning for
  a number of waits that doubles with each further failed trial, so that an actor in the middle of a long chain stops spinning
  and one that answers at once goes on.

The same object serves all waits of a process; it is not locked, for a lost update costs one wait at most.
"""

from __future__ import annotations

from collections.abc import Callable

from mray._ipc.table import SessionTable, usable_cores

#: Seconds a wait spins at most.
WINDOW = 100e-6
#: Failures in a row before spinning pauses.
PATIENCE = 3
#: Waits without spinning after the first such series, and at most.
PAUSE = 16
LONGEST_PAUSE = 512
#: Waits between two counts of the awake processes.
RECOUNT = 32


class Spinner:
    """One process's decision."""

    __slots__ = ("_allowed", "_cores", "_failures", "_pause", "_rows", "_table", "_until_count", "_waits", "window")

    def __init__(self, table: SessionTable, row: int, rows: Callable[[], int]) -> None:
        self._table = table
        self._rows = rows
        self._cores = usable_cores()
        self._allowed = self._cores > 1
        self._until_count = 0
        self._failures = 0
        self._pause = PAUSE
        self._waits = 0
        #: Seconds that a wait may spin.
        self.window = WINDOW

    def may_spin(self) -> bool:
        """Whether the wait that begins now should spin."""
        if self._waits:
            self._waits -= 1
            return False
        self._until_count -= 1
        if self._until_count < 0:
            self._until_count = RECOUNT
            self._allowed = self._cores > 1 and self._table.awake(self._rows()) <= self._cores
        return self._allowed

    def is_crowd(self, processes: int) -> bool:
        """Whether so many processes that pass messages among each other are too many for any of them to spin.

        Each would find its message within the window, and so learn to spin, on a core that the others need to send it.
        """
        return processes > self._cores

    def succeeded(self) -> None:
        """What was waited for came within the window."""
        self._failures = 0
        self._pause = PAUSE

    def failed(self) -> None:
        """It did not."""
        self._failures += 1
        self._until_count = 0
        if self._failures >= PATIENCE:
            self._failures = PATIENCE - 1
            self._waits = self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
