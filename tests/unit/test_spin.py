"""Whether to spin: count the awake, learn from failures."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from mray._ipc import spin
from mray._ipc.spin import (
    FAILURES_BEFORE_PAUSE,
    LONG_WINDOW,
    LONGEST_PAUSE,
    LONGEST_WINDOW,
    MAX_PROCESSES_PER_CORE,
    NEAR_MISSES,
    PAUSE,
    RECOUNT,
    WINDOW,
    AdaptiveSpinner,
    LoopSpin,
    Spinner,
)
from mray._ipc.table import AWAKE, PARKED, ROW_WORDS, STATE, SessionTable


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionTable]:
    monkeypatch.setattr(spin, "usable_cores", lambda: 2)
    made = SessionTable.create(f"/mray-test-spin-{os.getpid()}")
    made.segment.unlink()
    yield made
    made.close()


def states(table: SessionTable, *values: int) -> None:
    for row, value in enumerate(values):
        table.words[row * ROW_WORDS + STATE] = value


def waits_until_spinning(spinner: Spinner) -> int:
    count = 0
    while not spinner.may_spin():
        count += 1
        assert count < 10 * LONGEST_PAUSE
    return count


def test_nobody_spins_with_more_awake_processes_than_cores(table: SessionTable) -> None:
    spinner = Spinner(table, 0, lambda: 3)
    states(table, AWAKE, AWAKE, PARKED)
    assert spinner.may_spin()
    states(table, AWAKE, AWAKE, AWAKE)
    assert not all(spinner.may_spin() for _ in range(RECOUNT + 1))
    states(table, AWAKE, PARKED, PARKED)
    assert waits_until_spinning(spinner) <= RECOUNT


def test_a_wait_that_yields_spins_on_oversubscribed_cores_too(table: SessionTable) -> None:
    most = 2 * MAX_PROCESSES_PER_CORE
    spinner = Spinner(table, 0, lambda: most + 1)
    states(table, AWAKE, AWAKE)
    assert spinner.may_spin(takes_turns=True)
    assert not spinner.oversubscribed
    states(table, *[AWAKE] * most)
    assert all(spinner.may_spin(takes_turns=True) for _ in range(2 * RECOUNT))
    assert spinner.oversubscribed
    states(table, *[AWAKE] * (most + 1))
    assert not all(spinner.may_spin(takes_turns=True) for _ in range(RECOUNT + 1))
    states(table, AWAKE, *[PARKED] * most)
    while not spinner.may_spin(takes_turns=True):
        pass
    assert not spinner.oversubscribed


def test_nobody_spins_on_one_core(table: SessionTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spin, "usable_cores", lambda: 1)
    states(table, AWAKE)
    spinner = Spinner(table, 0, lambda: 1)
    assert not any(spinner.may_spin() for _ in range(200))


def test_failures_make_pauses_that_grow_and_success_ends_them(table: SessionTable) -> None:
    states(table, AWAKE)
    spinner = Spinner(table, 0, lambda: 1)
    for _ in range(FAILURES_BEFORE_PAUSE):
        assert spinner.may_spin()
        spinner.failed()
    pauses = []
    for _ in range(8):
        pauses.append(waits_until_spinning(spinner))
        spinner.failed()
    assert pauses[0] == PAUSE
    assert pauses[1] == 2 * PAUSE
    assert pauses[-1] == LONGEST_PAUSE
    waits_until_spinning(spinner)
    spinner.succeeded()
    assert spinner.may_spin()
    spinner.failed()
    assert spinner.may_spin()


def test_near_misses_make_the_window_longer_until_a_wait_takes_much_longer(table: SessionTable) -> None:
    states(table, AWAKE)
    spinner = Spinner(table, 0, lambda: 1)
    for _ in range(FAILURES_BEFORE_PAUSE):
        assert spinner.may_spin()
        spinner.failed()
        spinner.slept(1.5 * WINDOW)
    assert spinner.window == WINDOW
    while spinner.window == WINDOW:
        assert not spinner.may_spin()
        spinner.slept(1.5 * WINDOW)
    assert spinner.window == LONG_WINDOW
    assert spinner.may_spin()  # at once, although it had paused
    spinner.succeeded()
    assert spinner.window == LONG_WINDOW
    spinner.failed()
    spinner.slept(1.1 * LONGEST_WINDOW)
    assert spinner.window == WINDOW
    # Only misses in a row count.
    for _ in range(3):
        for _ in range(NEAR_MISSES - 1):
            spinner.slept(1.5 * WINDOW)
        spinner.slept(1.0)
    assert spinner.window == WINDOW


@pytest.mark.parametrize(("length", "sleeps"), [(30e-6, 0), (90e-6, 0), (110e-6, 20), (300e-6, 20), (1e-3, 20), (3e-3, 1000)])
def test_waits_of_one_length_soon_end_while_spinning_unless_they_are_long(
    table: SessionTable, monkeypatch: pytest.MonkeyPatch, length: float, sleeps: int
) -> None:
    time = [100.0]
    monkeypatch.setattr(spin, "monotonic", lambda: time[0])
    monkeypatch.setattr(spin, "sched_yield", lambda: None)
    states(table, AWAKE)
    spinner = Spinner(table, 0, lambda: 1)
    slept, spun = 0, 0.0
    for _ in range(1000):
        begun = time[0]

        def look(end: float = begun + length) -> bool:
            time[0] += 1e-6
            return time[0] >= end

        if not spinner.spin(look):
            slept += 1
            spun += time[0] - begun
            time[0] = begun + length
            spinner.slept(length)
    assert slept <= sleeps
    if sleeps == 1000:
        assert spun < 0.003 * 1000 * length


def test_a_long_spin_ends_when_a_process_wakes_that_has_no_core(table: SessionTable, clock: list[float]) -> None:
    states(table, AWAKE, AWAKE, PARKED)
    spinner = Spinner(table, 0, lambda: 3)
    for _ in range(NEAR_MISSES):
        spinner.slept(1e-3)
    assert spinner.window > 1e-3
    begun = clock[0]

    def look() -> bool:
        states(table, AWAKE, AWAKE, AWAKE)
        clock[0] += WINDOW / 4
        return False

    assert not spinner.spin(look)
    assert clock[0] - begun <= 2 * WINDOW
    assert spinner.window == LONG_WINDOW
    spinner.succeeded()
    for _ in range(NEAR_MISSES):
        spinner.slept(1e-3)
    assert not spinner.may_spin()
    assert spinner.window == LONG_WINDOW


def test_who_is_told_not_to_spin_never_does(table: SessionTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_SPIN", "0")
    states(table, AWAKE)
    spinner = Spinner(table, 0, lambda: 3)
    for _ in range(2 * NEAR_MISSES):
        spinner.slept(WINDOW)
    assert spinner.window == 0
    states(table, AWAKE, AWAKE, AWAKE)
    assert not any(spinner.may_spin(takes_turns=True) for _ in range(2 * RECOUNT))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its one item is the time; each yield takes half a window."""
    time = [100.0]
    monkeypatch.setattr(spin, "monotonic", lambda: time[0])
    monkeypatch.setattr(spin, "sched_yield", lambda: time.__setitem__(0, time[0] + WINDOW / 2))
    return time


def test_a_spin_ends_with_what_is_found_or_with_its_window(clock: list[float]) -> None:
    spinner = AdaptiveSpinner(oversubscribed=True)
    answers = iter([None, 0])
    assert spinner.spin(answers.__next__, None) == 0
    assert spinner.spin(lambda: None, None) is None
    assert spinner.spin(lambda: False, deadline=clock[0]) is False
    assert spinner.may_spin()


def test_on_oversubscribed_cores_an_answer_after_the_window_is_a_failure(clock: list[float]) -> None:
    spinner = AdaptiveSpinner(oversubscribed=True)
    for _ in range(FAILURES_BEFORE_PAUSE):
        answers = iter([False, False, True])
        assert spinner.spin(answers.__next__)
    assert not spinner.may_spin()


def test_a_spin_that_is_stopped_says_nothing_of_spinning(clock: list[float]) -> None:
    spinner = AdaptiveSpinner()
    for _ in range(2 * FAILURES_BEFORE_PAUSE):
        assert not spinner.spin(lambda: False, stop=lambda: True)
    assert spinner.may_spin()


def test_a_loop_whose_look_fails_sleeps_and_looks_again_at_the_next_wait() -> None:
    happened: list[str] = []

    def look() -> None:
        happened.append("looks")
        if happened.count("looks") == 1:
            raise ValueError("on purpose")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: happened.append(str(context["exception"])))
        looks = LoopSpin(lambda: 0 if happened.count("looks") > 1 else 1, look, lambda: happened.append("sleeps"))
        for _ in range(2):
            looks.start(loop, AdaptiveSpinner(1.0))
            for _ in range(5):
                await asyncio.sleep(0)

    asyncio.run(main())
    assert happened == ["looks", "sleeps", "on purpose", "looks"]
