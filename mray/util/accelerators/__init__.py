"""Names of accelerators, for ``accelerator_type``: Ray's, whatever this machine has."""

from __future__ import annotations

import warnings
from typing import Any

from mray.util.accelerators import accelerators
from mray.util.accelerators.accelerators import *  # noqa: F403
from mray.util.annotations import RayDeprecationWarning

__all__ = accelerators.__all__


def __getattr__(name: str) -> Any:
    if name == "NVIDIA_TESLA_A100":
        warnings.warn("NVIDIA_TESLA_A100 is deprecated, use NVIDIA_A100 instead.", RayDeprecationWarning, stacklevel=2)
        return accelerators.NVIDIA_A100
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
