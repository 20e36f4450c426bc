"""Frames that no process of ours has written: an error at this connection, and nothing else."""

from __future__ import annotations

import marshal
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mray._ipc.connection import SocketConnection, encode
from mray._ipc.frames import MOST_BYTES, decode_unknown, from_text, to_text
from mray._ipc.reactor import Reactor
from tests.full import examples

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner) | st.frozensets(st.text()),
    max_leaves=20,
)
messages = st.lists(values, min_size=1, max_size=6).map(tuple)


@settings(max_examples=examples(100), deadline=None)
@given(messages)
def test_every_message_is_read_as_it_was_written(message: tuple[Any, ...]) -> None:
    assert decode_unknown(marshal.dumps(message)) == message


@settings(max_examples=examples(100), deadline=None)
@given(messages, st.data())
def test_a_message_that_is_cut_off_or_changed_is_a_message_or_an_error(message: tuple[Any, ...], data: st.DataObject) -> None:
    body = bytearray(marshal.dumps(message))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(0, len(body))) :]
    try:
        read = decode_unknown(bytes(body))
    except (ValueError, EOFError, TypeError):
        return
    assert type(read) is tuple


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(body: bytes) -> None:
    try:
        read = decode_unknown(body)
    except (ValueError, EOFError, TypeError):
        return
    assert type(read) is tuple


@pytest.mark.parametrize("kind", [b"(", b"[", b"<", b">", b"s", b"u", b"l", b"a"])
def test_what_is_announced_and_does_not_come_is_not_waited_or_allocated_for(kind: bytes) -> None:
    for count in (b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\xff\xff\xff\xff"):
        with pytest.raises((ValueError, EOFError)):
            decode_unknown(kind + count)


def test_code_is_no_message() -> None:
    with pytest.raises(ValueError, match="no value of messages"):
        decode_unknown(marshal.dumps((1, compile("1", "here", "eval"))))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b")\x01" * 5000 + b"N", "nested too deeply"),
        (marshal.dumps((1,)) + b"N", "^1 bytes follow the value$"),
        (b")\x03N", "^3 values are announced, and 1 bytes follow$"),
        (bytes(MOST_BYTES + 1), f"^{MOST_BYTES + 1} bytes are too much for a first message$"),
        (b"[\0\0\0\0", "^a message is a tuple$"),
        (b")\x01<\x01\0\0\0[\0\0\0\0", "^marshal cannot read it: unhashable type: 'list'$"),
    ],
    ids=["depth", "rest", "count", "size", "kind", "set"],
)
def test_the_error_says_what_is_wrong_with_a_frame(body: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        decode_unknown(body)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("~~~~~\n", "base85 overflow"),
        (to_text((1, "a"))[:-3], ""),
        (to_text(["a"]), "it has another content"),
        (to_text(("a", 1)), "it has"),
    ],
)
def test_the_error_of_a_damaged_variable_names_it(text: str, reason: str) -> None:
    assert from_text("MRAY_X", to_text((1, "a")), (int, str)) == (1, "a")
    with pytest.raises(ValueError, match=f"the environment variable MRAY_X is damaged: {reason}"):
        from_text("MRAY_X", text, (int, str))


class Ends:
    """Two ends of a connection, this one with an owner that knows its peer once it has said its name."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        here, self.there = socket.socketpair()
        self.heard: list[Any] = []
        self.gone: list[SocketConnection] = []
        self.connection = self.reactor.register(here, self.hear, self.gone.append)
        self.connection.is_unknown = True

    def hear(self, connection: SocketConnection, message: tuple[Any, ...]) -> None:
        if message[0] == "name":
            connection.process = message[1]
        elif message[0] == "nonsense":
            raise RuntimeError("nonsense")
        self.heard.append(message)

    def say(self, sent: bytes, pieces: int = 1) -> None:
        self.there.setblocking(False)
        length = max(1, len(sent) // pieces)
        for start in range(0, len(sent), length):
            try:
                self.there.send(sent[start : start + length])
            except (BrokenPipeError, ConnectionResetError):
                return
            self.reactor.run_once(0)

    def close(self) -> None:
        self.connection.close()
        self.there.close()
        self.reactor.close()


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(messages, max_size=4), st.booleans(), st.binary(max_size=40), st.integers(1, 8))
def test_a_connection_hands_on_whole_messages_and_ends_at_the_first_that_is_none(
    sent: list[tuple[Any, ...]], introduced: bool, rest: bytes, pieces: int
) -> None:
    ends = Ends()
    try:
        whole = [("name", "somebody"), *sent] if introduced else list(sent)
        stream = b"".join(encode(message) for message in whole)
        ends.say(stream + (len(rest) + 1).to_bytes(4, "little") + b"?" + rest, pieces)
        for _ in range(4):
            ends.reactor.run_once(0)
        assert ends.heard == whole
        assert ends.gone == [ends.connection]
        assert ends.connection.closed
    finally:
        ends.close()


def test_an_unknown_peer_whose_message_fails_is_not_listened_to_any_further() -> None:
    ends = Ends()
    try:
        ends.say(encode(("nonsense",)) + encode((1,)))
        assert ends.heard == []
        assert ends.gone == [ends.connection]
    finally:
        ends.close()


def test_a_first_message_that_is_announced_too_large_ends_the_connection_at_once() -> None:
    ends = Ends()
    try:
        ends.say(b"\xff\xff\xff\xff" + b"x" * 10)
        assert ends.gone == [ends.connection]
    finally:
        ends.close()
