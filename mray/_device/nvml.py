"""NVIDIA's management library on GPUs that CUDA does not show this process: peer access, and NVLink.

Since CUDA 10.1 a process can open memory of a device that it does not see, but cannot ask the driver whether that will work.

As a program (``python -m mray._device.nvml UUID ...``) it prints the pairs of GPUs with NVLink: the node must not depend on a driver,
and so asks a process with a time limit (`ask_links`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

#: The query, and its positive answer.
CAPS_INDEX_READ = 0
CAPS_INDEX_WRITE = 1
CAPS_INDEX_NVLINK = 2
P2P_STATUS_OK = 0

#: Seconds for the driver to report its links: it may have to wake every GPU.
_PATIENCE = 10.0


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
    """Whether two GPUs of the machine read and write each other's memory. False where the library does not know: for GPUs outside of the
    container, for parts of GPUs (MIG), and without the library.
    """
    nvml = nvml or _load()
    if nvml is None:
        return False
    with _initialized(nvml) as started:
        devices = _devices(nvml, (uuid, other)) if started else {}
        return len(devices) == 2 and all(
            _allows(nvml, devices[uuid], devices[other], index) for index in (CAPS_INDEX_READ, CAPS_INDEX_WRITE)
        )


def links(uuids: Iterable[str], nvml: Any = None) -> list[tuple[str, str]]:
    """The pairs of these GPUs that have NVLink, through switches too."""
    nvml = nvml or _load()
    if nvml is None:
        return []
    with _initialized(nvml) as started:
        devices = _devices(nvml, uuids) if started else {}
        return [
            (one, other)
            for one, other in itertools.combinations(devices, 2)
            if _allows(nvml, devices[one], devices[other], CAPS_INDEX_NVLINK)
        ]


def ask_links(uuids: Iterable[str]) -> list[tuple[str, str]]:
    """`links`, asked by a separate process; empty without the library or an answer. Waits for `_PATIENCE` at most."""
    import subprocess  # noqa: PLC0415  (hardly any program needs it)

    program = [sys.executable, "-m", __name__, *filter(None, uuids)]
    try:
        said = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    pairs = [line.split() for line in said.stdout.splitlines()]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def _devices(nvml: Any, uuids: Iterable[str]) -> dict[str, ctypes.c_void_p]:
    found = {}
    for uuid in uuids:
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)) == 0:
            found[uuid] = device
    return found


def _allows(nvml: Any, device: ctypes.c_void_p, other: ctypes.c_void_p, index: int) -> bool:
    status = ctypes.c_int(-1)
    return nvml.nvmlDeviceGetP2PStatus(device, other, index, ctypes.byref(status)) == 0 and status.value == P2P_STATUS_OK


if __name__ == "__main__":
    for _one, _other in links(sys.argv[1:]):
        sys.stdout.write(f"{_one} {_other}\n")
