"""Doorbells: how a sleeping process is made to poll.

Each process creates its own: an eventfd that its reactor watches beside its sockets (edge-triggered, so that a wake-up needs no read),
and the STATE word of its row in the session's table. A ring needs no system call while the process is awake. One ring too many is
harmless.

Where descriptors run out, named POSIX semaphores are used (`mray._ipc.semaphore`), and a ring's readers are rung one by one. Not the
default: a thread that waits on a semaphore cannot wait for its sockets, so each ring passes through a second thread, and a crash leaves
the name behind.

Fork: a child must not ring or close in its parent's name; `mray._ipc.reactor` drops everything after a fork.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from mray._common.kept import os
from mray._ipc.memory_order import fence
from mray._ipc.table import AWAKE, DOZING, ROW_WORDS, STATE, SessionTable


class Wakeup:
    """An eventfd that wakes the processes that watch it; -1: none."""

    __slots__ = ("fd",)

    fd: int

    def wake(self) -> None:
        try:
            os.eventfd_write(self.fd, 1)
        except OSError:  # the program has closed it (`mray._ipc.closed_descriptors`)
            pass

    def close(self) -> None:
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self.fd)
            self.fd = -1

    # The last ring that holds it closes it: a descriptor closed earlier might be another file's by the time it is rung.
    def __del__(self) -> None:
        self.close()


class Doorbell(Wakeup):
    """The doorbell of one process."""

    __slots__ = ("_index", "_words")

    def __init__(self, fd: int, table: SessionTable, row: int) -> None:
        self.fd = fd
        self._words = table.words
        self._index = row * ROW_WORDS + STATE

    @property
    def sleeper(self) -> tuple[Sequence[int], int]:
        """The words, and the index, at which the process publishes whether it sleeps."""
        return self._words, self._index

    def ring(self) -> None:
        """Wake the process if it sleeps. Call after publishing."""
        # SYNC POINT bell: publish, fence, read the sleeper's word | write the own word, fence, look again.
        fence()
        state = self._words[self._index]
        if state > AWAKE and state != DOZING:  # PARKED, or an impossible value: it may sleep
            # POINT sleeper seen
            self.wake()


class GroupDoorbell(Wakeup):
    """One doorbell for all readers of a ring, held by its writer: an eventfd that every reader watches. One system call wakes them all, and
    the first does not preempt the writer before the last is woken.
    """

    __slots__ = ("_doorbells", "_indices", "_words", "is_shared")

    def __init__(self, fd: int, doorbells: Sequence[Doorbell] = ()) -> None:
        self.fd = fd
        #: Whether every reader watches it; else they are rung one by one.
        self.is_shared = fd >= 0
        self.rings(doorbells)

    def rings(self, doorbells: Sequence[Doorbell]) -> None:
        self._doorbells = tuple(doorbells)
        self._indices = tuple(doorbell.sleeper[1] for doorbell in doorbells)
        if doorbells:
            self._words = doorbells[0].sleeper[0]

    def ring(self) -> None:
        """Wake the readers if one of them sleeps. Call after publishing."""
        # SYNC POINT bell: publish, fence, read the sleeper's word | write the own word, fence, look again.
        fence()
        words = self._words
        for index in self._indices:
            state = words[index]
            if state > AWAKE and state != DOZING:
                if self.is_shared:
                    self.wake()
                else:
                    for doorbell in self._doorbells:
                        doorbell.ring()
                return


def new_wakeup_fd() -> int:
    return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
