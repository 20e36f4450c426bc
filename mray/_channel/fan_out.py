"""Several channels with the same values as one, for a driver's input whose readers need different transports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mray._channel.base import ChannelWriter, Failed
from mray.exceptions import RayChannelError


class FanOutWriter(ChannelWriter):
    """Writes to all of `writers`, or to none without room in one."""

    __slots__ = ("_failure", "_is_cut", "_writers")

    def __init__(self, writers: Sequence[ChannelWriter], failure: Callable[[BaseException], bytes]) -> None:
        self._writers = tuple(writers)
        self._failure = failure
        #: Whether an asynchronous exception may have interrupted it between two writers.
        self._is_cut = False

    def try_write(self, value: Any) -> bool:
        if not self.has_room():
            return False
        first, *others = self._writers
        if self._is_cut:
            for writer in others:
                if writer.position() < first.position():
                    writer.try_write(Failed(self._failure(RayChannelError("The execution was interrupted as it began."))))
        self._is_cut = True
        if not first.try_write(value):
            return False
        for writer in others:
            try:
                sent = writer.try_write(value)
            except Exception as error:
                # The first writer's readers have the value: the execution has begun, so it must fail rather than be refused.
                sent = writer.try_write(Failed(self._failure(error)))
            assert sent, "only the writer takes room away"
        self._is_cut = False
        return True

    def position(self) -> int:
        return self._writers[0].position()

    def has_room(self) -> bool:
        return False not in [writer.has_room() for writer in self._writers]  # all are asked: each must raise WANTED

    def statistics(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for writer in self._writers:
            for name, count in writer.statistics().items():
                found[name] = found.get(name, 0) + count
        return found

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
