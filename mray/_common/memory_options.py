"""Settings of the memory monitor, and of retries. In the driver, at `init`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mray._common import settings


def monitor_options(system_config: Mapping[str, Any] | None) -> dict[str, Any]:
    """``threshold`` (share of the memory), ``refresh_ms`` (0: off), ``meminfo`` (a path); Ray's names in `system_config` override
    variables.

    Raises ValueError for an invalid threshold, or a negative time.
    """
    config = system_config or {}
    threshold = float(config.get("memory_usage_threshold", settings.MEMORY_USAGE_THRESHOLD.get()))
    refresh = int(config.get("memory_monitor_refresh_ms", settings.MEMORY_MONITOR_REFRESH_MS.get()))
    if not 0 <= threshold <= 1:
        raise ValueError(f"memory_usage_threshold must be between 0 and 1, got {threshold}")
    if refresh < 0:
        raise ValueError(f"memory_monitor_refresh_ms must not be negative, got {refresh}")
    return {"threshold": threshold, "refresh_ms": refresh, "meminfo": settings.MEMINFO.get()}


def retry_options(system_config: Mapping[str, Any] | None) -> tuple[int, float]:
    """Retries of a retriable task that the monitor killed (-1: without limit), and seconds before the first."""
    config = system_config or {}
    retries = int(config.get("task_oom_retries", settings.TASK_OOM_RETRIES.get()))
    delay = int(config.get("task_oom_retry_delay_base_ms", settings.TASK_OOM_RETRY_DELAY_BASE_MS.get()))
    return retries, delay / 1000


def retry_delay(system_config: Mapping[str, Any] | None) -> float:
    """Seconds before a task or call that has failed for another reason is retried. Raises ValueError for a negative time."""
    delay = int((system_config or {}).get("task_retry_delay_ms", settings.TASK_RETRY_DELAY_MS.get()))
    if delay < 0:
        raise ValueError(f"task_retry_delay_ms must not be negative, got {delay}")
    return delay / 1000
