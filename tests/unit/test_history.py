"""Records of the past have a bounded number, and a bounded number of bytes."""

from __future__ import annotations

import gc

import pytest

from mray._common.history import History


def test_the_oldest_records_are_forgotten_first():
    history = History(3, 1000)
    for number in range(5):
        history[number] = {"number": number}
    assert [record["number"] for record in history] == [2, 3, 4]
    assert 1 not in history and 4 in history
    assert history[3] == {"number": 3}
    with pytest.raises(KeyError):
        history[1]


def test_records_take_no_more_bytes_than_they_may_and_the_newest_is_kept():
    history = History(1000, 10_000)
    for number in range(500):
        history.append(("x" * 100, number))
        assert history.bytes <= 10_000
    assert len(history) > 50
    assert list(history)[-1] == ("x" * 100, 499)
    history.append("y" * 20_000)
    assert list(history) == ["y" * 20_000]
    history.append("z")
    assert list(history) == ["z"]


def test_a_record_that_is_noted_again_is_the_newest_and_counts_once():
    history = History(2, 1000)
    history["a"], history["b"] = "x" * 100, 2
    before = history.bytes
    history["a"] = "x" * 100
    assert history.bytes == before
    history["c"] = 3
    assert list(history) == ["x" * 100, 3]
    history.clear()
    assert (len(history), history.bytes, list(history)) == (0, 0, [])


def test_the_garbage_collector_has_nothing_to_walk_however_much_is_remembered():
    history = History(10_000, 1 << 20)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(5000):
        history.append({"a": [number, str(number)], "b": (number, {"c": number})})
    gc.collect()
    assert len(gc.get_objects()) - before < 10
