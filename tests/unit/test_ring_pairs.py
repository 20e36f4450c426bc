"""Connections with a ring pair beside their socket: both ends in this process, which says in the table whether each is awake."""

from __future__ import annotations

import marshal
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._common import messages as m
from mray._ipc.connection import SocketConnection, encode
from mray._ipc.reactor import Reactor
from mray._ipc.reaper import local_name, segment_prefix
from mray._ipc.ring import RingWriter
from mray._ipc.ring_pair import PUBLISHED, RingPair
from mray._ipc.segment import new_nonce, unlink
from mray._ipc.table import AWAKE, DOZING, PARKED, ROW_WORDS, STATE, SessionTable

Message = tuple[Any, ...]


class End:
    """One process's end of the conversation."""

    def __init__(self, sock: socket.socket, table: SessionTable, row: int) -> None:
        self.table = table
        self.row = row
        self.reactor = Reactor()
        self.reactor.join_table(table, row)
        self.got: list[Message] = []
        self.gone = 0
        self.connection = self.reactor.register(sock, self._on_message, self._on_hangup)

    def _on_message(self, connection: SocketConnection, message: Message) -> None:
        if message[0] == m.OFFER_RING:
            if connection.take_ring(message[1], self.table, self.row, message[2]):
                self.reactor.watch_ring(connection)
        elif message[0] == m.TAKE_RING:
            if not connection.ring_taken(*message[1:]) and not connection.has_ring:
                self.reactor.forget_ring(connection)
        elif message[0] == m.RETIRE_RING:
            connection.ring_retired()
            self.reactor.forget_ring(connection)
        elif message[0] != m.NUDGE:
            self.got.append(message)

    def _on_hangup(self, _connection: SocketConnection) -> None:
        self.gone += 1

    def says(self, state: int) -> None:
        """This process is awake, or is not."""
        self.table.words[self.row * ROW_WORDS + STATE] = state

    def read(self) -> None:
        """Read all there is, in some order."""
        for _ in range(4):
            self.reactor.run_once(0)

    def close(self) -> None:
        self.connection.close()
        self.reactor.close()


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    table = SessionTable.create(f"{segment_prefix(local_name(1))}table-{new_nonce():x}")
    left, right = (End(sock, table, row) for row, sock in enumerate(socket.socketpair(), 1))
    yield left, right
    left.close()
    right.close()
    table.close()


def offer(end: End) -> None:
    assert end.connection.offer_ring(f"{segment_prefix(local_name(1))}ring-{new_nonce():x}", end.table, end.row)
    end.reactor.watch_ring(end.connection)


def opened(ends: tuple[End, End]) -> tuple[End, End]:
    left, right = ends
    offer(left)
    right.read()
    left.read()
    return ends


def offer_again(left: End) -> None:
    left.connection.alone = -1
    offer(left)


def pages_in_memory() -> int:
    """Pages of ring pairs that this process has mapped."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        return sum("ring-" in line for line in maps) // 2


class Counted:
    """Counts what a connection gives to its socket."""

    def __init__(self, connection: SocketConnection) -> None:
        self._socket = connection.socket
        self.sent = 0
        connection.socket = self  # type: ignore[assignment]

    def send(self, data: bytes) -> int:
        self.sent += 1
        return self._socket.send(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def test_small_messages_between_processes_that_are_awake_need_no_system_call(ends: tuple[End, End]) -> None:
    left, right = opened(ends)
    counted = Counted(left.connection)
    for number in range(100):
        left.connection.send((m.RECLAIM, number))
        assert right.connection.read_ring()
    assert right.got == [(m.RECLAIM, number) for number in range(100)]
    assert counted.sent == 0


@pytest.mark.parametrize("seed", range(20))
def test_messages_keep_their_order_whichever_way_each_takes(ends: tuple[End, End], seed: int) -> None:
    draw = random.Random(seed)
    left, right = opened(ends)
    pages = pages_in_memory()
    expected: dict[int, list[Message]] = {1: [], 2: []}
    steps: list[Callable[[End, End], object]] = [
        lambda here, _there: here.connection.flush(),
        lambda _here, there: there.says(draw.choice([AWAKE, AWAKE, PARKED, DOZING])),
        lambda _here, there: there.connection.read_ring(),
        lambda _here, there: there.reactor.run_once(0),
        lambda here, _there: draw.random() < 0.2 and here.connection.retire_ring(),
        # Not before the pair that it had is closed; both may offer one at the same time, for each may call the other.
        lambda here, _there: here.connection.has_ring or here.connection.alone < 0 or offer_again(here),
    ]
    for number in range(600):
        here, there = draw.choice([(left, right), (right, left)])
        if draw.random() < 0.5:
            message = (m.FUNCTION, number, bytes(draw.choice([1, 50, 150, 400, 500, 5000])))
            expected[there.row].append(message)
            (here.connection.send if draw.random() < 0.6 else here.connection.post)(message)
        else:
            draw.choice(steps)(here, there)
    for end in ends:
        end.connection.flush()
    for end in (*ends, *ends):
        end.read()
    assert left.got == expected[1]
    assert right.got == expected[2]
    # Closed pairs have left nothing.
    left.connection.retire_ring()
    for end in (right, left):
        end.read()
        assert not end.connection.has_ring
    assert pages_in_memory() == pages - 1


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_ring_pairs_that_are_offered_at_once_one_is_taken_and_read(ends: tuple[End, End], first: int) -> None:
    pages = pages_in_memory()
    for end in (ends[first], ends[1 - first]):
        offer(end)
    for end in (*ends, *ends):
        end.read()
    for end in ends:
        end.says(AWAKE)
        end.connection.send((m.RECLAIM, end.row))
    assert pages_in_memory() == pages + 1
    for end in ends:
        end.reactor.run_once(0)
        assert end.got == [(m.RECLAIM, 3 - end.row)]


def test_none_is_offered_where_there_is_one(ends: tuple[End, End]) -> None:
    left, right = opened(ends)
    right.connection.send((m.RECLAIM, b"\0" * 5000))  # by the socket
    assert not right.connection.offer_ring(f"{segment_prefix(local_name(1))}ring-{new_nonce():x}", right.table, right.row)
    right.connection.send((m.RECLAIM, 1))
    left.read()
    assert [message[1] for message in left.got] == [b"\0" * 5000, 1]


def test_both_ends_may_give_up_a_ring_pair_at_once(ends: tuple[End, End]) -> None:
    left, right = opened(ends)
    for end in ends:
        end.connection.send((m.RECLAIM, 1))
        end.connection.retire_ring()
        end.connection.send((m.RECLAIM, 2))
    for end in (*ends, *ends):
        end.read()
    assert left.got == right.got == [(m.RECLAIM, 1), (m.RECLAIM, 2)]
    assert not left.connection.has_ring
    assert not right.connection.has_ring
    opened(ends)
    assert left.connection.has_ring
    assert right.connection.has_ring


def test_a_pair_is_idle_when_nothing_has_gone_through_it_since_the_question_before(ends: tuple[End, End]) -> None:
    left, right = opened(ends)
    assert left.connection.ring_is_idle()
    right.connection.send((m.RECLAIM, 1))
    left.read()
    assert not left.connection.ring_is_idle()
    assert left.connection.ring_is_idle()
    left.connection.send((m.RECLAIM, 1))
    left.reactor.retire_idle_ring()
    assert left.connection.has_ring
    left.reactor.retire_idle_ring()
    right.read()
    left.read()
    assert not left.connection.has_ring


def test_a_reader_that_falls_asleep_as_an_entry_is_published_is_nudged(ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = opened(ends)
    counted = Counted(left.connection)
    put = RingWriter.put

    def put_as_it_falls_asleep(writer: RingWriter, form: int, body: bytes) -> None:
        right.says(PARKED)
        put(writer, form, body)

    monkeypatch.setattr(RingWriter, "put", put_as_it_falls_asleep)
    left.connection.send((m.RECLAIM, 1))
    assert counted.sent == 1
    assert not right.got
    right.reactor.wait_until(lambda: right.got, 10)
    assert right.got == [(m.RECLAIM, 1)]
    left.connection.send((m.RECLAIM, 2))  # it is awake again, and falls asleep again
    right.says(AWAKE)
    right.read()
    assert right.got == [(m.RECLAIM, 1), (m.RECLAIM, 2)]


def test_a_process_that_sleeps_gets_its_messages_through_the_socket(ends: tuple[End, End]) -> None:
    left, right = opened(ends)
    counted = Counted(left.connection)
    right.says(DOZING)
    left.connection.send((m.RECLAIM, 1))
    assert counted.sent == 1
    right.read()
    assert right.got == [(m.RECLAIM, 1)]


def test_who_is_about_to_sleep_looks_into_its_rings_once_more(ends: tuple[End, End]) -> None:
    left, right = opened(ends)
    left.connection.send((m.RECLAIM, 1))
    assert right.reactor.wait_until(lambda: right.got, 10, spin=False)


def test_who_sleeps_in_an_event_loop_outside_is_sent_for_through_the_socket(ends: tuple[End, End]) -> None:
    left, right = opened(ends)
    counted = Counted(left.connection)
    left.connection.send((m.RECLAIM, 1))  # before the loop says so
    right.reactor.sleep_outside(True)
    assert select.select([right.reactor.fileno()], [], [], 0)[0]
    right.read()
    left.connection.send((m.RECLAIM, 2))
    assert counted.sent == 1
    right.reactor.wait_until(lambda: len(right.got) == 2, 10)  # a thread that reads meanwhile changes nothing
    left.connection.send((m.RECLAIM, 3))
    assert counted.sent == 2
    right.reactor.sleep_outside(False)
    right.read()
    left.connection.send((m.RECLAIM, 4))
    assert counted.sent == 2
    right.read()
    assert right.got == [(m.RECLAIM, number) for number in (1, 2, 3, 4)]


def test_a_loop_that_begins_or_ends_to_sleep_outside_leaves_a_sleeping_thread_its_word(ends: tuple[End, End]) -> None:
    _left, right = ends
    word = right.row * ROW_WORDS + STATE
    over: list[int] = []
    thread = threading.Thread(target=lambda: right.reactor.wait_until(lambda: bool(over), None, spin=False))
    thread.start()
    while right.table.words[word] != PARKED:
        time.sleep(0.001)
    for sleeps in (True, False):
        right.reactor.sleep_outside(sleeps)
        assert right.table.words[word] == PARKED
    over.append(1)
    right.reactor.wake()
    thread.join(10)
    assert right.table.words[word] == AWAKE


def test_a_full_ring_sends_its_writer_through_the_socket(ends: tuple[End, End]) -> None:
    left, right = opened(ends)
    counted = Counted(left.connection)
    messages = [(m.RECLAIM, number) for number in range(20)]
    for message in messages:
        left.connection.send(message)
    assert 0 < counted.sent < len(messages)
    right.read()
    assert right.got == messages


def test_what_a_process_has_said_before_its_end_is_handed_on_before_it(ends: tuple[End, End]) -> None:
    left, right = opened(ends)
    left.connection.send((m.RECLAIM, 1))
    left.connection.send((m.FUNCTION, b"", bytes(5000)))
    left.connection.send((m.RECLAIM, 2))
    left.connection.close()
    right.connection.read_rest()
    assert [message[0] for message in right.got] == [m.RECLAIM, m.FUNCTION, m.RECLAIM]
    assert right.gone == 1


def test_a_page_whose_name_is_gone_is_done_without(ends: tuple[End, End]) -> None:
    left, right = ends
    name = f"{segment_prefix(local_name(1))}ring-{new_nonce():x}"
    left.connection.offer_ring(name, left.table, left.row)
    unlink(name)
    right.read()
    left.read()
    counted = Counted(left.connection)
    left.connection.send((m.RECLAIM, 1))
    right.read()
    assert right.got == [(m.RECLAIM, 1)]
    assert counted.sent == 1


def test_an_end_before_the_answer_leaves_no_name(ends: tuple[End, End]) -> None:
    left, right = ends
    name = f"{segment_prefix(local_name(1))}ring-{new_nonce():x}"
    left.connection.offer_ring(name, left.table, left.row)
    left.connection.close()
    right.read()
    with pytest.raises(FileNotFoundError):
        RingPair.take(name, left.table)


@pytest.mark.parametrize(
    ("form", "body"),
    [
        pytest.param(0, b"no marshal", id="not a message"),
        pytest.param(1, b"\x50\0\0\0" + marshal.dumps((m.RECLAIM, 1)), id="a frame that is cut"),
        pytest.param(77, b"\0" * 20, id="no form of ours"),
    ],
)
def test_a_ring_with_what_no_process_of_ours_writes_ends_the_conversation(ends: tuple[End, End], form: int, body: bytes) -> None:
    left, right = opened(ends)
    ring = left.connection._ring
    assert ring is not None
    assert ring.try_put(form, body, left.connection._sent) == PUBLISHED
    right.read()
    assert right.connection.closed
    assert "invalid message" in right.connection.refused
    left.read()
    assert [message[0] for message in left.got] == [m.PROTOCOL_ERROR]


class Narrow:
    """A socket that takes so many bytes more, and then none until it is asked for more again."""

    def __init__(self, connection: SocketConnection) -> None:
        self._socket = connection.socket
        self.room = 0
        connection.socket = self  # type: ignore[assignment]

    def send(self, data: bytes) -> int:
        if not self.room:
            raise BlockingIOError
        sent = self._socket.send(data[: self.room])
        self.room -= sent
        return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


@pytest.mark.parametrize("rest", [1, 4, 100, 400])
def test_the_rest_of_a_frame_that_the_socket_has_begun_goes_by_the_socket(ends: tuple[End, End], rest: int) -> None:
    left, right = opened(ends)
    narrow = Narrow(left.connection)
    large = (m.FUNCTION, b"", bytes(5000))
    narrow.room = len(encode(large)) - rest
    left.connection.send(large)
    right.read()
    left.connection.send((m.RECLAIM, 1))
    narrow.room = 10_000
    left.connection.writable()
    right.read()
    left.connection.send((m.RECLAIM, 2))
    right.read()
    assert right.got == [large, (m.RECLAIM, 1), (m.RECLAIM, 2)]
