"""A channel inside one process, for tests of everything above channels: values pass by reference.

The bound on messages is the same as a ring's, and so is the back-pressure.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from mray._channel.base import NOTHING, ChannelReader, ChannelWriter, Failed


class InprocWriter(ChannelWriter):
    """Holds one queue for each reader."""

    __slots__ = ("_capacity", "_queues", "_written")

    def __init__(self, readers: int, capacity: int) -> None:
        self._queues: tuple[deque[Any], ...] = tuple(deque() for _ in range(readers))
        self._capacity = capacity
        self._written = 0

    def reader(self, reader: int) -> InprocReader:
        """The end of reader number `reader`."""
        return InprocReader(self._queues[reader])

    def try_write(self, value: Any) -> bool:
        if not self.has_room():
            return False
        for queue in self._queues:
            queue.append(value)
        self._written += 1
        return True

    def has_room(self) -> bool:
        return all(len(queue) < self._capacity for queue in self._queues)

    def position(self) -> int:
        return self._written

    def statistics(self) -> dict[str, int]:
        return {"written": self._written, "waiting": max(len(queue) for queue in self._queues)}

    def close(self) -> None:
        pass


class InprocReader(ChannelReader):
    """One queue's taking end."""

    __slots__ = ("_queue", "_taken")

    def __init__(self, queue: deque[Any]) -> None:
        self._queue = queue
        self._taken = 0

    def try_read(self) -> Any:
        if not self._queue:
            return NOTHING
        self._taken += 1
        return self._queue.popleft()

    def position(self) -> int:
        return self._taken

    def ready(self) -> bool:
        return bool(self._queue)

    def failed(self) -> bool:
        return self._queue[0].__class__ is Failed

    def close(self) -> None:
        self._queue.clear()
