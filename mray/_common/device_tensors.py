"""Hooks for device tensors inside a value, per thread: `take` carries them while it is pickled, `bring` restores them.

Serializer and devices do not know each other: both ask here. Without a carrier, tensors go through host memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class _Carriers(threading.local):
    #: tensor -> the arguments of the other side's `bring`, or None: it cannot be carried now.
    take: Callable[[Any], tuple[Any, ...] | None] | None = None
    bring: Callable[..., Any] | None = None


carriers = _Carriers()


def reduce_device_tensor(tensor: Any) -> tuple[Any, ...] | None:
    """The tensor's placeholder in the pickle, or None without a carrier."""
    take = carriers.take
    exported = None if take is None else take(tensor)
    return None if exported is None else (restore_device_tensor, exported)


def restore_device_tensor(*exported: Any) -> Any:
    bring = carriers.bring
    if bring is None:
        raise RuntimeError("This value holds tensors on a device, which only the reader of the edge that carried them can receive.")
    return bring(*exported)
