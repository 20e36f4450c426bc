"""Introductions: how a process of a session comes to a connection with another, or with the node. In every client.

Nobody but the node has a socket with a name: names in a directory can be taken away while a session lives. Two processes are connected by
the node, which makes a pair of sockets and gives an end to each.

::

    A ──INTRODUCE (X)──▶ node ──an end──▶ X, where it is taken in as if X had been called by name (`mray._ipc.listener.ChannelAcceptor`)
      ◀──INTRODUCED, an end──

Each process has two channels to the node for this, beside their conversation: one on which it asks, and one through which others come. They
are pairs of packet sockets that come with the node's WELCOME, as descriptors. Asking blocks the thread that asks, for as long as the node
takes: it runs no user code and answers at once, and if it dies the channel hangs up.

No lock is held meanwhile: a handler of a signal, or a finalizer, runs in the thread that asks, and may ask as well or want a lock of one
who does. Each thread takes its own answer; one that stays in front belongs to a thread that is held up so, and is laid aside for it.

An observer, which has no channels, is handed over instead: it connects to the node by name, says PASS_ON, and the node gives its very
connection to the process that it names.

Rejected: listeners without names, reached through ``/proc/<pid>/fd`` (a process that has given up rights may not be looked into), and
names in the abstract namespace, which are open to every user.
"""

from __future__ import annotations

import errno
import itertools
import marshal
import select
from collections.abc import Callable

from mray._common import messages as m
from mray._common.clock import monotonic, sleep
from mray._common.kept import os, socket
from mray._ipc.connection import Message, peer_is_ours, receive_fds
from mray._ipc.frames import decode_message
from mray._ipc.interrupts import InterruptGuard
from mray._ipc.limits import exhausted

#: Stands for the node in the place of a process.
NODE = ""
#: The name of its listener, in the session's directory.
NODE_SOCKET = "node.sock"
#: Descriptors that come with WELCOME: of the session's table, and of the channels for asking and for those who come.
_WELCOME_FDS = 3
_PACKET = 4096
_HEADER_BYTES = 4
#: Seconds after which a thread looks again whether it has been answered, and whether another has taken its answer.
_LOOK_SECONDS = 0.01
_MOMENT = 0.001


class Introductions:
    """The channels of this process, and how it asks for the others. Thread-safe."""

    def __init__(
        self, channel: socket.socket, incoming: socket.socket, guard: InterruptGuard, find: Callable[[OSError], Exception]
    ) -> None:
        """`incoming` is the other channel, which a reactor watches; `find`: the error to raise when this one fails (see
        `mray._ipc.closed_descriptors`).
        """
        self._channel = channel
        self._incoming = incoming
        self._find = find
        self._guard = guard
        self._left = False
        self._numbers = itertools.count(1)
        #: By question that somebody waits with: the answer and its descriptors, once they are there.
        self._answers: dict[int, list[tuple[Message, list[int]]]] = {}

    def to(self, process: str, timeout: float | None = None) -> tuple[socket.socket, int]:
        """A connection to a process, or to the `NODE`, and its pid.

        ConnectionRefusedError when there is no such process (any more); ConnectionResetError when the node is dead; TimeoutError when it
        has not answered after `timeout` seconds (None: it is waited for); another OSError when this process or the node has no
        descriptor for it.
        """
        pid, fds = self._ask(process, True, timeout)
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

    def _ask(self, process: str, connect: bool, timeout: float | None = None) -> tuple[int, list[int]]:
        deadline = monotonic() + (timeout or 0)
        number = next(self._numbers)
        answers = self._answers[number] = []
        try:
            if timeout is not None and not self._is_ready(select.POLLOUT, timeout):  # full of questions that it has not read
                raise _too_late(timeout)
            self._channel.send(marshal.dumps((m.INTRODUCE, number, process, connect)))
            in_front = 0
            while not answers:
                if timeout is not None and monotonic() > deadline:
                    raise _too_late(timeout)
                in_front = self._read(number, in_front)
            answer, fds = answers.pop()
        except ConnectionError:
            answer = ()
        except TimeoutError:
            raise
        except OSError as error:
            if self._left:
                raise ConnectionResetError(errno.ECONNRESET, "this process has left its session") from None
            raise self._find(error) from error
        finally:
            del self._answers[number]
            for _answer, unwanted in answers:  # an interrupt came with it
                _close(unwanted)
        if not answer:
            raise ConnectionResetError(errno.ECONNRESET, "the node process has ended")
        if answer[0] == m.INTRODUCED:
            return answer[2], fds
        raise OSError(*answer[2:])

    def _read(self, number: int, in_front: int) -> int:
        """Wait a moment, and take the answer that is in front unless another thread is about to; `in_front`: which one was, last time.

        Returns which one is. ConnectionResetError when the node is dead.
        """
        if not self._is_ready(select.POLLIN, _LOOK_SECONDS):
            return 0
        try:
            of = _number(self._channel.recv(_PACKET, socket.MSG_PEEK | socket.MSG_DONTWAIT))
            if of in (number, in_front) or of not in self._answers:
                packet, fds, _cut = receive_fds(self._channel, _PACKET, 1, socket.MSG_DONTWAIT)
                answers = self._answers.get(_number(packet))
                if answers is None:  # of one who was interrupted while he waited
                    _close(fds)
                else:
                    answers.append((decode_message(packet), fds))
                return 0
        except BlockingIOError:  # another thread was quicker
            return 0
        self._guard.sleep(sleep, _MOMENT)
        return of

    def _is_ready(self, event: int, seconds: float) -> bool:
        """Wait for the channel to be. One that is closed is: using it says so."""
        fd = self._channel.fileno()
        if fd < 0:
            return True
        poll = select.poll()
        poll.register(fd, event)
        return bool(self._guard.sleep(poll.poll, seconds * 1000))

    def close(self) -> None:
        """The process leaves its session, or is a fork of one that has. Closing twice is safe."""
        self._left = True
        self._channel.close()
        self._incoming.close()


def receive_welcome(sock: socket.socket) -> tuple[Message, list[int]]:
    """The first message of the node, and the descriptors that come with it. Blocks; EOFError when it hangs up.

    OSError when this process has no descriptors for them.
    """
    head, fds, _cut = receive_fds(sock, _HEADER_BYTES, _WELCOME_FDS)
    head += _exactly(sock, _HEADER_BYTES - len(head))
    message = decode_message(_exactly(sock, int.from_bytes(head, "little")))
    if message[0] == m.WELCOME and len(fds) != _WELCOME_FDS:
        _close(fds)
        raise exhausted(OSError(errno.EMFILE, ""), "There are none for the session's table and the channels to the node.")
    return message, fds


def _too_late(timeout: float) -> TimeoutError:
    return TimeoutError(f"the node process has not answered within {timeout:g} s")


def _number(packet: bytes) -> int:
    """Which question it answers."""
    if not packet:
        raise ConnectionResetError(errno.ECONNRESET, "")
    number: int = decode_message(packet)[1]
    return number


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


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
