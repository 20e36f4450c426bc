"""Facts from NVIDIA's management library about GPUs that CUDA does not show this process: whether two of them reach each other's memory.

An actor usually sees one GPU, by CUDA_VISIBLE_DEVICES, which this library does not heed. Since CUDA 10.1 a process can open memory of a
device that it does not see (NCCL counts on that); it only cannot ask the driver whether that will work. Asked when a graph is compiled,
never for a message.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

#: Values of the header: what to ask for, and the good answer.
CAPS_INDEX_READ = 0
CAPS_INDEX_WRITE = 1
P2P_STATUS_OK = 0


@functools.lru_cache(1)
def _load() -> Any:
    try:
        nvml = ctypes.CDLL(LIBRARY)
        nvml.nvmlInit_v2.argtypes = nvml.nvmlShutdown.argtypes = ()
        nvml.nvmlDeviceGetHandleByUUID.argtypes = (ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p))
        nvml.nvmlDeviceGetP2PStatus.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int))
    except (OSError, AttributeError):
        return None
    return nvml


@contextlib.contextmanager
def _initialized(nvml: Any) -> Iterator[bool]:
    started = nvml.nvmlInit_v2() == 0
    try:
        yield started
    finally:
        if started:
            nvml.nvmlShutdown()


def can_access(uuid: str, other: str, nvml: Any = None) -> bool:
    """Whether either of two GPUs of the machine reads and writes the other's memory. No for what the library does not know.

    That is: for GPUs that the container was not given, for parts of GPUs (MIG), and where the library is missing.
    """
    nvml = nvml or _load()
    if nvml is None:
        return False
    with _initialized(nvml) as started:
        if not started:
            return False
        devices = []
        for name in (uuid, other):
            device = ctypes.c_void_p()
            if nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(device)) != 0:
                return False
            devices.append(device)
        return all(_allows(nvml, devices[0], devices[1], index) for index in (CAPS_INDEX_READ, CAPS_INDEX_WRITE))


def _allows(nvml: Any, device: ctypes.c_void_p, other: ctypes.c_void_p, index: int) -> bool:
    status = ctypes.c_int(-1)
    return nvml.nvmlDeviceGetP2PStatus(device, other, index, ctypes.byref(status)) == 0 and status.value == P2P_STATUS_OK
