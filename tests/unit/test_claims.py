"""Claims of the bytes of small values: they are given to the one reading there is, and cost no look through the process where they are
expected."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import numpy
import pytest

from mray._common.invocations import ArgumentValue, MethodInvocation
from mray._common.messages import PACKED
from mray._objects import claims
from mray._objects.ownership import Entry
from mray._objects.serializer import deserialize, serialize


def payload_of(*arrays):
    return serialize(arrays).to_bytes()


def entry_of(*arrays):
    entry = Entry()
    entry.complete(PACKED, payload_of(*arrays))
    return entry


def view_of(array):
    base = array.base
    while isinstance(base, numpy.ndarray):
        base = base.base
    return base


def claimed(array):
    return claims.claim(view_of(array)) is not None


def write(array, value):
    memory = claims.claim(view_of(array))
    numpy.frombuffer(memory, array.dtype, 1, array.ctypes.data - claims.mapped.address_of(memory))[0] = value


@pytest.fixture
def no_search(monkeypatch):
    """The objects of the process are not looked through."""

    def refuse(*_objects):
        raise AssertionError("looked through all objects")

    monkeypatch.setattr(gc, "get_referrers", refuse)


class Runner:
    """Runs a call whose message has these arguments."""

    def __init__(self, *, shares_messages=False):
        self.shares_messages = shares_messages

    def call(self, payload, arguments, function):
        message = MethodInvocation(b"task", "method", 1, PACKED, payload, None, arguments, None)
        return self.run(SimpleNamespace(call=message), function)

    def run(self, running, function):
        call = running.call
        values = [deserialize(PACKED, each) for each in (call.payload, *(value.payload for value in call.arguments or ()))]
        return function(*values)


@pytest.fixture(autouse=True)
def runners(monkeypatch):
    monkeypatch.setattr(claims, "runners", {Runner.run.__code__})
    monkeypatch.setattr(claims, "_noted", {})


@pytest.mark.parametrize("collected", [False, True])
def test_a_value_whose_entry_was_not_noted_is_found(collected):
    entry = entry_of(numpy.ones(4))
    (array,) = deserialize(PACKED, entry.payload)
    if collected:  # of what cannot be in a cycle the collector does not know from then on
        vars(entry)
        gc.collect()
    write(array, 5)
    assert array[0] == 5
    assert deserialize(PACKED, entry.payload)[0][0] == 1


def test_a_value_whose_entry_was_noted_is_not_searched_for(no_search):
    entry = entry_of(numpy.ones(4), numpy.ones(2))
    claims.note(entry)
    first, second = deserialize(PACKED, entry.payload)
    for _ in range(2):
        write(first, 5)
        write(second, 6)
    assert (first[0], second[0]) == (5, 6)
    assert [each[0] for each in deserialize(PACKED, entry.payload)] == [1, 1]


def test_notes_are_hints():
    entries = [entry_of(numpy.full(2, number)) for number in range(claims.MOST_NOTED + 2)]
    arrays = []
    for entry in entries:
        claims.note(entry)
        arrays += deserialize(PACKED, entry.payload)
    assert 0 < len(claims._noted) <= claims.MOST_NOTED
    for index in (0, -1):
        write(arrays[index], -1)
        assert arrays[index][0] == -1
        assert deserialize(PACKED, entries[index].payload)[0][0] == range(len(entries))[index]


def test_a_note_of_bytes_that_are_gone_misleads_nobody():
    entry = entry_of(numpy.ones(4))
    claims.note(entry)
    key = id(entry.payload)
    entry.payload = payload_of(numpy.zeros(4))
    other = entry_of(numpy.ones(4))
    claims._noted = {id(other.payload): claims._noted[key]}
    (array,) = deserialize(PACKED, other.payload)
    write(array, 5)
    assert deserialize(PACKED, entry.payload)[0][0] == 0
    assert deserialize(PACKED, other.payload)[0][0] == 1


@pytest.mark.parametrize("noted", [False, True])
def test_bytes_that_are_read_twice_are_nobodys(noted):
    entry = entry_of(numpy.ones(4))
    if noted:
        claims.note(entry)
    (array,), (again,) = deserialize(PACKED, entry.payload), deserialize(PACKED, entry.payload)
    assert not claimed(array)
    assert not claimed(again)
    del again
    assert claimed(array)


def test_bytes_that_somebody_is_about_to_read_are_nobodys():
    payload = payload_of(numpy.ones(4))
    (array,) = deserialize(PACKED, payload)
    assert not claimed(array)
    del payload
    assert claimed(array)


def test_arguments_of_a_call_are_not_searched_for(no_search):
    def call(own, by_ref, _other):
        return claimed(own[0]), claimed(own[1]), claimed(by_ref[0])

    arguments = [ArgumentValue(0, PACKED, payload_of(numpy.ones(3))), ArgumentValue(1, PACKED, payload_of(numpy.ones(2)))]
    assert Runner().call(payload_of(numpy.ones(4), numpy.ones(5)), arguments, call) == (True, True, True)


def test_an_argument_that_came_twice_in_the_same_bytes_is_nobodys():
    shared = ArgumentValue(0, PACKED, payload_of(numpy.ones(3)))
    assert Runner().call(payload_of(numpy.ones(4)), [shared, shared], lambda _own, one, two: (claimed(one[0]), claimed(two[0]))) == (
        False,
        False,
    )


@pytest.mark.parametrize("shares_messages", [False, True])
def test_a_value_that_a_call_got_is_not_taken_for_its_argument(shares_messages):
    entry = entry_of(numpy.ones(4))

    def call(_own):
        (array,) = deserialize(PACKED, entry.payload)
        return claimed(array)

    assert Runner(shares_messages=shares_messages).call(payload_of(numpy.ones(4)), None, call)
    assert deserialize(PACKED, entry.payload)[0][0] == 1


def test_where_callers_share_the_bytes_of_a_call_they_keep_a_copy():
    entry = entry_of(numpy.ones(3))

    def call(_own, by_ref):
        write(by_ref[0], 5)
        return by_ref[0][0]

    assert Runner(shares_messages=True).call(payload_of(numpy.ones(4)), [ArgumentValue(0, PACKED, entry.payload)], call) == 5
    assert deserialize(PACKED, entry.payload)[0][0] == 1


@pytest.mark.parametrize("value", [b"plain", bytes(64), numpy.zeros(3).tobytes()])
def test_bytes_that_are_no_small_value_are_nobodys(value):
    assert claims.claim(memoryview(value)) is None
