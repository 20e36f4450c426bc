"""The node's part of introductions (see `mray._ipc.introductions`): it creates every connection between two processes of the session.

On the node's one thread. It gives both ends of a connection away immediately, and keeps two channels for each process. For a stopped
process, connections and answers wait in its channel, and in a queue here when that is full.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import select
from collections import deque
from collections.abc import Callable
from functools import partial

from mray._common import messages as m
from mray._common.kept import os, socket
from mray._common.protocol import misfit
from mray._ipc.connection import SocketConnection
from mray._ipc.frames import decode_message
from mray._ipc.introductions import NODE
from mray._ipc.limits import above_limit, advice, is_exhausted
from mray._ipc.reactor import Reactor

_PACKET = 4096
#: The kernel passes descriptors with at least one byte.
_KNOCK = b"."

Pair = tuple[socket.socket, socket.socket]


class _Channel:
    """The node's end of a channel, and the packets that wait while it is full."""

    __slots__ = ("_reactor", "_waiting", "end")

    def __init__(self, reactor: Reactor, end: socket.socket) -> None:
        self._reactor = reactor
        self.end = end
        self._waiting: deque[tuple[bytes, socket.socket | None]] = deque()

    def send(self, packet: bytes, passed: socket.socket | None = None) -> None:
        """Send a packet, with a descriptor of this socket. Raises OSError when the process is dead, or no descriptor can be passed."""
        if not self._waiting:
            with contextlib.suppress(BlockingIOError):
                self._pass(packet, passed)
                return
        self._waiting.append((packet, passed and passed.dup()))
        self._reactor.watch_writable(self.end.fileno(), True)

    def _pass(self, packet: bytes, passed: socket.socket | None) -> None:
        if passed is None:
            self.end.send(packet)
        else:
            socket.send_fds(self.end, [packet], [passed.fileno()])

    def writable(self) -> None:
        while self._waiting:
            packet, passed = self._waiting[0]
            try:
                self._pass(packet, passed)
            except BlockingIOError:
                return
            except OSError as error:  # the process is dead, or the other end of the connection sees the hang-up
                if is_exhausted(error) and packet != _KNOCK:  # the asking process learns it with the answer
                    self._waiting.insert(1, (packet, None))
            self._waiting.popleft()
            if passed is not None:
                passed.close()
        self._reactor.watch_writable(self.end.fileno(), False)

    def close(self) -> None:
        self._reactor.forget(self.end.fileno())
        self.end.close()
        for _packet, passed in self._waiting:
            if passed is not None:
                passed.close()


class _Member:
    """A process, and the node's ends of its two channels."""

    __slots__ = ("asks", "door", "pid", "process", "theirs")

    def __init__(self, reactor: Reactor, process: str) -> None:
        self.process = process
        ours, asks = _new_pair()
        self.asks = _Channel(reactor, ours)
        try:
            ours, door = _new_pair()
        except OSError:
            self.asks.close()
            asks.close()
            raise
        self.door = _Channel(reactor, ours)
        #: The other ends, until the process has them.
        self.theirs: tuple[socket.socket, ...] = (asks, door)
        #: 0 until it has joined.
        self.pid = 0

    def close(self) -> None:
        self.asks.close()
        self.door.close()
        for sock in self.theirs:
            sock.close()


class Introducer:
    """The channels of all processes of the session."""

    def __init__(self, reactor: Reactor, meet: Callable[[socket.socket], SocketConnection]) -> None:
        """`meet` takes the node's own ends of connections."""
        self._reactor = reactor
        self._meet = meet
        self._members: dict[str, _Member] = {}
        #: Process -> the processes that it was connected with, until `part`.
        self._met: dict[str, set[str]] = {}

    def new_connection(self, process: str) -> socket.socket:
        """Connect the node with a worker that is about to be started; returns the worker's end. Raises OSError when there is no
        descriptor.
        """
        self._prepare(process)
        ours, theirs = socket.socketpair()
        self._meet(ours).peer.expected = process
        return theirs

    def _prepare(self, process: str) -> None:
        if process not in self._members:
            self._members[process] = _Member(self._reactor, process)

    def admit(self, process: str, pid: int) -> tuple[socket.socket, ...]:
        """The ends of a joined process's channels; the caller closes them. Raises OSError when there is no descriptor for them."""
        self._prepare(process)
        member = self._members[process]
        member.pid = pid
        theirs, member.theirs = member.theirs, ()
        self._reactor.add_fd(member.asks.end.fileno(), partial(self._asked, member))
        self._reactor.add_fd(member.door.end.fileno(), partial(self._door_changed, member))
        return theirs

    def forget(self, process: str) -> None:
        """Drop a process that has exited or left. Connections to it that others wait for hang up."""
        member = self._members.pop(process, None)
        if member is not None:
            member.close()

    def have_met(self, process: str, other: str) -> bool:
        """Whether the two processes were connected with each other."""
        return other in self._met.get(process, ())

    def part(self, process: str) -> None:
        """Forget whom a process has met: all others have been told of its end."""
        for other in self._met.pop(process, ()):
            self._met[other].discard(process)

    def pass_on(self, connection: SocketConnection, process: str) -> None:
        """PASS_ON: give an observer's connection to the process that it asks."""
        member = self._members.get(process)
        if member is None or not member.pid:
            connection.send((m.REFUSED, errno.ECONNREFUSED, _unknown(process)))
        else:
            connection.send((m.PASSED,))
            with contextlib.suppress(OSError):  # the observer sees the hang-up
                self._present(member, connection.socket)
        connection.close()

    # ------------------------------------------------------------------------------------ asking
    def _asked(self, member: _Member, events: int) -> None:
        if events & select.EPOLLOUT:
            member.asks.writable()
        while True:
            try:
                packet = member.asks.end.recv(_PACKET)
                message = decode_message(packet) if packet else ()
                if not message or misfit(message) or message[0] != m.INTRODUCE:
                    raise ConnectionAbortedError
                self._answer(member, *message[1:])
            except BlockingIOError:
                return
            except (OSError, ValueError):  # it is dead, or another program writes there
                member.asks.close()
                return

    def _answer(self, member: _Member, number: int, process: str, connect: bool) -> None:
        other = self._members.get(process)
        if process == NODE:
            pid = os.getpid()
        elif other is None or not other.pid:
            member.asks.send(marshal.dumps((m.NOT_INTRODUCED, number, errno.ECONNREFUSED, _unknown(process))))
            return
        else:
            pid = other.pid
        answer = marshal.dumps((m.INTRODUCED, number, pid))
        if not connect:
            member.asks.send(answer)
            return
        try:
            with above_limit():  # the node gives these descriptors away
                theirs, others = socket.socketpair()
        except OSError as error:
            self._refuse(member, number, error)
            return
        with theirs, others:
            try:
                if other is None:
                    self._meet(others.dup())
                else:
                    self._present(other, others)
            except OSError as error:
                self._refuse(member, number, error)
                return
            if other is not None and other is not member:
                self._met.setdefault(member.process, set()).add(process)
                self._met.setdefault(process, set()).add(member.process)
            try:
                member.asks.send(answer, theirs)
            except OSError as error:
                if not is_exhausted(error):
                    raise
                self._refuse(member, number, error)

    @staticmethod
    def _refuse(member: _Member, number: int, error: OSError) -> None:
        text = f"{advice(error)}. The node process (pid {os.getpid()}) has no file descriptor left to connect with."
        member.asks.send(marshal.dumps((m.NOT_INTRODUCED, number, error.errno or errno.EMFILE, text)))

    # ------------------------------------------------------------------------------------ letting in
    def _present(self, member: _Member, sock: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):  # it is dead, as the other end will see
            member.door.send(_KNOCK, sock)

    def _door_changed(self, member: _Member, events: int) -> None:
        if events & ~select.EPOLLOUT:  # no message comes here
            self._reactor.forget(member.door.end.fileno())
        else:
            member.door.writable()


def _unknown(process: str) -> str:
    return f"process {process} is no longer in this session"


def _new_pair() -> Pair:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    return ours, theirs
