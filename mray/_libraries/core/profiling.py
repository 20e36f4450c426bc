"""``ray._private.profiling``: spans of a program in Ray's timeline, which are recorded only where ``RAY_PROFILING`` is set."""

from __future__ import annotations

import contextlib

__all__ = ["NULL_LOG_SPAN", "profile"]

NULL_LOG_SPAN = contextlib.nullcontext()


def profile(event_type: str, extra_data: dict[str, object] | None = None) -> contextlib.nullcontext[None]:
    """Record nothing."""
    return NULL_LOG_SPAN
