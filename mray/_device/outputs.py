"""Methods that make their tensors where they can be sent from as they lie: within `Device.outputs`.

In actors, around the methods whose values go along an edge by CUDA IPC, or whose results stay on their device.

Within a pool torch's allocator is poorer than without: it does not give cached memory back when the device is full. A method that runs out
of memory there may have enough of it outside. It is not run again, for it may have done half of its work: its caller gets the error, once,
and from then on the method makes ordinary tensors, each of which costs one copy on the device when it is sent.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from mray._device.base import Platform

#: Functions that have run out of memory within `Device.outputs`.
_ordinary: weakref.WeakSet[Any] = weakref.WeakSet()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device had no memory left. torch's error by its name, which has moved between versions."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def with_outputs(devices: Platform, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, made to allocate its tensors where they can be sent from without a copy."""
    function = getattr(method, "__func__", method)

    def make(*args: Any, **kwargs: Any) -> Any:
        # A process that has not used a device may return no tensor, and never need one.
        if function in _ordinary or not devices.is_in_use():
            return method(*args, **kwargs)
        device = devices.current_device()
        try:
            with device.outputs():
                return method(*args, **kwargs)
        except Exception as error:
            if is_out_of_memory(error):
                with contextlib.suppress(TypeError):  # there are callables without weak references, made in C
                    _ordinary.add(function)
                device.ran_out()
            raise

    return make
