"""Values on their way inside of one process: what channels that never leave it are made of."""

from __future__ import annotations

from typing import Any

from mray.exceptions import RayChannelError

__all__: list[str] = []


class _SerializationContext:
    """The values that wait to be read, by channel. Under Ray's names; any thread, for each step is one operation of a dict."""

    def __init__(self) -> None:
        self.intra_process_channel_buffers: dict[str, Any] = {}
        #: How often each of them is still to be read.
        self.channel_id_to_num_readers: dict[str, int] = {}

    def set_data(self, channel_id: str, value: Any, num_readers: int) -> None:
        """Leave a value for so many reads. Raises RayChannelError while the one before has not been read so often."""
        if channel_id in self.intra_process_channel_buffers:
            raise RayChannelError(
                f"Channel {channel_id} still holds a value that is to be read {self.channel_id_to_num_readers[channel_id]} times. The "
                "writer and the readers are one process: waiting would last for ever."
            )
        self.channel_id_to_num_readers[channel_id] = num_readers
        self.intra_process_channel_buffers[channel_id] = value

    def has_data(self, channel_id: str) -> bool:
        """Whether a value waits."""
        return channel_id in self.intra_process_channel_buffers

    def get_data(self, channel_id: str) -> Any:
        """Read once. Raises RayChannelError when nothing waits."""
        if channel_id not in self.intra_process_channel_buffers:
            raise RayChannelError(f"Channel {channel_id} holds no value: nothing was written, or it has been read as often as declared.")
        self.channel_id_to_num_readers[channel_id] -= 1
        if self.channel_id_to_num_readers[channel_id]:
            return self.intra_process_channel_buffers[channel_id]
        del self.channel_id_to_num_readers[channel_id]
        return self.intra_process_channel_buffers.pop(channel_id)

    def reset_data(self, channel_id: str) -> None:
        """Forget what waits."""
        self.intra_process_channel_buffers.pop(channel_id, None)
        self.channel_id_to_num_readers.pop(channel_id, None)
