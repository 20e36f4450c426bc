"""NVIDIA's driver, by ctypes: the calls of the CUDA driver API that mray makes, and what they raise.

The driver API and not the runtime, because its library exists wherever a GPU is, and its primary context is the one that torch and cupy
use. All names without suffix ``_ptsz``: stream 0 is the legacy default stream, as for torch.

Calls that may wait, for the device or for a lock of the driver, release the interpreter's lock. A thread that kept it could be waiting
for a kernel that another thread of this process has yet to launch (a collective between two GPUs of one process), and even a call that
only queues work waits when the queue of a stream is full.

Rejected: NVIDIA's ``cuda.bindings``: with plain numbers it is no faster than ctypes.
"""

from __future__ import annotations

import ctypes
import warnings
from typing import Any, NamedTuple

from mray._device.device import DeviceFaultError

LIBRARY = "libcuda.so.1"

#: Constants of cuda.h.
SUCCESS = 0
OUT_OF_MEMORY = 2
#: The thread has no current context.
INVALID_CONTEXT = 201
NOT_READY = 600
IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 0x1
MEMHOSTREGISTER_PORTABLE = 0x01
STREAM_NON_BLOCKING = 0x1
STREAM_CAPTURE_MODE_RELAXED = 2
STREAM_CAPTURE_STATUS_NONE = 0
#: Unsupported while capturing; invalidated capture; implicit dependency on the default stream.
CAPTURE_ERRORS = frozenset({900, 901, 906})
STREAM_WAIT_VALUE_GEQ = 0x0
#: Device attributes: addresses of registered host memory are the host's; stream memory operations take 64 bits.
ORDER_NEEDS = (91, 122)
#: Device attribute.
MPS_ENABLED = 133


class IpcHandle(ctypes.Structure):
    """``CUipcMemHandle``, passed by value."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


class Uuid(ctypes.Structure):
    """``CUuuid``."""

    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


_int, _uint, _size, _address, _opaque = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p
_to_int = ctypes.POINTER(_int)
_to_size = ctypes.POINTER(_size)
_to_address = ctypes.POINTER(_address)
_to_opaque = ctypes.POINTER(_opaque)
_to_handle = ctypes.POINTER(IpcHandle)
_to_uuid = ctypes.POINTER(Uuid)
_to_text = ctypes.POINTER(ctypes.c_char_p)

#: Calls that only touch the calling thread.
KEEPS_LOCK: dict[str, tuple[Any, ...]] = {
    "cuGetErrorName": (_int, _to_text),
    "cuGetErrorString": (_int, _to_text),
    "cuCtxGetCurrent": (_to_opaque,),
    "cuCtxSetCurrent": (_opaque,),
    "cuThreadExchangeStreamCaptureMode": (_to_int,),
}

GIVES_LOCK_AWAY: dict[str, tuple[Any, ...]] = {
    "cuInit": (_uint,),
    "cuDeviceGetCount": (_to_int,),
    "cuDeviceGet": (_to_int, _int),
    "cuDeviceGetAttribute": (_to_int, _int, _int),
    "cuDeviceGetName": (ctypes.c_char_p, _int, _int),
    # For part of a GPU (MIG) the older one returns the GPU's, the newer one its own.
    "cuDeviceGetUuid": (_to_uuid, _int),
    "cuDeviceGetUuid_v2": (_to_uuid, _int),
    "cuDeviceCanAccessPeer": (_to_int, _int, _int),
    "cuDevicePrimaryCtxRetain": (_to_opaque, _int),
    "cuDevicePrimaryCtxRelease_v2": (_int,),
    "cuMemGetInfo_v2": (_to_size, _to_size),
    "cuMemAlloc_v2": (_to_address, _size),
    "cuMemFree_v2": (_address,),
    "cuIpcGetMemHandle": (_to_handle, _address),
    "cuIpcOpenMemHandle_v2": (_to_address, IpcHandle, _uint),
    "cuIpcCloseMemHandle": (_address,),
    "cuMemHostRegister_v2": (_opaque, _size, _uint),
    "cuMemHostUnregister": (_opaque,),
    "cuStreamCreate": (_to_opaque, _uint),
    "cuStreamDestroy_v2": (_opaque,),
    "cuStreamSynchronize": (_opaque,),
    "cuStreamQuery": (_opaque,),
    "cuStreamIsCapturing": (_opaque, _to_int),
    "cuStreamGetId": (_opaque, ctypes.POINTER(ctypes.c_ulonglong)),
    "cuStreamWriteValue64_v2": (_opaque, _address, ctypes.c_uint64, _uint),
    "cuStreamWaitValue64_v2": (_opaque, _address, ctypes.c_uint64, _uint),
    "cuEventCreate": (_to_opaque, _uint),
    "cuEventRecord": (_opaque, _opaque),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _opaque, _opaque),
    "cuEventDestroy_v2": (_opaque,),
    "cuMemcpyAsync": (_address, _address, _size, _opaque),
}


#: Errors of kernels and of hardware.
FAULTS = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 911})


class CudaError(RuntimeError):
    def __init__(self, action: str, status: int, name: str, text: str) -> None:
        RuntimeError.__init__(self, action, status, name, text)
        self.action = action
        #: The number of the error, and CUDA's name and text for it.
        self.status = status
        self.name = name
        self.text = text

    def __str__(self) -> str:
        return f"{self.action} failed: {self.name} ({self.text})."


class CudaFaultError(CudaError, DeviceFaultError):
    """A call of the driver failed, as do all later ones."""


class LibCuda:
    """The functions of the library; each returns a status."""

    def __init__(self, gives_lock_away: Any, keeps_lock: Any) -> None:
        """Raises AttributeError if the library is too old to have a function."""
        for library, signatures in ((gives_lock_away, GIVES_LOCK_AWAY), (keeps_lock, KEEPS_LOCK)):
            for name, types in signatures.items():
                function = getattr(library, name)
                function.argtypes = types
                function.restype = _int
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not among the functions of {LIBRARY} that are declared here")

    def error(self, action: str, status: int) -> Exception:
        """MemoryError when the device is full, CudaFaultError after a fault, else CudaError."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        # Both leave no text for numbers that the driver does not know.
        self.cuGetErrorName(status, ctypes.byref(name))
        self.cuGetErrorString(status, ctypes.byref(text))
        words = (name.value or b"CUDA error %d" % status).decode(), (text.value or b"no description").decode()
        if status == OUT_OF_MEMORY:
            return MemoryError(f"{action} failed: {words[0]} ({words[1]}).")
        return (CudaFaultError if status in FAULTS else CudaError)(action, status, *words)

    def check(self, action: str, status: int) -> None:
        if status:
            raise self.error(action, status)


def missing_functions(library: Any) -> list[str]:
    """The functions that mray calls and a library does not have."""
    return [name for name in (*GIVES_LOCK_AWAY, *KEEPS_LOCK) if not hasattr(library, name)]


class Driver(NamedTuple):
    """The installed driver."""

    #: CUDA's version; "" where the driver does not answer.
    version: str
    #: Functions that mray calls and the driver lacks.
    missing: list[str]


def installed_driver() -> Driver | None:
    """Creates no context; None without a driver."""
    number = ctypes.c_int()
    try:
        library = ctypes.CDLL(LIBRARY)
        answered = library.cuDriverGetVersion(ctypes.byref(number)) == SUCCESS
    except OSError:
        return None
    version = f"{number.value // 1000}.{number.value % 1000 // 10}" if answered else ""
    return Driver(version, missing_functions(library))


def load() -> LibCuda | None:
    """The driver's library, or None without one from CUDA 12.0 on; the functions that it lacks are then a warning."""
    try:
        library = ctypes.CDLL(LIBRARY)
        missing = missing_functions(library)
        if missing:
            warnings.warn(
                f"mray uses no GPU: {LIBRARY} has no {', '.join(missing)}. Drivers have it from CUDA 12.0 on: update this one.",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        return LibCuda(library, ctypes.PyDLL(LIBRARY))
    except OSError:
        return None
