"""Hooks for the tensors of devices inside a value: one carries them while it is pickled, one puts them back.

Any process; for the thread that pickles or unpickles. Serializer and devices do not know each other: the reducers of device tensors ask
here whether an edge wants to carry the tensor itself, and what they leave in the pickle asks here for the reader of the edge. Without a
carrier, tensors go through host memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class _Carriers(threading.local):
    #: tensor -> the arguments by which the other side's `bring` finds it, or None: it cannot be carried now.
    take: Callable[[Any], tuple[Any, ...] | None] | None = None
    bring: Callable[..., Any] | None = None


carriers = _Carriers()


def reduce_device_tensor(tensor: Any) -> tuple[Any, ...] | None:
    """For reducers: what stands for the tensor in the pickle, or None when nobody carries it."""
    take = carriers.take
    facts = None if take is None else take(tensor)
    return None if facts is None else (restore_device_tensor, facts)


def restore_device_tensor(*facts: Any) -> Any:
    """The tensor that a carrier brings."""
    bring = carriers.bring
    if bring is None:
        raise RuntimeError("This value holds tensors of a device, which only the reader of the edge that they were sent along can bring.")
    return bring(*facts)
