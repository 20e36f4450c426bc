"""Pinning a worker to CPUs while it runs a task or actor with `cpu_affinity`. On the main thread, between tasks."""

from __future__ import annotations

from collections.abc import Collection

from mray._common.kept import os
from mray._common.log import logger


class Pinning:
    def __init__(self) -> None:
        #: While pinned, the CPUs from before.
        self._before: set[int] | None = None

    def set(self, cpus: Collection[int] | None) -> None:
        """Pin every thread of the process to these CPUs, or undo that. Later threads inherit it."""
        if cpus:
            if self._before is None:
                self._before = os.sched_getaffinity(0)
            _pin(cpus)
        elif self._before is not None:
            before, self._before = self._before, None
            _pin(before)


def _pin(cpus: Collection[int]) -> None:
    pinned: set[str] = set()
    try:
        # Repeated, since a thread that was not pinned yet may have started another.
        while fresh := set(os.listdir("/proc/self/task")) - pinned:
            for thread in fresh:
                try:
                    os.sched_setaffinity(int(thread), cpus)
                except ProcessLookupError:  # it has just ended
                    pass
            pinned |= fresh
    except OSError as error:  # the CPUs were taken away meanwhile
        logger.warning("cpu_affinity: cannot run on the CPUs %s: %s", sorted(cpus), error)
