"""``ray.util.rpdb``: the questions that Ray's libraries ask about its debugger."""

from __future__ import annotations

from mray._common import settings


def _is_ray_debugger_post_mortem_enabled() -> bool:
    """Whether the user wants to see an error where it was raised: Ray's libraries pass it on as it is then. mray's debugger stops at
    `breakpoint` alone.
    """
    return settings.of_library("RAY_DEBUG_POST_MORTEM") == "1"
