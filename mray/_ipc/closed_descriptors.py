"""Descriptors of mray that the program has closed, for instance by `os.closerange`, or a library that daemonizes.

Any thread. Only calls on such a descriptor fail, so their callers ask here, and the sleeping main thread of a driver checks now and
then. The numbers may be reused: they are neither used nor closed again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection

from mray._common.kept import os
from mray.exceptions import RaySystemError

#: Errors of a descriptor that is closed or reused.
_NOT_OURS = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)


class ClosedDescriptors:
    def __init__(self) -> None:
        #: Raised by every later call.
        self.error: Exception | None = None
        #: Called once, to end what waits.
        self.tell: Callable[[Exception], None] = lambda _error: None

    def found(self, error: OSError) -> Exception:
        """The exception to raise for a failed call. If the program has closed the descriptor, what waits is ended first."""
        if self.error is None and is_closed(error):
            self.error = RaySystemError(
                f"this program (process {os.getpid()}) has closed file descriptors that mray needs, by os.close, os.closerange or a "
                "library that daemonizes it: it has lost its session. Close only what the program itself has opened."
            )
            self.tell(self.error)
        return self.error or error

    def look(self, fds: Collection[int]) -> None:
        """Call `found` if one is closed. Other threads remove from `fds` what they are about to close."""
        for fd in tuple(fds):
            try:
                os.fstat(fd)
            except OSError as error:
                if fd in fds:
                    self.found(error)
                    return

    def ring(self, fd: int) -> bool:
        """Write to an eventfd of mray. False if it is none any more, unreported, since this may be a finalizer."""
        if self.error is None:
            try:
                os.eventfd_write(fd, 1)
            except OSError:
                return False
        return True


def is_closed(error: OSError) -> bool:
    return error.errno in _NOT_OURS
