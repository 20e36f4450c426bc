"""The end of user code in a worker: which threads still run it."""

from __future__ import annotations

import _thread
import sys
import time
from collections.abc import Iterator
from types import FrameType

from mray._runtime.worker.finalizing import _runs_user_code
from tests.faults.interrupts.steps import as_own


def items() -> Iterator[FrameType]:
    yield sys._getframe()


own_frame = as_own(lambda then: then(sys._getframe()))


def test_a_thread_runs_the_users_code_if_a_frame_outside_is_of_it() -> None:
    assert own_frame(_runs_user_code)


def test_a_thread_without_a_frame_of_the_users_runs_none_of_its_code() -> None:
    found: list[bool] = []
    _thread.start_new_thread(as_own(lambda: found.append(_runs_user_code(sys._getframe()))), ())
    while not found:
        time.sleep(0.001)
    assert found == [False]


def test_a_thread_that_leaves_a_generator_may_run_the_users_code() -> None:
    generator = as_own(items)()
    frame = next(generator)
    assert frame.f_back is None
    assert _runs_user_code(frame)
