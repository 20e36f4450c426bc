"""Nothing that was computed from the leavings of the dead reaches the caller.

In the process that compiled a graph some of whose tensors stay on devices, or travel through NCCL. A stream that waits for what a process
has queued goes on when that process dies, over memory that nobody has written; what is computed from it may arrive before the news of the
death. So before a result is read, the kernel is asked whether all actors live: one system call. A result that came while they did is
sound as far as the host is concerned; a tensor of a device whose producer dies before it is finished there has undefined contents. What
comes later is left where it is; the news ends the graph.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable
from typing import Any

from mray._channel.base import NOTHING, ChannelReader, WrappedReader


class Witness:
    """Knows at once whether one of these processes has died."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._descriptors: list[int] = []
        #: Not `select.poll`, which refuses two threads at once.
        self._poll = select.epoll()
        self._is_broken = False
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                self._is_broken = True
                continue
            self._descriptors.append(descriptor)
            self._poll.register(descriptor, select.EPOLLIN)

    def someone_died(self) -> bool:
        """Whether not all of them live; after `close`, what was known then. Any thread."""
        if not self._is_broken:
            with contextlib.suppress(ValueError):  # closed meanwhile
                if self._poll.poll(0, 1):
                    self._is_broken = True
        return self._is_broken

    def close(self) -> None:
        """Watch no more. Idempotent."""
        self._poll.close()
        while self._descriptors:
            os.close(self._descriptors.pop())


class WitnessedReader(WrappedReader):
    """Reads only what had come while everybody lived."""

    __slots__ = ("_witness",)

    def __init__(self, inner: ChannelReader, witness: Witness) -> None:
        super().__init__(inner)
        self._witness = witness

    def try_read(self) -> Any:
        return self._inner.try_read() if self.ready() else NOTHING

    def ready(self) -> bool:
        # In this order: what is there while everybody lives was written while everybody did.
        return self._inner.ready() and not self._witness.someone_died()
