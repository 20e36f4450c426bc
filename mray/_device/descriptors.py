"""Memory that has no handle but descriptors: handed from its process to those that open it.

    owner: threads of a `Handing`                       a peer: `handed`
    listens at an abstract name, of which nothing       connects, for each piece of memory that it opens
    can be left                                  <───── asks for the part from an address on
    makes descriptors, sends and closes them     ─────▶ uses and closes them, asks for the part after those

Neither side keeps a descriptor: there are as many at a time as one answer has. The owner answers while its other threads are busy; a peer
waits for it, and hears of its death by the hang-up.

Rejected: ``pidfd_getfd``, by which torch's own sharing of such memory takes descriptors out of another process. It asks for the right to
trace that one, which containers without CAP_SYS_PTRACE do not give, nor does Yama to siblings.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from struct import Struct

from mray._common import clock
from mray._common.kept import os, socket
from mray._ipc.connection import peer_is_ours, receive_fds

#: An address of the owner and the bytes from there on: of memory that is opened, and of the part that is asked for.
_PLACE = Struct("@QQ")
_NAME = b"\0mray-device-memory-"
_NONCE = 8
#: Bytes of a handle; none of another kind has as many.
HANDLE_SIZE = _PLACE.size + len(_NAME) + 2 * _NONCE

#: Descriptors of an answer.
_MOST = 64
#: Starts an answer: how many sizes follow; 0: what went wrong does.
_COUNT = Struct("@Q")
_LONGEST_ANSWER = _COUNT.size * (1 + _MOST)

#: Seconds until an owner that could not take a connection looks again.
_PAUSE = 0.01

#: Yields the size and the descriptor of each piece of memory from an address on, as far as so many bytes reach. Any thread.
Pieces = Callable[[int, int], Iterator[tuple[int, int]]]


class Handing:
    """Hands out the descriptors of memory of this process, once there is a handle for somebody, until it is closed."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._lock = threading.Lock()
        self._office: _Office | None = None

    def handle(self, base: int, size: int) -> bytes:
        """The handle by which other processes get the descriptors of so many bytes from `base` on."""
        with self._lock:
            if self._office is None:
                self._office = _Office(self._pieces)
            return _PLACE.pack(base, size) + self._office.name

    def close(self) -> None:
        """Nobody gets anything by the handles there are. Idempotent."""
        with self._lock:
            office, self._office = self._office, None
        if office is not None:
            office.close()


class _Office:
    """Listens and answers, in threads of its own."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self.name = _NAME + os.urandom(_NONCE).hex().encode()
        self._lock = threading.Lock()
        self._is_closed = False
        #: Connections, each with the thread that answers there.
        self._answering: dict[socket.socket, threading.Thread] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.name)
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, name="mray-device-descriptors", daemon=True)
        self._thread.start()
        _all.add(self)

    def _accept(self) -> None:
        while True:
            try:
                sock, _address = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                clock.sleep(_PAUSE)  # for want of descriptors, say
                continue
            thread = threading.Thread(target=self._answer, args=(sock,), name="mray-device-descriptors", daemon=True)
            with self._lock:
                self._answering[sock] = thread
            thread.start()

    def _answer(self, sock: socket.socket) -> None:
        try:
            while peer_is_ours(sock) and len(asked := sock.recv(_PLACE.size)) == _PLACE.size:
                self._give(sock, *_PLACE.unpack(asked))
        except OSError:
            pass  # the peer is gone
        finally:
            with self._lock:
                self._answering.pop(sock, None)
            sock.close()

    def _give(self, sock: socket.socket, address: int, size: int) -> None:
        sizes: list[int] = []
        fds: list[int] = []
        try:
            for each, fd in itertools.islice(self._pieces(address, size), _MOST):
                sizes.append(each)
                fds.append(fd)
            socket.send_fds(sock, [b"".join(map(_COUNT.pack, (len(sizes), *sizes)))], fds)
        except RuntimeError as error:
            sock.send((_COUNT.pack(0) + str(error).encode())[:_LONGEST_ANSWER])
        finally:
            for fd in fds:
                os.close(fd)

    def close(self) -> None:
        """Answer nobody any more. Once."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        with self._lock:
            answering = dict(self._answering)
        for sock, thread in answering.items():
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            thread.join()

    def leave(self) -> None:
        """In a forked child: a peer is to hear of the owner's end."""
        for sock in (self._listener, *self._answering):
            sock.close()


_all: weakref.WeakSet[_Office] = weakref.WeakSet()


def _after_fork() -> None:
    for office in list(_all):
        office.leave()
    _all.clear()


os.register_at_fork(after_in_child=_after_fork)


def handed(handle: bytes) -> Generator[tuple[int, int], None, None]:
    """The size and the descriptor of each piece of the memory of a handle, in order. Each descriptor is closed when the next is asked for.

    Waits for the owner. Raises RuntimeError when it is gone, or cannot give them, or this process has no room for them.
    """
    address, size = _PLACE.unpack(handle[: _PLACE.size])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        fds: list[int] = []
        try:
            sock.connect(handle[_PLACE.size :])
            while size > 0:
                if not peer_is_ours(sock):
                    raise RuntimeError("the process that exports it is not of this user")
                sock.send(_PLACE.pack(address, size))
                answer, fds, was_cut = receive_fds(sock, _LONGEST_ANSWER, _MOST)
                if was_cut:
                    raise RuntimeError("this process may open no more descriptors")
                sizes = _sizes(answer)
                if len(sizes) != len(fds) or 0 in sizes:
                    raise RuntimeError("the process that exports it has given a damaged answer")
                for each in sizes:
                    yield each, fds[0]
                    os.close(fds.pop(0))
                    address += each
                    size -= each
        except OSError as error:
            raise RuntimeError(f"the process that exports it does not give its descriptors: {error}") from error
        finally:
            for fd in fds:
                os.close(fd)


def _sizes(answer: bytes) -> list[int]:
    if len(answer) < _COUNT.size:
        raise RuntimeError("the process that exports it is gone, or has freed it")
    (count,) = _COUNT.unpack_from(answer)
    if not count:
        raise RuntimeError(answer[_COUNT.size :].decode(errors="replace"))
    if len(answer) != _COUNT.size * (1 + count):
        raise RuntimeError("the process that exports it has given a damaged answer")
    return [size for (size,) in _COUNT.iter_unpack(answer[_COUNT.size :])]
