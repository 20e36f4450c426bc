"""Introductions: how a process of a session comes to a connection with another, or with the node. In every client.

Nobody but the node has a socket with a name: names in a directory can be taken away while a session lives. Two processes are connected by
the node, which makes a pair of sockets and gives an end to each.

::

    A ──INTRODUCE (X)──▶ node ──an end──▶ X, where it is taken in as if X had been called by name (`mray._ipc.listener.ChannelDoor`)
      ◀──INTRODUCED, an end──

Each process has two channels to the node for this, beside their conversation: one on which it asks, and one through which others come. They
are pairs of packet sockets that come with the node's WELCOME, as descriptors. Asking blocks the thread that asks, for as long as the node
takes: it runs no user code and answers at once, and if it dies the channel hangs up.

Who has no channels (an observer) is handed over instead: it connects to the node by name, says PASS_ON, and the node gives its very
connection to the process that it names.

Rejected: listeners without names, reached through ``/proc/<pid>/fd`` (a process that has given up rights may not be looked into), and
names in the abstract namespace, which are open to every user.
"""

from __future__ import annotations

import errno
import marshal
import os
import socket
import threading
from collections.abc import Callable

from mray._common import messages as m
from mray._ipc.connection import Message, peer_is_ours, receive_fds
from mray._ipc.frames import decode_message
from mray._ipc.limits import exhausted

#: Stands for the node in the place of a process.
NODE = ""
#: The name of its listener, in the session's directory.
NODE_SOCKET = "node.sock"
#: Descriptors that come with WELCOME: of the session's table, and of the channels for asking and for those who come.
_WELCOME_FDS = 3
_PACKET = 4096
_HEADER_BYTES = 4


class Introductions:
    """The channels of this process, and how it asks for the others. Thread-safe."""

    def __init__(self, channel: socket.socket, door: socket.socket, find: Callable[[OSError], Exception]) -> None:
        """`door` is the other channel, which a reactor watches; `find`: what to raise when this one fails (see `mray._ipc.torn`)."""
        self._channel = channel
        self._door = door
        self._find = find
        self._lock = threading.Lock()
        self._number = 0

    def to(self, process: str) -> tuple[socket.socket, int]:
        """A connection to a process, or to the `NODE`, and its pid.

        ConnectionRefusedError when there is no such process (any more); ConnectionResetError when the node is dead; another OSError when
        this process or the node has no descriptor for it.
        """
        pid, fds = self._ask(process, True)
        if not fds:
            raise exhausted(OSError(errno.EMFILE, ""), f"There is none for a connection to {_named(process)}.")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fds[0])
        if not peer_is_ours(sock):
            sock.close()
            raise PermissionError(f"the connection to {_named(process)} is of another user's making")
        return sock, pid

    def know(self, process: str) -> bool:
        """Whether the node knows a process, and has not yet taken away what it owned. False after the node's death."""
        try:
            self._ask(process, False)
        except OSError:
            return False
        return True

    def _ask(self, process: str, connect: bool) -> tuple[int, list[int]]:
        with self._lock:
            self._number += 1
            try:
                self._channel.send(marshal.dumps((m.INTRODUCE, self._number, process, connect)))
                while True:
                    packet, fds, _cut = receive_fds(self._channel, _PACKET, 1)
                    answer = decode_message(packet) if packet else ()
                    if not answer or answer[1] == self._number:
                        break
                    for fd in fds:  # of one who was interrupted while he waited
                        os.close(fd)
            except ConnectionError:
                answer = ()
            except OSError as error:
                raise self._find(error) from error
        if not answer:
            raise ConnectionResetError(errno.ECONNRESET, "the node process has ended")
        if answer[0] == m.INTRODUCED:
            return answer[2], fds
        raise OSError(*answer[2:])

    def close(self) -> None:
        """The process leaves its session. Closing twice is safe."""
        self._channel.close()
        self._door.close()

    def abandon(self) -> None:
        """In a forked child, whose reactor has closed what it watched."""
        self._channel.close()
        self._door.detach()


def receive_welcome(sock: socket.socket) -> tuple[Message, list[int]]:
    """What the node says first, and the descriptors that come with it. Blocks; EOFError when it hangs up.

    OSError when this process has no descriptors for them.
    """
    head, fds, _cut = receive_fds(sock, _HEADER_BYTES, _WELCOME_FDS)
    head += _exactly(sock, _HEADER_BYTES - len(head))
    message = decode_message(_exactly(sock, int.from_bytes(head, "little")))
    if message[0] == m.WELCOME and len(fds) != _WELCOME_FDS:
        for fd in fds:
            os.close(fd)
        raise exhausted(OSError(errno.EMFILE, ""), "There are none for the session's table and the channels to the node.")
    return message, fds


def _exactly(sock: socket.socket, size: int) -> bytes:
    """The next so many bytes."""
    data = bytearray()
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError("the node has hung up")
        data += more
    return bytes(data)


def _named(process: str) -> str:
    return f"process {process}" if process else "the node"
