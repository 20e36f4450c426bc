"""Channel whose values several methods of one actor read: each is taken off the wire once and kept for the others."""

from __future__ import annotations

import uuid
from typing import Any

from mray.exceptions import RayChannelError
from mray.experimental.channel.common import ChannelContext, ChannelInterface

__all__ = ["CachedChannel"]


class CachedChannel(ChannelInterface):
    """Each value of `inner_channel`, `num_reads` times. Without an inner channel, values from this process to itself."""

    def __init__(self, num_reads: int, inner_channel: ChannelInterface | None = None, _channel_id: str | None = None) -> None:
        if num_reads < 1:
            raise ValueError("num_reads must be greater than 0.")
        self._num_reads = num_reads
        self._inner_channel = inner_channel
        self._channel_id = _channel_id or str(uuid.uuid4())

    def ensure_registered_as_writer(self) -> None:
        if self._inner_channel is not None:
            self._inner_channel.ensure_registered_as_writer()

    def ensure_registered_as_reader(self) -> None:
        if self._inner_channel is not None:
            self._inner_channel.ensure_registered_as_reader()

    def write(self, value: Any, timeout: float | None = None) -> None:
        if self._inner_channel is not None:
            self._inner_channel.write(value, timeout)
        else:
            ChannelContext.get_current().serialization_context.set_data(self._channel_id, value, self._num_reads)

    def read(self, timeout: float | None = None) -> Any:
        context = ChannelContext.get_current().serialization_context
        if not context.has_data(self._channel_id):
            if self._inner_channel is None:
                raise RayChannelError(f"{self} holds no value, and has no inner channel that could bring one.")
            context.set_data(self._channel_id, self._inner_channel.read(timeout), self._num_reads)
        return context.get_data(self._channel_id)

    def close(self) -> None:
        if self._inner_channel is not None:
            self._inner_channel.close()
        ChannelContext.get_current().serialization_context.reset_data(self._channel_id)

    def __reduce__(self) -> tuple[Any, ...]:
        return CachedChannel, (self._num_reads, self._inner_channel, self._channel_id)

    def __str__(self) -> str:
        return f"CachedChannel(channel_id={self._channel_id}, num_reads={self._num_reads}, inner_channel={self._inner_channel})"
