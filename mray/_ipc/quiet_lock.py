"""A lock that user code may want at any moment, even inside of what it guards.

The garbage collector runs the user's finalizers at any allocation of any thread. In a thread that owns the lock, a finalizer's call
would find the guarded state half changed, and wait forever. So the collector is off while the lock is owned.

Rejected: running the collector explicitly (costs more); serving such calls in another thread (it would wait for the lock).
"""

from __future__ import annotations

import threading
from gc import disable, enable, isenabled
from typing import Any


class QuietLock:
    """A reentrant lock; ``with lock:`` only."""

    __slots__ = ("_collects", "_depth", "inner")

    def __init__(self) -> None:
        #: The lock alone, for code that a finalizer may interrupt anywhere.
        self.inner: Any = threading.RLock()
        self._depth = 0
        #: Whether to enable the collector when the lock is free.
        self._collects = False

    def abandon(self) -> None:
        """In a forked child, whose parent's other thread may own it: enable the collector."""
        if self._collects:
            enable()

    def is_owned(self) -> bool:
        return bool(self.inner._is_owned())  # noqa: SLF001  (Python's)

    def is_owned_by(self, ident: int) -> bool:
        return f" owner={ident} " in repr(self.inner)

    def __enter__(self) -> bool:
        collects = isenabled()
        if collects:
            disable()
        self.inner.acquire()
        if not self._depth:
            if not collects and isenabled():  # the previous owner has enabled it
                disable()
                collects = True
            self._collects = collects
        self._depth += 1
        return True

    def __exit__(self, *_: object) -> None:
        self._depth = depth = self._depth - 1
        collects = self._collects and not depth
        if collects:
            self._collects = False
        self.inner.release()
        if collects:
            enable()  # not before: what runs then may wait for a thread that wants the lock
