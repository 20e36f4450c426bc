"""The clocks of mray: seconds of the machine, and the moment by which waits end.

Any thread of any process. Tests pretend another time: freezegun replaces the functions of `time` in that module and wherever a module has
imported them, others do so by `unittest.mock`. A time limit would never pass then, and a wait for a death that has a limit of its own
would wait for ever. So nobody but this module asks `time`, and this one asks an instance of it that nobody else knows, at the same price.

`now` is for deadlines alone. It is the machine's `monotonic`, except where one process runs a whole session and time passes as that
session decides (`mray._backends.local`); what measures, and what spins for microseconds, asks the machine.
"""

from __future__ import annotations

import contextlib
import math
import time as _known
from collections.abc import Callable
from importlib.util import module_from_spec
from types import BuiltinFunctionType
from typing import Any


def _another_instance() -> Any:
    """The module `time` once more, with functions of its own."""
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
#: Where one process may run a whole session it is a scheduling point: such code says `clock.sleep`.
sleep: Callable[[float], None] = _machine.sleep

_clock: Callable[[], float] = monotonic


def now() -> float:
    """The time, for deadlines."""
    return _clock()


def use(clock: Callable[[], float] | None) -> None:
    """From now on `now` is what this says; None: what the machine says."""
    global _clock
    _clock = monotonic if clock is None else clock


def is_pretended() -> bool:
    """Whether a test pretends another time to everybody else."""
    return type(_known.monotonic) is not BuiltinFunctionType


#: Ray counts milliseconds in 64 bits.
_LONGEST = 1 << 63


def check_timeout(timeout: Any) -> None:
    """TypeError for what is no number of seconds, ValueError for inf and nan, OverflowError for more than Ray can count."""
    with contextlib.suppress(TypeError):
        if -_LONGEST <= timeout * 1000 < _LONGEST:
            return
    if isinstance(timeout, str) or not hasattr(timeout, "__float__"):
        raise TypeError(f"timeout is a number of seconds, or None to wait for ever, not {timeout!r}")
    if timeout != timeout or timeout in (math.inf, -math.inf):
        raise ValueError(f"timeout is a finite number of seconds, or None to wait for ever, not {timeout}")
    raise OverflowError(f"timeout={timeout} seconds are more than can be counted; None waits for ever")
