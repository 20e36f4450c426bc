"""Several channels with the same values as one, for readers that need different transports.

In the process that writes all of them: the driver's input. (Actors have an operation for each channel in their programs.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mray._channel.base import ChannelWriter, Failed
from mray.exceptions import RayChannelError


class FanOutWriter(ChannelWriter):
    """Writes to all of `writers`, or to none when one has no room."""

    __slots__ = ("_failure", "_is_cut", "_writers")

    def __init__(self, writers: Sequence[ChannelWriter], failure: Callable[[BaseException], bytes]) -> None:
        self._writers = tuple(writers)
        self._failure = failure
        #: Whether an asynchronous exception may have interrupted it between two of them.
        self._is_cut = False

    def try_write(self, value: Any) -> bool:
        if not self.has_room():
            return False
        first, *others = self._writers
        if self._is_cut:
            for writer in others:
                if writer.position() < first.position():
                    writer.try_write(Failed(self._failure(RayChannelError("The execution was cut off as it began."))))
        self._is_cut = True
        if not first.try_write(value):
            return False
        for writer in others:
            try:
                sent = writer.try_write(value)
            except Exception as error:
                # The first one's readers have the value: the execution has begun, so it must fail rather than be refused.
                sent = writer.try_write(Failed(self._failure(error)))
            assert sent, "nobody but the writer takes room away"
        self._is_cut = False
        return True

    def position(self) -> int:
        return self._writers[0].position()

    def has_room(self) -> bool:
        return False not in [writer.has_room() for writer in self._writers]  # each is asked

    def statistics(self) -> dict[str, int]:
        """Of all of them together."""
        found: dict[str, int] = {}
        for writer in self._writers:
            for name, count in writer.statistics().items():
                found[name] = found.get(name, 0) + count
        return found

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
