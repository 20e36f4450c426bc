"""``ray.util.rpdb``, as far as Ray's libraries use it."""

from __future__ import annotations

from mray._common import settings


def _is_ray_debugger_post_mortem_enabled() -> bool:
    """Never: mray's debugger stops at `breakpoint` only."""
    return settings.of_library("RAY_DEBUG_POST_MORTEM") == "1"
