"""The clocks of mray, in seconds. Any thread of any process.

freezegun and mocks replace the functions of `time` wherever they were imported; time limits would never pass. So only this module asks
`time`, through a private instance of it.

`now` is for deadlines alone: the machine's `monotonic`, except in a session of one process, which has its own time
(`mray._backends.local`).
"""

from __future__ import annotations

import contextlib
import math
import time as _known
from collections.abc import Callable
from importlib.util import module_from_spec
from types import BuiltinFunctionType
from typing import Any

from mray._common.record import Record


def _another_instance() -> Any:
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
#: The local engine has scheduling points instead: its code calls `clock.sleep`.
sleep: Callable[[float], None] = _machine.sleep


class Clock(Record):
    """The clock by which a process decides about its calls."""

    now: Callable[[], float] = monotonic
    #: Whether it measures work. Else no decision depends on the duration of calls.
    is_real: bool = True


_clock: Callable[[], float] = monotonic


def now() -> float:
    return _clock()


def use(clock: Callable[[], float] | None) -> None:
    """Make `now` call this function; None: the machine's clock."""
    global _clock
    _clock = monotonic if clock is None else clock


def is_pretended() -> bool:
    """Whether a test has replaced `time`."""
    return type(_known.monotonic) is not BuiltinFunctionType


#: Ray counts milliseconds in 64 bits.
_LONGEST = 1 << 63


def check_timeout(timeout: Any) -> None:
    """Raise TypeError if it is no number, ValueError for inf and nan, OverflowError for more than Ray can count."""
    with contextlib.suppress(TypeError):
        if -_LONGEST <= timeout * 1000 < _LONGEST:
            return
    if isinstance(timeout, str) or not hasattr(timeout, "__float__"):
        raise TypeError(f"timeout is a number of seconds, or None to wait forever, not {timeout!r}")
    if timeout != timeout or timeout in (math.inf, -math.inf):
        raise ValueError(f"timeout is a finite number of seconds, or None to wait forever, not {timeout}")
    raise OverflowError(f"timeout={timeout} seconds is too long; None waits forever")
