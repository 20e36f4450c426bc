"""``ray._private.profiling``: a program's own spans in Ray's timeline, which are recorded only where ``RAY_PROFILING`` is set."""

from __future__ import annotations

import contextlib

__all__ = ["NULL_LOG_SPAN", "profile"]

#: A context manager that does nothing.
NULL_LOG_SPAN = contextlib.nullcontext()


def profile(event_type: str, extra_data: dict[str, object] | None = None) -> contextlib.nullcontext[None]:
    """As without the variable: nothing is recorded."""
    return NULL_LOG_SPAN
