"""The tables of dtypes are filled on first use, which other threads and raising signal handlers may come into."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

import numpy
import pytest

from mray._objects import arrays

MEMORY = numpy.arange(3.0).tobytes()


class Stop(Exception):
    pass


def read() -> Any:
    return arrays.restore_array(MEMORY, "<f8", (3,)).tolist()


def fill(monkeypatch: pytest.MonkeyPatch, line: int, act: Callable[[], None]) -> bool:
    """Fill empty tables, with `act` before this line that the function executes; whether it executes as many."""
    monkeypatch.setattr(arrays, "_names", {})
    monkeypatch.setattr(arrays, "_types", {})
    left = line

    def on_line(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == -1:
                act()
        return on_line

    code = arrays.array_type.__code__
    before = sys.gettrace()
    sys.settrace(lambda frame, _event, _argument: on_line if frame.f_code is code else None)
    try:
        arrays.array_type()
    finally:
        sys.settrace(before)
    return left < 0


def test_another_thread_restores_an_array_at_any_moment_of_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def act() -> None:
        other = threading.Thread(target=lambda: found.append(read()))
        other.start()
        other.join()

    for line in count():
        if not fill(monkeypatch, line, act):
            break
    assert line > 4
    assert found == [[0.0, 1.0, 2.0]] * line


def test_arrays_are_restored_after_a_first_use_that_was_cut_short_at_any_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def act() -> None:
        raise Stop

    for line in count():
        try:
            fill(monkeypatch, line, act)
            break
        except Stop:
            assert read() == [0.0, 1.0, 2.0]
            assert arrays.reduce_array(numpy.arange(3.0))[0] is arrays.restore_array
    assert line > 4
