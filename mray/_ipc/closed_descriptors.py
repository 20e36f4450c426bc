"""Descriptors of mray that the program has closed, as only it can: by `os.closerange`, say, or a library that makes daemons.

Any process of a session, any thread. No message arrives any more then, and only a call on the descriptor fails. So a caller whose call has
failed asks here, and the sleeping thread of a driver looks now and then. The numbers may be those of other files by now: they are neither
used nor closed again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection

from mray._common.kept import os
from mray.exceptions import RaySystemError

#: Error numbers of a descriptor that is closed, or another file's since.
_NOT_OURS = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)


class ClosedDescriptors:
    """Whether the program has closed descriptors of mray in this process."""

    def __init__(self) -> None:
        #: The error of every call from then on.
        self.error: Exception | None = None
        #: Called once: everything that waits is to end.
        self.tell: Callable[[Exception], None] = lambda _error: None

    def found(self, error: OSError) -> Exception:
        """A descriptor of ours fails: what to raise. If the program has closed it, everything that waits has ended by then."""
        if self.error is None and is_closed(error):
            self.error = RaySystemError(
                f"this program (process {os.getpid()}) has closed file descriptors that mray needs, by os.close, os.closerange or a "
                "library that makes a daemon of it: it has lost its session. Close only what the program itself has opened."
            )
            self.tell(self.error)
        return self.error or error

    def look(self, fds: Collection[int]) -> None:
        """Whether these are open. Other threads take out what they are about to close."""
        for fd in tuple(fds):
            try:
                os.fstat(fd)
            except OSError as error:
                if fd in fds:
                    self.found(error)
                    return

    def ring(self, fd: int) -> bool:
        """Write to an eventfd of ours. False: it is none any more, and nothing is done about that, for this may be a finalizer."""
        if self.error is None:
            try:
                os.eventfd_write(fd, 1)
            except OSError:
                return False
        return True


def is_closed(error: OSError) -> bool:
    """Whether an error is that of a descriptor that was closed behind our back."""
    return error.errno in _NOT_OURS
