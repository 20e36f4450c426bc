"""The reactor and its connections, with both ends in this process or in a forked one."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from mray._common import messages as m
from mray._ipc.connection import encode
from mray._ipc.reactor import Reactor
from mray._ipc.table import SessionTable


@pytest.fixture
def pair():
    """Two reactors with a connection between them; messages land in lists."""
    ends = []
    for sock in socket.socketpair():
        reactor = Reactor()
        got, gone = [], []
        connection = reactor.register(sock, lambda _c, message, got=got: got.append(message), lambda c, gone=gone: gone.append(c))
        ends.append((reactor, connection, got, gone))
    yield ends
    for reactor, connection, _got, _gone in ends:
        connection.close()
        reactor.close()


def test_messages_arrive_in_order_and_whole(pair):
    (writer, left, _, _), (reactor, _, got, _) = pair
    sent = [(1, i, b"x" * (i * 37 % 5000)) for i in range(500)]
    for message in sent:
        left.post(message)
    left.flush()
    pump = threading.Thread(target=lambda: writer.wait_until(lambda: left.unsent == 0, 10))
    pump.start()
    assert reactor.wait_until(lambda: len(got) == len(sent), 10)
    pump.join()
    assert got == sent


def test_a_message_larger_than_every_buffer_arrives(pair):
    (writer, left, _, _), (reactor, _, got, _) = pair
    left.send((1, b"y" * 10_000_000))
    assert left.unsent > 0
    pump = threading.Thread(target=lambda: writer.wait_until(lambda: left.unsent == 0, 10))
    pump.start()
    assert reactor.wait_until(lambda: bool(got), 10)
    pump.join()
    assert len(got[0][1]) == 10_000_000


def test_a_frame_in_pieces_is_put_together(pair):
    reactor, _connection, got, _ = pair[1]
    raw = pair[0][1].socket
    frame = encode((7, "word"))
    for byte in frame[:-1]:
        raw.send(bytes([byte]))
        reactor.run_once(0)
    assert got == []
    raw.send(frame[-1:] + encode((8,)))
    assert reactor.wait_until(lambda: len(got) == 2, 5)
    assert got == [(7, "word"), (8,)]


def test_hang_up_is_reported_once_and_after_what_was_sent(pair):
    (_, left, _, _), (reactor, right, got, gone) = pair
    left.send((1, "last words"))
    left.close()
    assert reactor.wait_until(lambda: bool(gone), 5)
    reactor.run_once(0)
    assert got == [(1, "last words")]
    assert gone == [right]


def test_sending_to_a_closed_peer_does_not_raise(pair):
    (reactor, left, _, gone), (_, right, _, _) = pair
    right.close()
    for _ in range(3):
        left.send((1, "nobody"))
    assert reactor.wait_until(lambda: bool(gone), 5)
    assert gone == [left]


def test_a_wait_ends_at_its_time_limit(pair):
    reactor = pair[0][0]
    began = time.monotonic()
    assert reactor.wait_until(lambda: False, 0.05) is False
    assert time.monotonic() - began >= 0.05


def test_every_waiting_thread_is_woken_when_its_turn_comes(pair):
    (_, left, _, _), (reactor, _, got, _) = pair
    done = []

    def wait_for(number):
        assert reactor.wait_until(lambda: (number,) in got, 10)
        done.append(number)

    threads = [threading.Thread(target=wait_for, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for number in reversed(range(20)):
        left.send((number,))
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(20))


def test_the_background_reader_reads_while_nobody_waits(pair):
    (_, left, _, _), (reactor, _, got, _) = pair
    reactor.start_background_reader()
    left.send((1,))
    end = time.monotonic() + 10
    while not got and time.monotonic() < end:
        time.sleep(0.001)
    assert got == [(1,)]


def test_a_waiter_takes_over_from_the_background_reader(pair):
    (_, left, _, _), (reactor, _, got, _) = pair
    reactor.start_background_reader()
    for number in range(30):
        time.sleep(0.001 * (number % 15))
        left.send((number,))
        assert reactor.wait_until(lambda number=number: (number,) in got, 10)


def test_deferred_work_and_timers_run_in_the_waiting_thread(pair):
    reactor = pair[0][0]
    ran = []
    reactor.call_later(0.01, lambda: ran.append("timer"))
    reactor.defer(lambda: ran.append("deferred"))
    assert reactor.wait_until(lambda: len(ran) == 2, 5)
    assert ran == ["deferred", "timer"]


def test_defer_wakes_a_sleeping_reader(pair):
    reactor = pair[0][0]
    ran = []
    threading.Timer(0.05, lambda: reactor.defer(lambda: ran.append(1))).start()
    assert reactor.wait_until(lambda: bool(ran), 10)


def test_what_is_deferred_by_a_callback_needs_no_doorbell(pair):
    # Each ring would be one more look in vain, with a system call at both ends.
    reactor = pair[1][0]
    ran = []

    def arrived(_connection, message):
        reactor.defer(lambda: ran.append(message))
        reactor.call_later(0, lambda: ran.append("timer"))
        reactor.wake_background_reader()

    sock, other = socket.socketpair()
    connection = reactor.register(sock, arrived, lambda _connection: None)
    sender = threading.Timer(0.05, other.send, [encode((5,))])
    sender.start()
    assert reactor.wait_until(lambda: len(ran) == 2, 10)
    sender.join()
    assert set(ran) == {(5,), "timer"}
    with pytest.raises(BlockingIOError):
        os.eventfd_read(reactor.wakeup_fd)
    connection.close()
    other.close()


def test_a_wait_that_the_end_overtakes_returns_what_was_told_before_it():
    reactor = Reactor()
    asked = []

    def is_told():
        asked.append(True)
        if len(asked) == 1:
            reactor.close()  # as another thread would, between this look and the turn to read
            return False
        return True

    assert reactor.wait_until(is_told)


@pytest.fixture
def table():
    table = SessionTable.create(f"/mray-test-{os.getpid()}-table")
    table.segment.unlink()
    table.set_rows_in_use(2)
    yield table
    table.close()


def test_what_a_callback_raises_does_not_reach_who_reads_and_is_told_to_who_owns_the_reactor(pair):
    reactor, _, got, _ = pair[1]
    other = pair[0][1]
    told = []
    reactor.on_fault = lambda what, error: told.append((what, str(error)))

    def fail():
        raise ValueError("a bug")

    reactor.defer(fail)
    reactor.call_later(0, fail)
    other.send((1,))
    assert reactor.wait_until(lambda: bool(got) and len(told) == 2, 5)
    assert told == [("A callback", "a bug")] * 2


def test_what_watches_a_descriptor_and_fails_is_told_to_who_owns_the_reactor(pair):
    reactor = pair[1][0]
    told = []
    reactor.on_fault = lambda what, error: told.append(str(error))
    here, there = socket.socketpair()

    def fail(_events):
        raise ValueError("a bug")

    reactor.add_fd(here.fileno(), fail)
    there.send(b"x")
    assert reactor.wait_until(lambda: bool(told), 5)
    reactor.forget(here.fileno())
    here.close()
    there.close()
    assert set(told) == {"a bug"}


def test_a_background_reader_that_fails_is_told_to_the_owner_of_the_reactor(pair):
    reactor = pair[1][0]
    told = []
    reactor.on_fault = lambda what, error: told.append((what, str(error)))

    class Held:
        def flush(self):
            raise ValueError("a bug")

    reactor.post_later(Held())
    reactor.start_background_reader()
    deadline = time.monotonic() + 10
    while not told and time.monotonic() < deadline:
        time.sleep(0.001)
    assert told == [("The background reader", "a bug")]


def test_a_message_at_which_its_receiver_fails_ends_the_conversation_and_both_ends_know_why():
    left, right = socket.socketpair()
    reactor = Reactor()
    got, told, ended = [], [], []

    def dispatch(_connection, message):
        if message[0] == m.RESET:
            raise ValueError("a bug")
        got.append(message[0])

    sender = reactor.register(left, lambda _c, message: told.append(message), lambda _c: None)
    receiver = reactor.register(right, dispatch, ended.append)
    left.send(b"".join(encode((word,)) for word in (m.UNBLOCKED, m.RESET, m.SAVE)))
    assert reactor.wait_until(lambda: sender.closed, 5)
    assert got == [m.UNBLOCKED]  # what follows was said in the belief that what had come before was done
    assert ended == [receiver]
    assert repr(receiver.cause) == "ValueError('a bug')"
    ((code, text),) = told
    assert code == m.FAULT
    assert text == receiver.refused
    assert text.startswith(f"The handler of RESET failed in process {os.getpid()}: ValueError: a bug\nTraceback")
    reactor.close()


def test_a_frame_that_is_none_ends_the_connection(pair):
    reactor, connection, got, gone = pair[1]
    pair[0][1].socket.send(encode((1,)) + b"\x04\0\0\0\xff\xff\xff\xff")
    assert reactor.wait_until(lambda: bool(gone), 5)
    assert got == [(1,)]
    assert connection.closed


def test_a_reader_that_goes_to_sleep_sends_what_has_been_posted(pair):
    reactor, connection, _, _ = pair[1]
    other, _, heard, _ = pair[0]

    def post():
        connection.post((1, "late"))
        reactor.post_later(connection)

    reactor.defer(post)
    sleeper = threading.Thread(target=lambda: reactor.wait_until(lambda: bool(heard), 10))
    sleeper.start()
    assert other.wait_until(lambda: bool(heard), 5)
    reactor.wake()
    sleeper.join()


def test_a_long_queue_of_frames_arrives_in_order(pair):
    (writer, left, _, _), (reactor, _, got, _) = pair
    sent = [(1, i, b"z" * 300) for i in range(10_000)]
    for message in sent:
        left.post(message)
    left.send((2, b"large" * 1_000_000))
    assert left.unsent > 5_000_000
    pump = threading.Thread(target=lambda: writer.wait_until(lambda: left.unsent == 0, 30))
    pump.start()
    assert reactor.wait_until(lambda: len(got) == len(sent) + 1, 30)
    pump.join()
    assert left.unsent == 0
    assert got[:-1] == sent


def test_a_deferred_callback_may_wait(pair):
    reactor, _, got, _ = pair[1]
    other = pair[0][1]
    ran = []

    def wait():
        other.send((2,))
        ran.append(reactor.wait_until(lambda: (2,) in got, 10))

    reactor.defer(wait)
    other.send((1,))
    assert reactor.wait_until(lambda: bool(ran), 20)
    assert ran == [True]
    assert got == [(1,), (2,)]


@pytest.mark.parametrize("failing", ["condition", "callback"])
def test_a_condition_or_a_callback_that_fails_does_not_end_the_reader(table, caplog, failing):
    reactor = Reactor()
    reactor.join_table(table, 1)
    called = []

    holds = False

    def fail():
        called.append(True)
        raise ValueError("a bug")

    def ready():
        return holds and (failing != "condition" or fail())

    try:
        cancel = reactor.then(ready, fail)
        reactor.run_once(0)
        assert not called
        holds = True
        reactor.run_once(0)
        reactor.run_once(0)
        cancel()
        cancel()
        reactor.run_once(0)
    finally:
        reactor.close()
    assert len(called) == (2 if failing == "condition" else 1)
    assert "A callback failed" in caplog.text


def test_what_a_closed_connection_leaves_unsent_hides_nothing_of_the_one_that_has_its_descriptor_now(pair):
    reactor, old, _, _ = pair[0]
    old.close()
    new, peer = socket.socketpair()
    assert new.fileno() == old.fd
    connection = reactor.register(new, lambda _c, _m: None, lambda _c: None)
    connection.post((1,))
    reactor.post_later(connection)
    reactor.post_later(old)
    reactor.flush()
    assert connection.unsent == 0
    assert peer.recv(100) == encode((1,))
    connection.close()
    peer.close()


def test_letting_go_of_a_closed_reactor_closes_nobodys_descriptors():
    reactor = Reactor()
    here, there = socket.socketpair()
    number = here.fileno()
    reactor.register(here, lambda _c, _m: None, lambda _c: None)
    reactor.close()
    here.close()
    reused = os.dup2(there.fileno(), number)
    reactor.abandon()  # as a fork has it for clients of sessions that have ended
    try:
        assert os.fstat(reused).st_ino == os.fstat(there.fileno()).st_ino
    finally:
        os.close(reused)
        there.close()


def test_a_fork_of_a_fork_closes_nothing_that_the_fork_has_opened(pair):
    """As hooks of `os.register_at_fork` have it: `abandon` in the child, again in its child, and what is collected in between."""
    reactor, connection, _, _ = pair[0]
    child = os.fork()
    if not child:
        try:
            reactor.abandon()
            opened = [os.eventfd(0) for _ in range(20)]
            reactor.abandon()
            connection.close()
            reactor.close()
            del connection.socket
            reactor._epoll.close()
            for fd in opened:
                os.fstat(fd)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_leaves_what_others_watch_to_them():
    reactor = Reactor()
    theirs = os.eventfd(0)
    reactor.watch_edge(theirs, lambda _events: None)
    child = os.fork()
    if not child:
        try:
            reactor.abandon()
            os.fstat(theirs)
            os._exit(0)
        finally:
            os._exit(1)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        reactor.close()
        os.close(theirs)


def test_a_thread_that_does_not_read_is_called_back_and_no_other_thread_asks_what_it_waits_for():
    reactor = Reactor()
    came, over, asked, callbacks, premature = threading.Event(), threading.Event(), set(), [], [True]

    class Thing:
        def ready(self):
            asked.add(threading.get_ident())
            return came.is_set()

        def then(self, callback):
            callbacks.append(callback)
            return callbacks.clear

    def wait():
        assert reactor.wait(Thing(), 60)
        over.set()
        reactor.wake()

    def come():
        if callbacks and premature:
            premature.pop()
            callbacks.pop()("not ready any more")
        if not callbacks:
            reactor.call_later(0.001, come)
            return
        came.set()
        callbacks[0]()

    other = threading.Thread(target=wait)
    reactor.call_later(0, other.start)  # the main thread reads by then
    reactor.call_later(0, come)
    try:
        assert reactor.wait_until(over.is_set, 60)
        other.join()
    finally:
        reactor.close()
    assert asked == {other.ident}
    assert not callbacks, "it was taken back"
