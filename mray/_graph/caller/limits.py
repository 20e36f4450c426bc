"""The options of compiling for a graph's callers: the most executions and results, and timeouts."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from mray._common.clock import now


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
    #: Whether results are read and kept when more executions would be in flight than may be; so it is wherever callers wait.
    reads_ahead: bool = False


def copied(limits: Limits) -> Limits:
    """The limits of a copy: as by way of the owner, an execution is in flight until its results are there, and all of these are kept."""
    return replace(limits, kept=sys.maxsize, reads_ahead=True)


def deadline_of(timeout: float | None) -> float | None:
    """When a timeout that begins now has passed; None and negative ones never do."""
    return None if timeout is None or timeout < 0 else now() + timeout


def too_many_text(most: int, in_flight: int) -> str:
    """Ray's text of RayCgraphCapacityExceeded when too many executions are in flight."""
    return (
        f"The compiled graph can't have more than {most} in-flight executions, and you currently have {in_flight} in-flight "
        "executions. Retrieve an output using ray.get before submitting more requests or increase `_max_inflight_executions`. "
        "`dag.experimental_compile(_max_inflight_executions=...)`"
    )
