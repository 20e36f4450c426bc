"""The devices of this process: found on first use, and remembered until it forks."""

from __future__ import annotations

import importlib

from mray._common import settings
from mray._common.process_local import kernel_pid
from mray._device.device import Platform

#: By pid, since a forked child has devices of its own.
_known: dict[int, Platform | None] = {}


def platform() -> Platform | None:
    """None without devices: the null one if MRAY_NULL_DEVICES is set, else CUDA's. Initializes no device.

    Raises ValueError for an invalid MRAY_NULL_DEVICES.
    """
    pid = kernel_pid()
    if pid not in _known:
        # By name, so that only one platform is loaded, with numpy or with libcuda.
        module = "mray.testing.null" if settings.NULL_DEVICES.get() is not None else "mray._device.cuda"
        _known.setdefault(pid, importlib.import_module(module).find_platform())  # one for all threads
    return _known[pid]


def forget_platform() -> None:
    """Look again on next use; null devices free all memory. For tests."""
    found = _known.pop(kernel_pid(), None)
    if found is not None:
        found.close()
