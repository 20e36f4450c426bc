"""Arriving items at the caller of a generator, without processes."""

from __future__ import annotations

import pickle
import threading

import pytest

from mray._common import messages as m
from mray._common.ids import new_task_id
from mray._objects.ownership import Entry
from mray._objects.remote_error import pickle_error
from mray._runtime.client.streams import StreamCall
from mray.exceptions import WorkerCrashedError


class FakeConnection:
    def __init__(self):
        self.sent = []
        self.alone = 0

    def send(self, message):
        self.sent.append(message)


class FakeClient:
    """The part of a client that a stream uses; `completed` are the pins of entries that were made of arrivals."""

    def __init__(self):
        self.lock = threading.RLock()
        self.completed = []
        self.replies = self.objects = self

    def count_alone(self, connection):
        connection.alone += 1

    def entry(self):
        return Entry()

    def complete(self, connection, pin, entry, form, payload, refs):
        self.completed.append(pin[-4])
        entry.complete(form, payload, refs)

    def wait_as_user(self, predicate, timeout):
        return predicate()


def item(value):
    return (m.PICKLED, pickle.dumps(value), None)


def segment(name):
    return (m.SEGMENT, (name, 5, "producer"), None)


@pytest.fixture
def connection():
    return FakeConnection()


@pytest.fixture
def client():
    return FakeClient()


def stream_of(client, window=0, together=0):
    call = StreamCall(client, new_task_id(), "method", window, 1, together)
    return call, call.stream


def take_all(stream):
    found = []
    while (ref := stream.take_nowait()) is not None:
        found.append(ref._entry.payload[0] if ref._entry.form == m.SEGMENT else pickle.loads(ref._entry.payload))
    return found


def test_items_are_taken_in_order_under_ids_that_follow_each_other(client, connection):
    _call, stream = stream_of(client)
    stream.arrived(connection, 0, [item("a"), segment("b")])
    stream.arrived(connection, 2, [item("c")])
    ids = [ref.binary()[-4] for ref in stream.peek(3)]
    assert ids == [2, 3, 4]
    assert take_all(stream) == ["a", "b", "c"]


@pytest.mark.parametrize("split", [1, 2, 3])
def test_what_arrives_twice_is_let_go_of_and_delivered_once(client, connection, split):
    _call, stream = stream_of(client)
    items = [item("a"), segment("b"), item("c"), item("d")]
    stream.arrived(connection, 0, items[:split])
    before = len(client.completed)
    stream.arrived(connection, 0, items)
    assert len(client.completed) >= before + split  # each became an entry, so that its memory is freed
    assert take_all(stream) == ["a", "b", "c", "d"]
    stream.arrived(connection, 1, items[1:3])
    assert take_all(stream) == []


def test_refs_that_were_promised_are_those_of_the_items(client, connection):
    _call, stream = stream_of(client)
    first, second, third = stream.peek(3)
    assert stream.peek(1) == [first]
    stream.arrived(connection, 0, [item("a"), item("b")])
    assert pickle.loads(first._entry.payload) == "a"
    assert third._entry.form is None
    assert [stream.take_nowait(), stream.take_nowait()] == [first, second]
    stream.arrived(connection, 2, [item("c")])
    assert stream.take_nowait() == third


def test_the_end_completes_what_was_promised(client):
    call, stream = stream_of(client)
    promised = stream.peek(2)
    call.fail(WorkerCrashedError("gone"))
    assert [ref._entry.form for ref in promised] == [m.FAILED] * 2
    assert stream.is_over()
    assert stream.has_failed()
    assert stream.peek(1)[0]._entry.form == m.FAILED


def test_items_that_came_before_the_end_are_there_after_it(client, connection):
    call, stream = stream_of(client)
    stream.arrived(connection, 0, [item("a")])
    call.fail(WorkerCrashedError("gone"))
    assert not stream.is_over()
    assert take_all(stream) == ["a"]
    assert stream.is_over()


def test_the_producer_is_told_when_it_may_be_waiting(client, connection):
    _call, stream = stream_of(client, window=2)
    stream.arrived(connection, 0, [item("a")])
    stream.take_nowait()
    assert connection.sent == []  # it has room for another one
    stream.arrived(connection, 1, [item("b")])
    assert [message[0] for message in connection.sent] == [m.STREAM_TAKEN]
    assert connection.sent[0][2] == 1


def test_a_producer_among_others_is_told_of_every_item(client, connection):
    _call, stream = stream_of(client, together=10)
    stream.arrived(connection, 0, [item("a"), item("b"), item("c")])
    for _ in range(3):
        stream.take_nowait()
    assert [message[2] for message in connection.sent] == [1, 2, 3]
    assert connection.alone == 3, "each counts for a ring pair"


def test_a_call_that_is_sent_again_says_what_has_arrived(client, connection):
    call, stream = stream_of(client, window=3)
    call.options = {"name": "n"}
    stream.arrived(connection, 0, [item("a"), item("b")])
    stream.take_nowait()
    assert call.options == {"name": "n", "stream": [2, 3, 1, False, 1, 0]}
    call.options = None
    assert call.options["stream"][:3] == [2, 3, 1]


def test_whoever_sends_to_a_dropped_stream_is_told_to_stop(client, connection):
    call, stream = stream_of(client)
    call.retries = 5
    stream.drop()
    assert call.retries == 0
    stream.arrived(connection, 0, [item("a"), segment("b")])
    assert [message[0] for message in connection.sent] == [m.STREAM_STOP]
    assert stream.take_nowait() is None


def test_a_dynamic_generator_fails_as_its_call_does(client):
    call, stream = stream_of(client)
    gathered = client.entry()
    stream.gather(gathered)
    call.entry.complete(m.FAILED, pickle_error(UserError("x")))
    assert gathered.form == m.FAILED


class UserError(Exception):
    """Any error of a user."""


def test_state_is_plain_enough_to_be_sent(client):
    import marshal

    call, _stream = stream_of(client, window=1)
    call.options = None
    assert marshal.loads(marshal.dumps(call.options)) == call.options
