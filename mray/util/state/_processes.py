"""Facts of the kernel about a process of this machine: memory, CPU time, when it began. From /proc; empty when it has gone."""

from __future__ import annotations

from time import CLOCK_BOOTTIME, clock_gettime
from typing import Any

from mray._common.clock import time
from mray._common.kept import io, os

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def facts_of(pid: int) -> dict[str, Any]:
    """``rss_bytes, cpu_seconds, start_time_ms`` of a process."""
    try:
        with io.open(f"/proc/{pid}/stat", "rb") as file:
            facts = file.read().rsplit(b")", 1)[1].split()
    except OSError:
        return {}
    booted = time() - clock_gettime(CLOCK_BOOTTIME)
    return {
        "rss_bytes": int(facts[21]) * _PAGE,
        "cpu_seconds": (int(facts[11]) + int(facts[12])) / _TICKS,
        "start_time_ms": int((booted + int(facts[19]) / _TICKS) * 1000),
    }
