"""The clock by which waits end: seconds that only grow, from an arbitrary moment on.

Any thread of any process. It is the machine's, except where one process runs a whole session and time passes as that session decides
(`mray._backends.local`). For deadlines alone: what measures, and what spins for microseconds, asks the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_clock: Callable[[], float] = time.monotonic


def now() -> float:
    """The time."""
    return _clock()


def use(clock: Callable[[], float] | None) -> None:
    """From now on time is what this says; None: what the machine says."""
    global _clock
    _clock = time.monotonic if clock is None else clock
