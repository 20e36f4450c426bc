"""The messages that the driver exchanges in five walks: a task, an actor's calls, a graph, large values between processes, a kill.

A change of how processes talk shows here first. Messages are the words of `mray._common.messages`, by direction, with the node and with
peers. Left out are greetings, which depend on which workers are free, rings, which depend on speed, and lines that workers print. Nothing
that is said belongs to no step: a word that comes too late is found in the next one, and the last is the end of the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mray._common import messages as m
from mray._ipc.connection import Connection, HangupCallback, Message, MessageCallback, SocketConnection
from mray._ipc.faults import message_name
from mray._ipc.reactor import Reactor

_LEFT_OUT = {m.HELLO, m.OFFER_RING, m.TAKE_RING, m.RETIRE_RING, m.NUDGE, m.OUTPUT}

#: Of each step: said to the node, heard from it, said to peers, heard from them.
GOLDEN = {
    "a first task": ("LEASE_REQUEST LEASE_RETURN", "LEASE_GRANT", "LEASED FUNCTION TASK", "REPLY"),
    "a task": ("LEASE_REQUEST LEASE_RETURN", "LEASE_GRANT", "LEASED TASK", "REPLY"),
    "two actors": ("ACTOR_CREATE ACTOR_SUBSCRIBE " * 2, "ACTOR_STATE " * 4, "CALL CALL", "REPLY REPLY"),
    "an actor's call": ("", "", "CALL", "REPLY"),
    "a compiled graph": ("", "DESCRIPTOR", "GRAPH", "GRAPHED"),
    "a hundred executions": ("", "", "", ""),
    "the graph's end": ("", "", "GRAPH", "GRAPHED"),
    "a large value": ("", "", "", ""),
    "... for an actor": ("", "", "CALL", "BORROW RELEASE REPLY"),
    "... of an actor": ("", "", "CALL", "REPLY"),
    "... which is not needed any more": ("", "", "FREE_SEGMENT", ""),
    "... of an actor for another one": ("", "", "CALL CALL", "REPLY BORROW RELEASE REPLY"),
    "... and the end of that": ("", "", "FREE_SEGMENT", ""),
    "a kill": ("ACTOR_KILL", "ANSWER WORKER_GONE ACTOR_STATE", "", ""),
    "a call of the dead": ("", "", "", ""),
    "the end": ("SHUTDOWN", "", "", ""),
}
Transcript = tuple[str, ...]


class Recorder:
    """Hears what the connections of this process carry."""

    def __init__(self) -> None:
        #: Sequences of words, in the order of `GOLDEN`.
        self._words: tuple[list[str], ...] = ([], [], [], [])

    def record(self, connection: Connection, heard: bool, message: Message) -> None:
        if message[0] not in _LEFT_OUT:
            self._words[heard + 2 * (connection.role != m.ROLE_NODE and bool(connection.process))].append(message_name(message[0]))

    def transcript(self) -> Transcript:
        return tuple(" ".join(words) for words in self._words)

    def clear(self) -> None:
        for words in self._words:
            words.clear()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()

    def recording(said: Callable[..., Any]) -> Callable[..., Any]:
        def say(connection: Connection, message: Message, *others: Any) -> Any:
            found.record(connection, False, message)
            return said(connection, message, *others)

        return say

    register = Reactor.register

    def registering(reactor: Reactor, sock: Any, on_message: MessageCallback, on_hangup: HangupCallback) -> Connection:
        def heard(connection: Connection, message: Message) -> None:
            found.record(connection, True, message)
            on_message(connection, message)

        return register(reactor, sock, heard, on_hangup)

    for name in ("post", "send", "send_with"):
        monkeypatch.setattr(SocketConnection, name, recording(getattr(SocketConnection, name)))
    monkeypatch.setattr(Reactor, "register", registering)
    return found


def test_processes_say_to_each_other_what_they_said_before(recorder: Recorder, eventually: Callable[..., None]) -> None:
    import mray
    from mray.dag import InputNode

    def over(step: str) -> None:
        """The step is over when all of its words have come; others would be found in the next one."""
        golden = tuple(" ".join(words.split()) for words in GOLDEN[step])

        def lacks_nothing() -> bool:
            return all(len(words) >= len(wanted) for words, wanted in zip(recorder.transcript(), golden, strict=True))

        eventually(lacks_nothing, what=f"{step}: {golden}, and not {recorder.transcript()}")
        assert (step, recorder.transcript()) == (step, golden)
        recorder.clear()

    mray.init(num_cpus=2, configure_logging=False, log_to_driver=False)
    try:
        recorder.clear()

        @mray.remote
        def echo(value: Any) -> Any:
            return value

        @mray.remote
        class Actor:
            def echo(self, value: Any) -> Any:
                return value

            def size(self, value: Any) -> int:
                return len(value)

            def large(self) -> Any:
                return np.zeros(1 << 20, np.uint8)

        mray.get(echo.remote(1))
        over("a first task")
        mray.get(echo.remote(1))
        over("a task")
        first, second = Actor.remote(), Actor.remote()
        mray.get(first.echo.remote(1))
        mray.get(second.echo.remote(1))
        over("two actors")
        mray.get(first.echo.remote(1))
        over("an actor's call")

        with InputNode() as given:
            graph = first.echo.bind(given).experimental_compile()
        over("a compiled graph")
        for number in range(100):
            assert mray.get(graph.execute(number)) == number
        over("a hundred executions")
        graph.teardown()
        over("the graph's end")

        ref = mray.put(np.zeros(1 << 20, np.uint8))
        over("a large value")
        mray.get(first.size.remote(ref))
        over("... for an actor")
        del ref
        ref = first.large.remote()
        mray.get(ref)
        over("... of an actor")
        del ref
        over("... which is not needed any more")
        ref = first.large.remote()
        mray.get(second.size.remote(ref))
        over("... of an actor for another one")
        del ref
        over("... and the end of that")

        mray.kill(first)
        over("a kill")
        with pytest.raises(mray.exceptions.RayActorError):
            mray.get(first.echo.remote(1))
        over("a call of the dead")
    finally:
        mray.shutdown()
    over("the end")
