"""The options of compiling for a graph's callers: the most executions and results, and timeouts."""

from __future__ import annotations

from dataclasses import dataclass

from mray._common.clock import check_timeout, now


@dataclass(frozen=True)
class Limits:
    """Timeouts in seconds; ``None`` and -1 wait for ever."""

    in_flight: int = 10
    kept: int = 1000
    submit_timeout: float | None = None
    get_timeout: float | None = None
    teardown_timeout: float = 30.0
    #: Whether with too many executions in flight the next one waits instead of raising, for `wait_timeout` seconds. Slow is not dead: not
    #: `submit_timeout`, which has a default.
    wait: bool = False
    wait_timeout: float | None = None
    enable_asyncio: bool = False


def deadline_of(timeout: float | None) -> float | None:
    """When a timeout that begins now has passed; None and negative ones never do."""
    if timeout is not None:
        check_timeout(timeout)
    return None if timeout is None or timeout < 0 else now() + timeout
