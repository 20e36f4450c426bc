"""Introductions: how a process of a session connects to another, or to the node.

Only the node has a named socket, since names can be removed while a session lives. It connects two processes by a pair of sockets.

::

    A ──INTRODUCE (X)──▶ node ──an end──▶ X, which accepts it as if A had connected to it (`mray._ipc.listener.ChannelAcceptor`)
      ◀──INTRODUCED, an end──

Each process has two channels to the node for this: it asks on one, and receives ends on the other. Asking blocks the calling thread
until the node has answered; if the node dies the channel hangs up.

No lock is held meanwhile: a signal handler or a finalizer may run in the thread that asks, and ask as well or want a lock of another
asking thread. Each thread takes its own answer; an answer that stays in front belongs to a thread that is blocked this way, and is set
aside for it.

An observer has no channels: it connects to the node and sends PASS_ON, and the node hands that connection over.

Rejected: listeners without names, reached through ``/proc/<pid>/fd`` (access may be denied); names in the abstract namespace (open to
every user).
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
from mray._ipc.connection import Message, connect, peer_is_ours, receive_fds
from mray._ipc.frames import decode_message
from mray._ipc.interrupts import InterruptGuard
from mray._ipc.limits import exhausted
from mray._ipc.reaper import NODE_SOCKET

#: Stands for the node.
NODE = ""
#: With WELCOME: the session's table, the channel for asking, the channel for incoming connections.
_WELCOME_FDS = 3
_PACKET = 4096
_HEADER_BYTES = 4
#: Seconds between checks for the answer, which another thread may have taken.
_LOOK_SECONDS = 0.01
_MOMENT = 0.001


def connect_to_node(directory: str) -> socket.socket:
    """Connect to the node. Errors as `connect`."""
    return connect(os.path.join(directory, NODE_SOCKET))


class Introductions:
    """Asks the node for connections. Thread-safe."""

    def __init__(
        self, channel: socket.socket, incoming: socket.socket, guard: InterruptGuard, find: Callable[[OSError], Exception]
    ) -> None:
        """`incoming` is watched by a reactor; `find` returns the error to raise when a channel fails."""
        self._channel = channel
        self._incoming = incoming
        self._find = find
        self._guard = guard
        self._left = False
        self._numbers = itertools.count(1)
        #: Question number -> answer and descriptors, once they have arrived.
        self._answers: dict[int, list[tuple[Message, list[int]]]] = {}

    def to(self, process: str, timeout: float | None = None) -> tuple[socket.socket, int]:
        """A connection to a process, or to the `NODE`, and its pid.

        Raises ConnectionRefusedError when the process does not exist; ConnectionResetError when the node is dead; TimeoutError after
        `timeout` seconds (None: no limit); another OSError when a descriptor is lacking.
        """
        pid, fds = self._ask(process, True, timeout)
        if not fds:
            raise exhausted(OSError(errno.EMFILE, ""), f"There is none for a connection to {_named(process)}.")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fds[0])
        if not peer_is_ours(sock):
            sock.close()
            raise PermissionError(f"the connection to {_named(process)} belongs to another user")
        return sock, pid

    def know(self, process: str) -> bool:
        """Whether the node knows a process, and has not removed yet what it owned. False after the node's death."""
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
            if timeout is not None and not self._is_ready(select.POLLOUT, timeout):  # full of unread questions
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
            for _answer, unwanted in answers:  # an interrupt arrived with it
                _close(unwanted)
        if not answer:
            raise ConnectionResetError(errno.ECONNRESET, "the node process has ended")
        if answer[0] == m.INTRODUCED:
            return answer[2], fds
        raise OSError(*answer[2:])

    def _read(self, number: int, in_front: int) -> int:
        """Wait a moment, and take the front answer unless another thread is about to. Returns the number in front, to be passed as
        `in_front`. Raises ConnectionResetError.
        """
        if not self._is_ready(select.POLLIN, _LOOK_SECONDS):
            return 0
        try:
            of = _number(self._channel.recv(_PACKET, socket.MSG_PEEK | socket.MSG_DONTWAIT))
            if of in (number, in_front) or of not in self._answers:
                packet, fds, _cut = receive_fds(self._channel, _PACKET, 1, socket.MSG_DONTWAIT)
                answers = self._answers.get(_number(packet))
                if answers is None:  # of an interrupted thread
                    _close(fds)
                else:
                    answers.append((decode_message(packet), fds))
                return 0
        except BlockingIOError:  # another thread was quicker
            return 0
        self._guard.sleep(sleep, _MOMENT)
        return of

    def _is_ready(self, event: int, seconds: float) -> bool:
        """A closed channel is ready: using it raises."""
        fd = self._channel.fileno()
        if fd < 0:
            return True
        poll = select.poll()
        poll.register(fd, event)
        return bool(self._guard.sleep(poll.poll, seconds * 1000))

    def close(self) -> None:
        """Idempotent."""
        self._left = True
        self._channel.close()
        self._incoming.close()


def receive_welcome(sock: socket.socket) -> tuple[Message, list[int]]:
    """The node's first message and its descriptors. Blocks; raises EOFError when the node hangs up, OSError when descriptors are
    lacking.
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
    if not packet:
        raise ConnectionResetError(errno.ECONNRESET, "")
    number: int = decode_message(packet)[1]
    return number


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError("the node has hung up")
        data += more
    return bytes(data)


def _named(process: str) -> str:
    return f"process {process}" if process else "the node"
