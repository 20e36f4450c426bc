"""Code in a worker: it is there as long as some caller has it."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from mray._runtime.worker.live_actor import LiveActor
from mray._runtime.worker.unpacker import Unpacker


class Caller:
    closed = False


def caller() -> Any:
    return Caller()


def call_of(function_id: bytes) -> Any:
    return SimpleNamespace(function_id=function_id, name="f")


@pytest.fixture
def unpacker() -> Unpacker:
    client: Any = SimpleNamespace(reactor=SimpleNamespace(guard=None))
    return Unpacker(client, None, LiveActor(), None)  # type: ignore[arg-type]


def has(unpacker: Unpacker, function_id: bytes) -> bool:
    return function_id in unpacker._functions or function_id in unpacker._code


def test_a_function_goes_with_the_last_caller_that_has_it(unpacker: Unpacker) -> None:
    first, second = caller(), caller()
    unpacker.add_code(first, b"abs", pickle.dumps(abs))
    assert unpacker.function(call_of(b"abs")) is abs
    unpacker.add_code(second, b"abs", pickle.dumps(abs))
    unpacker.drop_code(first, b"abs")
    assert unpacker.function(call_of(b"abs")) is abs
    unpacker.drop_code(second, b"abs")
    assert not has(unpacker, b"abs")
    unpacker.drop_code(second, b"abs")  # it had gone
    unpacker.add_code(second, b"abs", pickle.dumps(abs))
    assert unpacker.function(call_of(b"abs")) is abs


def test_functions_of_a_caller_that_has_gone_go_when_another_comes(unpacker: Unpacker) -> None:
    gone, stays = caller(), caller()
    unpacker.add_code(gone, b"abs", pickle.dumps(abs))
    unpacker.add_code(gone, b"len", pickle.dumps(len))
    unpacker.add_code(stays, b"len", pickle.dumps(len))
    gone.closed = True
    assert unpacker.function(call_of(b"abs")) is abs  # its call may have come before the hang-up
    unpacker.add_code(stays, b"sum", pickle.dumps(sum))
    assert [has(unpacker, each) for each in (b"abs", b"len", b"sum")] == [False, True, True]
