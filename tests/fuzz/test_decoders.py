"""Decoders of bytes that no process of ours has written: the result is a value or the documented error, and nothing else."""

from __future__ import annotations

import marshal
import random
import resource
from collections.abc import Iterator
from typing import Any

import pytest

from mray._channel.base import Failed
from mray._common import messages as m
from mray._common.protocol import misfit
from tests.fuzz.changes import changed
from tests.fuzz.decoders import DECODERS, MESSAGES, read
from tests.fuzz.found import FOUND

#: Changed messages of each kind; `tools/fuzz` tries more.
TRIALS = 150


@pytest.fixture(scope="module", autouse=True)
def little_memory() -> Iterator[None]:
    """A damaged message that announces too many bytes gets no memory for them, instead of all that the machine has."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("name", DECODERS)
def test_whole_messages_are_read(name: str) -> None:
    decoder = DECODERS[name]
    for whole in decoder.whole:
        decoder.check_read(whole)


@pytest.mark.parametrize("name", DECODERS)
def test_changed_messages_are_read_or_refused(name: str) -> None:
    decoder = DECODERS[name]
    randomness = random.Random(name)
    for _ in range(TRIALS if decoder.is_cheap else TRIALS // 5):
        whole = randomness.choice(decoder.whole)
        data = changed(whole, randomness, decoder.own_from)
        try:
            read(name, data)
        except BaseException as error:
            raise AssertionError(f"read({name!r}, {data[:2000]!r}) raised {error!r}") from error


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_was_misread_once_is_refused(name: str, data: bytes) -> None:
    assert read(name, data) in (None, [])


def test_what_a_message_has_instead_of_a_value_is_refused() -> None:
    for odd in (None, 5, (m.PICKLED, b""), ([], {}, None), (m.SEGMENT, b"", None)):
        assert misfit((m.REPLIES, b"t" * 24, [odd]))


@pytest.mark.parametrize("published", [5, 1 << 62, (1 << 64) - 1])
def test_a_ring_with_more_messages_than_entries_gives_an_error_once(published: int) -> None:
    (whole,) = DECODERS["ring"].whole
    (failed,) = DECODERS["ring"].check_read(published.to_bytes(8, "little") + whole[8:])
    assert type(failed) is Failed


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_another_shape_is_refused_in_words(message: tuple[Any, ...]) -> None:
    assert misfit(message) == ""
    assert "fields" in misfit((*message, 1, 2, 3, 4))
    for place in range(1, len(message)):
        if message[place] is not None and (place < 5 or message[0] not in (m.CALL, m.TASK)):
            odd = (*message[:place], {2, 3}, *message[place + 1 :])
            assert misfit(odd) or (message[0] == m.ANSWER and place == 3), odd


@pytest.mark.parametrize("message", [None, 1, (), [], ("x",), (987654,), ([],), (True,), (m.CALL,)])
def test_what_is_no_message_is_refused_in_words(message: Any) -> None:
    assert misfit(message)


def test_values_that_refer_to_each_other_without_end_are_refused() -> None:
    value: Any = ("x",)
    for _ in range(40):
        value = (value, value)
    body = marshal.dumps(value)
    assert len(body) < 1000
    with pytest.raises(ValueError, match="again and again"):
        DECODERS["frame"].check_read(body)
    within: list[Any] = []
    within.append(within)
    with pytest.raises(ValueError, match="has not been read yet"):
        DECODERS["frame"].check_read(marshal.dumps((within,)))
