"""Doorbells across processes: getting those of others, and giving out one's own.

In every client. A bell is a descriptor, and a descriptor travels over a socket of its own: who wants it connects, says BELL, and gets it,
the hang-up of a process that has died, or word that it has no descriptor left to answer with.

A group bell (one for all readers of a ring) belongs to the ring's writer and has a key that both ends derive from the graph. It is made
when it is first asked for, by the writer or by a reader, whoever opens its end first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING

from mray._common import messages as m
from mray._ipc.connection import Connection, connect, encode
from mray._ipc.doorbell import Doorbell, new_bell_fd
from mray._ipc.frames import decode_message
from mray._ipc.limits import exhausted

if TYPE_CHECKING:
    from mray._runtime.client import Client

#: Room for what comes with a bell, or instead of it: a frame, which begins with its length.
_ANSWER_BYTES = 4096
_HEADER_BYTES = 4


class Bells:
    """The bells this process knows."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._others: dict[str, Doorbell] = {}
        #: Group bells of rings that this process writes, by key.
        self._groups: dict[str, int] = {}

    def of(self, process: str) -> Doorbell:
        """The bell of a process; OSError when it has gone. Waits until that process answers (or dies)."""
        bell = self._others.get(process)
        if bell is None:
            fd, row = self._fetch(process, "")
            assert self._client.reactor.table is not None
            bell = self._others[process] = Doorbell(fd, self._client.reactor.table, row)
        return bell

    def forget(self, process: str) -> None:
        """It is dead. Rings that it reads keep their bell until they are closed."""
        self._others.pop(process, None)

    def join_group(self, writer: str, key: str) -> int:
        """As a reader: the descriptor of a group bell, watched from now on. Close it by `leave_group`."""
        if writer == self._client.process:
            fd = os.dup(self.group(key))
        else:
            fd, _row = self._fetch(writer, key)
        self._client.reactor.watch_bell(fd)
        return fd

    def leave_group(self, fd: int) -> None:
        self._client.reactor.unwatch_bell(fd)
        os.close(fd)

    def group(self, key: str) -> int:
        """As the writer: the descriptor of a group bell of its own."""
        with self._client.lock:
            fd = self._groups.get(key)
            if fd is None:
                fd = self._groups[key] = new_bell_fd()
            return fd

    def end_group(self, key: str) -> None:
        """As the writer: the ring is closed."""
        with self._client.lock:
            fd = self._groups.pop(key, None)
        if fd is not None:
            os.close(fd)

    def _fetch(self, process: str, key: str) -> tuple[int, int]:
        """A descriptor from another process, and its row in the table."""
        sock = connect(self._client.address_of(process))
        try:
            with contextlib.suppress(BrokenPipeError):  # it may have been refused before it has asked
                sock.sendall(encode((m.BELL, key)))
            data, fds, flags, _address = socket.recv_fds(sock, _ANSWER_BYTES, 1)
        finally:
            sock.close()
        if fds:
            return fds[0], int(data)
        if flags & socket.MSG_CTRUNC:
            raise exhausted(OSError(errno.EMFILE, ""), f"There is none for the doorbell of process {process}.")
        if len(data) > _HEADER_BYTES and (message := decode_message(data[_HEADER_BYTES:]))[0] == m.REFUSED:
            raise OSError(*message[1:])
        raise ConnectionResetError(f"process {process} ended before it gave its doorbell")

    def on_bell(self, connection: Connection, key: str) -> None:
        """BELL: somebody asks for one of ours."""
        reactor = self._client.reactor
        fd = self.group(key) if key else reactor.bell_fd
        with contextlib.suppress(OSError):  # who asked has died since
            socket.send_fds(connection.socket, [str(reactor.row).encode()], [fd])
        connection.close()

    def close(self) -> None:
        """The process leaves its session."""
        for bell in self._others.values():
            bell.close()
        for fd in self._groups.values():
            os.close(fd)
        self._groups.clear()
