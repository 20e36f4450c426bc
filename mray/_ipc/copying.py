"""Large copies, and other work that releases the interpreter's lock, on several threads while cores are free.

One core does not saturate a machine's memory, so the thread that needs a copy takes pieces from its front and helpers take pieces from
its end. Earlier copies decide whether helpers are worth it: without a free core they take little; beside busy threads the caller gets
the interpreter's lock back late. Helpers start with such work and end with the session, or after `IDLE` without work.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mray._common.clock import perf_counter
from mray._common.kept import os
from mray._ipc.mapped import address_of
from mray._ipc.table import usable_cores

#: Least bytes of a copy with helpers; bytes of a piece.
LEAST = 12 << 20
PIECE = 256 << 10
#: Three threads saturate most machines.
MOST_HELPERS = 2
#: Seconds after which a piece counts as delayed by the interpreter's lock.
LATE = 2e-3
#: The least share of a copy that makes helpers worthwhile; copies alone after one below it.
WORTH = 1 / 8
COPIES_ALONE = 32
#: Seconds.
IDLE = 1.0


class _Work(ABC):
    """The thread that needs the work takes pieces from the front, helpers from the end."""

    __slots__ = ("error", "left")

    def __init__(self, pieces: Iterable[Any]) -> None:
        self.left = deque(pieces)
        self.error: BaseException | None = None

    @abstractmethod
    def make(self) -> None:
        """Do pieces until none is left."""

    @abstractmethod
    def help_with(self, piece: Any) -> None:
        """Do one piece, in a helper."""

    def help(self) -> None:
        try:
            while True:
                try:
                    piece = self.left.pop()
                except IndexError:
                    return
                self.help_with(piece)
        except BaseException as error:
            self.error = error
            self.left.clear()

    def share(self, helpers: Sequence[_Helper]) -> None:
        """Do all of it with these helpers, and release them. Raises the error of a piece; the rest is skipped."""
        try:
            for helper in helpers:
                helper.call(self)
            self.make()
        finally:
            self.left.clear()
            for helper in helpers:
                helper.dismiss()
        if self.error is not None:
            raise self.error


class _Calls(_Work):
    __slots__ = ()

    def make(self) -> None:
        while True:
            try:
                call = self.left.popleft()
            except IndexError:
                return
            call()

    def help_with(self, piece: Callable[[], None]) -> None:
        piece()


class _Copy(_Work):
    """Has addresses only: a late helper keeps no memory alive."""

    __slots__ = ("_size", "_source", "_target", "helped", "was_late")

    def __init__(self, target: int, source: int, size: int) -> None:
        super().__init__(range(0, size, PIECE))
        self._target = target
        self._source = source
        self._size = size
        #: Bytes copied by helpers; whether other threads have delayed this one.
        self.helped = 0
        self.was_late = False

    def _take(self, most: int) -> bool:
        """Copy up to `most` pieces from the front; False if none is left."""
        taken: list[int] = []
        with contextlib.suppress(IndexError):
            while len(taken) < most:
                taken.append(self.left.popleft())
        if not taken:
            return False
        self._copy(taken[0], min(taken[-1] + PIECE, self._size))
        return True

    def _copy(self, start: int, end: int) -> None:
        ctypes.memmove(self._target + start, self._source + start, end - start)

    def make(self) -> None:
        before = perf_counter()
        while self._take(self._size if self.was_late else 1):
            now = perf_counter()
            self.was_late |= now - before > LATE
            before = now

    def help_with(self, piece: int) -> None:
        end = min(piece + PIECE, self._size)
        self._copy(piece, end)
        self.helped += end - piece  # (two helpers may lose a count)


class _Helper:
    def __init__(self) -> None:
        #: Held for the thread that is helped, and by the helper while it takes pieces.
        self.engaged = threading.Lock()
        self._at_work = threading.Lock()
        self._called = threading.Lock()
        self._called.acquire()
        #: None once no thread waits for it.
        self._work: _Work | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="mray-copier", daemon=True)
        self._thread.start()

    def call(self, work: _Work) -> None:
        self._work = work
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # woken, and has not polled yet
            self._called.release()

    def dismiss(self) -> None:
        """Release it after its current piece. Raises an interrupt of the wait afterwards."""
        interruption: BaseException | None = None
        while True:
            try:
                self._at_work.acquire()
                break
            except BaseException as error:
                interruption = error
        self._work = None
        self._at_work.release()
        self.engaged.release()
        if interruption is not None:
            raise interruption

    def lives(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        self._is_over = True
        self._wake()
        self._thread.join()

    def _run(self) -> None:
        while True:
            if not self._called.acquire(timeout=IDLE):
                if self.engaged.acquire(False):
                    return  # no thread engages it any more
                continue
            if self._is_over:
                return
            with self._at_work:
                work = self._work
                if work is not None:
                    work.help()
                del work


class _Helpers:
    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._all: list[_Helper] = []
        #: Copies to be made alone. (Concurrent threads may lose a count.)
        self.rest = 0

    def engage(self) -> list[_Helper]:
        most = min(MOST_HELPERS, usable_cores() - 1)
        with self._starting, contextlib.suppress(RuntimeError):  # no thread can be started
            self._all = [helper for helper in self._all if helper.lives()]
            while len(self._all) < most:
                self._all.append(_Helper())
        return [helper for helper in self._all[:most] if helper.engaged.acquire(False)]

    def end(self) -> None:
        for helper in self._all:
            helper.end()


_helpers = _Helpers()


def copy_into(target: memoryview, source: Any) -> None:
    """Both are contiguous bytes of the same length."""
    size = target.nbytes
    if size >= LEAST:
        if _helpers.rest:
            _helpers.rest -= 1
        elif engaged := _helpers.engage():
            copy = _Copy(address_of(target), address_of(source), size)
            copy.share(engaged)
            if copy.was_late or copy.helped < size * WORTH:
                _helpers.rest = COPIES_ALONE
            return
    target[:] = source


def call_all(functions: Sequence[Callable[[], None]]) -> None:
    """Call these in any order, some in other threads. Raises the first error."""
    _Calls(functions).share(_helpers.engage())


def end_helpers() -> None:
    """The next large copy starts others."""
    global _helpers
    ended, _helpers = _helpers, _Helpers()
    ended.end()


def _after_fork() -> None:
    global _helpers
    _helpers = _Helpers()


os.register_at_fork(after_in_child=_after_fork)
