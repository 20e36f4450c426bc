"""A lock that user code may want at any moment, even inside of what it guards.

The garbage collector runs the user's finalizers at any allocation of any thread. In a thread that owns the lock, a finalizer's call
would find the guarded state half changed, and wait forever. So the collector is paused from when a thread owns such a lock, or reads
messages, until no thread does.

Rejected: running the collector explicitly (costs more); serving such calls in another thread (it would wait for the lock).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from gc import disable, enable, isenabled
from typing import Any

from mray._common.kept import os


class CollectorPause:
    """Counts the reasons for which the garbage collector is off: ``with pause:``, or the same statements in place in the hottest paths.

    A `del` and what follows from it are one step: Python switches threads only in calls and at the ends of loops (3.10 to 3.15). Under a
    trace function it may switch anywhere: then the collector may be on for a moment too long, and is never off for good.
    """

    __slots__ = ("disabled", "reasons")

    def __init__(self) -> None:
        #: An entry for each reason: adding and removing one cannot be cut.
        self.reasons: list[None] = []
        #: The collector was on before the first reason.
        self.disabled = False

    def __enter__(self) -> None:
        self.reasons.append(None)  # first: from here on no other thread enables it
        if isenabled():
            self.disabled = True
            disable()

    def end(self, *_: object) -> None:
        if self.reasons:  # (none where a thread has forked while it owned a lock)
            del self.reasons[-1]
        if not self.reasons and self.disabled:
            self.disabled = False
            enable()

    __exit__ = end

    def after_fork(self) -> None:
        """In a child: the other threads do not exist."""
        self.reasons.clear()
        self.end()


pause = CollectorPause()
os.register_at_fork(after_in_child=pause.after_fork)

if sys.version_info >= (3, 11):
    from operator import call as _call  # a builtin: from one call to the next Python does not look for anything else to do
else:

    def _call(function: Callable[[], Any]) -> Any:
        return function()


class QuietLock:
    """A reentrant lock; ``with lock:`` only. Code that has paused the collector already may use ``with lock.inner:``."""

    __slots__ = ("_steps", "inner")

    def __init__(self) -> None:
        #: The lock alone, also for code that a finalizer may interrupt anywhere.
        self.inner: Any = threading.RLock()
        self._steps = (self.inner.acquire, isenabled, disable)

    def is_owned(self) -> bool:
        return bool(self.inner._is_owned())  # noqa: SLF001  (Python's)

    def is_owned_by(self, ident: int) -> bool:
        return f" owner={ident} " in repr(self.inner)

    def __enter__(self) -> bool:
        pause.reasons.append(None)
        if isenabled():
            pause.disabled = True
            disable()
        if not self.inner.acquire(False):
            pause.end()
            self._wait()
        return True

    def _wait(self) -> None:
        """Acquire the lock while the collector may run in other threads, but not in this one once it owns the lock."""
        _acquired, was_enabled, _disabled = map(_call, self._steps)
        pause.reasons.append(None)
        if was_enabled:
            pause.disabled = True

    def __exit__(self, *_: object) -> None:
        self.inner.release()
        reasons = pause.reasons
        if reasons:  # `end`, in place
            del reasons[-1]
        if not reasons and pause.disabled:
            pause.disabled = False
            enable()
