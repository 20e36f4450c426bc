"""Two processes are brought together by a third, which keeps nothing; and one who is wanted while it does not read keeps nobody waiting."""

from __future__ import annotations

import errno
import marshal
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mray._common import kept
from mray._common import messages as m
from mray._ipc import introductions
from mray._ipc.connection import SocketConnection, encode
from mray._ipc.frames import decode_message
from mray._ipc.interrupts import InterruptGuard
from mray._ipc.introductions import NODE, Introductions
from mray._ipc.reactor import Reactor
from mray._runtime.node.introducer import Introducer
from tests.unit.test_listener import no_descriptors


class Node:
    """The node's part of introductions, in a thread of this process."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.heard: list[Any] = []
        self.introducer = Introducer(self.reactor, lambda sock: self.reactor.meet(sock, self._hear, lambda _connection: None))
        self._ends = False
        self._thread = threading.Thread(target=self._run)

    def _hear(self, connection: SocketConnection, message: Any) -> None:
        self.heard.append(message)
        connection.close()

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._ends:
            self.reactor.run_once(0.01)

    def stop(self) -> None:
        self._ends = True
        self._thread.join()

    def member(self, name: str, pid: int) -> tuple[Introductions, socket.socket]:
        asking, door = self.introducer.admit(name, pid)
        return Introductions(asking, door, InterruptGuard(), lambda error: error), door

    def two(self) -> tuple[Introductions, Introductions, socket.socket]:
        """The node runs, with the members `a` (pid 11) and `b` (pid 22); the socket is `b`'s, where it is wanted."""
        first, _door = self.member("a", 11)
        second, door = self.member("b", 22)
        self.start()
        return first, second, door


@pytest.fixture
def node() -> Iterator[Node]:
    before = set(os.listdir("/proc/self/fd"))
    node = Node()
    yield node
    node.stop()
    for name in "ab":
        node.introducer.forget(name)
    node.reactor.close()
    assert set(os.listdir("/proc/self/fd")) == before


def taken(door: socket.socket) -> socket.socket:
    _packet, (fd,), _flags, _address = socket.recv_fds(door, 1, 1)
    return socket.socket(fileno=fd)


def test_two_processes_get_an_end_each_and_the_pid_of_the_other(node: Node) -> None:
    first, second, door = node.two()
    sock, pid = first.to("b")
    with sock, taken(door) as other:
        assert pid == 22
        sock.sendall(b"here")
        assert other.recv(10) == b"here"
    sock, pid = second.to(NODE)
    with sock:
        assert pid == os.getpid()
        sock.sendall(encode((m.UNBLOCKED,)))
        assert sock.recv(1) == b""
    assert node.heard == [(m.UNBLOCKED,)]
    first.close()
    second.close()


def test_it_is_known_who_was_connected_with_whom_until_they_part(node: Node) -> None:
    first, second, door = node.two()
    assert not node.introducer.have_met("a", "b")
    sock, _pid = first.to("b")
    with sock, taken(door):
        assert node.introducer.have_met("a", "b") and node.introducer.have_met("b", "a")
        assert not node.introducer.have_met("a", "c")
    first.to("a")[0].close()  # itself
    assert not node.introducer.have_met("a", "a")
    node.introducer.part("b")
    assert not node.introducer.have_met("a", "b") and not node.introducer.have_met("b", "a")
    node.introducer.part("a")
    first.close()
    second.close()


def test_who_is_not_there_any_more_is_told_from_who_is(node: Node) -> None:
    first, second, door = node.two()
    assert first.know("b") and not first.know("c")
    with pytest.raises(ConnectionRefusedError, match="process c is no longer in this session"):
        first.to("c")
    node.reactor.defer(lambda: node.introducer.forget("b"))
    while first.know("b"):
        pass
    with pytest.raises(ConnectionRefusedError, match="process b is no longer"):
        first.to("b")
    assert door.recv(1) == b""
    with pytest.raises(ConnectionResetError, match="the node process has ended"):
        second.to("a")
    first.close()
    second.close()


def test_those_who_want_one_that_does_not_read_wait_there_in_order_and_see_its_end(node: Node) -> None:
    first, second, door = node.two()
    many = [first.to("b")[0] for _ in range(1000)]
    for number, sock in enumerate(many[:500]):
        sock.sendall(b"%d" % number)
        with taken(door) as other:
            assert other.recv(10) == b"%d" % number
    node.reactor.defer(lambda: node.introducer.forget("b"))
    second.close()
    for sock in many:
        with sock:
            assert sock.recv(1) == b""
    first.close()


def test_who_asks_for_more_than_it_reads_gets_every_answer_in_order(node: Node) -> None:
    asking, own_door = node.introducer.admit("a", 11)
    second, door = node.member("b", 22)
    node.start()
    for number in range(600):  # more than a channel has room for
        asking.send(marshal.dumps((m.INTRODUCE, number, "c" if number % 3 == 0 else "b", number % 3 == 1)))
        if number % 3 == 1:
            taken(door).close()
    asking.settimeout(60)
    for number in range(600):
        packet, fds, _flags, _address = socket.recv_fds(asking, 1000, 1)
        kind = m.NOT_INTRODUCED if number % 3 == 0 else m.INTRODUCED
        assert (*decode_message(packet)[:2], len(fds)) == (kind, number, int(number % 3 == 1))
        for fd in fds:
            os.close(fd)
    own_door.close()
    asking.close()
    second.close()


def test_an_answer_that_waits_comes_without_its_descriptor_where_the_kernel_passes_no_more(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking, own_door = node.introducer.admit("a", 11)
    for number in range(400):
        asking.send(marshal.dumps((m.INTRODUCE, number, NODE, number == 399)))
        node.reactor.run_once(0)
    send = socket.send_fds

    def refuse(sock: socket.socket, packets: list[bytes], fds: list[int]) -> int:
        if fds:
            raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))
        return send(sock, packets, fds)

    monkeypatch.setattr(socket, "send_fds", refuse)
    monkeypatch.setattr(kept.socket, "send_fds", refuse)
    node.start()
    asking.settimeout(60)
    for number in range(400):
        packet, fds, _flags, _address = socket.recv_fds(asking, 1000, 1)
        assert (*decode_message(packet)[:2], fds) == (m.INTRODUCED, number, [])
    own_door.close()
    asking.close()


def test_who_has_no_descriptor_for_it_is_told_so_and_gets_the_next_one(node: Node) -> None:
    first, _door = node.member("a", 11)
    second, _other_door = node.member("b", 22)
    node.start()
    with no_descriptors(0):
        with pytest.raises(OSError, match="Too many open files.*ulimit -n") as caught:
            first.to("b")
        assert caught.value.errno == errno.EMFILE
    for _ in range(2):
        sock, _pid = first.to("b")
        sock.close()
    first.close()
    second.close()


def test_an_answer_that_nobody_waits_for_any_more_is_passed_over(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _door = node.member("a", 11)
    second, door = node.member("b", 22)

    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(first, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            first.to("b")
    node.start()
    assert not first.know("c"), "the answer is that to this question"
    with taken(door) as other:
        assert other.recv(1) == b"", "the end that nobody waited for is closed"
    first.close()
    second.close()


def test_a_handler_of_a_signal_asks_while_its_thread_does(node: Node) -> None:
    """Another thread asks with a lock that the handler wants."""
    first, _door = node.member("a", 11)
    second, _other_door = node.member("b", 22)
    lock, asks = threading.Lock(), threading.Event()
    told = []

    def ask_with_lock() -> None:
        with lock:
            asks.set()
            told.append(first.know("b"))

    def handle(*_args: object) -> None:
        node.start()
        told.append(first.know("b"))
        with lock:
            told.append(first.know("c"))

    def interrupt() -> None:
        while not first._answers:
            pass
        other.start()
        asks.wait()
        signal.pthread_kill(main, signal.SIGUSR1)

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handle)
    other, interrupter = threading.Thread(target=ask_with_lock), threading.Thread(target=interrupt)
    try:
        interrupter.start()
        first.to("b")[0].close()
    finally:
        signal.signal(signal.SIGUSR1, before)
        interrupter.join()
        other.join()
    assert sorted(told) == [False, True, True]
    first.close()
    second.close()


def test_threads_that_ask_at_once_get_their_own_answers(node: Node) -> None:
    first, second, door = node.two()
    wrong: list[str] = []

    def ask(number: int) -> None:
        for _ in range(50):
            if first.know("c") or not first.know("b"):
                wrong.append("known")
            sock, _pid = first.to("b")
            with sock:
                sock.sendall(b"%d" % number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    heard = []
    for _ in range(200):
        with taken(door) as other:
            heard.append(other.recv(10))
    for thread in threads:
        thread.join()
    assert not wrong
    assert [heard.count(b"%d" % number) for number in range(4)] == [50] * 4
    first.close()
    second.close()


def test_who_has_left_its_session_can_ask_no_more(node: Node) -> None:
    first, _door = node.member("a", 11)

    def leave_meanwhile() -> None:
        while not first._answers:
            pass
        first.close()

    leaver = threading.Thread(target=leave_meanwhile)
    leaver.start()
    for _ in range(2):
        with pytest.raises(ConnectionResetError, match="this process has left its session"):
            first.to("b")
    leaver.join()
    assert not first.know("a")
    node.start()


def test_who_has_no_more_time_goes_on_without_an_answer(node: Node) -> None:
    first, _door = node.member("a", 11)
    second, door = node.member("b", 22)
    for _ in range(500):  # more than the channel has room for
        with pytest.raises(TimeoutError, match=r"has not answered within 0\.001 s"):
            first.to("b", 0.001)
    node.start()
    assert first.know("b")
    with taken(door) as other:
        assert other.recv(1) == b"", "the end that came too late is closed"
    first.to("b", 60)[0].close()
    first.close()
    second.close()


def test_an_observer_speaks_with_whom_it_names_over_its_own_connection(node: Node) -> None:
    second, door = node.member("b", 22)
    observers = [socket.socketpair() for _ in range(2)]
    for (_outside, inside), wanted in zip(observers, ("b", "nobody"), strict=True):
        connection = node.reactor.register(inside, lambda _connection, _message: None, lambda _connection: None)
        node.introducer.pass_on(connection, wanted)
    node.start()
    with observers[0][0] as sock, taken(door) as other:
        assert sock.recv(100) == encode((m.PASSED,))
        sock.sendall(b"well?")
        assert other.recv(10) == b"well?"
    with observers[1][0] as sock:
        text = "process nobody is no longer in this session"
        assert decode_message(sock.recv(200)[4:]) == (m.REFUSED, errno.ECONNREFUSED, text)
        assert sock.recv(1) == b""
    second.close()


def test_a_connection_of_another_user_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _door = node.two()
    monkeypatch.setattr(introductions, "peer_is_ours", lambda _sock: False)
    with pytest.raises(PermissionError, match="the connection to process b belongs to another user"):
        first.to("b", 60)
    first.close()
    second.close()
