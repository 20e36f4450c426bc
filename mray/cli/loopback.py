"""`LoopbackServer`: serves the live page and the metrics of a session, on the loopback interface alone.

    client ──connects──▶ accepted, received whole ──▶ a thread answers (up to a bound) ──▶ written ──▶ client
                         ╰───────────── the server's thread ─────────────╯                ╰ the server's thread ╯

The server's thread accepts connections, receives requests and writes answers, none of which blocks: a client that sends or reads
slowly, or not at all, holds no thread and delays no other client. Where no thread can be started, or the bound is zero, the server's
thread also answers. The number of open connections is bounded; beyond that, the client that has been silent longest is disconnected.

Any user of the machine may connect to the interface, and so may a page of another site in this user's browser. So a connection is
accepted only if the kernel says that its other end is a process of this user, or of root, before a byte is read; a request must name
this machine as its host; and the rate of refused connections is limited.

Rejected: a thread for each connection, which silent clients use up.
"""

from __future__ import annotations

import contextlib
import select
import struct
import threading
import weakref
from collections import deque
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any

from mray._common.clock import monotonic, sleep
from mray._common.kept import io, os, socket

LOOPBACK = "127.0.0.1"
_HOSTS = (LOOPBACK, "localhost", "[::1]")
#: connections that wait to be accepted (the kernel's own bound may be lower), and seconds between two that are refused
_BACKLOG, _REST = 1024, 0.01
#: accepted connections: each takes a descriptor of the process, which may be the user's program
_MOST_OPEN = 128
#: seconds that a silent client keeps its connection while others wait for one
_GRACE = 0.25
#: seconds until the thread tries again when no descriptor is free
_PAUSE = 0.2
#: bytes of a request, and of one reception
_LONGEST, _PIECE = 1 << 16, 1 << 14
_END = b"\r\n\r\n"

# See sock_diag(7).
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _TCP = 4, 20, 1, 6
_ASK = struct.Struct("=IHHII BBBB I")
_ENDS = struct.Struct("!HH4s12x4s12x")
#: Interface, and a cookie that matches any; of the answer: family and state, the ends, some counts, the user, the inode.
_ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_TOLD = struct.Struct("=IHHII 4x 48x 12x II")


class _Client:
    """An accepted connection, which sends its request, waits for the answer, or receives it."""

    __slots__ = ("address", "answer", "connection", "request", "since")

    def __init__(self, connection: socket.socket, address: Any) -> None:
        self.connection = connection
        self.address = address
        self.request = bytearray()
        #: what is not written yet; None until there is an answer
        self.answer: memoryview | None = None
        #: since when the server waits for the client: its whole request, or that it takes more of the answer
        self.since = monotonic()

    @property
    def interest(self) -> int:
        return select.POLLIN if self.answer is None else select.POLLOUT


class LoopbackServer:
    """Serves on `server_port` until it is closed. OSError for a port that is taken, OverflowError for an invalid one."""

    #: bound of the threads that answer
    most_threads = 0
    #: seconds that a client has to send its whole request, and to take another part of the answer
    patience = 10.0

    def __init__(self, port: int, handler: type[LoopbackRequest], name: str) -> None:
        self._closed = False
        self._handler = handler
        #: by descriptor: the clients that the server waits for; only its thread touches them
        self._clients: dict[int, _Client] = {}
        self._lock = threading.Lock()
        #: requests that wait for a thread, and answers that wait for the server's thread
        self._asked: deque[_Client] = deque()
        self._answered: deque[_Client] = deque()
        self._answering: dict[threading.Thread, _Client] = {}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._doorbell = -1
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((LOOPBACK, port))
            self.socket.listen(_BACKLOG)
            self.socket.setblocking(False)
            self.server_address = self.socket.getsockname()
            self.server_port = int(self.server_address[1])
            self._doorbell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self.thread.start()
        except BaseException:
            self.let_go()
            raise
        _open.add(self)

    # ----------------------------------------------------------------------------------- the server's thread
    def _serve(self) -> None:
        while not self._closed:
            ready = self._wait()
            latest = monotonic() - self.patience
            while self._answered:
                self._write(self._answered.popleft())
            for fd, client in list(self._clients.items()):
                if fd in ready:
                    self._receive(client) if client.answer is None else self._write(client)
                elif client.since < latest:
                    self._disconnect(client)
            if self.socket.fileno() in ready:
                self._accept()
        self.socket.close()
        for client in list(self._clients.values()):
            self._disconnect(client)

    def _wait(self) -> set[int]:
        """The descriptors at which something can be done. An idle server has no time limit: it costs nothing."""
        poll = select.poll()
        poll.register(self._doorbell, select.POLLIN)
        for fd, client in self._clients.items():
            poll.register(fd, client.interest)
        silent = min((each.since for each in self._clients.values()), default=None)
        until = None if silent is None else silent + self.patience
        if self._open_connections() < _MOST_OPEN:
            poll.register(self.socket, select.POLLIN)
        elif silent is not None:
            until = silent + _GRACE
            if until <= monotonic():
                poll.register(self.socket, select.POLLIN)
                until = silent + self.patience
        ready = {fd for fd, _events in poll.poll(None if until is None else max(0.0, until - monotonic()) * 1e3)}
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._doorbell)
        return ready

    def _open_connections(self) -> int:
        with self._lock:
            return len(self._clients) + len(self._asked) + len(self._answering) + len(self._answered)

    def _accept(self) -> None:
        try:
            connection, address = self.socket.accept()
        except BlockingIOError:  # the client has left already
            return
        except OSError:  # no descriptor is free, and the thread must not spin
            if not self._give_way():
                sleep(_PAUSE)
            return
        if user_of(address[1], self.server_port) not in (os.getuid(), 0):
            connection.close()
            sleep(_REST)
            return
        if self._open_connections() >= _MOST_OPEN:
            self._give_way()
        connection.setblocking(False)
        client = self._clients[connection.fileno()] = _Client(connection, address)
        self._receive(client)  # most have sent it by now

    def _give_way(self) -> bool:
        """Disconnect the client that has been silent longest, if there is one."""
        silent = min(self._clients.values(), key=lambda each: each.since, default=None)
        if silent is not None:
            self._disconnect(silent)
        return silent is not None

    def _receive(self, client: _Client) -> None:
        try:
            piece = client.connection.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        before = len(client.request)
        client.request += piece
        if client.request.find(_END, max(0, before - len(_END))) >= 0 or len(client.request) > _LONGEST:
            del self._clients[client.connection.fileno()]
            self._begin(client)
        elif not piece:
            self._disconnect(client)

    def _begin(self, client: _Client) -> None:
        if self.most_threads:
            thread = threading.Thread(target=self._work, args=(client,), daemon=True)  # does not delay the exit
            with self._lock:
                if len(self._answering) >= self.most_threads:
                    self._asked.append(client)
                    return
                self._answering[thread] = client
            try:
                thread.start()
                return
            except RuntimeError:
                with self._lock:
                    del self._answering[thread]
        self._answer(client)
        self._write(client)

    def _write(self, client: _Client) -> None:
        """Write what the client takes now; the rest follows when it takes more."""
        assert client.answer is not None
        try:
            while client.answer:
                client.answer = client.answer[client.connection.send(client.answer) :]
                client.since = monotonic()
            client.connection.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            self._clients[client.connection.fileno()] = client
            return
        except OSError:  # the client has disconnected
            pass
        self._disconnect(client)

    def _disconnect(self, client: _Client) -> None:
        self._clients.pop(client.connection.fileno(), None)
        client.connection.close()

    # ------------------------------------------------------------------------------------ threads that answer
    def _work(self, client: _Client | None) -> None:
        """Answer requests until none waits."""
        while client is not None:
            self._answer(client)
            with self._lock:
                self._answered.append(client)
                client = self._asked.popleft() if self._asked and not self._closed else None
                if client is None:
                    del self._answering[threading.current_thread()]
                else:
                    self._answering[threading.current_thread()] = client
                self._ring()

    def _answer(self, client: _Client) -> None:
        client.answer = memoryview(b"")
        with contextlib.suppress(Exception):  # the client is disconnected without an answer
            client.answer = memoryview(self._handler(bytes(client.request), client.address, self).wfile.getvalue())
        client.since = monotonic()

    # ------------------------------------------------------------------------------------------------ its end
    def _ring(self) -> None:
        """Wake the server's thread. Holds the lock."""
        if self._doorbell >= 0:
            os.eventfd_write(self._doorbell, 1)

    def close(self) -> None:
        """Stop serving, disconnect all clients, and wait for answers in progress. Idempotent."""
        self._closed = True
        with self._lock:
            self._ring()
        self.thread.join()
        for thread in list(self._answering):
            thread.join()
        self.let_go()

    def let_go(self) -> None:
        """Close every descriptor."""
        self._lock = threading.Lock()  # in a forked child another thread may have held it
        if self._doorbell >= 0:
            doorbell, self._doorbell = self._doorbell, -1
            os.close(doorbell)
        self.socket.close()
        for client in (*self._clients.values(), *self._asked, *self._answering.values(), *self._answered):
            client.connection.close()


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
    """Made from the bytes of a request; `wfile` has those of the answer.

    `answer` is called if the request names this machine as its host.
    """

    wfile: BytesIO

    def __init__(self, request: bytes, address: Any, server: LoopbackServer) -> None:
        super().__init__(request, address, server)  # type: ignore[arg-type]

    def setup(self) -> None:
        self.rfile = BytesIO(self.request)
        self.wfile = BytesIO()

    def finish(self) -> None:
        """Leave `wfile` to the server."""

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
