"""Device tensors that one process lends another for an ordinary call, in device memory that both have mapped.

In every client; the counterpart of `mray._gpu.cuda_ipc` for actor calls, with the same `TensorExports` and `TensorImports`::

    holder                                                           receiver
    lend: copied into the pool ------------------ TENSORS_BROUGHT -> bring: tensors that are views of the same memory
    on_done: after that point the memory is     <- TENSORS_DONE ---- the last view dies: a point of the receiver's stream
             reused

A holder queues its copies on the stream that was current when the method returned, so they follow the kernels that created the tensor
and no host thread waits.

The exit of a receiver returns what it was lent (`Ledger`); what it has open of a holder is closed with the connection.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._decide.caller.ledger import Ledger
from mray._device.device import Platform
from mray._device.exports import ExportedMessage, ExportedTensor, TensorExports
from mray._device.imports import Awaited, TensorImports
from mray._device.platform import platform
from mray._device.timelines import Peers, Where, point_of, retire_later
from mray._inside.client import Connection

if TYPE_CHECKING:
    from mray._ipc.waiting_place import WaitingPlace

#: Loans of one holder that a receiver keeps before it copies further tensors.
MOST_KEPT = 1024


def streams_of(tensors: Sequence[Any]) -> dict[int, int]:
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
    """Context manager: make these this thread's current streams, by device index."""
    stack = ExitStack()
    found = platform()
    for index, stream in streams.items():
        assert found is not None
        stack.enter_context(found.devices[index].on_stream(stream))
    return stack


def device_index(tensor: Any) -> int:
    device = tensor.device
    return device if isinstance(device, int) else int(device.index)


class UnreachableError(RuntimeError):
    """No device of this process reaches a tensor's memory."""


class DeviceLoans:
    def __init__(self, reactor: WaitingPlace) -> None:
        self._reactor = reactor
        #: Guards exports and loans: the reading thread answers fetches, other messages end loans.
        self._lock = threading.RLock()
        self._exports: TensorExports | None = None
        self._numbers = 0
        #: The messages of the fetch being answered; messages on loan.
        self._loading: list[ExportedMessage] = []
        self._lent: Ledger[ExportedMessage] = Ledger()
        #: Messages returned as of a point that cannot be waited for yet.
        self._late: list[tuple[str, ExportedMessage, Where]] = []
        #: Receivers by process.
        self._peers: defaultdict[str, Peers] = defaultdict(Peers)
        #: One thread at a time unpickles, since received tensors are assembled in one place.
        self._bringing = threading.RLock()
        #: Keyed by the connection to the holder.
        self._imports: dict[Connection, TensorImports] = {}

    # ------------------------------------------------------------------------------------ as holder
    def lend(self, connection: Connection, tensors: list[Any], streams: dict[int, int]) -> tuple[list[ExportedTensor], list[int]]:
        """The facts of each tensor, and the number of each device's loan.

        Raises DeviceOutOfMemoryError, NotExportedError, RuntimeError for a tensor that requires grad.
        """
        found = platform()
        assert found is not None
        with self._lock, on_streams(streams):
            exports = self._exports
            if exports is None:
                exports = self._exports = TensorExports(found, self._load)
            self._loading = []
            info: list[ExportedTensor] = []
            is_lent = False
            try:
                for tensor in tensors:
                    export = exports.add(tensor)
                    assert export is not None, "there is a number for every loan"
                    info.append(export)
                is_lent = all(self._lent.lend(message, connection, message.lease) for message in self._loading)
            finally:
                exports.seal()
                if not is_lent:
                    for message in self._loading:
                        message.end()
            return info, [message.lease for message in self._loading]

    def _load(self, message: ExportedMessage) -> tuple[int, int]:
        self._numbers += 1
        self._loading.append(message)
        return self._numbers, 0

    def on_done(self, connection: Connection, number: int, note: bytes, point: int) -> None:
        with self._lock:
            message = self._lent.returned(connection, number)
            if message is None:
                return
            if note:
                self._late.append((connection.process, message, point_of(note, point)))
            else:
                message.end()
            self._late = [late for late in self._late if not late[1].end([late[2]], self._peers[late[0]])]

    # ------------------------------------------------------------------------------------ as receiver
    def bring(self, connection: Connection, exports: Sequence[ExportedTensor], numbers: Sequence[int]) -> tuple[list[Any], list[Awaited]]:
        """The lent tensors, and the points that streams must wait for.

        Raises `UnreachableError` when no device of this process reaches them, NotOpenedError when they cannot be opened.
        """
        brought: set[int] = set()
        try:
            found = platform()
            if found is None:
                raise UnreachableError("This process sees no device, and the tensors are on a device of another process.")
            with self._bringing:
                imports = self._imports_from(connection, found)
                tensors: list[Any] = []
                try:
                    for info in exports:
                        number, place = info[0], info[2]
                        if not any(device.can_access(place) for device in found.devices):
                            raise UnreachableError(f"This process has no device that can reach the memory of {place}, where a tensor lies.")
                        tensors.append(imports.bring(*info))
                        brought.add(number)
                    return tensors, imports.awaited
                finally:
                    imports.end_message()
        finally:
            self.refuse(connection, [number for number in numbers if number not in brought])

    def refuse(self, connection: Connection, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._return(connection, number, 0, b"", 0)

    def _imports_from(self, connection: Connection, found: Platform) -> TensorImports:
        imports = self._imports.get(connection)
        if imports is None:
            imports = self._imports[connection] = TensorImports(found, partial(self._return, connection), MOST_KEPT)
        return imports

    def _return(self, connection: Connection, number: int, _use: int, note: bytes, point: int) -> None:
        """In finalizers, too."""
        reactor = self._reactor

        def send() -> None:
            if not connection.closed:
                connection.post((m.TENSORS_DONE, number, note, point))
                reactor.post_later(connection)

        reactor.defer(send)

    # ------------------------------------------------------------------------------------ ends
    def hung_up(self, connection: Connection) -> None:
        imports = self._imports.pop(connection, None)
        if imports is not None:
            imports.close()

    def ended(self, process: str) -> None:
        """A process has exited, and its queued work with it."""
        with self._lock:
            for message in (*self._lent.ended(process), *(late[1] for late in self._late if late[0] == process)):
                message.end()
            self._late = [late for late in self._late if late[0] != process]
            if process in self._peers:
                retire_later(self._peers.pop(process))

    def close(self) -> None:
        for imports in self._imports.values():
            imports.close()
        self._imports.clear()
        with self._lock:
            self._lent, self._late = Ledger(), []
            while self._peers:
                retire_later(self._peers.popitem()[1])
            if self._exports is not None:
                self._exports.close()
                self._exports = None
