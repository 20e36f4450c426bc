"""Doorbells across processes. In every client; they come and go as descriptors do (`mray._runtime.client.descriptors`).

A group doorbell (one for all readers of a ring) belongs to the ring's writer, and its name follows from the graph at both ends. It is made
when the writer or a reader, the first of them, opens its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mray._common.kept import os
from mray._ipc.doorbell import Doorbell, new_wakeup_fd
from mray._runtime.client.descriptors import DOORBELL, Descriptors

if TYPE_CHECKING:
    from mray._runtime.connections.endpoint import Endpoint
    from mray._runtime.connections.ends import Ended


class Wakeups:
    """The doorbells that this process rings, and those that it makes for rings."""

    def __init__(self, client: Endpoint) -> None:
        self._client = client
        self.descriptors = Descriptors(client, self.group)
        self._others: dict[str, Doorbell] = {}
        #: Group doorbells of rings that this process writes, by the ring's name.
        self._groups: dict[str, int] = {}

    def of(self, process: str) -> Doorbell:
        """The doorbell of a process; OSError when it has gone. Waits until that process answers (or dies)."""
        doorbell = self._others.get(process)
        if doorbell is None:
            fd, row = self.descriptors.fetch(process, "")
            assert self._client.reactor.table is not None
            doorbell = self._others[process] = Doorbell(fd, self._client.reactor.table, row)
            with self._client.lock:
                self._client.ends.then(process, self._forget)
        return doorbell

    def _forget(self, end: Ended) -> None:
        """Let go of the doorbell of a dead process. Rings that it reads keep theirs until they are closed."""
        self._others.pop(end.process, None)

    def join_group(self, writer: str, ring: str) -> int:
        """The descriptor of a group doorbell for a reader, watched from now on. Close it by `leave_group`."""
        if writer == self._client.process:
            fd = os.dup(self.group(ring))
        else:
            fd, _row = self.descriptors.fetch(writer, DOORBELL + ring)
        self._client.reactor.watch_wakeup(fd)
        return fd

    def leave_group(self, fd: int) -> None:
        self._client.reactor.unwatch_wakeup(fd)
        os.close(fd)

    def group(self, ring: str) -> int:
        """The descriptor of a group doorbell for its writer."""
        with self._client.lock:
            fd = self._groups.get(ring)
            if fd is None:
                fd = self._groups[ring] = new_wakeup_fd()
            return fd

    def end_group(self, ring: str) -> None:
        """Close a group doorbell; its writer has closed the ring."""
        with self._client.lock:
            fd = self._groups.pop(ring, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Close all doorbells: the process leaves its session."""
        for doorbell in self._others.values():
            doorbell.close()
        for fd in self._groups.values():
            os.close(fd)
        self._groups.clear()
