"""Tensors of devices that one process lends another for an ordinary call, in device memory that both have mapped.

In every client; the counterpart of `mray._channel.cuda_ipc` for actor calls, with the same `Departures` and `Arrivals`::

    holder                                                           receiver
    lend: copied into the pool ------------------ TENSORS_BROUGHT -> bring: tensors that are views of the same memory
    on_done: the stream waits for that point,   <- TENSORS_DONE ---- the last view dies: a point of the receiver's stream
             and the memory is used again

A holder queues its copies on the stream that was current when the method returned. So they come after the kernels that made the tensor and
before later work of the method's thread on that stream, and no thread of the host waits.

A loan belongs to the connection that it was made on: its end is the end of the loan, on both sides. Streams that wait for what the process
at the other end did not live to do go on (`mray._device.mappings`), also while the thread that reads waits within the driver.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._device.arrivals import Arrivals, Awaited, point_of
from mray._device.departures import DepartureFacts, Departures, Shipment
from mray._device.device import Platform
from mray._device.platform import platform
from mray._device.timelines import Peers, retire_later
from mray._ipc.connection import Connection

if TYPE_CHECKING:
    from mray._ipc.reactor import Reactor

#: Loans that a receiver keeps of one holder; it copies further tensors.
MOST_KEPT = 1024


def streams_of(tensors: Sequence[Any]) -> dict[int, int]:
    """The current stream of each device that has one of the tensors, by its index."""
    found = platform()
    streams: dict[int, int] = {}
    if found is not None:
        for tensor in tensors:
            if found.is_tensor(tensor):
                index = device_index(tensor)
                if index not in streams:
                    streams[index] = found.devices[index].current_stream()
    return streams


def on_streams(streams: dict[int, int]) -> ExitStack:
    """Make these the current streams of this thread while entered, by index of the device."""
    stack = ExitStack()
    found = platform()
    for index, stream in streams.items():
        assert found is not None
        stack.enter_context(found.devices[index].on_stream(stream))
    return stack


def device_index(tensor: Any) -> int:
    """The index of a tensor's device."""
    device = tensor.device
    return device if isinstance(device, int) else int(device.index)


class UnreachableError(RuntimeError):
    """Raised when no device of this process reaches a tensor's memory."""


class _Loans:
    """The loans of the process at the other end of a connection: lease to (use, shipment)."""

    __slots__ = ("late", "lent", "peers", "spare")

    def __init__(self) -> None:
        self.lent: dict[int, tuple[int, Shipment]] = {}
        #: Ends that could not be heeded yet.
        self.late: list[tuple[int, int, bytes]] = []
        #: Numbers of leases that have ended, to be used again.
        self.spare: list[int] = []
        #: The receiver, for which streams wait.
        self.peers = Peers()

    def end(self, lease: int, use: int, note: bytes) -> None:
        if lease not in self.lent or self.lent[lease][0] != use:
            return
        point = point_of(note)
        if not self.lent[lease][1].end([] if point is None else [point], self.peers):
            self.late.append((lease, use, note))
            return
        del self.lent[lease]
        self.spare.append(lease)
        late, self.late = self.late, []
        for each in late:
            self.end(*each)

    def end_all(self) -> None:
        """End all loans of a dead receiver, whose queued work has ended too."""
        for lease, (use, _shipment) in list(self.lent.items()):
            self.end(lease, use, b"")
        retire_later(self.peers)


class DeviceLoans:
    """The loans of one process, as holder and as receiver."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        #: Guards departures and loans: the thread that reads answers fetches, and other messages end loans.
        self._lock = threading.RLock()
        self._departures: Departures | None = None
        self._uses = 0
        #: The shipments of the fetch that is being answered.
        self._loading: list[tuple[Shipment, int, int]] = []
        self._loans: _Loans | None = None
        #: By the connection to the receiver.
        self._of_peers: dict[Connection, _Loans] = {}
        #: One thread at a time unpickles: arrivals are put together in one place.
        self._bringing = threading.RLock()
        #: By the connection to the holder.
        self._arrivals: dict[Connection, Arrivals] = {}

    # ------------------------------------------------------------------------------------ as holder
    def lend(
        self, connection: Connection, tensors: list[Any], streams: dict[int, int]
    ) -> tuple[list[DepartureFacts], list[tuple[int, int]]]:
        """The facts of each tensor for the receiver at the other end, and (lease, use) of each device.

        Raises DeviceOutOfMemoryError, NotExportedError, RuntimeError for a tensor that requires grad.
        """
        found = platform()
        assert found is not None
        with self._lock, on_streams(streams):
            departures = self._departures
            if departures is None:
                departures = self._departures = Departures(found, self._lease)
            self._loans = self._of_peers.get(connection)
            if self._loans is None:
                self._loans = self._of_peers[connection] = _Loans()
            self._loading = []
            facts: list[DepartureFacts] = []
            try:
                for tensor in tensors:
                    departure = departures.add(tensor)
                    assert departure is not None, "there is a lease for every loan"
                    facts.append(departure)
            except BaseException:
                departures.seal()
                for shipment, lease, _use in self._loading:
                    self._loans.spare.append(lease)
                    shipment.end()
                raise
            departures.seal()
            for shipment, lease, use in self._loading:
                self._loans.lent[lease] = use, shipment
            return facts, [(lease, use) for _shipment, lease, use in self._loading]

    def _lease(self, shipment: Shipment) -> tuple[int, int]:
        assert self._loans is not None
        self._uses += 1
        loans = self._loans
        lease = loans.spare.pop() if loans.spare else len(loans.lent) + len(self._loading)
        self._loading.append((shipment, lease, self._uses))
        return lease, self._uses

    def on_done(self, connection: Connection, lease: int, use: int, note: bytes) -> None:
        """TENSORS_DONE."""
        with self._lock:
            loans = self._of_peers.get(connection)
            if loans is not None:
                loans.end(lease, use, note)

    # ------------------------------------------------------------------------------------ as receiver
    def bring(
        self, connection: Connection, departures: Sequence[DepartureFacts], leases: Sequence[tuple[int, int]]
    ) -> tuple[list[Any], list[Awaited]]:
        """The tensors that were lent, and the points that streams wait for to use them.

        Raises `UnreachableError` when no device of this process reaches them, NotOpenedError when they cannot be opened.
        """
        brought: set[int] = set()
        try:
            found = platform()
            if found is None:
                raise UnreachableError("This process sees no device, and the tensors are on one of another process.")
            with self._bringing:
                arrivals = self._arrivals_from(connection, found)
                tensors: list[Any] = []
                try:
                    for facts in departures:
                        lease, place = facts[0], facts[2]
                        if not any(device.can_access(place) for device in found.devices):
                            raise UnreachableError(f"This process has no device that can reach the memory of {place}, where a tensor lies.")
                        tensors.append(arrivals.bring(*facts))
                        brought.add(lease)
                    return tensors, arrivals.awaited
                finally:
                    arrivals.end_message()
        finally:
            self.refuse(connection, [lease for lease in leases if lease[0] not in brought])

    def refuse(self, connection: Connection, leases: Sequence[tuple[int, int]]) -> None:
        """End loans of tensors that this process has not opened."""
        for lease, use in leases:
            self._release(connection, lease, use, b"")

    def _arrivals_from(self, connection: Connection, found: Platform) -> Arrivals:
        arrivals = self._arrivals.get(connection)
        if arrivals is None:
            arrivals = self._arrivals[connection] = Arrivals(found, partial(self._release, connection), MOST_KEPT)
        return arrivals

    def _release(self, connection: Connection, lease: int, use: int, note: bytes) -> None:
        """In finalizers, too."""
        reactor = self._reactor

        def send() -> None:
            if not connection.closed:
                connection.post((m.TENSORS_DONE, lease, use, note))
                reactor.post_later(connection)

        reactor.defer(send)

    # ------------------------------------------------------------------------------------ ends
    def peer_gone(self, connection: Connection) -> None:
        """The process at the other end has died."""
        with self._lock:
            loans = self._of_peers.pop(connection, None)
            if loans is not None:  # else the session is over, or there were none
                loans.end_all()
        arrivals = self._arrivals.pop(connection, None)
        if arrivals is not None:
            arrivals.close()

    def close(self) -> None:
        """The session is over."""
        for arrivals in self._arrivals.values():
            arrivals.close()
        self._arrivals.clear()
        with self._lock:
            while self._of_peers:
                retire_later(self._of_peers.popitem()[1].peers)
            if self._departures is not None:
                self._departures.close()
                self._departures = None
