"""`Ends`: the ends of the other processes of a session, as this process learns of them.

A connection's hang-up comes before the node's report (WORKER_GONE) and says less; so waiters for the process wait for the report, and
are notified once::

    the node's report                  ──▶ `Ended` with a cause
    a broken connection (`Endpoint`)   ──▶ `Ended` with an error: the process lives, and reads no more from this one
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mray._common.bridge import Cancel, nothing
from mray._common.causes import Cause
from mray._common.messages import CAUSE_CRASH
from mray._common.record import Record
from mray.exceptions import OwnerDiedError

#: The most ends, and the most breaks of connections, that are remembered.
MOST = 1000


class Ended(Record):
    """The end of a process, or of the connection to it."""

    process: str
    #: None while the process lives.
    cause: Cause | None = None
    #: A description of the process, if it is no worker.
    role: str = ""
    #: Why the connection has ended although the process lives.
    error: Exception | None = None

    def __str__(self) -> str:
        how = str(self.error) if self.cause is None else f"{self.role or 'its process'} {self.cause.how()}"
        return f"process {self.process}: {how}"


Callback = Callable[[Ended], None]


class Ends:
    """Ends by process, and their waiters. The client's lock is held, except for `of` and `owner_error`."""

    def __init__(self) -> None:
        #: The oldest first: role and packed cause, flat tuples that the garbage collector does not track.
        self._ended: dict[str, tuple[Any, ...]] = {}
        self._breaks: dict[str, Exception] = {}
        self._callbacks: dict[str, dict[Callback, None]] = {}
        #: Called in this order, perhaps repeatedly, to release what belongs to an ended process and fail its waiters.
        self.followers: tuple[Callback, ...] = ()

    def of(self, process: str) -> Ended | None:
        """None until the node reports the end, or if it was before this process joined."""
        record = self._ended.get(process)
        return None if record is None else Ended(process, Cause(*record[1:]), record[0])

    def then(self, process: str, callback: Callback) -> Cancel:
        """Call back once, with the lock, when a process has ended or the connection to it breaks: now, if it has ended.

        An equal callback replaces an earlier one. Returns the function that withdraws the callback, for use without the lock.
        """
        end = self.of(process)
        if end is not None:
            callback(end)
            return nothing
        self._callbacks.setdefault(process, {})[callback] = None
        return partial(self._forget, process, callback)

    def settle(self, end: Ended) -> None:
        """Call the followers, after the last messages of the process were read."""
        for follow in self.followers:
            follow(end)

    def _forget(self, process: str, callback: Callback) -> None:
        """Any thread, also a finalizer. An empty inner dict stays, because `then` may be about to add to it."""
        self._callbacks.get(process, {}).pop(callback, None)

    def tell(self, end: Ended) -> None:
        if end.cause is not None:
            _keep(self._ended, end.process, (end.role, *end.cause.packed()))
        else:
            _keep(self._breaks, end.process, end.error)
        for callback in tuple(self._callbacks.pop(end.process, ())):
            callback(end)

    def owner_error(self, process: str, object_id: bytes | None = None) -> OwnerDiedError:
        end = self.of(process)
        detail = f"Its owner, {end or f'process {process}'}." if process else ""
        if end is not None and end.cause is not None and end.cause.kind == CAUSE_CRASH:
            detail += f" {end.cause.text}".rstrip()
        if process in self._breaks:
            detail += f" The connection to it had broken before: {self._breaks[process]}"
        return OwnerDiedError(object_id.hex() if object_id else "", detail=detail)


def _keep(records: dict[str, Any], process: str, record: Any) -> None:
    records[process] = record
    if len(records) > MOST:
        del records[next(iter(records))]
