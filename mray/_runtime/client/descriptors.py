"""Descriptors across processes: getting those of others, and giving out one's own.

In every client. A descriptor travels over a socket of its own: who wants it connects, says DESCRIPTOR and its key, and gets it, the
hang-up of a process that has died, or word why there is none.

    ""                   the process's own doorbell
    "doorbell <ring>"        the doorbell that the readers of a ring share (`mray._runtime.client.wakeups`)
    the name of a segment  that the process offers (`mray._ipc.segment`), for who does not find it by its name

Whoever reads answers, so a process that computes is asked without waiting for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from mray._common import messages as m
from mray._ipc.connection import Connection, encode, receive_fds
from mray._ipc.frames import decode_message
from mray._ipc.limits import exhausted
from mray._ipc.segment import Ask, offered
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._runtime.connections.endpoint import Endpoint

#: What keys of shared doorbells begin with.
BELL = "doorbell "
#: Room for what comes with a descriptor, or instead of it: a frame, which begins with its length.
_ANSWER_BYTES = 4096
_HEADER_BYTES = 4


class Descriptors:
    """What this process and others ask each other for."""

    def __init__(self, client: Endpoint, group_bell: Callable[[str], int]) -> None:
        """`group_bell`: the descriptor of the bell of a ring that this process writes."""
        self._client = client
        self._group_bell = group_bell

    def fetch(self, process: str, key: str) -> tuple[int, int]:
        """A descriptor from another process, and the row of that in the table. Waits until that process answers (or dies).

        FileNotFoundError if it has no such descriptor (any more), ConnectionError if it has ended, RaySystemError if it has failed at this.
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
            raise exhausted(OSError(errno.EMFILE, ""), f"There is none for what process {process} has sent.")
        if len(data) > _HEADER_BYTES:
            message = decode_message(data[_HEADER_BYTES:])
            if message[0] == m.REFUSED:
                raise OSError(*message[1:])
            if message[0] == m.FAULT:
                raise RaySystemError(f"Process {process} did not give a descriptor: {message[1]}")
        raise ConnectionResetError(f"process {process} ended before it gave a descriptor")

    def ask_of(self, process: str) -> Ask:
        """How to ask a process, this one included, for the segments that it offers."""
        if process == self._client.process:
            return lambda name: os.dup(offered(name).fd)
        return lambda name: self.fetch(process, name)[0]

    def on_descriptor(self, connection: Connection, key: str) -> None:
        """DESCRIPTOR: somebody asks for one of ours."""
        client = self._client
        try:
            if not key:
                fd = client.reactor.wakeup_fd
            elif key.startswith(BELL):
                fd = self._group_bell(key.removeprefix(BELL))
            else:
                descriptor = offered(key)  # held until it is sent
                fd = descriptor.fd
            socket.send_fds(connection.socket, [str(client.reactor.row).encode()], [fd])
        except FileNotFoundError as error:
            connection.send((m.REFUSED, error.errno, str(error)))
        except OSError:  # who asked has died since
            pass
        connection.close()
