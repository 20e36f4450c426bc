"""Reading frames of other threads while no garbage is collected.

Until Python 3.11 the collector runs wherever an object is created; from 3.12 on only between byte codes. A finalizer that it runs lets
other threads run, in the middle of an otherwise atomic step: 3.11 creates the object of a frame on demand, the frame has ended by then,
and its object shows reused memory (a crash, or a dict for a frame). So code walks the frames of another thread within ``with
uncollected:``.

Any thread, finalizers too; nested and concurrent use is safe.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from contextlib import AbstractContextManager

from mray._common.kept import os


class Uncollected:
    """Sets the collector's first threshold to 0; `gc.disable` belongs to mray's locks and others."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = 0
        self._usual = 0
        os.register_at_fork(after_in_child=self._after_fork)

    def __enter__(self) -> None:
        with self._lock:
            usual = gc.get_threshold()[0]
            if not self._inside:
                self._usual = usual
            gc.set_threshold(0)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._restore()

    def _restore(self) -> None:
        if not gc.get_threshold()[0]:  # else the program has set it
            gc.set_threshold(self._usual)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        if self._inside:
            self._inside = 0
            self._restore()


uncollected: AbstractContextManager[None] = Uncollected() if sys.version_info < (3, 12) else contextlib.nullcontext()
