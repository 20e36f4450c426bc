"""The ends of processes: told once, with their cause; errors about an owner that has ended."""

from __future__ import annotations

import errno
import os
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mray._common import messages as m
from mray._common.causes import Cause
from mray._decide.caller.caller_instructions import FailObjects
from mray._ipc.connection import encode
from mray._ipc.reaper import segment_prefix
from mray._objects.ownership import Entry
from mray._objects.remote_error import unpickle_error
from mray._runtime.client import wakeups
from mray._runtime.client.actor_calls import ActorCallers, ActorState
from mray._runtime.client.descriptors import Descriptors
from mray._runtime.client.wakeups import Wakeups
from mray._runtime.connections import ends
from mray._runtime.connections.deaths import node_error
from mray._runtime.connections.endpoint import Endpoint
from mray._runtime.connections.ends import Ended, Ends
from mray._runtime.connections.requests import Requests
from mray._runtime.connections.sockets import Sockets
from mray._runtime.objects.borrowing import Borrowing
from mray._runtime.objects.memory import SharedMemory
from mray._runtime.objects.owner import Owner
from mray.exceptions import NodeDiedError, OwnerDiedError, RaySystemError

KILLED = Ended("8c62cb31", Cause(m.CAUSE_CRASH, "", 7, -9))


def test_an_end_is_told_once_and_at_once_where_it_is_known():
    told: list[Ended] = []
    known = Ends()
    known.then("8c62cb31", told.append)
    known.then("8c62cb31", told.append)
    known.then("another", told.append)
    known.tell(KILLED)
    known.tell(KILLED)
    assert told == [KILLED]
    assert known.of("8c62cb31") == KILLED and known.of("another") is None
    known.then("8c62cb31", told.append)()
    assert told == [KILLED, KILLED]


def test_followers_are_called_in_order_with_each_end_once_its_last_messages_were_read():
    told: list[tuple[str, Ended]] = []
    known = Ends()
    known.followers = (lambda end: told.append(("first", end)), lambda end: told.append(("second", end)))
    known.tell(KILLED)
    assert told == []
    known.settle(KILLED)
    assert told == [("first", KILLED), ("second", KILLED)]


def test_who_has_ended_its_wait_is_not_told():
    told: list[Ended] = []
    known = Ends()
    cancel = known.then("8c62cb31", told.append)
    known.then("8c62cb31", lambda _end: cancel())
    cancel()
    cancel()
    known.tell(KILLED)
    assert told == []


def test_a_wait_that_begins_as_a_finalizer_ends_another_is_told():
    told: list[Ended] = []
    known = Ends()
    cancel = known.then("8c62cb31", lambda _end: None)

    class Late:
        """Hashed as it is put down."""

        def __call__(self, end: Ended) -> None:
            told.append(end)

        def __hash__(self) -> int:
            cancel()
            return 1

    known.then("8c62cb31", Late())
    known.tell(KILLED)
    assert told == [KILLED]


@pytest.mark.parametrize("state", [m.DEAD, m.RESTARTING])
def test_the_end_of_an_actor_is_told_once_where_the_node_is_lost_already(state: str):
    told: list[Any] = []
    node, reactor = SimpleNamespace(on=lambda _handlers: None), SimpleNamespace(defer=told.append)
    info = {"retry_delay": 0.0}
    client: Any = SimpleNamespace(fatal=RaySystemError("the node is lost"), from_node=node, reactor=reactor, info=info, lock=nullcontext())
    borrowing: Any = SimpleNamespace(holds=lambda _actor: False)
    caller = ActorCallers(client, borrowing, lambda _text: None).of(b"\x01" * 16)
    ActorState(caller, m.DEAD, state).then(told.append)()
    assert len(told) == 1


def test_an_actor_that_restarts_and_dies_calls_back_once_unless_the_callback_is_taken_back():
    node = SimpleNamespace(on=lambda _handlers: None, send=lambda _message: None)
    reactor = SimpleNamespace(defer=lambda callback: callback())
    info = {"retry_delay": 0.0}
    client: Any = SimpleNamespace(fatal=None, node=node, from_node=node, reactor=reactor, info=info, lock=nullcontext())
    borrowing: Any = SimpleNamespace(holds=lambda _actor: False)
    caller = ActorCallers(client, borrowing, lambda _text: None).of(b"\x01" * 16)
    state = ActorState(caller, m.RESTARTING, m.DEAD)
    told: list[Any] = []
    state.then(told.append)
    cancel = state.then(lambda _error: told.append("taken back"))
    cancel()
    cancel()
    assert not state.ready()
    caller.on_state(m.RESTARTING, "", 0, KILLED.cause)
    assert state.ready()
    caller.on_state(m.DEAD, "", 0, KILLED.cause)
    assert len(told) == 1
    state.then(told.append)
    assert len(told) == 2


def test_a_conversation_that_breaks_is_no_end_of_its_process():
    told: list[Ended] = []
    known = Ends()
    known.then("8c62cb31", told.append)
    broken = Ended("8c62cb31", error=RaySystemError("The handler of BORROWED failed"))
    known.tell(broken)
    assert told == [broken] and known.of("8c62cb31") is None
    known.then("8c62cb31", told.append)
    known.tell(KILLED)
    assert told == [broken, KILLED]


def test_a_callback_of_an_answer_is_called_once_unless_it_is_taken_back():
    called: list[str] = []
    answer = Requests(Ends()).send(cast("Any", SimpleNamespace(closed=True, process="")), m.QUERY, "spilled", [])
    cancel = answer.then(lambda: called.append("taken back"))
    answer.then(lambda: called.append("before"))
    cancel()
    cancel()
    answer.set(None)
    answer.then(lambda: called.append("after"))()
    assert called == ["before", "after"]


def test_a_request_to_a_node_that_has_hung_up_gets_how_the_session_has_ended():
    requests = Requests(Ends())
    node: Any = SimpleNamespace(closed=True, process="")
    answer = requests.send(node, m.FENCE)
    assert not answer.ready()
    requests.all_lost(NodeDiedError("the node process (pid 7) was killed"))
    with pytest.raises(NodeDiedError, match="pid 7"):
        answer.result()
    peer: Any = SimpleNamespace(closed=True, process="8c62cb31")
    with pytest.raises(OwnerDiedError, match=r"^The object's owner has exited.* process 8c62cb31\.$"):
        requests.send(peer, m.GRAPH, "", b"").result()


def test_an_owner_that_ended_after_its_conversation_broke_is_told_with_the_reason():
    known = Ends()
    known.tell(Ended("8c62cb31", error=RaySystemError("The handler of BORROWED failed")))
    known.tell(KILLED)
    error = known.owner_error("8c62cb31", b"\x01")
    assert isinstance(error, OwnerDiedError)
    assert "Its owner, process 8c62cb31: its process (pid 7) was killed by SIGKILL (signal 9)." in str(error)
    assert "had broken before: System error: The handler of BORROWED failed" in str(error)
    assert "broken" not in str(known.owner_error("another"))


def test_an_owner_that_was_no_worker_is_named():
    known = Ends()
    known.tell(Ended("8c62cb31", Cause(m.CAUSE_CRASH, "", 7, None), "the driver of job 01000000"))
    assert "Its owner, process 8c62cb31: the driver of job 01000000 (pid 7) has ended." in str(known.owner_error("8c62cb31"))


def test_what_an_owner_did_that_crashed_is_told():
    known = Ends()
    known.tell(Ended("8c62cb31", Cause(m.CAUSE_CRASH, "It was in its worker_process_setup_hook.", 7, -9)))
    assert "was killed by SIGKILL (signal 9). It was in its worker_process_setup_hook." in str(known.owner_error("8c62cb31"))


def test_only_so_many_ends_are_remembered(monkeypatch):
    monkeypatch.setattr(ends, "MOST", 2)
    known = Ends()
    for process in "abc":
        known.tell(Ended(process, error=RaySystemError(f"broke with {process}")))
        known.tell(KILLED._replace(process=process))
    assert known.of("a") is None and "broke with a" not in str(known.owner_error("a"))
    assert known.of("c") is not None and "broke with c" in str(known.owner_error("c"))


@pytest.fixture
def asking() -> Iterator[tuple[Endpoint, list[Any]]]:
    """A process, and what it has said to the node."""
    said: list[Any] = []
    endpoint = Endpoint("", "me", m.ROLE_WORKER, Sockets(""), Entry)
    node: Any = SimpleNamespace(closed=False, process="node", send=said.append)
    endpoint.node = node
    yield endpoint, said
    endpoint.reactor.close()


def test_who_asks_for_an_end_before_the_node_has_told_it_gets_it_behind_that_word(asking):
    endpoint, said = asking
    told: list[Ended | None] = []
    with endpoint.lock:
        endpoint.after_end("8c62cb31", lambda: told.append(endpoint.ends.of("8c62cb31")))
        ((code, number),) = said
        assert code == m.FENCE
        assert told == []
        endpoint.ends.tell(KILLED)
        endpoint.requests.settle(number, {}, None)
        assert told == [KILLED]
        endpoint.after_end("8c62cb31", lambda: told.append(None))
        assert told == [KILLED, None] and len(said) == 1


def test_who_asks_for_an_end_that_no_node_will_tell_waits_for_none(asking):
    endpoint, said = asking
    told: list[Ended | None] = []
    with endpoint.lock:
        endpoint.after_end("before", lambda: told.append(endpoint.ends.of("before")))
        endpoint.requests.settle(said[0][1], {}, None)
        endpoint.node.closed = True
        endpoint.after_end("another", lambda: told.append(endpoint.ends.of("another")))
    assert told == [None, None]


def test_who_asks_for_an_owner_that_went_with_the_session_is_told_of_the_session(asking):
    endpoint, said = asking
    borrowing, entry = Borrowing(Owner(endpoint, SharedMemory()), lambda _actor: None), Entry()
    entry.owner, entry.object_id = "8c62cb31", b"x"
    with endpoint.lock:
        borrowing.fail(FailObjects([entry], None))
    assert said and not entry.ready()
    endpoint.fail_everything(node_error("it was killed"))
    assert isinstance(unpickle_error(entry.payload), NodeDiedError)


def test_a_process_whose_conversation_breaks_goes_on_ringing_and_a_dead_one_does_not(asking, monkeypatch):
    endpoint, _said = asking
    ended: list[str] = []
    monkeypatch.setattr(wakeups, "Relay", lambda name, _wake: SimpleNamespace(end=lambda: ended.append(name)))
    endpoint.info = {"session": "0123"}
    part = Wakeups(endpoint)
    name = f"{segment_prefix('0123')}8c62cb31-1"
    with pytest.raises(FileNotFoundError, match="no semaphore of that process: '/another-1'"):
        part._be_rung_by("8c62cb31", "/another-1")
    part._be_rung_by("8c62cb31", name)
    with endpoint.lock:
        endpoint.ends.tell(Ended("8c62cb31", error=RaySystemError("The handler of BORROWED failed")))
        assert ended == []
        endpoint._on_worker_gone(endpoint.node, "8c62cb31", "", KILLED.cause.packed())
    assert ended == [name]


def test_the_error_of_a_lost_node_keeps_the_frames_of_the_last_call_alone(asking):
    endpoint, _said = asking
    endpoint.fatal = RaySystemError("the node is dead")
    frames = []
    for _ in range(3):
        with pytest.raises(RaySystemError) as caught:
            endpoint.check()
        frames.append(len(list(traceback.walk_tb(caught.value.__traceback__))))
    assert frames == [frames[0]] * 3


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (b"", ConnectionResetError, "process w1 ended before it gave a descriptor"),
        (encode((m.FAULT, "no such key")), RaySystemError, "Process w1 did not give a descriptor: no such key"),
        (encode((m.REFUSED, 2, "not here")), FileNotFoundError, "not here"),
    ],
    ids=["end", "fault", "refusal"],
)
def test_the_error_of_a_descriptor_that_does_not_come_names_the_process(answer: bytes, kind: type[Exception], text: str) -> None:
    here, there = socket.socketpair()
    client: Any = SimpleNamespace(from_peers=SimpleNamespace(on=lambda _handlers: None), connect=lambda _process: here)
    with there:
        there.sendall(answer)
        there.shutdown(socket.SHUT_WR)
        with pytest.raises(kind, match=text):
            Descriptors(client, lambda _key: -1).fetch("w1", "a key")


def test_a_process_without_a_descriptor_for_another_says_so_and_names_itself() -> None:
    def full(_key: str) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    handlers: dict[int, Callable[..., None]] = {}
    here, there = socket.socketpair()
    client: Any = SimpleNamespace(from_peers=SimpleNamespace(on=handlers.update), connect=lambda _process: here)
    descriptors = Descriptors(client, full)
    connection: Any = SimpleNamespace(send=lambda message: there.sendall(encode(message)), close=there.close)
    handlers[m.DESCRIPTOR](connection, "")
    with pytest.raises(
        OSError, match=f"^.Errno 24. Too many open files: process {os.getpid()} may have .* It has none for another process.$"
    ):
        descriptors.fetch("w1", "")
