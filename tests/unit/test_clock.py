"""The clocks of mray are the machine's, whatever a test does to the module `time`."""

from __future__ import annotations

import asyncio
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


def test_a_loop_that_mray_has_made_goes_by_the_machine(monkeypatch):
    loop = clock.follow(asyncio.new_event_loop())
    monkeypatch.setattr(time, "monotonic", lambda: 7.0)
    try:
        loop.run_until_complete(asyncio.wait_for(asyncio.sleep(0.001), 60))
        with pytest.raises(asyncio.TimeoutError):
            loop.run_until_complete(asyncio.wait_for(loop.create_future(), 0.001))
    finally:
        loop.close()


@pytest.mark.parametrize("is_pretended", [False, True])
def test_a_time_limit_in_a_loop_of_the_user_holds(monkeypatch, is_pretended):
    async def main() -> str:
        future = asyncio.get_running_loop().create_future()
        if is_pretended:
            monkeypatch.setattr(time, "monotonic", lambda: 7.0)
        clock.call_later(asyncio.get_running_loop(), 0.001, lambda: future.set_result("over"))
        clock.call_later(asyncio.get_running_loop(), 0.0005, lambda: future.set_result("never")).cancel()
        return await future

    assert asyncio.run(main()) == "over"
