"""NCCL, by ctypes: the library that torch has loaded, or would load.

A process should have no second: both would use the same GPUs, with versions that other processes do not expect. So it is looked for
where it is loaded already, then among the packages that torch's wheels depend on, then where the system's loader looks. torch is not
imported for that, and no context is created.

Calls release the interpreter's lock. Communicators are created on the device whose context is current in the calling thread. Any thread;
the caller orders the calls for one communicator.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from typing import Any, Final

from mray._common.kept import os

LIBRARY: Final = "libnccl.so.2"
#: The oldest version with bfloat16 and averages.
OLDEST: Final = 21000
INSTALL: Final = "pip install nvidia-nccl-cu12, or -cu13, as your torch for CUDA does"

#: The header's names and texts.
_RESULTS: Final = {
    1: "NCCL_ERROR_UNHANDLED_CUDA_ERROR: unhandled cuda error",
    2: "NCCL_ERROR_SYSTEM_ERROR: unhandled system error",
    3: "NCCL_ERROR_INTERNAL_ERROR: internal error",
    4: "NCCL_ERROR_INVALID_ARGUMENT: invalid argument",
    5: "NCCL_ERROR_INVALID_USAGE: invalid usage",
    6: "NCCL_ERROR_REMOTE_ERROR: remote process exited or there was a network error",
}
INVALID_ARGUMENT: Final = 4


class NcclError(RuntimeError):
    """The error of a call; `status` is NCCL's number."""

    def __init__(self, status: int, detail: str = "") -> None:
        self.status = status
        self.detail = detail
        super().__init__(_RESULTS.get(status, f"NCCL_ERROR_{status}") + (f" ({detail})" if detail else ""))

    def __reduce__(self) -> tuple[type[NcclError], tuple[int, str]]:
        return type(self), (self.status, self.detail)


class UniqueId(ctypes.Structure):
    """``ncclUniqueId``, passed by value."""

    _fields_ = (("internal", ctypes.c_char * 128),)


_int, _size, _address, _opaque = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p
#: All return a result. Those that queue work end with communicator and stream.
SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "ncclGetVersion": (ctypes.POINTER(_int),),
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRank": (ctypes.POINTER(_opaque), _int, UniqueId, _int),
    "ncclCommAbort": (_opaque,),
    "ncclCommGetAsyncError": (_opaque, ctypes.POINTER(_int)),
    "ncclSend": (_address, _size, _int, _int, _opaque, _opaque),
    "ncclRecv": (_address, _size, _int, _int, _opaque, _opaque),
    "ncclAllReduce": (_address, _address, _size, _int, _int, _opaque, _opaque),
    "ncclReduce": (_address, _address, _size, _int, _int, _int, _opaque, _opaque),
    "ncclBroadcast": (_address, _address, _size, _int, _int, _opaque, _opaque),
    "ncclAllGather": (_address, _address, _size, _int, _opaque, _opaque),
    "ncclReduceScatter": (_address, _address, _size, _int, _int, _opaque, _opaque),
}


class LibNccl:
    """The library."""

    NcclError = NcclError

    def __init__(self, library: Any) -> None:
        self._get_version = library.ncclGetVersion
        self._get_version.argtypes, self._get_version.restype = SIGNATURES["ncclGetVersion"], _int
        version = self.get_version()
        if version < OLDEST:
            raise LookupError(f"{LIBRARY} is NCCL {version_name(version)}, and mray needs {version_name(OLDEST)} or newer: {INSTALL}")
        self._functions: dict[str, Any] = {}
        for name, types in SIGNATURES.items():
            function = self._functions[name] = getattr(library, name)
            function.argtypes, function.restype = types, _int
        # From 2.13 on.
        self._last_error = getattr(library, "ncclGetLastError", None)
        if self._last_error is not None:
            self._last_error.argtypes, self._last_error.restype = (_opaque,), ctypes.c_char_p

    def get_version(self) -> int:
        """As NCCL counts since 2.9: 22705 is 2.27.5."""
        version = _int()
        status = self._get_version(ctypes.byref(version))
        if status:
            raise NcclError(status)
        code = version.value
        # Before, 2708 was 2.7.8.
        return code if code >= 10000 else code // 1000 * 10000 + code % 1000

    def get_unique_id(self) -> bytes:
        """Starts a thread that listens for the communicator's ranks while the process lives."""
        unique_id = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(unique_id))
        return bytes(unique_id)

    def NcclCommunicator(self, ndev: int, commId: bytes, rank: int) -> NcclCommunicator:  # noqa: N802, N803
        """Become a rank; waits until all ranks do."""
        handle = ctypes.c_void_p()
        self.call("ncclCommInitRank", ctypes.byref(handle), ndev, UniqueId.from_buffer_copy(commId), rank)
        return NcclCommunicator(self, handle)

    def call(self, name: str, *arguments: Any) -> None:
        """Raises the error that the function returns."""
        status = self._functions[name](*arguments)
        if status:
            detail = b"" if self._last_error is None else self._last_error(None) or b""
            raise NcclError(status, detail.decode(errors="replace").strip())


class NcclCommunicator:
    """One rank."""

    def __init__(self, library: LibNccl, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle: ctypes.c_void_p | None = handle

    def _call(self, name: str, *arguments: Any) -> None:
        self._library.call(name, *arguments)

    def _own(self) -> ctypes.c_void_p:
        # The library would follow the pointer into memory that an abort has freed.
        if self._handle is None:
            raise NcclError(INVALID_ARGUMENT, "the communicator was aborted")
        return self._handle

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._call("ncclSend", sendbuf, count, datatype, peer, self._own(), stream)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._call("ncclRecv", recvbuf, count, datatype, peer, self._own(), stream)

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:  # noqa: N802
        self._call("ncclAllReduce", sendbuf, recvbuf, count, datatype, op, self._own(), stream)

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        self._call("ncclReduce", sendbuf, recvbuf, count, datatype, op, root, self._own(), stream)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        self._call("ncclBroadcast", sendbuff, recvbuff, count, datatype, root, self._own(), stream)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:  # noqa: N802
        self._call("ncclAllGather", sendbuf, recvbuf, count, datatype, self._own(), stream)

    def reduceScatter(self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int) -> None:  # noqa: N802
        self._call("ncclReduceScatter", sendbuf, recvbuf, recvcount, datatype, op, self._own(), stream)

    def check_async_error(self) -> None:
        """Raises the error of queued work."""
        status = ctypes.c_int()
        self._call("ncclCommGetAsyncError", self._own(), ctypes.byref(status))
        if status.value:
            raise NcclError(status.value)

    def abort(self) -> None:
        """Queued work ends unfinished. Idempotent; raises nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                self._call("ncclCommAbort", handle)
            except NcclError:
                pass  # a broken communicator, or device


# ---------------------------------------------------------------------------------------------------- loading
_found: LibNccl | None = None


def load() -> LibNccl:
    """This process's library. Raises LookupError that says what to install."""
    global _found
    if _found is None:
        reasons = []
        for open_it in (_loaded, _of_packages, _of_system):
            try:
                library = open_it()
            except OSError as error:
                reasons.append(str(error))
                continue
            _found = LibNccl(library)
            break
        else:
            raise LookupError(f"the library of NCCL, {LIBRARY}, was not found ({'; '.join(dict.fromkeys(reasons))}): {INSTALL}")
    return _found


def _loaded() -> Any:
    return ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def _of_packages() -> Any:
    for path in _package_paths():
        return ctypes.CDLL(path)
    raise OSError("no package nvidia-nccl with it is installed")


def _package_paths() -> Iterator[str]:
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ImportError:
        return
    for folder in () if found is None else found.submodule_search_locations or ():
        path = os.path.join(folder, "lib", LIBRARY)
        if os.path.exists(path):
            yield path


def _of_system() -> Any:
    return ctypes.CDLL(LIBRARY)


def version_name(code: int) -> str:
    """``2.27.5`` for 22705."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
