"""The clocks of mray: seconds of the machine, and the time by which waits end.

Any thread of any process. Tests pretend another time: freezegun and mocks replace the functions of `time` in that module and wherever
they were imported. Time limits would never pass then. So only this module asks `time`, and it asks a private instance of it, at the same
price.

`now` is for deadlines alone. It is the machine's `monotonic`, except in a session of one process, which has its own time
(`mray._backends.local`); measurements and spinning use the machine's.
"""

from __future__ import annotations

import contextlib
import math
import time as _known
from collections.abc import Callable
from importlib.util import module_from_spec
from types import BuiltinFunctionType
from typing import Any, NamedTuple


def _another_instance() -> Any:
    """A second instance of the module `time`."""
    spec = _known.__spec__
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_machine = _another_instance()

monotonic: Callable[[], float] = _machine.monotonic
monotonic_ns: Callable[[], int] = _machine.monotonic_ns
perf_counter: Callable[[], float] = _machine.perf_counter
time: Callable[[], float] = _machine.time
time_ns: Callable[[], int] = _machine.time_ns
#: A scheduling point in a session of one process: such code calls `clock.sleep`.
sleep: Callable[[float], None] = _machine.sleep


class Clock(NamedTuple):
    """The clock by which a process decides about its calls."""

    #: Seconds.
    now: Callable[[], float] = monotonic
    #: Whether it measures work. Else no decision depends on how long calls take.
    is_real: bool = True


_clock: Callable[[], float] = monotonic


def now() -> float:
    """The time, for deadlines."""
    return _clock()


def use(clock: Callable[[], float] | None) -> None:
    """Make `now` call this function; None: the machine's clock."""
    global _clock
    _clock = monotonic if clock is None else clock


def is_pretended() -> bool:
    """Whether a test pretends another time to other code."""
    return type(_known.monotonic) is not BuiltinFunctionType


#: Ray counts milliseconds in 64 bits.
_LONGEST = 1 << 63


def check_timeout(timeout: Any) -> None:
    """Raise TypeError for a value that is no number, ValueError for inf and nan, OverflowError for more than Ray can count."""
    with contextlib.suppress(TypeError):
        if -_LONGEST <= timeout * 1000 < _LONGEST:
            return
    if isinstance(timeout, str) or not hasattr(timeout, "__float__"):
        raise TypeError(f"timeout is a number of seconds, or None to wait for ever, not {timeout!r}")
    if timeout != timeout or timeout in (math.inf, -math.inf):
        raise ValueError(f"timeout is a finite number of seconds, or None to wait for ever, not {timeout}")
    raise OverflowError(f"timeout={timeout} seconds are more than can be counted; None waits for ever")
