"""Locks that are made while a session runs in this process, by `threading` for itself (conditions, queues) and for users.

A thread that has the baton and waits in the kernel for a lock whose holder has given the baton up would wait for ever. So it gives it up as
well, until the lock is free. Taking a free lock is no scheduling point. A thread that has no baton waits in the kernel, as ever.

Locks that are older than the session are the kernel's alone: code that holds one should not call mray.
"""

from __future__ import annotations

import _thread
import contextlib
import queue
import threading
import types
from typing import Any

from mray._backends.local.baton import Strand, here

_SimpleQueue = queue.SimpleQueue


def _strand() -> Strand | None:
    """That of the calling thread, if it has the baton and may give it up."""
    strand = here.strand
    return None if strand is None or strand.closed_in or strand.baton.holder() is not strand else strand


class TurnLock:
    """Behaves as `threading.Lock`."""

    __slots__ = ("__weakref__", "_acquire", "_inner", "locked", "release")

    def __init__(self) -> None:
        self._inner = inner = _thread.allocate_lock()
        self._acquire = inner.acquire
        self.release = inner.release
        self.locked = inner.locked

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not blocking:
            return self._acquire(False, timeout)  # which refuses a time limit
        if self._acquire(False):
            return True
        strand = _strand()
        if strand is None:
            return self._acquire(True, timeout)
        baton = strand.baton
        deadline = None if timeout < 0 else baton.clock + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - baton.clock)
            if not baton.wait_until(self._is_free, left, lambda: "a lock of threading"):
                return False
            if self._acquire(False):
                return True

    def _is_free(self) -> bool:
        return not self.locked()

    @property
    def release_lock(self) -> Any:
        """An old name, as the next two."""
        return self.release

    @property
    def locked_lock(self) -> Any:
        return self.locked

    acquire_lock = acquire

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_exception: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        TurnLock.__init__(self)

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle '_thread.lock' object")

    def __repr__(self) -> str:
        return f"<{'locked' if self.locked() else 'unlocked'} _thread.lock object at {id(self):#x}>"


class TurnQueue:
    """Behaves as `queue.SimpleQueue`; as there, a finalizer may `put`."""

    def __init__(self) -> None:
        self._inner: Any = _SimpleQueue()
        self.put = self.put_nowait = self._inner.put
        self.empty = self._inner.empty
        self.qsize = self._inner.qsize
        self.get_nowait = self._inner.get_nowait

    __class_getitem__: Any = classmethod(types.GenericAlias)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        strand = _strand()
        if strand is None or not block:
            return self._inner.get(block, timeout)
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        baton = strand.baton
        deadline = None if timeout is None else baton.clock + timeout
        while True:
            if not self.empty():
                with contextlib.suppress(queue.Empty):  # another one was faster
                    return self.get_nowait()
            left = None if deadline is None else max(0.0, deadline - baton.clock)
            if not baton.wait_until(self._has_some, left, lambda: "a queue") and left is not None:
                raise queue.Empty

    def _has_some(self) -> bool:
        return not self.empty()


#: (owner, name, what stands there while a session lives): of these `threading` makes everything else. Without the C type RLock() is made of
#: them too.
REPLACED: tuple[tuple[Any, str, Any], ...] = (
    (threading, "_allocate_lock", TurnLock),
    (threading, "Lock", TurnLock),
    (threading, "_CRLock", None),
    (queue, "SimpleQueue", TurnQueue),
)
