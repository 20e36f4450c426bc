"""`PidFd`: a process by a descriptor, which the kernel makes readable when the process has ended.

A pid may be reused once its process is reaped; a descriptor never refers to another process.
"""

from __future__ import annotations

import contextlib
import errno
import select
import signal
from collections.abc import Callable

from mray._common.bridge import Cancel
from mray._common.kept import os
from mray._common.process_local import kernel_pid
from mray._ipc.process import start_of
from mray._ipc.watching import Watching


class PidFd:
    """A process. Used with ``with``, or by `then`."""

    __slots__ = ("fd",)

    def __init__(self, pid: int, fd: int = -1) -> None:
        """Raises ProcessLookupError if there is no such process; another OSError if the kernel has no such descriptors, or none is left."""
        self.fd = os.pidfd_open(pid) if fd < 0 else fd

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the process to end (None: forever); returns whether it has."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def then(self, reactor: Watching, callback: Callable[[], None]) -> Cancel:
        """Call back once, in the reading thread, when the process has ended. Returns an idempotent cancel function. If the reactor cannot
        watch the descriptor, it is closed and the reactor's OSError raised.
        """

        def end() -> None:
            if self.fd >= 0:
                reactor.forget(self.fd)
                self.close()

        def ended(_events: int) -> None:
            end()
            callback()

        try:
            reactor.add_fd(self.fd, ended)
        except BaseException:
            self.close()
            raise
        return end

    def signal(self, number: int) -> None:
        """Ignored if the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.fd, number)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> PidFd:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def is_dead(process: tuple[int, int]) -> bool:
    """Whether a process, given by pid and start time, is known to be dead."""
    pid, started = process
    if pid == kernel_pid():
        return start_of(pid) not in (0, started)
    try:
        with PidFd(pid) as found:
            return found.wait(0) or start_of(pid) not in (0, started)
    except ProcessLookupError:
        return True
    except OSError as error:  # a kernel without pidfds; or no descriptor
        return error.errno == errno.ENOSYS and start_of(pid) != started
