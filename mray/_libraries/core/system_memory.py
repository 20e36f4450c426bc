"""``ray._private.utils`` and ``ray._common.utils``: the machine's memory, and the resource that stands for a kind of accelerator."""

from __future__ import annotations

from mray._common import settings
from mray._ipc.discovery import memory_groups
from mray._runtime.node.memory_usage import Usage, read_usage

__all__ = ["RESOURCE_CONSTRAINT_PREFIX", "get_system_memory", "get_used_memory"]

#: The prefix of a kind of accelerator: ``{"accelerator_type:A100": 0.001}``.
RESOURCE_CONSTRAINT_PREFIX = "accelerator_type:"


def get_system_memory() -> int:
    """Bytes of the machine, or of this process's control group."""
    return _usage().total


def get_used_memory() -> int:
    """Bytes of it in use. Memory that the kernel can reclaim immediately does not count."""
    return _usage().used


def _usage() -> Usage:
    return read_usage(settings.MEMINFO.get(), memory_groups())
