"""The clocks of mray are the machine's, whatever a test does to the module `time`."""

from __future__ import annotations

import time
from types import BuiltinFunctionType

import pytest

from mray._common import clock

NAMES = ("monotonic", "monotonic_ns", "perf_counter", "time", "time_ns", "sleep")


@pytest.mark.parametrize("name", NAMES)
def test_a_clock_is_a_function_of_its_own_at_the_price_of_the_known_one(name: str):
    own, known = getattr(clock, name), getattr(time, name)
    assert own is not known
    assert own != known
    assert type(own) is type(known) is BuiltinFunctionType


def test_the_clocks_agree_with_the_known_ones():
    for name in NAMES[:-1]:
        before, own, after = getattr(time, name)(), getattr(clock, name)(), getattr(time, name)()
        assert before <= own <= after
