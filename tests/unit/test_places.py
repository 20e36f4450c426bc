"""Where a signal has met the main thread: frames of functions that are mray's, Python's or the user's."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from mray._common.places import (
    AFTER,
    RETURNS,
    SUSPENDED,
    Place,
    dispatches,
    place_of,
    precedes_dispatch,
    runs_users,
    sleeps,
)
from tests.faults.interrupts.steps import as_own


def test_flags_are_those_of_inspect() -> None:
    """Which the node does not import."""
    assert SUSPENDED == inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def here() -> FrameType:
    return sys._getframe(1)


def place(is_locked: bool = False) -> Place:
    """The place of the caller."""
    return place_of(sys._getframe(1), is_locked)


own_place = as_own(lambda: place_of(sys._getframe(0)))


def call(function: Callable[[], Any]) -> Any:
    return function()


own_call = as_own(call)


def own_generator() -> Iterator[Place]:
    yield own_place()


own_generator = as_own(own_generator)


def test_the_users_code_may_be_cut() -> None:
    assert place() == Place(True, False)


def test_mrays_code_goes_on_until_its_outermost_function_returns() -> None:
    outermost: list[FrameType] = []

    def own() -> Place:
        outermost.append(sys._getframe(0))
        return own_call(own_place)

    found = as_own(own)()
    assert found == Place(False, False, outermost[0], RETURNS)


def test_the_library_works_for_whoever_has_called_it() -> None:
    def own() -> Place:
        with contextlib.ExitStack() as stack:
            found: list[Place] = []
            stack.callback(lambda: found.append(place_of(sys._getframe(1))))
        return found[0]

    found = as_own(own)()
    assert found.frame is not None and found.frame.f_code.co_name == "own", "the library's frames end with mray's"
    found = own()
    assert found.is_open


def test_the_users_code_that_mray_has_called_may_be_cut_unless_mray_dispatches_or_owns_a_lock() -> None:
    assert own_call(lambda: place()).is_open
    dispatch = as_own(call)
    dispatch.__code__ = dispatch.__code__.replace(co_name="dispatch")
    dispatches(dispatch)
    found = dispatch(lambda: place())
    assert not found.is_open and found.frame is not None and found.frame.f_code is dispatch.__code__
    assert not own_call(lambda: place(is_locked=True)).is_open


def test_a_sleep_is_open_for_the_users_code_alone() -> None:
    sleep = as_own(lambda: place_of(sys._getframe(0)))
    sleep.__code__ = sleep.__code__.replace(co_name="sleep")
    sleeps(sleep)
    assert own_call(sleep) == Place(True, True)
    dispatch = as_own(lambda: sleep())
    dispatches(dispatch)
    assert not dispatch().is_open, "a message is in hand"
    wait = precedes_dispatch(as_own(lambda: sleep()))
    reader = dispatches(as_own(lambda: wait()))
    assert reader().is_open, "none is yet"


def test_a_sleep_by_a_function_of_a_library_is_one() -> None:
    def sleep(then: Callable[[], Any]) -> Place:
        with contextlib.ExitStack() as stack:
            found: list[Place] = []
            stack.callback(lambda: found.append(then()))
        return found[0]

    asleep = sleeps(as_own(sleep))
    beside: list[Place] = []
    asleep(lambda: beside.append(place_of(sys._getframe(2))))
    assert beside == [Place(True, True)]


def test_a_function_that_calls_the_users_counts_as_the_users() -> None:
    run = as_own(call)
    run.__code__ = run.__code__.replace(co_name="run")
    runs_users(run)
    found = run(as_own(lambda: own_place()))
    assert found.frame is not None and found.frame.f_back is not None and found.frame.f_back.f_code is run.__code__
    assert run(lambda: place()).is_open
    users = lambda: place()  # noqa: E731
    assert as_own(lambda: run(users))().is_open


def test_what_is_dropped_or_suspended_gives_its_turn_to_the_user_after_it() -> None:
    found = next(own_generator())
    assert (found.frame, found.how) == (here(), AFTER)


def test_between_two_calls_of_a_worker_there_is_no_code_of_the_users() -> None:
    def below(frame: FrameType | None) -> Any:
        return frame

    frames: list[FrameType] = []

    def innermost() -> None:
        frames.append(sys._getframe(0))

    import threading

    thread = threading.Thread(target=as_own(innermost))
    thread.start()
    thread.join()
    assert place_of(frames[0]) == Place(False, False)
    assert place_of(frames[0]).is_idle
    assert below(None) is None and place_of(None).is_open, "at the prompt of an interpreter"
