"""An acceptor whose process has no descriptor for the peers that connect."""

from __future__ import annotations

import errno
import marshal
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mray._common.messages import REFUSED
from mray._ipc.connection import SocketConnection, encode
from mray._ipc.listener import Acceptor, listen_at
from mray._ipc.reactor import Reactor


@contextmanager
def no_descriptors(above: int) -> Iterator[None]:
    """This process gets no more; with `above` the limit is so far above what is open already."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + above if above else 3, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in taken:
            os.close(fd)


class Scene:
    """An acceptor, and the messages that arrive there."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.heard: list[object] = []
        self.connections: list[SocketConnection] = []
        self.reactor = Reactor()
        self._outside: socket.socket | None = None
        if kind == "listener":
            self._path = str(folder / "abc.sock")
            self.source = listen_at(self._path)
        else:
            self.source, self._outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.reactor.serve(self.source, "Process abc", self._hear, lambda _connection: None)

    def let_come(self) -> socket.socket:
        """Somebody comes, and says something."""
        if self._outside is not None:
            sock, other = socket.socketpair()
            with other:
                socket.send_fds(self._outside, [b"."], [other.fileno()])
        else:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(self._path)
        sock.setblocking(False)
        sock.send(encode((1, "here")))
        return sock

    def close(self) -> None:
        self.source.close()
        if self._outside is not None:
            self._outside.close()
        self.reactor.close()

    def _hear(self, connection: SocketConnection, message: object) -> None:
        self.heard.append(message)
        self.connections.append(connection)

    def turn_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.reactor.run_once(1.0)


@pytest.fixture(params=["listener", "channel"])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    before = set(os.listdir("/proc/self/fd"))
    scene = Scene(tmp_path, request.param)
    yield scene
    for connection in scene.connections:
        connection.close()
    scene.close()
    assert set(os.listdir("/proc/self/fd")) == before


def read(sock: socket.socket) -> bytes | None:
    """The bytes that have come; None: no byte yet."""
    try:
        return sock.recv(4096)
    except BlockingIOError:
        return None


@pytest.mark.parametrize("above", [40, 0], ids=["all-are-in-use", "the-limit-was-lowered-below-what-is-open"])
def test_who_comes_is_told_that_there_is_no_descriptor_and_the_next_is_served_when_there_is_one(scene: Scene, above: int) -> None:
    with scene.let_come() as first, scene.let_come() as second:
        with no_descriptors(above):
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            for sock in (first, second):
                said: list[bytes] = []
                while not said:
                    scene.reactor.run_once(0)
                    said += [data for data in [read(sock)] if data is not None]
                code, number, text = marshal.loads(said[0][4:])
                assert (code, number) == (REFUSED, errno.EMFILE)
                assert f"Process abc (pid {os.getpid()}) has no file descriptor left" in text
                assert f"may have {limits[0]}" in text and "ulimit -n" in text
                with pytest.raises(ConnectionResetError):
                    read(sock)
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits
        assert scene.heard == []
        with scene.let_come():
            scene.turn_until(lambda: scene.heard)
            assert scene.heard == [(1, "here")]


def test_a_listener_that_cannot_even_refuse_rests_and_looks_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def accept(_door: object) -> socket.socket:
        looks.append(1)
        raise OSError(errno.EMFILE, "Too many open files")

    with scene.let_come() as sock:
        with no_descriptors(40), monkeypatch.context() as patch:
            patch.setattr(Acceptor, "_take_somehow", accept)
            scene.turn_until(lambda: looks)
            for _ in range(100):
                scene.reactor.run_once(0)
            assert len(looks) < 50  # it has not looked each time: it does every 50 ms
            assert read(sock) is None
        scene.turn_until(lambda: scene.heard)
        assert scene.heard == [(1, "here")]


def test_a_channel_whose_other_end_is_gone_is_watched_no_more(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "channel")
    assert scene._outside is not None
    scene._outside.close()
    scene.reactor.run_once(1.0)
    scene.reactor.call_later(0.2, lambda: scene.heard.append("later"))
    turns = 0
    while not scene.heard:
        scene.reactor.run_once(1.0)
        turns += 1
    assert turns < 5
    scene.close()
