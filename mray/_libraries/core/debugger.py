"""``ray.util.rpdb``: the questions that Ray's libraries ask about its debugger."""

from __future__ import annotations


def _is_ray_debugger_post_mortem_enabled() -> bool:
    """Whether a task that fails stops in a debugger: mray's stops at `breakpoint` alone."""
    return False
