"""``ray.util.rpdb``: what Ray's libraries ask about its debugger."""

from __future__ import annotations

from mray._common import settings


def _is_ray_debugger_post_mortem_enabled() -> bool:
    """Whether post-mortem debugging is on, for which Ray's libraries do not wrap errors. mray's debugger stops at `breakpoint` only."""
    return settings.of_library("RAY_DEBUG_POST_MORTEM") == "1"
