"""The contract of public channels, and what they share in a process.

In the driver and in actors, outside of graphs. A channel has one writer and so many readers as were declared; `write` waits until there is
room, `read` until there is a value, and closing a channel wakes them all.

Timeouts are in seconds: None and -1 wait for ever, 0 does not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mray._api.type_hint import ChannelOutputType
from mray._common.process_local import ProcessLocal
from mray.experimental.channel.accelerator_context import AcceleratorContext
from mray.experimental.channel.serialization_context import _SerializationContext

__all__ = ["ChannelContext", "ChannelInterface", "ChannelOutputType"]


class ChannelContext:
    """State that channels of this process share."""

    def __init__(self) -> None:
        #: Values on their way inside of this process.
        self.serialization_context = _SerializationContext()
        #: Communicators that this process is a member of, by id.
        self.communicators: dict[str, Any] = {}
        #: The members of communicators that this process has made for others, by id.
        self.communicator_handles: dict[str, Any] = {}
        self._torch_device: Any = None

    @staticmethod
    def get_current() -> ChannelContext:
        """The context of this process."""
        return _contexts.get()

    @property
    def torch_available(self) -> bool:
        """Whether torch can be imported."""
        try:
            import torch  # noqa: F401, PLC0415
        except ImportError:
            return False
        return True

    @property
    def torch_device(self) -> Any:
        """The device that tensors arrive on: the first of this process, unless `set_torch_device` said otherwise."""
        if self._torch_device is None:
            self._torch_device = AcceleratorContext.get().get_accelerator_devices()[0]
        return self._torch_device

    def set_torch_device(self, device: Any) -> None:
        """Have tensors arrive on this device."""
        self._torch_device = device


_contexts: ProcessLocal[ChannelContext] = ProcessLocal(ChannelContext)


# -------------------------------------------------------------------------------------------- one channel
class ChannelInterface:
    """One writer, and so many readers as were declared. Handles can be pickled; a copy in another process is an end of the same channel."""

    def __init__(self, writer: Any, readers: Sequence[Any], typ: ChannelOutputType | None) -> None:
        """`writer`, `readers`: actors; None is the driver."""

    def ensure_registered_as_writer(self) -> None:
        """Raises unless this process may write. Idempotent."""
        raise NotImplementedError

    def ensure_registered_as_reader(self) -> None:
        """Become one of the readers; raises when there are as many as declared. Idempotent."""
        raise NotImplementedError

    def write(self, value: Any, timeout: float | None = None) -> None:
        """Send a value to all readers; waits until there is room.

        Raises RayChannelTimeoutError when there is none in time, RayChannelError when the channel is closed or a reader that it waits for
        has died, and TypeError when the value cannot be pickled.
        """
        raise NotImplementedError

    def read(self, timeout: float | None = None) -> Any:
        """The next value; waits until there is one. An exception that was written is returned, not raised.

        Raises RayChannelTimeoutError when nothing comes in time, and RayChannelError when the channel is closed or its writer has died.
        """
        raise NotImplementedError

    def release_buffer(self, timeout: float | None = None) -> None:
        """Read a value and throw it away."""
        self.read(timeout)

    def close(self) -> None:
        """End the channel for everybody: who waits gets RayChannelError. Values that were not read are lost. Idempotent, does not wait."""
        raise NotImplementedError


def seconds(timeout: float | None) -> float | None:
    """A timeout of this interface as the rest of mray has it: None waits for ever. Raises ValueError for other negative numbers."""
    if timeout is None or timeout == -1:
        return None
    if timeout < 0:
        raise ValueError("Timeout must be non-negative or -1.")
    return timeout
