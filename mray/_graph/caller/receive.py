"""Receiving a result into the caller's memory: one copy, after which the result's slot is free."""

from __future__ import annotations

import sys
from typing import Any


def receive_into(value: Any, out: Any) -> Any:
    """Copy an array or tensor into `out`.

    `out`: a writable numpy array, or a torch tensor on the CPU, of the value's kind, dtype and shape, with any strides; else ValueError.
    """
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(out, numpy.ndarray):
        if not isinstance(value, numpy.ndarray):
            raise ValueError(f"the result is of {type(value)}, and `out` is a numpy array")
        _check(value.dtype, tuple(value.shape), out.dtype, tuple(out.shape))
        if not out.flags.writeable:
            raise ValueError("`out` is read-only")
        numpy.copyto(out, value)
    elif torch is not None and isinstance(out, torch.Tensor):
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"the result is of {type(value)}, and `out` is a torch tensor")
        _check(value.dtype, tuple(value.shape), out.dtype, tuple(out.shape))
        if out.device.type != "cpu":
            raise ValueError(f"`out` is on {out.device}; results are received on the CPU")
        with torch.no_grad():
            out.copy_(value)
    else:
        raise ValueError(f"`out` must be a numpy array or a torch tensor, not {type(out)}")
    return out


def _check(dtype: Any, shape: tuple[int, ...], out_dtype: Any, out_shape: tuple[int, ...]) -> None:
    if shape != out_shape:
        raise ValueError(f"the result has shape {shape}, and `out` has {out_shape}")
    if dtype != out_dtype:
        raise ValueError(f"the result is of dtype {dtype}, and `out` of {out_dtype}")
