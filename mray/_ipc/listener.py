"""Acceptors of connections, at a listening socket or through a channel from the node.

A peer that connects waits in the socket until it is accepted, which takes a descriptor. A process without a free one refuses the peer
and hangs up::

    connects ──────────────────────────▶ acceptor: EMFILE
                                          the spare descriptor is closed, and the connection takes its place
    OSError: process X (pid) has none ◀── REFUSED, hang-up; the spare is opened again
"""

from __future__ import annotations

import contextlib
import errno
from abc import ABC, abstractmethod
from collections.abc import Callable

from mray._common.kept import os, socket
from mray._common.messages import REFUSED
from mray._ipc.connection import encode, peer_is_ours, receive_fds, socket_name
from mray._ipc.limits import above_limit, advice, is_exhausted
from mray._ipc.watching import Watching

#: Connections that may wait to be accepted.
_BACKLOG = 4096
#: Seconds of pause after a peer could not even be refused.
REST_SECONDS = 0.05


def listen_at(path: str, backlog: int = _BACKLOG) -> socket.socket:
    """A non-inheritable socket to which only this user may connect, whatever the umask."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_name(path) as name:
            listener.bind(name)
        os.chmod(path, 0o600)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


class Acceptor(ABC):
    """Accepts connections for a reactor; holds a spare descriptor."""

    def __init__(self, reactor: Watching, source: socket.socket, welcome: Callable[[socket.socket], None], who: str) -> None:
        """`welcome` receives each connection of this user; `who` names this process. The owner of the source closes it."""
        self._reactor = reactor
        self._source = source
        self._welcome = welcome
        self._who = who
        self._spare = -1
        self._take_spare()
        source.setblocking(False)
        reactor.add_fd(source.fileno(), self._ready)

    @abstractmethod
    def _take(self) -> socket.socket:
        """The next peer. Raises BlockingIOError without one, EOFError at the end, another OSError for lack of a descriptor."""

    def _ready(self, _events: int) -> None:
        self._take_spare()
        while True:
            try:
                sock = self._take_or_refuse()
            except BlockingIOError:
                return
            except EOFError:
                self._reactor.forget(self._source.fileno())
                return
            except OSError:
                # No other peer could be refused either.
                self._rest()
                return
            if sock is None:
                continue
            if peer_is_ours(sock):
                self._welcome(sock)
            else:
                sock.close()

    def _take_or_refuse(self) -> socket.socket | None:
        """The next peer; None if it was refused. Raises BlockingIOError when none waits, OSError when one must wait on."""
        try:
            return self._take()
        except OSError as error:
            if not is_exhausted(error):
                raise
            want = error
        self._let_spare_go()
        with self._take_somehow() as sock:
            if peer_is_ours(sock):
                sock.setblocking(False)
                with contextlib.suppress(OSError):  # the peer may have hung up
                    sock.send(encode((REFUSED, want.errno, self._why(want))))
        self._take_spare()
        return None

    def _take_somehow(self) -> socket.socket:
        """Accept, if need be above the soft limit until the peer is answered."""
        try:
            return self._take()
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
        with above_limit():  # the limit was lowered below the spare's number
            return self._take()

    def _why(self, error: OSError) -> str:
        return f"{advice(error)}. {self._who} (pid {os.getpid()}) has no file descriptor left to answer with."

    def _rest(self) -> None:
        reactor, source = self._reactor, self._source
        reactor.forget(source.fileno())
        reactor.call_later(REST_SECONDS, lambda: None if source.fileno() < 0 else reactor.add_fd(source.fileno(), self._ready))

    def _take_spare(self) -> None:
        if self._spare < 0:
            with contextlib.suppress(OSError):
                self._spare = os.eventfd(0, os.EFD_CLOEXEC)

    def _let_spare_go(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def close(self) -> None:
        """Idempotent."""
        self._let_spare_go()


class ListenerAcceptor(Acceptor):
    def _take(self) -> socket.socket:
        return self._source.accept()[0]


class ChannelAcceptor(Acceptor):
    """See `mray._ipc.introductions`."""

    def _take(self) -> socket.socket:
        # Peek first: the kernel drops a descriptor that it has no room for with its packet.
        try:
            packet, fds, _cut = receive_fds(self._source, 1, 1, socket.MSG_PEEK)
            if packet and not fds:
                os.close(os.eventfd(0))
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))  # none was free a moment ago
            if packet:
                self._source.recv(1)
        except ConnectionError:
            packet = b""
        if not packet:
            raise EOFError
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fds[0])
