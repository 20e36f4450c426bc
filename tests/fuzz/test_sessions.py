"""Real messages of a session, damaged and sent again to its node and workers: the sender loses its connection, others lose nothing."""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mray
from mray._api.current import backend_if_started
from mray._common import messages as m
from mray._ipc.connection import SocketConnection, encode
from mray._ipc.introductions import NODE
from mray.exceptions import RayError
from tests.fuzz.changes import changed

pytestmark = pytest.mark.filterwarnings("ignore")


@mray.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def up(self, _value: Any = None) -> int:
        self.count += 1
        return self.count

    def send_damaged(self, words: bytes) -> int:
        """Send bytes to this worker's caller besides answers."""
        client = backend_if_started().client  # type: ignore[union-attr]
        for peer in client.peers.values():
            peer.socket.setblocking(True)
            peer.socket.sendall(words)
        return 1


@mray.remote
def double(number: int) -> int:
    return 2 * number


@pytest.fixture(scope="module")
def said(shared_session: Any) -> Iterator[list[Any]]:
    """A session, and what its driver has said in it."""
    heard: list[Any] = []
    send, post = SocketConnection.send, SocketConnection.post

    def noting(real: Callable[..., Any]) -> Callable[..., Any]:
        def say(self: SocketConnection, message: Any) -> Any:
            heard.append(message)
            return real(self, message)

        return say

    patch = pytest.MonkeyPatch()
    patch.setattr(SocketConnection, "send", noting(send))
    patch.setattr(SocketConnection, "post", noting(post))
    mray.init(num_cpus=2, logging_level="CRITICAL", log_to_driver=False)
    shared_session.running = True
    try:
        counter = Counter.options(name="known").remote()
        assert mray.get([counter.up.remote(mray.put(5)), double.remote(1)]) == [1, 2]
        group = mray.util.placement_group([{"CPU": 1}])
        mray.get(group.ready())
        mray.util.remove_placement_group(group)
        assert mray.nodes()
        patch.undo()
        yield heard
    finally:
        patch.undo()
        mray.shutdown()
        shared_session.running = False


def speak(process: str, words: bytes) -> bool:
    """Say something, and wait until the other side has hung up; False if nobody is there any more (an actor that is over)."""
    try:
        sock = backend_if_started().client.connect(process)  # type: ignore[union-attr]
    except ConnectionRefusedError:
        return False
    with sock:
        try:
            sock.sendall(words)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        except ConnectionError:
            pass
    return True


def test_the_words_of_a_session_said_again_and_damaged_harm_nobody(said: list[Any]) -> None:
    counter = mray.get_actor("known")
    before = mray.get(counter.up.remote())
    others = (NODE, *backend_if_started().client.peers)  # type: ignore[union-attr]
    assert len(others) >= 3
    randomness = random.Random(9)
    # Nobody may end what is another's: these words are not said again as they are.
    harmless = [message for message in said if message[0] not in (m.SHUTDOWN, m.CALL, m.TASK, m.ACTOR_KILL, m.RESET, m.ACTOR_DROP)]
    assert {m.ACTOR_CREATE, m.LEASE_REQUEST, m.GROUP_CREATE, m.QUERY} <= {message[0] for message in harmless}
    for process in others:
        for number in range(12):
            hello = encode((m.HELLO, m.ROLE_DRIVER, f"{number:016x}", os.getpid()))
            pieces = [encode(randomness.choice(harmless)) for _ in range(4)]
            randomness.shuffle(pieces)
            # (A peer that has said HELLO well, or has not.)
            speak(process, (hello if number % 2 else b"") + changed(b"".join(pieces), randomness))
    assert mray.get(counter.up.remote()) == before + 1
    assert mray.get([double.remote(number) for number in range(20)]) == [2 * number for number in range(20)]
    assert mray.util.placement_group([{"CPU": 1}]).wait(60)


DAMAGED = {
    "a huge tuple": b"\x05\x00\x00\x00(\xff\xff\xff\x7f",
    "text": b"this is printed to the wrong descriptor",
    "no word": encode((987654, 1)),
    "another word": encode((m.LEASE_REQUEST, 1, {"resources": {}})),
    "odd fields": encode((m.REPLY, "task", "form", 5, 6)),
    "too few fields": encode((m.BORROW,)),
}


@pytest.mark.parametrize("words", DAMAGED.values(), ids=DAMAGED)
def test_a_worker_that_gets_a_damaged_message_from_a_caller_hangs_up_and_lives_on(said: list[Any], words: bytes) -> None:
    counter = Counter.remote()
    assert mray.get(counter.up.remote()) == 1
    client = backend_if_started().client  # type: ignore[union-attr]
    with client.lock:
        caller = client.actors[counter._actor_id.binary()]
        connection = client.peers[caller.actor.process]
        connection._out.append(words)
        connection.unsent += len(words)
        connection.flush()
    client.reactor.wait_until(lambda: connection.closed)
    assert mray.get(mray.get_actor("known").up.remote()) > 0
    assert mray.get(counter.up.remote()) == 2


@pytest.mark.parametrize("words", [DAMAGED["text"], DAMAGED["no word"]], ids=["text", "no word"])
def test_calls_that_wait_when_a_connection_breaks_are_told(said: list[Any], words: bytes) -> None:
    counter = Counter.remote()
    assert mray.get(counter.up.remote()) == 1
    with pytest.raises(RayError):
        mray.get(counter.send_damaged.remote(words))
    assert mray.get(mray.get_actor("known").up.remote()) > 0


def test_an_announcement_of_a_gigabyte_is_not_waited_for(said: list[Any]) -> None:
    others = (NODE, *backend_if_started().client.peers)  # type: ignore[union-attr]
    heard = sum(speak(process, struct.pack("<I", 1 << 30) + b"x" * 100) for process in others)
    assert heard >= 2  # the node, the actor that stays
    assert mray.get(double.remote(4)) == 8
