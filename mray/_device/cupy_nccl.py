"""NCCL through cupy: the module ``cupy.cuda.nccl``, and the device that its communicators are made on.

cupy is imported when something first asks for it, and makes no CUDA context by that.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from typing import Any, Final

INSTALL: Final = "pip install cupy-cuda12x nvidia-nccl-cu12"


def nccl_module() -> Any:
    """``cupy.cuda.nccl``. Raises LookupError that says what to install."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error below says it
            from cupy.cuda import nccl  # noqa: PLC0415
    except ImportError as error:
        raise LookupError(f"NCCL is used through cupy, which cannot be imported here ({error}): {INSTALL}") from error
    if not getattr(nccl, "available", False):
        raise LookupError(f"cupy is here, but not the library of NCCL (libnccl.so.2): {INSTALL}")
    return nccl


def current_device(index: int) -> AbstractContextManager[Any]:
    """Makes it the device that the calling thread's communicators are made on."""
    import cupy  # noqa: PLC0415

    current: AbstractContextManager[Any] = cupy.cuda.Device(index)
    return current
