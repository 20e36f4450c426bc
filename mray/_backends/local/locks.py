"""Locks that are created while a session runs in this process, by `threading` itself (conditions, queues) and by users.

A thread that waits for a lock gives the run token up, or it would deadlock with a holder that has given it up. Taking a free lock is
no scheduling point. A thread without the run token waits in the kernel.

Locks older than the session are unchanged: code that holds one should not call mray.
"""

from __future__ import annotations

import _thread
import contextlib
import queue
import threading
import types
from typing import Any

from mray._backends.local.run_token import SimulatedThread, here

_SimpleQueue = queue.SimpleQueue


def _token_holder() -> SimulatedThread | None:
    """The calling thread's, if it has the run token and may give it up."""
    sim_thread = here.sim_thread
    return None if sim_thread is None or sim_thread.closed_in or sim_thread.run_token.holder() is not sim_thread else sim_thread


class CooperativeLock:
    """Behaves as `threading.Lock`."""

    __slots__ = ("__weakref__", "_acquire", "_inner", "locked", "locked_lock", "release", "release_lock")

    def __init__(self) -> None:
        self._inner = inner = _thread.allocate_lock()
        self._acquire = inner.acquire
        # Deprecated names.
        self.release = self.release_lock = inner.release
        self.locked = self.locked_lock = inner.locked

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not blocking:
            return self._acquire(False, timeout)  # which refuses a time limit
        if self._acquire(False):
            return True
        sim_thread = _token_holder()
        if sim_thread is None:
            return self._acquire(True, timeout)
        run_token = sim_thread.run_token
        deadline = None if timeout < 0 else run_token.clock + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - run_token.clock)
            if not run_token.wait_until(self._is_free, left, lambda: "a lock of threading"):
                return False
            if self._acquire(False):
                return True

    def _is_free(self) -> bool:
        return not self.locked()

    acquire_lock = acquire

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_exception: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        CooperativeLock.__init__(self)

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle '_thread.lock' object")

    def __repr__(self) -> str:
        return f"<{'locked' if self.locked() else 'unlocked'} _thread.lock object at {id(self):#x}>"


class CooperativeQueue:
    """Behaves as `queue.SimpleQueue`; finalizers may `put`."""

    def __init__(self) -> None:
        self._inner: Any = _SimpleQueue()
        self.put = self.put_nowait = self._inner.put
        self.empty = self._inner.empty
        self.qsize = self._inner.qsize
        self.get_nowait = self._inner.get_nowait

    __class_getitem__: Any = classmethod(types.GenericAlias)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        sim_thread = _token_holder()
        if sim_thread is None or not block:
            return self._inner.get(block, timeout)
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        run_token = sim_thread.run_token
        deadline = None if timeout is None else run_token.clock + timeout
        while True:
            if not self.empty():
                with contextlib.suppress(queue.Empty):  # another thread was faster
                    return self.get_nowait()
            left = None if deadline is None else max(0.0, deadline - run_token.clock)
            if not run_token.wait_until(self._has_some, left, lambda: "a queue") and left is not None:
                raise queue.Empty

    def _has_some(self) -> bool:
        return not self.empty()


#: (owner, name, its value during a session): `threading` builds everything else from these.
REPLACED: tuple[tuple[Any, str, Any], ...] = (
    (threading, "_allocate_lock", CooperativeLock),
    (threading, "Lock", CooperativeLock),
    (threading, "_CRLock", None),
    (queue, "SimpleQueue", CooperativeQueue),
)
