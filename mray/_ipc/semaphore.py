"""Doorbells made of named POSIX semaphores, which need no descriptor: the alternative to `mray._ipc.doorbell`.

::

    process that rings                       process that sleeps
    creates a semaphore, sends its name ───▶ opens it, and unlinks its name
    ring: posts it ────────────────────────▶ thread of a `Relay`, which waits for it ── own eventfd ──▶ thread that reads
    (exits) ───────────────────────────────▶ thread that is notified ── posts the semaphore ──▶ the relay ends

A thread waits for one semaphore and no socket, so each ringing process has a semaphore, and each semaphore a thread in the sleeping
process. Used by a process whose `ulimit -n` leaves no room for eventfds of others, or by all (``MRAY_SEMAPHORES``).

A process that dies in between leaves a name for `mray._ipc.reaper`. The C library first creates the file under a random name: one left
by a death in that moment stays.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Any

import posix_ipc

from mray._ipc.doorbell import Doorbell
from mray._ipc.limits import exhausted
from mray._ipc.segment import new_nonce, unlink_semaphore
from mray._ipc.table import SessionTable


class SemaphoreDoorbell(Doorbell):
    __slots__ = ("_semaphore",)

    def __init__(self, prefix: str, table: SessionTable, tell: Callable[[str], int]) -> None:
        """`tell` sends the process the semaphore's name, waits until it has opened it, and returns its row."""
        name = f"{prefix}bell-{new_nonce():x}"
        self._semaphore = _semaphore(name, posix_ipc.O_CREX, mode=0o600)
        try:
            # POINT semaphore named
            super().__init__(-1, table, tell(name))
        finally:
            unlink_semaphore(name)

    def wake(self) -> None:
        try:
            self._semaphore.release()
        except (posix_ipc.Error, OSError):  # closed, or rung too often
            pass

    def close(self) -> None:
        try:
            self._semaphore.close()
        except (AttributeError, posix_ipc.Error):  # never created, or closed
            pass


class Relay:
    """Calls `wake` in a separate thread whenever the semaphore is posted, until `end`."""

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        """Raises FileNotFoundError."""
        self._semaphore = _semaphore(name)
        # POINT semaphore opened
        unlink_semaphore(name)
        self._wake = wake
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="mray-relay", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._semaphore.close()
            raise

    def _run(self) -> None:
        while True:
            try:
                self._semaphore.acquire()
            except posix_ipc.SignalError:  # a handler has run
                continue
            if self._is_over:
                break
            self._wake()
        self._semaphore.close()

    def end(self) -> None:
        """Any thread, once."""
        self._is_over = True
        self._semaphore.release()

    def join(self) -> None:
        self._thread.join()


def _semaphore(name: str, flags: int = 0, **options: Any) -> Any:
    try:
        return posix_ipc.Semaphore(name, flags, **options)
    except posix_ipc.ExistentialError:
        raise FileNotFoundError(errno.ENOENT, "no semaphore of that name", name) from None
    except OSError as error:
        if error.errno is not None:
            raise
        # raised for lack of a descriptor
        raise exhausted(OSError(errno.EMFILE, ""), f"The semaphore {name} could not be opened.") from error
