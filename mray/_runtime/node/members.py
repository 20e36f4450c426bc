"""The processes that have joined a session: their connections, and their rows in the session's table. On the node's one thread."""

from __future__ import annotations

from mray._ipc.connection import Connection
from mray._ipc.table import LENT, SessionTable


class Members:
    """A process has its connection until it hangs up, and its row until it is forgotten."""

    def __init__(self, table: SessionTable) -> None:
        self.table = table
        self.connections: dict[str, Connection] = {}
        self._row_of: dict[str, int] = {}
        #: Row 0 is the node's own.
        self._rows = 1
        self._free: list[int] = []
        table.set_rows_in_use(1)

    def join(self, process: str, connection: Connection) -> int:
        """Add a process; returns its row. Raises OSError when there is no memory for it."""
        row = self._free.pop() if self._free else self._rows
        if row == self._rows:
            self.table.add_row(row)
            self._rows += 1
            self.table.set_rows_in_use(self._rows)
        self.connections[process] = connection
        self._row_of[process] = row
        return row

    def forget(self, process: str) -> None:
        """Free the row, if it had one, of a process that has exited."""
        row = self._row_of.pop(process, None)
        if row is not None:
            self.table.clear(row)
            self._free.append(row)

    def __contains__(self, process: str) -> bool:
        return process in self._row_of

    def word(self, process: str, column: int) -> int:
        """A word of a process's row; 0 if it has none."""
        row = self._row_of.get(process)
        return 0 if row is None else self.table.word(row, column)

    def impossible(self, process: str) -> str:
        """The first impossible word in a process's row, as text; "" if there is none."""
        row = self._row_of.get(process)
        return "" if row is None else self.table.impossible(row)

    def total(self, column: int) -> int:
        """The sum of a column over all members, and over dead processes where row 0 has theirs."""
        return self.table.total(column, self._rows)

    def is_lending(self, process: str) -> bool:
        return bool(self.word(process, LENT))
