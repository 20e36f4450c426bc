"""Channel from a process to itself: values pass by reference.

For methods of one actor, which run one after the other: nothing here waits. A reader that changes its value changes it for the others.
"""

from __future__ import annotations

import uuid
from typing import Any

from mray.experimental.channel.common import ChannelContext, ChannelInterface

__all__ = ["IntraProcessChannel"]


class IntraProcessChannel(ChannelInterface):
    """A value that is to be read `num_readers` times before the next is written."""

    def __init__(self, num_readers: int, _channel_id: str | None = None) -> None:
        if num_readers < 1:
            raise ValueError(f"num_readers must be at least 1, not {num_readers}.")
        self._num_readers = num_readers
        self._channel_id = _channel_id or str(uuid.uuid4())

    def ensure_registered_as_writer(self) -> None:
        pass

    def ensure_registered_as_reader(self) -> None:
        pass

    def write(self, value: Any, timeout: float | None = None) -> None:
        """Leave a value. Raises RayChannelError at once while the one before has not been read by all."""
        ChannelContext.get_current().serialization_context.set_data(self._channel_id, value, self._num_readers)

    def read(self, timeout: float | None = None, deserialize: bool = True) -> Any:
        """The value. Raises RayChannelError at once when there is none."""
        return ChannelContext.get_current().serialization_context.get_data(self._channel_id)

    def close(self) -> None:
        """Forget what waits."""
        ChannelContext.get_current().serialization_context.reset_data(self._channel_id)

    def holds_value(self) -> bool:
        """Whether a value waits to be read."""
        return ChannelContext.get_current().serialization_context.has_data(self._channel_id)

    def __reduce__(self) -> tuple[Any, ...]:
        return IntraProcessChannel, (self._num_readers, self._channel_id)

    def __str__(self) -> str:
        return f"IntraProcessChannel(channel_id={self._channel_id})"
