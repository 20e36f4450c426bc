"""The declarations of CUDA's header, as far as mray calls them, and functions that refuse arguments that C would misread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from mray._device.libcuda import IpcHandle, Uuid

#: The header's declarations, as far as the fake implements them.
HEADER = """
cuGetErrorName(CUresult, const char **)
cuGetErrorString(CUresult, const char **)
cuInit(unsigned)
cuDeviceGetCount(int *)
cuDeviceGet(CUdevice *, int)
cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice)
cuDeviceGetName(char *, int, CUdevice)
cuDeviceGetUuid(CUuuid *, CUdevice)
cuDeviceGetUuid_v2(CUuuid *, CUdevice)
cuDeviceCanAccessPeer(int *, CUdevice, CUdevice)
cuDevicePrimaryCtxRetain(CUcontext *, CUdevice)
cuDevicePrimaryCtxRelease_v2(CUdevice)
cuCtxGetCurrent(CUcontext *)
cuCtxSetCurrent(CUcontext)
cuMemGetInfo_v2(size_t *, size_t *)
cuMemAlloc_v2(CUdeviceptr *, size_t)
cuMemFree_v2(CUdeviceptr)
cuIpcGetMemHandle(CUipcMemHandle *, CUdeviceptr)
cuIpcOpenMemHandle_v2(CUdeviceptr *, CUipcMemHandle, unsigned)
cuIpcCloseMemHandle(CUdeviceptr)
cuMemHostRegister_v2(void *, size_t, unsigned)
cuMemHostUnregister(void *)
cuStreamCreate(CUstream *, unsigned)
cuStreamDestroy_v2(CUstream)
cuStreamSynchronize(CUstream)
cuStreamQuery(CUstream)
cuStreamIsCapturing(CUstream, CUstreamCaptureStatus *)
cuStreamGetId(CUstream, unsigned long long *)
cuStreamWriteValue64_v2(CUstream, CUdeviceptr, cuuint64_t, unsigned)
cuStreamWaitValue64_v2(CUstream, CUdeviceptr, cuuint64_t, unsigned)
cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *)
cuEventCreate(CUevent *, unsigned)
cuEventRecord(CUevent, CUstream)
cuEventElapsedTime(float *, CUevent, CUevent)
cuEventDestroy_v2(CUevent)
cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream)
"""
_C_TYPES: dict[str, Any] = {
    **dict.fromkeys(("int", "CUdevice", "CUdevice_attribute", "CUresult", "CUstreamCaptureMode", "CUstreamCaptureStatus"), ctypes.c_int),
    **dict.fromkeys(("CUcontext", "CUstream", "CUevent", "void *"), ctypes.c_void_p),
    **dict.fromkeys(("CUdeviceptr", "cuuint64_t"), ctypes.c_uint64),
    "CUipcMemHandle": IpcHandle,
    "unsigned": ctypes.c_uint,
    "unsigned long long": ctypes.c_ulonglong,
    "float": ctypes.c_float,
    "size_t": ctypes.c_size_t,
    "CUuuid": Uuid,
    "char *": ctypes.c_char_p,
}


def c_type(text: str) -> Any:
    """The ctypes type of a parameter of the header."""
    text = text.removeprefix("const ").strip()
    if text in _C_TYPES:
        return _C_TYPES[text]
    assert text.endswith("*"), text
    return ctypes.POINTER(c_type(text[:-1].strip()))


def signatures() -> dict[str, tuple[Any, ...]]:
    """The header, by function."""
    found = {}
    for line in HEADER.strip().splitlines():
        name, _, rest = line.partition("(")
        found[name] = tuple(c_type(part.strip()) for part in rest.removesuffix(")").split(","))
    return found


SIGNATURES = signatures()


class Function:
    """One function of the library: refuses what C would misread."""

    def __init__(self, name: str, body: Callable[..., int], calls: list[str]) -> None:
        self.name = name
        self.body = body
        self.calls = calls
        self.argtypes: tuple[Any, ...] = ()
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> int:
        assert self.argtypes == SIGNATURES[self.name], f"{self.name} is declared with {self.argtypes}"
        assert self.restype is ctypes.c_int
        assert len(arguments) == len(self.argtypes), f"{self.name} takes {len(self.argtypes)} arguments"
        self.calls.append(self.name)
        return self.body(*[self.taken(argument, kind) for argument, kind in zip(arguments, self.argtypes, strict=True)])

    def taken(self, argument: Any, kind: Any) -> Any:
        if issubclass(kind, ctypes._Pointer):
            target = getattr(argument, "_obj", argument)
            wanted: Any = kind._type_
            assert isinstance(target, wanted) or getattr(target, "_type_", None) is wanted, f"{self.name}: {argument} is no {kind}"
            return target
        if issubclass(kind, ctypes.Structure):
            assert isinstance(argument, kind), f"{self.name}: {argument} is no {kind}"
            return argument
        if kind is ctypes.c_char_p:
            return argument
        value = argument.value if isinstance(argument, kind) else argument
        assert value is None or isinstance(value, int), f"{self.name}: {argument} is no number"
        if value is not None:
            assert kind(value).value == (value or (None if kind is ctypes.c_void_p else 0)), f"{self.name}: {value} does not fit {kind}"
        return value or 0
