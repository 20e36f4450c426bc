"""Copies of large values, by several threads while cores are free.

One core does not keep the memory of a machine busy. So the thread that needs the copy takes pieces from its front and helpers take pieces
from its end, until none is left (two cores of a virtual machine: 16 MiB in 0.84 ms rather than 1.16, 64 MiB in 3.9 rather than 5.9,
256 MiB in 13.6 rather than 20; nothing is gained below 8 MiB).

Whether that pays, the copies before have shown. Where no core was free the helpers have taken next to nothing; where other threads of the
process compute, the interpreter's lock was long in coming back after a piece. The copies that follow are made by one thread then.

Any thread. The helpers of a process are started by the first such copy, have no other work, and end with the session.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections import deque
from time import perf_counter
from typing import Any

from mray._ipc.mapped import address_of
from mray._ipc.table import usable_cores

#: Bytes of a copy that more than one thread makes, at least; and those that a thread takes at a time.
LEAST = 12 << 20
PIECE = 256 << 10
#: Helpers of a process, at most: three threads keep the memory of most machines busy.
MOST_HELPERS = 2
#: Seconds after which a piece has waited for the interpreter's lock, rather than taken its time.
LATE = 2e-3
#: The least share of a copy, in pieces, that makes helpers worth their calling; and copies without them after one where they were not.
WORTH = 1 / 8
COPIES_ALONE = 32


class _Copy:
    """One copy. It has addresses only: a helper that comes late keeps no memory alive."""

    __slots__ = ("_left", "_size", "_source", "_target", "helped")

    def __init__(self, target: int, source: int, size: int) -> None:
        self._target = target
        self._source = source
        self._size = size
        #: Where the pieces begin that nobody has taken; and the bytes that helpers have copied.
        self._left = deque(range(0, size, PIECE))
        self.helped = 0

    def _take(self, most: int) -> bool:
        """Copy so many pieces from the front, or those that are left; False if none is."""
        taken = []
        with contextlib.suppress(IndexError):
            while len(taken) < most:
                taken.append(self._left.popleft())
        if not taken:
            return False
        start, end = taken[0], min(taken[-1] + PIECE, self._size)
        ctypes.memmove(self._target + start, self._source + start, end - start)
        return True

    def make(self) -> bool:
        """Copy pieces until none is left; whether no other thread of the process has kept this one from it."""
        before = perf_counter()
        while self._take(1):
            now = perf_counter()
            if now - before > LATE:
                self._take(self._size)
                return False
            before = now
        return True

    def help(self) -> None:
        """Copy pieces from the end until none is left."""
        while True:
            try:
                start = self._left.pop()
            except IndexError:
                return
            size = min(PIECE, self._size - start)
            ctypes.memmove(self._target + start, self._source + start, size)
            self.helped += size  # (two helpers that meet here may count one piece only)

    def abandon(self) -> None:
        """Leave the pieces that nobody has taken."""
        self._left.clear()


class _Helper:
    """A thread that takes part in one copy at a time."""

    def __init__(self) -> None:
        #: Held by the thread that makes a copy with this helper; and by the helper while it takes pieces.
        self.engaged = threading.Lock()
        self._at_work = threading.Lock()
        self._called = threading.Lock()
        self._called.acquire()
        #: The copy of the last call.
        self._copy: _Copy
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="mray-copier", daemon=True)
        self._thread.start()

    def call(self, copy: _Copy) -> None:
        """Have it take pieces, as soon as a core is free."""
        self._copy = copy
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has been woken, and has not looked yet
            self._called.release()

    def dismiss(self) -> None:
        """Let go of it once the piece that it has taken is copied. Whatever interrupts the wait is raised then."""
        interruption: BaseException | None = None
        while True:
            try:
                self._at_work.acquire()
                break
            except BaseException as error:
                interruption = error
        self._at_work.release()
        self.engaged.release()
        if interruption is not None:
            raise interruption

    def end(self) -> None:
        """End it, after a copy that it takes part in."""
        self._is_over = True
        self._wake()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._called.acquire()
            if self._is_over:
                return
            with self._at_work:
                self._copy.help()


class _Helpers:
    """The helpers of this process."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._all: list[_Helper] = []
        #: Copies to be made without them. (Threads that count at the same time may count one too few.)
        self.rest = 0

    def engage(self) -> list[_Helper]:
        """Those that nobody has engaged; none while they rest."""
        if self.rest:
            self.rest -= 1
            return []
        if not self._all and self._starting.acquire(False):
            for _ in range(min(MOST_HELPERS, usable_cores() - 1)):
                self._all.append(_Helper())
        return [helper for helper in self._all if helper.engaged.acquire(False)]

    def end(self) -> None:
        """End them all; nobody engages them any more."""
        for helper in self._all:
            helper.end()


_helpers = _Helpers()


def copy_into(target: memoryview, source: Any) -> None:
    """Copy `source`, contiguous bytes, into `target`, writable bytes of the same number."""
    size = target.nbytes
    engaged = _helpers.engage() if size >= LEAST else ()
    if not engaged:
        target[:] = source
        return
    copy = _Copy(address_of(target), address_of(source), size)
    try:
        for helper in engaged:
            helper.call(copy)
        was_prompt = copy.make()
    finally:
        copy.abandon()
        for helper in engaged:
            helper.dismiss()
    if not was_prompt or copy.helped < size * WORTH:
        _helpers.rest = COPIES_ALONE


def end_helpers() -> None:
    """End the helpers of this process; the next large copy starts others."""
    global _helpers
    ended, _helpers = _helpers, _Helpers()
    ended.end()


def _after_fork() -> None:
    global _helpers
    _helpers = _Helpers()


os.register_at_fork(after_in_child=_after_fork)
