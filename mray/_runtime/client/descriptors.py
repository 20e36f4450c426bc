"""Descriptors across processes: getting those of other processes, and giving out one's own.

In every client. A descriptor travels over a socket of its own: the asking process connects, sends DESCRIPTOR with a key, and gets it, the
hang-up of a process that has died, or the reason why there is none.

    ""                   the process's own doorbell
    "doorbell <ring>"        the doorbell that the readers of a ring share (`mray._runtime.client.wakeups`)
    the name of a segment  that the process offers (`mray._ipc.segment`), for processes that cannot open it by its name

The thread that reads answers, so a process that computes answers at once.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from mray._common import messages as m
from mray._common.kept import os, socket
from mray._ipc.connection import Connection, encode, receive_fds
from mray._ipc.frames import decode_message
from mray._ipc.limits import exhausted
from mray._ipc.segment import Ask, offered
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._runtime.connections.endpoint import Endpoint

#: The beginning of keys of shared doorbells.
DOORBELL = "doorbell "
#: Room for the frame that comes with a descriptor, or instead of it.
_ANSWER_BYTES = 4096
_HEADER_BYTES = 4


class Descriptors:
    """The descriptors that this process and others ask each other for."""

    def __init__(self, client: Endpoint, group_doorbell: Callable[[str], int]) -> None:
        """`group_doorbell` makes the descriptor of the doorbell of a ring that this process writes."""
        self._client = client
        self._group_doorbell = group_doorbell

    def fetch(self, process: str, key: str) -> tuple[int, int]:
        """A descriptor of another process, and that process's row in the table. Waits until it answers (or dies).

        FileNotFoundError if it has no such descriptor (any more), ConnectionError if it has ended, RaySystemError if its handler failed.
        """
        sock = self._client.connect(process)
        try:
            with contextlib.suppress(BrokenPipeError):  # it may have been refused before it has asked
                sock.sendall(encode((m.DESCRIPTOR, key)))
            data, fds, cut = receive_fds(sock, _ANSWER_BYTES, 1)
        finally:
            sock.close()
        if fds:
            return fds[0], int(data)
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
        """A function that gets segments from the process that offers them, this one included."""
        if process == self._client.process:
            return lambda name: os.dup(offered(name).fd)
        return lambda name: self.fetch(process, name)[0]

    def on_descriptor(self, connection: Connection, key: str) -> None:
        """DESCRIPTOR: send another process a descriptor of this one."""
        client = self._client
        try:
            if not key:
                fd = client.reactor.wakeup_fd
            elif key.startswith(DOORBELL):
                fd = self._group_doorbell(key.removeprefix(DOORBELL))
            else:
                descriptor = offered(key)  # held until it is sent
                fd = descriptor.fd
            socket.send_fds(connection.socket, [str(client.reactor.row).encode()], [fd])
        except FileNotFoundError as error:
            connection.send((m.REFUSED, error.errno, str(error)))
        except OSError:  # the asking process has died since
            pass
        connection.close()
