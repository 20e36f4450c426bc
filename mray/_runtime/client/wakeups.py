"""Doorbells across processes, which travel as descriptors do (`mray._runtime.client.descriptors`).

A group doorbell (one for all readers of a ring) belongs to the ring's writer, and is created when the first of them opens its endpoint.

A process with few descriptors left (`mray._ipc.limits`) keeps none for another process's doorbell, and rings it by a semaphore. If the
writer or a reader of a ring has few, the readers are rung one by one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mray._common import settings
from mray._common.kept import os
from mray._ipc.doorbell import Doorbell, GroupDoorbell, new_wakeup_fd
from mray._ipc.limits import kept, lacks_descriptor
from mray._ipc.reaper import segment_prefix
from mray._ipc.semaphore import Relay, SemaphoreDoorbell
from mray._runtime.client.descriptors import DOORBELL, ONE_BY_ONE, SEMAPHORE, Descriptors
from mray._runtime.client.doorbells import Doorbells

if TYPE_CHECKING:
    from mray._ipc.segment import Ask
    from mray._runtime.connections.endpoint import Endpoint
    from mray._runtime.connections.ends import Ended


class Wakeups(Doorbells):
    def __init__(self, client: Endpoint) -> None:
        self._client = client
        client.ends.followers += (self.process_ended,)
        self.descriptors = Descriptors(client, self._answer)
        self._own: Doorbell | None = None
        self._others: dict[str, Doorbell] = {}
        #: Relays of processes that ring this one by semaphores.
        self._relays: dict[str, list[Relay]] = {}
        #: Doorbells of rings that this process writes, by the ring's name.
        self._groups: dict[str, GroupDoorbell] = {}

    def of(self, process: str) -> Doorbell:
        if process == self._client.process:
            if self._own is None:
                reactor = self._client.reactor
                assert reactor.table is not None
                self._own = Doorbell(os.dup(reactor.wakeup_fd), reactor.table, reactor.row)
            return self._own
        doorbell = self._others.get(process)
        if doorbell is None:
            doorbell = self._others[process] = self._open(process)
            if self._client.ends.of(process) is not None:  # it exited meanwhile
                self._others.pop(process, None)
        return doorbell

    def ask_of(self, process: str) -> Ask:
        return self.descriptors.ask_of(process)

    def _open(self, process: str) -> Doorbell:
        client, fetch = self._client, self.descriptors.fetch
        assert client.reactor.table is not None
        if not settings.SEMAPHORES.get():
            try:
                fd, row = fetch(process, "")
                return Doorbell(kept(fd), client.reactor.table, row)
            except OSError as error:
                if not lacks_descriptor(error):
                    raise
        asker = f"{SEMAPHORE}{client.process} "
        return SemaphoreDoorbell(self._prefix_of(client.process), client.reactor.table, lambda name: fetch(process, asker + name)[1])

    def _prefix_of(self, process: str) -> str:
        return f"{segment_prefix(self._client.info['session'])}{process}-"

    def _answer(self, key: str) -> int:
        if not key:
            return self._client.reactor.wakeup_fd
        if key.startswith(SEMAPHORE):
            process, _, name = key.removeprefix(SEMAPHORE).partition(" ")
            self._be_rung_by(process, name)
            return -1
        group = self._group(key.removeprefix(ONE_BY_ONE).removeprefix(DOORBELL))
        group.is_shared = group.is_shared and not key.startswith(ONE_BY_ONE)
        return group.fd if group.is_shared else -1

    def _be_rung_by(self, process: str, name: str) -> None:
        if not name.startswith(self._prefix_of(process)):
            raise FileNotFoundError(errno.ENOENT, "no semaphore of that process", name)
        self._relays.setdefault(process, []).append(Relay(name, self._client.reactor.wake))

    def join_group(self, writer: str, ring: str) -> Callable[[], None]:
        try:
            fd = self._fetch(writer, (ONE_BY_ONE if settings.SEMAPHORES.get() else DOORBELL) + ring)
        except OSError as error:
            if not lacks_descriptor(error):
                raise
            fd = self._fetch(writer, ONE_BY_ONE + ring)
        if fd >= 0:
            self._client.reactor.watch_wakeup(fd)
        return partial(self._leave_group, fd)

    def _fetch(self, process: str, key: str) -> int:
        if process != self._client.process:
            fd, _row = self.descriptors.fetch(process, key)
        else:
            own = self._answer(key)
            fd = own if own < 0 else os.dup(own)
        return fd if fd < 0 else kept(fd)

    def _leave_group(self, fd: int) -> None:
        if fd >= 0:
            self._client.reactor.unwatch_wakeup(fd)
            os.close(fd)

    def group(self, ring: str, doorbells: Sequence[Doorbell]) -> GroupDoorbell | None:
        group = self._group(ring)
        group.rings(doorbells)
        return group

    def _group(self, ring: str) -> GroupDoorbell:
        with self._client.lock:
            group = self._groups.get(ring)
            if group is None:
                try:
                    fd = -1 if settings.SEMAPHORES.get() else kept(new_wakeup_fd())
                except OSError:
                    fd = -1
                group = self._groups[ring] = GroupDoorbell(fd)
            return group

    def end_group(self, ring: str) -> None:
        with self._client.lock:
            group = self._groups.pop(ring, None)
        if group is not None:
            group.close()

    def end_relays(self) -> None:
        with self._client.lock:
            relays = [relay for each in self._relays.values() for relay in each]
            self._relays.clear()
        for relay in relays:
            relay.end()
        for relay in relays:
            relay.join()

    def process_ended(self, end: Ended) -> None:
        """Release the doorbell and the relays of a dead process. Rings keep theirs until they are closed."""
        self._others.pop(end.process, None)
        for relay in self._relays.pop(end.process, ()):
            relay.end()

    def left(self) -> None:
        for doorbell in self._others.values():
            doorbell.close()
        if self._own is not None:
            self._own.close()
            self._own = None
        for group in self._groups.values():
            group.close()
        self._groups.clear()
