"""The context of a GPU, in which calls of the driver are made.

Any thread, finalizers included. This is the *primary* context of a device, which torch, cupy and NCCL share. Only the driver knows which
context is current in the calling thread: a thread may be new, or a finalizer's, or torch may have switched its device. So each call
asks, and restores another current context afterwards, since to torch the current context *is* the current device. Where torch reports
that it works on the device in this thread, which is cheaper to ask, the context is current, or none is: then the driver refuses the
call, and it is repeated. In a forked child calls raise RuntimeError, and releases do nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from mray._common.kept import os
from mray._device import libcuda
from mray._device.device import CaptureError
from mray._device.libcuda import LibCuda

_FORKED = (
    "This process was forked from one that had used CUDA, which the driver does not support. Spawn processes that use GPUs, or fork them "
    "before anything uses a GPU."
)


def unless_captured(cuda: LibCuda, stream: int, function: Callable[..., int], *arguments: Any) -> int:
    """A call that works on a stream. Returns a status. Raises CaptureError if a CUDA graph is captured from the stream."""
    capturing = ctypes.c_int()
    status: int = cuda.cuStreamIsCapturing(stream, ctypes.byref(capturing))
    if status and status not in libcuda.CAPTURE_ERRORS:
        return status
    if status or capturing.value != libcuda.STREAM_CAPTURE_STATUS_NONE:
        raise CaptureError(
            "A CUDA graph is being captured from this stream: reads, writes and releases of values of an edge cannot be marked "
            "meanwhile. Read before the capture and write after it."
        )
    return function(*arguments)


class CudaContext:
    """The primary context of one device; raises the errors of calls."""

    def __init__(self, cuda: LibCuda, ordinal: int, is_expected: Callable[[], bool] = lambda: False) -> None:
        """`is_expected`: whether this context is current in the calling thread, or none is."""
        self._cuda = cuda
        self._ordinal = ordinal
        self._is_expected = is_expected
        #: None until needed, and in forked children.
        self.handle: int | None = None
        self.is_forked = False
        _contexts.add(self)

    def call(self, action: str, function: Callable[..., int], *arguments: Any) -> None:
        """Make a call with the context current. `action` names the attempt in the error."""
        status = self.status_of(function, *arguments)
        if status:
            raise self._cuda.error(action, status)

    def status_of(self, function: Callable[..., int], *arguments: Any) -> int:
        handle = self.handle or self._retain()
        cuda = self._cuda
        status: int
        if self._is_expected():
            status = function(*arguments)
            if status != libcuda.INVALID_CONTEXT:
                return status
        current = ctypes.c_void_p()
        status = cuda.cuCtxGetCurrent(ctypes.byref(current))
        if status:
            return status
        if current.value == handle:
            return function(*arguments)
        status = cuda.cuCtxSetCurrent(handle)
        if status:
            return status
        try:
            return function(*arguments)
        finally:
            cuda.cuCtxSetCurrent(current)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Context manager: make it this thread's current context."""
        handle, before = self.handle or self._retain(), ctypes.c_void_p()
        self._cuda.check("Asking for the current context", self._cuda.cuCtxGetCurrent(ctypes.byref(before)))
        self._cuda.check("Making a context current", self._cuda.cuCtxSetCurrent(handle))
        try:
            yield
        finally:
            self._cuda.cuCtxSetCurrent(before)

    def call_during_captures(self, action: str, function: Callable[..., int], *arguments: Any) -> None:
        """`call`, permitted while any thread captures a graph."""
        status = self.status_during_captures(function, *arguments)
        if status:
            raise self._cuda.error(action, status)

    def status_during_captures(self, function: Callable[..., int], *arguments: Any) -> int:
        if self.handle is None:
            self._retain()
        mode = ctypes.c_int(libcuda.STREAM_CAPTURE_MODE_RELAXED)
        exchange = self._cuda.cuThreadExchangeStreamCaptureMode
        status: int = exchange(ctypes.byref(mode))
        if status:
            return status
        try:
            return self.status_of(function, *arguments)
        finally:
            exchange(ctypes.byref(mode))

    @contextlib.contextmanager
    def during_captures(self) -> Iterator[None]:
        """Context manager: permit this thread's calls, torch's too, while any thread captures a graph."""
        mode = ctypes.c_int(libcuda.STREAM_CAPTURE_MODE_RELAXED)
        exchange = self._cuda.cuThreadExchangeStreamCaptureMode
        self._cuda.check("Permitting calls during captures", exchange(ctypes.byref(mode)))
        try:
            yield
        finally:
            exchange(ctypes.byref(mode))

    def _retain(self) -> int:
        if self.is_forked:
            raise RuntimeError(_FORKED)
        handle = ctypes.c_void_p()
        action = f"Making a context on GPU {self._ordinal}"
        self._cuda.check(action, self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(handle), self._ordinal))
        if self.handle is not None:  # another thread was faster
            self._cuda.cuDevicePrimaryCtxRelease_v2(self._ordinal)
            return self.handle
        assert handle.value is not None
        self.handle = handle.value
        return handle.value

    def forget(self) -> None:
        self.handle = None
        self.is_forked = True


_contexts: weakref.WeakSet[CudaContext] = weakref.WeakSet()


def _forget_contexts() -> None:
    for context in list(_contexts):
        context.forget()


os.register_at_fork(after_in_child=_forget_contexts)
