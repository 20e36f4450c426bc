"""The run token: which simulated thread runs, by which clock, and how errors reach one. Without a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mray._backends.local.run_token import RunToken, here
from mray._runtime.processes.process import ProcessEnded
from mray.exceptions import RaySystemError


@pytest.fixture
def run_token() -> Iterator[RunToken]:
    yield from started(0)


def started(seed: int) -> Iterator[RunToken]:
    """A run token whose driver is this thread; it does not sleep."""
    token = RunToken(seed, real_time=False)
    token.guests.clear()
    here.sim_thread = token.driver
    yield token
    token.close()


def order(seed: int) -> list[str]:
    said: list[str] = []
    for token in started(seed):

        def body(name: str, token: RunToken = token) -> None:
            for _ in range(3):
                said.append(name)
                token.pause()

        for name in "abc":
            token.spawn(name, lambda name=name: body(name), None)  # type: ignore[misc]
        token.wait_until(lambda: len(said) == 9, None)
    return said


def test_a_seed_fixes_the_order_of_the_threads_and_another_one_changes_it() -> None:
    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(8)}) > 1


def test_time_moves_on_to_the_next_deadline_when_all_wait(run_token: RunToken) -> None:
    woken: list[float] = []
    for seconds in (200.0, 100.0):
        run_token.spawn("sleeper", lambda seconds=seconds: (run_token.sleep(seconds), woken.append(seconds)), None)  # type: ignore[misc]
    assert not run_token.wait_until(lambda: False, 1000.0)
    assert woken == [100.0, 200.0]
    assert 1000.0 <= run_token.clock < 1001.0


@pytest.mark.parametrize("timeout", [None, 1000.0])
def test_a_wait_ends_when_a_timer_makes_its_condition_true(run_token: RunToken, timeout: float | None) -> None:
    came: list[bool] = []
    run_token.call_later(1.0, lambda: came.append(True))
    assert run_token.wait_until(lambda: came, timeout)
    assert 1.0 <= run_token.clock < 2.0


def test_threads_that_wait_for_each_other_are_a_deadlock(run_token: RunToken) -> None:
    with pytest.raises(RaySystemError, match="(?s)deadlock: .*MRAY_LOCAL_SEED=0"):
        run_token.wait_until(lambda: False, None)


@pytest.mark.parametrize("wanted", [True, False])
def test_an_interrupt_is_raised_at_the_next_scheduling_point_if_it_is_still_wanted_then(run_token: RunToken, wanted: bool) -> None:
    ends: list[str] = []

    def body() -> None:
        try:
            run_token.wait_until(None, 10.0)
            ends.append("in time")
        except KeyboardInterrupt:
            ends.append("interrupted")

    thread = run_token.spawn("worker", body, None)
    run_token.wait_until(lambda: thread.parked, None)
    run_token.throw(thread, KeyboardInterrupt(), lambda: wanted)
    run_token.wait_until(lambda: thread.ended, None)
    assert ends == ["interrupted" if wanted else "in time"]


def test_the_end_of_a_process_is_raised_again_where_it_is_caught(run_token: RunToken) -> None:
    raised = 0

    def body() -> None:
        nonlocal raised
        for _ in range(3):
            try:
                run_token.sleep(1.0)
            except ProcessEnded:
                raised += 1

    thread = run_token.spawn("worker", body, None)
    run_token.wait_until(lambda: thread.parked, None)
    run_token.throw(thread, ProcessEnded(), final=True)
    run_token.wait_until(lambda: thread.ended, None)
    assert raised == 3


def test_a_callback_between_two_steps_cannot_wait(run_token: RunToken) -> None:
    told: list[str] = []

    def waits() -> None:
        with pytest.raises(RuntimeError) as caught:
            run_token.wait_until(lambda: False, 1.0)
        told.append(str(caught.value))

    run_token.call_soon(waits)
    run_token.wait_until(lambda: told, None)
    assert told == ["a callback that runs between two threads' steps cannot wait"]
