"""Options of compiling that concern callers: the most executions and results, and timeouts."""

from __future__ import annotations

from dataclasses import dataclass

from mray._common.clock import check_timeout, now


@dataclass(frozen=True)
class Limits:
    """Seconds; ``None`` and -1 wait forever."""

    in_flight: int = 10
    kept: int = 1000
    submit_timeout: float | None = None
    get_timeout: float | None = None
    teardown_timeout: float = 30.0
    #: Whether one execution too many waits for `wait_timeout` seconds instead of raising; no default, since a slow actor is not dead.
    wait: bool = False
    wait_timeout: float | None = None
    enable_asyncio: bool = False


def deadline_of(timeout: float | None) -> float | None:
    """When a timeout that begins now ends; None for None and negative ones."""
    if timeout is not None:
        check_timeout(timeout)
    return None if timeout is None or timeout < 0 else now() + timeout
