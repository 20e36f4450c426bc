"""Sockets that wait for connections, by a name in a directory of ours. In any process of a session.

Whoever connects waits in the socket until it is accepted, which takes a descriptor. A process that has none left must not keep it
waiting for as long as that lasts: it says so, and hangs up.

::

    connects ──────────────────────────▶ listener: EMFILE
                                          the spare descriptor is closed, and the connection takes its place
    OSError: process X (pid) has none ◀── REFUSED, hang-up; the spare is taken again
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from mray._common.messages import REFUSED
from mray._ipc.connection import encode, peer_is_ours
from mray._ipc.limits import above_limit, advice, is_exhausted

if TYPE_CHECKING:
    from mray._ipc.reactor import Reactor

#: Connections that may wait to be accepted.
_BACKLOG = 4096
#: When a listener looks again that could not even send somebody away, in seconds.
REST_SECONDS = 0.05


def listen_at(path: str, backlog: int = _BACKLOG) -> socket.socket:
    """A socket that listens at `path`, and that only our user may connect to, whatever the umask. Inherited by nobody."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


class Door:
    """A listener that a reactor watches, and the descriptor that is kept for the moment when there is no other."""

    def __init__(self, reactor: Reactor, listener: socket.socket, welcome: Callable[[socket.socket], None]) -> None:
        """`welcome` takes each connection of our own user. Whoever owns the listener closes it."""
        self._reactor = reactor
        self._listener = listener
        self._welcome = welcome
        self._spare = -1
        self._take_spare()
        listener.setblocking(False)
        reactor.add_fd(listener.fileno(), self._ready)

    def _ready(self, _events: int) -> None:
        self._take_spare()
        while True:
            try:
                sock = self._accept_or_refuse()
            except BlockingIOError:
                return
            except OSError:
                # Nobody else could be told either. Do not look all the time.
                self._rest()
                return
            if sock is None:
                continue
            if peer_is_ours(sock):
                self._welcome(sock)
            else:
                sock.close()

    def _accept_or_refuse(self) -> socket.socket | None:
        """Who waits; None when it had to be sent away. BlockingIOError when nobody waits, OSError when somebody has to go on waiting."""
        try:
            return self._listener.accept()[0]
        except OSError as error:
            if not is_exhausted(error):
                raise
            want = error
        self._let_spare_go()
        with _accept_somehow(self._listener) as sock:
            if peer_is_ours(sock):
                sock.setblocking(False)
                with contextlib.suppress(OSError):  # who has gone need not be told
                    sock.send(encode((REFUSED, want.errno, _why(self._listener, want))))
        self._take_spare()
        return None

    def _rest(self) -> None:
        reactor, listener = self._reactor, self._listener
        reactor.remove_fd(listener.fileno())
        reactor.call_later(REST_SECONDS, lambda: None if listener.fileno() < 0 else reactor.add_fd(listener.fileno(), self._ready))

    def _take_spare(self) -> None:
        if self._spare < 0:
            with contextlib.suppress(OSError):
                self._spare = os.eventfd(0, os.EFD_CLOEXEC)

    def _let_spare_go(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def close(self) -> None:
        """The process leaves its session, or is a fork of one that has. Closing twice is safe."""
        self._let_spare_go()


def _accept_somehow(listener: socket.socket) -> socket.socket:
    """Accept, if need be above this process's own limit for the time of the answer."""
    try:
        return listener.accept()[0]
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    with above_limit():  # it has been lowered below what was open already: the spare's place is above it
        return listener.accept()[0]


def _why(listener: socket.socket, error: OSError) -> str:
    name = os.path.basename(listener.getsockname()).removesuffix(".sock")
    who = "the node process" if name == "node" else f"process {name}"
    return f"{advice(error)}. {who[0].upper()}{who[1:]} (pid {os.getpid()}) has no file descriptor left to answer with."
