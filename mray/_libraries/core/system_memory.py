"""``ray._private.utils`` and ``ray._common.utils``: the machine's memory, and the resource of a kind of accelerator."""

from __future__ import annotations

from mray._inside.machine import usage_here

__all__ = ["RESOURCE_CONSTRAINT_PREFIX", "get_system_memory", "get_used_memory"]

#: a prefix, as in ``{"accelerator_type:A100": 0.001}``
RESOURCE_CONSTRAINT_PREFIX = "accelerator_type:"


def get_system_memory() -> int:
    """Bytes of the machine, or of this process's control group."""
    return usage_here().total


def get_used_memory() -> int:
    """Bytes in use, without memory that the kernel can reclaim immediately."""
    return usage_here().used
