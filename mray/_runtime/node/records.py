"""The node's records of its session beside the scheduler's. On its one thread."""

from __future__ import annotations

from mray._common.history import History
from mray._decide.scheduler.policy import DEAD_RECORD_BYTES, DEAD_RECORDS
from mray._ipc.output import WrittenParts
from mray._ipc.table import SessionTable
from mray._runtime.node.jobs import Jobs
from mray._runtime.node.key_values import KeyValues
from mray._runtime.node.last_calls import LastCalls
from mray._runtime.node.members import Members


class NodeRecords:
    """The members, jobs, values and dead workers of a session."""

    def __init__(self, table: SessionTable) -> None:
        self.members = Members(table)
        self.jobs = Jobs()
        self.key_values = KeyValues()
        self.dead_workers = History(DEAD_RECORDS, DEAD_RECORD_BYTES)
        self.last_calls = LastCalls()
        #: Of the files in ``logs``, which outlive a session reset.
        self.written = WrittenParts()

    def forget_the_dead(self) -> None:
        """Drop records of the time before a session reset: the driver's next client must not see them."""
        self.key_values.clear()
        self.dead_workers.clear()
        self.last_calls.clear()
