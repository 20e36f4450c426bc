"""`ProcessLocal`: a value that exists once per process of a session. Any thread.

A global variable in most engines; where one process simulates several (`mray._backends.local`), the engine names the running one
(`use`). Memory, threads and descriptors belong to the kernel's process (`kernel_pid`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from posix import getpid as kernel_pid
from typing import Any, Generic, TypeVar

__all__ = ["ProcessLocal", "kernel_pid", "use"]

T = TypeVar("T")

_whose: Callable[[], Any] | None = None


def use(whose: Callable[[], Any] | None) -> None:
    """Make values belong to the object that `whose` returns (weakly referenced; None: to the process); None: undo."""
    global _whose
    _whose = whose


class ProcessLocal(Generic[T]):
    """A value created on a process's first use."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        #: The process's own value; empty or one item.
        self._only: list[T] = []
        self._of: weakref.WeakKeyDictionary[Any, T] = weakref.WeakKeyDictionary()

    def get(self) -> T:
        owner = None if _whose is None else _whose()
        if owner is None:
            if not self._only:
                self._only.append(self._make())
            return self._only[0]
        found = self._of.get(owner)
        if found is None:
            found = self._of[owner] = self._make()
        return found
