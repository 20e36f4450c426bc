"""Asking the kernel whether all actors live before a result is read, so that no result computed after a death reaches the caller.

For graphs with tensors on devices or through NCCL: a stream that waits for another process's work continues when that process dies, over
memory that was never written, and its results may arrive before the report of the death. A result that arrived while all lived is sound
on the host; a device tensor whose producer dies before its kernels end has undefined contents.

A pidfd becomes readable too late, after the process has closed its files, including the device. A dying thread first releases its
address space, so a process whose first thread has none has begun to die.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any

from mray._channel.base import NOTHING, ChannelReader, WrappedReader
from mray._common.kept import os

#: Files of /proc, empty once the address space is released; the first is faster, but not in every kernel.
_SIGNS = ("coredump_filter", "cmdline")


class Liveness:
    def __init__(self, pids: Iterable[int]) -> None:
        self._is_broken = False
        self._signs: tuple[int, ...] = ()
        sign = next(sign for sign in _SIGNS if os.path.exists(f"/proc/self/{sign}"))
        try:
            for pid in pids:
                try:
                    self._signs += (os.open(f"/proc/{pid}/{sign}", os.O_RDONLY | os.O_CLOEXEC),)
                except (FileNotFoundError, ProcessLookupError):
                    self._is_broken = True
        except BaseException:
            self.close()
            raise

    def someone_died(self) -> bool:
        """Whether one is dying or dead; after `close`, the last answer. Any thread."""
        if not self._is_broken:
            for sign in self._signs:
                try:
                    alive = bool(os.pread(sign, 1, 0))
                except OSError as error:
                    alive = error.errno == errno.EBADF
                if not alive:
                    self._is_broken = True
        return self._is_broken

    def close(self) -> None:
        signs, self._signs = self._signs, ()
        for sign in signs:
            os.close(sign)


class LivenessReader(WrappedReader):
    """Reads only messages that had arrived while all actors lived."""

    __slots__ = ("_liveness",)

    def __init__(self, inner: ChannelReader, liveness: Liveness) -> None:
        super().__init__(inner)
        self._liveness = liveness

    def try_read(self) -> Any:
        return self._inner.try_read() if self.ready() else NOTHING

    def ready(self) -> bool:
        # In this order: then a ready message was written while all lived.
        return self._inner.ready() and not self._liveness.someone_died()
