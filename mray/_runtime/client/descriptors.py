"""File descriptors across processes: requesting those of other processes, and handing out one's own.

The requesting process opens a socket, sends DESCRIPTOR with a key, and receives the descriptor, the reason why there is none, or the
hang-up of a dead process. The reading thread answers, so a process that computes answers without delay.

  ""                   the process's own doorbell
  "doorbell <ring>"      the doorbell that the readers of a ring share (`mray._runtime.client.wakeups`)
  "one by one <ring>"    none: the readers of that ring are to be rung one by one
  "semaphore <process> <name>"    none: that process wakes this one by a semaphore (`mray._ipc.semaphore`)
  the name of a segment  that the process offers (`mray._ipc.segment`), for processes that cannot open it by its name
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from mray._common import messages as m
from mray._common.kept import os, socket
from mray._ipc.connection import SocketConnection, encode, receive_fds
from mray._ipc.frames import decode_message
from mray._ipc.limits import exhausted, is_exhausted
from mray._ipc.segment import Ask, offered
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._runtime.connections.endpoint import Endpoint

DOORBELL = "doorbell "
ONE_BY_ONE = "one by one "
SEMAPHORE = "semaphore "
#: Room for the frame with a descriptor, or instead of it.
_ANSWER_BYTES = 4096
_HEADER_BYTES = 4


class Descriptors:
    def __init__(self, client: Endpoint, doorbell: Callable[[str], int]) -> None:
        """`doorbell` answers the keys of doorbells: a descriptor, or -1."""
        self._client = client
        self._doorbell = doorbell
        client.from_peers.on({m.DESCRIPTOR: self._on_descriptor})

    def fetch(self, process: str, key: str) -> tuple[int, int]:
        """A descriptor of another process, or -1 if there is none, and that process's row in the table. Waits until it answers or dies.

        Raises FileNotFoundError if it has no such descriptor, ConnectionError if it has exited, RaySystemError if its handler failed.
        """
        sock = self._client.connect(process)
        try:
            with contextlib.suppress(BrokenPipeError):  # the request may be refused before it is sent
                sock.sendall(encode((m.DESCRIPTOR, key)))
            data, fds, cut = receive_fds(sock, _ANSWER_BYTES, 1)
        finally:
            sock.close()
        if fds:
            return fds[0], int(data)
        if data and not cut and len(data) <= _HEADER_BYTES:
            return -1, int(data)
        if cut:
            raise exhausted(OSError(errno.EMFILE, ""), f"There is none for the descriptor that process {process} has sent.")
        if len(data) > _HEADER_BYTES:
            message = decode_message(data[_HEADER_BYTES:])
            if message[0] == m.REFUSED:
                raise OSError(*message[1:])
            if message[0] == m.FAULT:
                raise RaySystemError(f"Process {process} did not give a descriptor: {message[1]}")
        raise ConnectionResetError(f"process {process} ended before it gave a descriptor")

    def ask_of(self, process: str) -> Ask:
        if process == self._client.process:
            return lambda name: os.dup(offered(name).fd)
        return lambda name: self.fetch(process, name)[0]

    def _on_descriptor(self, connection: SocketConnection, key: str) -> None:
        try:
            if not key or key.startswith((DOORBELL, ONE_BY_ONE, SEMAPHORE)):
                fd = self._doorbell(key)
            else:
                descriptor = offered(key)  # held until it is sent
                fd = descriptor.fd
            row = str(self._client.reactor.row).encode()
            if fd < 0:
                connection.socket.send(row)
            else:
                socket.send_fds(connection.socket, [row], [fd])
        except OSError as error:  # nothing more reaches a requesting process that has died
            text = exhausted(error, "It has none for another process.").strerror if is_exhausted(error) else str(error)
            connection.send((m.REFUSED, error.errno or errno.EIO, text))
        connection.close()
