"""The devices of this process: found on first use, and remembered until it forks."""

from __future__ import annotations

import importlib

from mray._common import settings
from mray._common.process_local import kernel_pid
from mray._device.device import Platform

#: The process that asked, and its platform.
_known: tuple[int, Platform | None] | None = None


def platform() -> Platform | None:
    """None without devices: the null one if MRAY_NULL_DEVICES is set, else CUDA's. Initializes no device.

    Raises ValueError for an invalid MRAY_NULL_DEVICES.
    """
    global _known
    known = _known
    if known is None or known[0] != kernel_pid():
        # By name, so that only one platform is loaded, with numpy or with libcuda.
        module = "mray.testing.null" if settings.NULL_DEVICES.get() is not None else "mray._device.cuda"
        found: Platform | None = importlib.import_module(module).find_platform()
        known = _known = kernel_pid(), found
    return known[1]


def forget_platform() -> None:
    """Look again on next use; null devices free all memory. For tests."""
    global _known
    known, _known = _known, None
    if known is not None and known[0] == kernel_pid() and known[1] is not None:
        known[1].close()
