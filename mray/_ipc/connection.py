"""Connections: framed messages over a unix stream socket between two processes of a session.

The reactor's reading thread reads; any thread writes. A frame is a little-endian u32 length and the ``marshal`` of the message tuple:
builtin values only, so decoding one runs no user code.

`post` queues and `flush` sends. A slow reader never blocks the writer's thread: bytes stay queued until the socket is writable. Small
messages may take a ring pair instead (`mray._ipc.ring_pair`).

The peer's user id is checked before a byte is read. A connection that ends, by a hang-up or an invalid frame, calls `on_hangup` exactly
once, in the reading thread. An invalid frame is reported to the peer (PROTOCOL_ERROR), and so is an exception of this process while it
handles a message (FAULT); `refused` says why at both ends.

Note [dispatch and the collector]
---------------------------------
The garbage collector is off while messages are dispatched: it may run user finalizers at any allocation, and one that waits there for an
answer would wait for a message behind the current one.
"""

from __future__ import annotations

import array
import contextlib
import marshal
import select
import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from gc import disable, isenabled
from typing import Any

from mray._common.kept import os, socket
from mray._common.log import logger
from mray._common.messages import FAULT, NUDGE, OFFER_RING, PROTOCOL_ERROR, RETIRE_RING, TAKE_RING
from mray._common.protocol import misfit
from mray._ipc.closed_descriptors import is_closed
from mray._ipc.faults import fault_line, fault_text, message_name
from mray._ipc.frames import MESSAGE_STARTS, MOST_BYTES, decode_message, decode_unknown
from mray._ipc.quiet_lock import QuietLock, pause
from mray._ipc.ring import DamagedError
from mray._ipc.ring_pair import NEEDS_NUDGE, ONE, SEVERAL, RingPair
from mray._ipc.table import SessionTable
from mray._ipc.watching import Watching
from mray.exceptions import ObjectStoreFullError

Message = tuple[Any, ...]
MessageCallback = Callable[[Any, Message], None]
HangupCallback = Callable[[Any], None]

_HEADER = struct.Struct("<I")
_CREDENTIALS = struct.Struct("3i")

#: Most bytes of a unix socket's path.
_LONGEST_NAME = 107
#: Unsent bytes above which `post` flushes.
FLUSH_BYTES = 32 * 1024
#: Bytes offered to the kernel at a time, so that a partial send does not copy a long queue again.
_SEND_BYTES = 256 * 1024
_RING_BYTES = RingPair.MOST
#: Seconds for the message that says why a connection ends; a peer that does not read sees the hang-up only.
_LAST_WORD = 1.0


def encode(message: Message) -> bytes:
    body = marshal.dumps(message)
    return _HEADER.pack(len(body)) + body


_NUDGE = encode((NUDGE,))


class ProtocolViolationError(ValueError):
    """A peer's message is invalid; raised by an owner, it ends the connection."""


class PeerState:
    """State of other parts of this process about the peer."""

    __slots__ = ("expected", "freed", "functions", "lease", "opens_nothing")

    def __init__(self) -> None:
        #: Set by the node: the intended worker; "" for any process.
        self.expected = ""
        #: Set by a caller's `TaskPool`: its lease and pool; the ids of functions that the worker has.
        self.lease: tuple[Any, Any] | None = None
        self.functions: set[bytes] = set()
        #: Set by `OwnSegments`: segments that the producer was asked to free, the latest last.
        self.freed: dict[str, None] = {}
        self.opens_nothing = False


class Connection(ABC):
    """One endpoint of a connection. Any thread writes; the reading thread calls back."""

    __slots__ = (
        "__weakref__",
        "alone",
        "calls",
        "cause",
        "closed",
        "on_hangup",
        "on_message",
        "peer",
        "pid",
        "process",
        "refused",
        "role",
        "unsent",
    )

    def __init__(self, on_message: MessageCallback, on_hangup: HangupCallback) -> None:
        self.closed = False
        self.process = ""
        self.role = ""
        self.pid = 0
        #: Unanswered calls by task id, in order.
        self.calls: dict[bytes, Any] = {}
        #: Set by the owner: calls that were waited for one by one; negative while not counted.
        self.alone = 0
        #: Bytes queued in this process.
        self.unsent = 0
        self.peer = PeerState()
        #: Called with the collector paused.
        self.on_message = on_message
        self.on_hangup = on_hangup
        #: Why one endpoint stopped listening, or "".
        self.refused = ""
        #: This process's error, if that is the reason.
        self.cause: Exception | None = None

    @abstractmethod
    def post(self, message: Message) -> int:
        """Queue a message until `flush`, or until much is queued. Returns the number of queued bytes."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Queue a message and send everything queued."""

    @abstractmethod
    def flush(self) -> None:
        """Send what is queued."""

    @abstractmethod
    def drain(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until everything queued is sent."""

    @abstractmethod
    def read_rest(self) -> None:
        """Dispatch what a dead peer had sent: a reply counts even if its sender died afterwards."""

    @abstractmethod
    def is_cut(self) -> bool:
        """Whether the peer has closed or died, though what it sent may still be unread. Any thread."""

    @abstractmethod
    def close(self) -> None:
        """Close without a report. Idempotent."""

    def deliver(self, message: Message) -> None:
        """Dispatch a message. See Note [dispatch and the collector]."""
        with pause:
            self.on_message(self, message)

    def hang_up(self) -> None:
        """Close and call `on_hangup`; called when the peer has disconnected."""
        if self.closed:
            return
        self.close()
        self.on_hangup(self)

    def refuse(self, why: str) -> None:
        """Close the connection because of an invalid message. Reading thread only."""
        if not self.closed:
            self._refuse(why)
            self.hang_up()

    def _refuse(self, why: str) -> bool:
        logger.warning("%r sent process %d an invalid message, and its connection is closed: %s", self, os.getpid(), why)
        self.refused = f"it sent an invalid message: {why}"
        self._say_last((PROTOCOL_ERROR, why))
        return True

    def give_up(self, message: Message, error: Exception) -> bool:
        """Report to the peer that the handler of `message` raised `error`. The caller hangs up if this returns true."""
        wrong = str(error) if isinstance(error, ProtocolViolationError) else misfit(message)
        if wrong:
            return self._refuse(wrong)
        what = f"The handler of {message_name(message[0])}"
        logger.error("%s from %r failed in process %d", what, self, os.getpid(), exc_info=error)
        self.cause = error
        self.refused = fault_text(what, error)
        self._say_last((FAULT, self.refused))
        return True

    def _say_last(self, message: Message) -> None:
        if not self.closed:
            self.send(message)
            self.drain(_LAST_WORD)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Connection to {self.role or '?'} {self.process or '?'} pid {self.pid} ({state})>"


class SocketConnection(Connection):
    __slots__ = (
        "_lock",
        "_offered",
        "_out",
        "_partial",
        "_reactor",
        "_read",
        "_ring",
        "_sent",
        "_want_write",
        "checks_frames",
        "fd",
        "inward",
        "is_unknown",
        "reads",
        "socket",
    )

    def __init__(self, sock: socket.socket, reactor: Watching, on_message: MessageCallback, on_hangup: HangupCallback) -> None:
        super().__init__(on_message, on_hangup)
        sock.setblocking(False)
        self.socket = sock
        self.fd = sock.fileno()
        self._reactor = reactor
        self._lock = QuietLock()
        #: Frames not yet given to the kernel. Under `_lock`.
        self._out: deque[bytes | memoryview] = deque()
        self._want_write = False
        #: Bytes sent by the socket, and received by it and dispatched, since the ring pair was opened.
        self._sent = self._read = 0
        #: While this endpoint writes into it; while the peer may; offered and not yet taken.
        self._ring: RingPair | None = None
        self.inward: RingPair | None = None
        self._offered: RingPair | None = None
        self._partial = bytearray()
        self.reads = 0
        #: The peer is not known yet (see `mray._ipc.frames`).
        self.is_unknown = False
        #: Every frame is validated, also of known peers.
        self.checks_frames = False

    # ------------------------------------------------------------------------------------ writing
    def post(self, message: Message) -> int:
        body = marshal.dumps(message)
        frame = _HEADER.pack(len(body)) + body
        with self._lock.inner:
            if self.closed:
                return 0
            self._out.append(frame)
            self.unsent = queued = self.unsent + len(frame)
        if queued > FLUSH_BYTES:
            self.flush()
            return self.unsent
        return queued

    def send(self, message: Message) -> None:
        body = marshal.dumps(message)
        pause.reasons.append(None)  # ``with self._lock:`` in place: a function less
        if isenabled():
            pause.disabled = True
            disable()
        try:
            with self._lock.inner:
                if self.closed:
                    return
                ring = self._ring
                if ring is not None and not self._out and len(body) <= _RING_BYTES:
                    outcome = ring.try_put(ONE, body, self._sent)
                    if outcome:
                        if outcome == NEEDS_NUDGE:
                            self._nudge()
                        return
                frame = _HEADER.pack(len(body)) + body
                self._out.append(frame)
                self.unsent += len(frame)
                if len(self._out) > 1:
                    self._flush_locked()
                elif not self._want_write:
                    self._send_out()
        finally:
            pause.end()

    def send_with(self, message: Message, descriptors: list[int]) -> None:
        """Send this endpoint's first message with descriptors. Raises OSError."""
        frame = encode(message)
        with self._lock:
            assert not self._out, "descriptors go with the first byte of what the peer reads next"
            sent = socket.send_fds(self.socket, [frame[:_SEND_BYTES]], descriptors)
            self._out.append(frame[sent:])
            self.unsent += len(frame) - sent
            self._flush_locked()

    def flush(self) -> None:
        if self._out:
            with self._lock:
                self._flush_locked()

    def _flush_locked(self) -> None:
        if not self._out or self.closed or self._want_write:
            return
        ring = self._ring
        if ring is not None and self.unsent <= _RING_BYTES:
            out = self._out
            form, body = (ONE, out[0][_HEADER.size :]) if len(out) == 1 else (SEVERAL, b"".join(out))
            outcome = ring.try_put(form, body, self._sent)
            if outcome:
                out.clear()
                self.unsent = 0
                if outcome == NEEDS_NUDGE:
                    self._nudge()
                return
        self._send_out()

    def _nudge(self) -> None:
        # POINT reader of ring asleep
        self._out.append(_NUDGE)
        self.unsent = len(_NUDGE)
        self._send_out()

    def _send_out(self) -> None:
        out = self._out
        while out:
            chunk = out.popleft() if len(out) == 1 else self._next_chunk()
            try:
                sent = self.socket.send(chunk)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                # The reading side reports the hang-up, after what had arrived before.
                sent = len(chunk)
                if is_closed(error) and not self.closed:  # (another thread may just have closed it)
                    self._reactor.defer(partial(self._torn, error))
            self._sent += sent
            self.unsent -= sent
            if sent < len(chunk):
                out.appendleft(memoryview(chunk)[sent:])
                self._want_write = True
                self._reactor.watch_writable(self.fd, True)
                break

    def _torn(self, error: OSError) -> None:
        self._reactor.closed_descriptors.found(error)

    def _next_chunk(self) -> bytes | memoryview:
        out = self._out
        if self.unsent <= _SEND_BYTES:
            chunk = b"".join(out)
            out.clear()
            return chunk
        frames = []
        size = 0
        while out and size < _SEND_BYTES:
            frames.append(out.popleft())
            size += len(frames[-1])
        return b"".join(frames)

    def writable(self) -> None:
        """Flush. Called by the reactor."""
        with self._lock:
            self._want_write = False
            self._flush_locked()
            if not self._want_write and not self.closed:
                self._reactor.watch_writable(self.fd, False)

    # ------------------------------------------------------------------------------------ opening and closing a ring pair
    def offer_ring(self, name: str, table: SessionTable, row: int) -> bool:
        """Offer a ring pair in a page named `name`, from this process's `row`. False if it cannot be created or another is in use."""
        try:
            ring = RingPair.offer(name, table)
        except (OSError, ObjectStoreFullError):
            return False
        with self._lock:
            # A ring pair that the peer offered meanwhile is in use.
            if self.closed or self._want_write or self.inward is not None:
                ring.close()
                return False
            self._offered = ring
            self._last_by_socket((OFFER_RING, name, row))
            self._sent = -self.unsent
        return True

    def take_ring(self, name: str, table: SessionTable, row: int, of_peer: int) -> bool:
        """Answer the offer of the peer (row `of_peer`). False if it cannot be used. Reading thread only.

        If both endpoints have offered one, the one of the lower row is taken.
        """
        ring: RingPair | None = None
        if not self.has_ring:
            with contextlib.suppress(OSError, ValueError):
                ring = RingPair.take(name, table)
        with self._lock:
            if ring is not None and (self.closed or self._want_write or (self._offered is not None and row < of_peer)):
                ring.close()
                ring = None
            self._last_by_socket((TAKE_RING, ring is not None, row))
            if ring is not None:
                ring.meet(of_peer)
                self._ring = self.inward = ring
                self._sent, self._read = -self.unsent, 0
        return ring is not None

    def ring_taken(self, taken: bool, of_peer: int) -> bool:
        """Use the ring pair that this endpoint offered, or release it if the peer did not take it (False). Reading thread only."""
        with self._lock:
            ring, self._offered = self._offered, None
            if ring is None or not taken:
                if ring is not None:
                    ring.close()
                return False
            ring.unlink()
            ring.meet(of_peer)
            self._ring = self.inward = ring
            self._read = 0
        return True

    def retire_ring(self) -> None:
        """Stop writing into the ring pair and ask the peer to do the same; it stays mapped until the answer."""
        with self._lock:
            if self._ring is not None and not self.closed:
                self._ring = None
                self._last_by_socket((RETIRE_RING,))

    def ring_retired(self) -> None:
        """Release the ring pair, which is read to its end. Reading thread only."""
        self.retire_ring()
        with self._lock:
            ring, self.inward = self.inward, None
            if ring is not None:
                ring.close()
        self.alone = 0

    def ring_is_idle(self) -> bool:
        ring = self._ring
        return ring is not None and not ring.was_used()

    def _last_by_socket(self, message: Message) -> None:
        self._out.append(encode(message))
        self.unsent += len(self._out[-1])
        if not self._want_write:
            self._send_out()

    # ------------------------------------------------------------------------------------ reading
    def read_ring(self) -> bool:
        """Dispatch the ring's entries; returns whether there were any. Reading thread."""
        ring = self.inward
        if ring is None:
            return False
        reader = ring.reader
        words, published = reader.words, reader.published
        if words[published] <= reader.next:
            return False
        pause.reasons.append(None)  # See Note [dispatch and the collector].
        if isenabled():
            pause.disabled = True
            disable()
        try:
            while not self.closed and words[published] > reader.next:
                try:
                    form, body = reader.take()  # type: ignore[misc]  # there is one
                    read = decode_message if self.checks_frames else marshal.loads
                    if form > SEVERAL:
                        raise DamagedError(f"an entry of a connection's ring has form {form}")
                    messages = [read(frame) for frame in _frames(body)] if form else (read(body),)
                except Exception as error:  # marshal raises any type
                    self.refuse(repr(error))
                    break
                for message in messages:
                    try:
                        self.on_message(self, message)
                    except Exception as error:
                        if self.give_up(message, error):
                            self.hang_up()
                        return True
        finally:
            pause.end()
        return True

    @property
    def has_ring(self) -> bool:
        return self.inward is not None

    def has_ring_entries(self) -> bool:
        ring = self.inward
        return ring is not None and ring.reader.ready()

    def readable(self, buffer: memoryview) -> None:
        """Read what has arrived and dispatch complete messages. Reading thread."""
        with pause:  # See Note [dispatch and the collector]: all connections share `buffer`.
            try:
                count = self.socket.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                count = 0
            if not count:
                self.read_ring()
                self.hang_up()
                return
            self.reads += 1
            if self._partial:
                self._partial += buffer[:count]
                whole = self._take(memoryview(self._partial), len(self._partial))
                del self._partial[:whole]
            else:
                whole = self._take(buffer, count)
                if whole < count and not self.closed:
                    self._partial += buffer[whole:count]

    def read_rest(self) -> None:
        buffer = memoryview(bytearray(65536))
        while not self.closed:
            before = self.reads
            self.readable(buffer)
            if self.reads == before:
                self.read_ring()
                return

    def _take(self, buffer: memoryview, count: int) -> int:
        """Dispatch complete frames; returns their total size."""
        on_message = self.on_message
        messages: list[tuple[Message, int]] = []
        start = 0
        broken = False
        while self.is_unknown and not self.closed:
            length = self._meet(buffer[start:count])
            start += max(length, 0)
            if length <= 0:
                broken = length < 0
                count = start
                break
        while start + 4 < count:
            if buffer[start + 4] not in MESSAGE_STARTS:  # (a damaged stream may announce gigabytes)
                broken = self._refuse("that is no message")
                break
            end = start + 4 + _HEADER.unpack_from(buffer, start)[0]
            if end > count:
                break
            try:
                frame = buffer[start + 4 : end]
                messages.append((decode_message(bytes(frame)) if self.checks_frames else marshal.loads(frame), end - start))
            except Exception as error:  # marshal raises any type
                broken = self._refuse(repr(error))
                break
            start = end
        buffer.release() if buffer.obj is self._partial else None
        looked_into = None
        for message, size in messages:
            # Entries of the ring were published before these frames were sent; also those of a ring that an earlier frame has opened.
            if self.inward is not looked_into:
                looked_into = self.inward
                self.read_ring()
                if self.closed:
                    break
            self._read += size
            try:
                on_message(self, message)
            except Exception as error:
                # The peer sent the later messages assuming that it took effect.
                broken = self.give_up(message, error)
                break
        if self.inward is not None:
            self.inward.has_read(self._read)
        if broken:
            self.hang_up()
        return start

    def _meet(self, buffer: memoryview) -> int:
        """Dispatch one message. Returns its size; 0 if it is incomplete, -1 if it is invalid or its handler failed."""
        with buffer:
            if len(buffer) < 4:
                return 0
            length = _HEADER.unpack_from(buffer)[0]
            end: int = 4 + length
            if length <= MOST_BYTES and end > len(buffer):
                return 0
            message: Message | None = None
            try:
                message = decode_unknown(bytes(buffer[4 : min(end, 5 + MOST_BYTES)]))
                self.on_message(self, message)
            except Exception as error:
                if message is None or isinstance(error, ProtocolViolationError) or misfit(message):
                    logger.warning("a peer of process %d, not known yet, sent an invalid message: %r", os.getpid(), error)
                else:
                    what = f"The handler of {message_name(message[0])}"
                    logger.error("%s from a peer not known yet failed in process %d", what, os.getpid(), exc_info=error)
                    self._say_last((FAULT, fault_line(what, error)))
                return -1
        self.is_unknown = not (self.process or self.role)
        return end

    # ------------------------------------------------------------------------------------ ending
    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._reactor.forget(self.fd)
        if self._reactor.closed_descriptors.error is None:
            self.socket.close()
        else:
            self.socket.detach()
        self._out.clear()
        self.unsent = 0
        if self.inward is not None or self._offered is not None:
            self._reactor.forget_ring(self)
            with self._lock:  # another thread may be writing
                for ring in (self.inward, self._offered):
                    if ring is not None:
                        ring.close()
                self._ring = self.inward = self._offered = None

    def abandon(self) -> None:
        """In a forked child: close without a message to the peer."""
        self.closed = True
        self.socket.close()

    def is_cut(self) -> bool:
        poll = select.poll()
        try:
            poll.register(self.socket, select.POLLRDHUP)
            return bool(poll.poll(0))
        except (OSError, ValueError):  # closed by this process
            return True

    def drain(self, timeout: float) -> bool:
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        while True:
            with self._lock:
                if self.closed or not self._out:
                    return True
                self._want_write = False
                self._flush_locked()
                if not self._out:
                    return True
            if not poll.poll(timeout * 1000):
                return False


def _frames(body: bytes) -> Iterator[bytes]:
    """The bodies of an entry's frames. Raises DamagedError if the last one is incomplete."""
    start = 0
    while start < len(body):
        end = start + _HEADER.size + _HEADER.unpack_from(body, start)[0]
        if end > len(body):
            raise DamagedError("the last frame of an entry is cut")
        yield body[start + _HEADER.size : end]
        start = end


def receive_fds(sock: socket.socket, size: int, most: int, flags: int = 0) -> tuple[bytes, list[int], bool]:
    """The data, its descriptors (close-on-exec), and whether some did not fit. (`socket.recv_fds` passes no flags on.)"""
    fds = array.array("i")
    data, said, told, _address = sock.recvmsg(size, socket.CMSG_LEN(most * fds.itemsize), flags | socket.MSG_CMSG_CLOEXEC)
    for level, kind, part in said:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(part[: len(part) - len(part) % fds.itemsize])
    return data, list(fds), bool(told & socket.MSG_CTRUNC)


def peer_is_ours(sock: socket.socket) -> bool:
    """Whether the peer runs as this process's user."""
    return _credentials(sock)[1] == os.getuid()


def peer_pid(sock: socket.socket) -> int:
    """The peer's pid, from the kernel."""
    return _credentials(sock)[0]


def _credentials(sock: socket.socket) -> tuple[int, int, int]:
    pid, uid, gid = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid


@contextlib.contextmanager
def socket_name(path: str) -> Iterator[str]:
    """`path` as a socket's name; if it is too long, by way of its opened directory. Any thread."""
    if len(os.fsencode(path)) <= _LONGEST_NAME:
        yield path
        return
    directory, name = os.path.split(path)
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def connect(path: str) -> socket.socket:
    """ConnectionRefusedError or FileNotFoundError if no process listens there, PermissionError if it is another user's or access is
    denied.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            with socket_name(path) as name:
                sock.connect(name)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        if not peer_is_ours(sock):
            raise PermissionError(f"the process that listens at {path} belongs to another user")
    except BaseException:
        sock.close()
        raise
    return sock
