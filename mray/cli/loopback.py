"""`LoopbackServer`: serves the live page and the metrics of a session, on the loopback interface alone.

One thread accepts connections; each request has a thread of its own, up to a bound. Where the bound is zero, or no thread can be
started, the accepting thread answers.

Any user of the machine may connect to the interface, and so may a page of another site in this user's browser. So a connection is
accepted only if the kernel says that its other end is a process of this user, or of root, before a byte is read; a request must name
this machine as its host; and the rate of refused connections is limited.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import weakref
from http.server import BaseHTTPRequestHandler
from typing import Any

from mray._common.clock import sleep
from mray._common.kept import io, os, socket

LOOPBACK = "127.0.0.1"
_HOSTS = (LOOPBACK, "localhost", "[::1]")
#: connections that wait to be accepted, and seconds between two that are refused
_BACKLOG, _REST = 128, 0.01
#: seconds until the thread tries again when no descriptor is free
_PAUSE = 0.2

# See sock_diag(7).
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _TCP = 4, 20, 1, 6
_ASK = struct.Struct("=IHHII BBBB I")
_ENDS = struct.Struct("!HH4s12x4s12x")
#: Interface, and a cookie that matches any; of the answer: family and state, the ends, some counts, the user, the inode.
_ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_TOLD = struct.Struct("=IHHII 4x 48x 12x II")


class LoopbackServer:
    """Serves on `server_port` until it is closed. OSError for a port that is taken, OverflowError for an invalid one."""

    most_threads = 0

    def __init__(self, port: int, handler: type[LoopbackRequest], name: str) -> None:
        self._closed = False
        self._handler = handler
        self._requests: dict[threading.Thread, socket.socket] = {}
        self._ended = threading.Condition()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((LOOPBACK, port))
            self.socket.listen(_BACKLOG)
            self.server_address = self.socket.getsockname()
            self.server_port = int(self.server_address[1])
            self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self.thread.start()
        except BaseException:
            self.socket.close()
            raise
        _open.add(self)

    def _serve(self) -> None:
        while not self._closed:  # blocks without a timeout: an idle server costs nothing
            try:
                connection, address = self.socket.accept()
            except OSError:  # closed; or no descriptor is free, and the thread must not spin
                if not self._closed:
                    sleep(_PAUSE)
                continue
            if user_of(address[1], self.server_port) in (os.getuid(), 0):
                self._begin(connection, address)
            else:
                connection.close()
                sleep(_REST)
        self.socket.close()

    def _begin(self, connection: socket.socket, address: Any) -> None:
        with self._ended:
            while self.most_threads and len(self._requests) >= self.most_threads:
                self._ended.wait()
        if self.most_threads:
            thread = threading.Thread(target=self._answer, args=(connection, address), daemon=True)  # does not delay the exit
            self._requests[thread] = connection
            try:
                thread.start()
                return
            except RuntimeError:
                del self._requests[thread]
        self._requests[self.thread] = connection
        self._answer(connection, address)

    def _answer(self, connection: socket.socket, address: Any) -> None:
        try:
            if not self._closed:
                self._handler(connection, address, self)  # type: ignore[arg-type]
                connection.shutdown(socket.SHUT_WR)
        except Exception:  # the client has disconnected
            pass
        finally:
            connection.close()
            with self._ended:
                del self._requests[threading.current_thread()]
                self._ended.notify_all()

    def close(self) -> None:
        """Stop serving, cut the connections of requests in progress, and wait for these to end. Idempotent."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
            while self.thread.is_alive() or self._requests:
                for thread, connection in list(self._requests.items()):
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                    if thread is not self.thread and thread.is_alive():  # else it is about to start, or has ended
                        thread.join()
                self.thread.join(_PAUSE)  # it may have begun another request meanwhile

    def let_go(self) -> None:
        self.socket.close()
        for connection in self._requests.values():
            connection.close()


def user_of(port: int, server_port: int) -> int | None:
    """The user of the socket on the loopback device that is connected to a server's; None if the kernel knows no open one."""
    told = _asked(port, server_port)
    if told is None and _asked(server_port, 0) is None:  # this kernel does not answer: its table has all connections of the machine
        told = _listed(port, server_port)
    return told[0] if told is not None and told[1] else None


def _asked(port: int, other: int) -> tuple[int, int] | None:
    """User and inode (0: closed) of the socket with this port that is connected to the other port (0: listening sockets)."""
    here = socket.inet_aton(LOOPBACK)
    ends = _ENDS.pack(port, other, here, here if other else bytes(4)) + _ANY
    ask = _ASK.pack(_ASK.size + len(ends), _BY_FAMILY, _REQUEST, 0, 0, socket.AF_INET, _TCP, 0, 0, 0xFFFFFFFF) + ends
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.sendto(ask, (0, 0))
            answer = kernel.recv(4096)
    except OSError:
        return None
    if len(answer) < _TOLD.size:
        return None
    _size, kind, _flags, _number, _pid, user, file = _TOLD.unpack_from(answer)
    return (user, file) if kind == _BY_FAMILY else None


def _listed(port: int, server_port: int) -> tuple[int, int] | None:
    for name in ("tcp", "tcp6"):
        try:
            with io.open(f"/proc/net/{name}", encoding="ascii") as table:
                for line in table:
                    fields = line.split()
                    if fields[1].endswith(f"0100007F:{port:04X}") and fields[2].endswith(f"0100007F:{server_port:04X}"):
                        return int(fields[7]), int(fields[9])
        except OSError:
            continue
    return None


class LoopbackRequest(BaseHTTPRequestHandler):
    """`answer` is called if the request names this machine as its host."""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").lower()
        name, _colon, port = host.rpartition(":")
        if (name if port.isdigit() else host) in _HOSTS:
            self.answer()
        else:
            self.send(403, "text/plain", "This address is for this machine alone.")

    def answer(self) -> None:
        raise NotImplementedError

    def send(self, status: int, kind: str, text: str, **headers: str) -> None:
        """Underscores in the names of headers become dashes."""
        body = text.encode()
        self.send_response(status)
        for name, value in {"Content_Type": f"{kind}; charset=utf-8", "Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "mray"

    def log_message(self, *_words: Any) -> None:
        """Log nothing: a driver's output is its program's."""


#: of this process; a forked child closes them, since it would hold the ports after the parent's end
_open: weakref.WeakSet[LoopbackServer] = weakref.WeakSet()


def _after_fork() -> None:
    for server in _open:
        server.let_go()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)
