"""Notification, in a separate thread, of the death of a process whose work this process's streams may wait for.

The thread that reads notifications may be within the driver (``tensor.item()``), waiting for a stream that waits for the dead process,
where no message and no signal reaches it.
"""

from __future__ import annotations

import contextlib
import errno
import select
import threading
from collections.abc import Callable

from mray._common.bridge import Cancel, nothing
from mray._common.kept import os
from mray._common.process_local import kernel_pid
from mray._inside.processes import PidFd, start_of

#: Seconds between two calls after a death.
AGAIN = 0.5


class _Watching(threading.local):
    """Whether this thread reports deaths, and so must not wait for a device, which may wait for it. For finalizers."""

    is_one = False


watching = _Watching()


class _Watch:
    def __init__(self, pid: int) -> None:
        self.callbacks: list[Callable[[], None]] = []
        with contextlib.ExitStack() as opened:
            self._process = opened.enter_context(PidFd(pid))
            self._stop = os.eventfd(0)
            opened.callback(os.close, self._stop)
            self._thread = threading.Thread(target=self._wait, name="mray-device-deaths", daemon=True)
            self._thread.start()
            opened.pop_all()

    def _wait(self) -> None:
        watching.is_one = True
        poll = select.poll()
        poll.register(self._process.fd, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        ready = poll.poll()
        poll.unregister(self._process.fd)
        while self._stop not in [fd for fd, _events in ready]:
            with _lock:
                for callback in list(self.callbacks):
                    if callback in self.callbacks:  # not yet cancelled
                        callback()
            ready = poll.poll(AGAIN * 1000)
        self._process.close()
        os.close(self._stop)

    def end(self) -> None:
        os.eventfd_write(self._stop, 1)
        if threading.current_thread() is not self._thread:
            self._thread.join()


#: Keyed by pid and start time.
_watches: dict[tuple[int, int], _Watch] = {}
#: Finalizers take it.
_lock = threading.RLock()


def then(process: tuple[int, int], callback: Callable[[], None]) -> Cancel:
    """Call back when a process is dead: in this thread if it is, else in another one and again every half second, because other processes
    may keep the work of the dead alive. No call happens after the returned function has returned.

    `process`: its pid and start time. This process itself is not watched, nor any where the kernel has no pidfds. Raises OSError when
    this process has no descriptors left.
    """
    pid, started = process
    if pid == kernel_pid():
        return nothing
    try:
        with _lock:
            watch = _watches.get(process)
            if watch is None:
                watch = _watches[process] = _Watch(pid)
            watch.callbacks.append(callback)
    except ProcessLookupError:
        callback()
        return nothing
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return nothing
        raise

    def cancel() -> None:
        with _lock:
            if callback not in watch.callbacks:
                return
            watch.callbacks.remove(callback)
            is_last = not watch.callbacks
            if is_last:
                del _watches[process]
        if is_last:
            watch.end()

    if start_of(pid) not in (0, started):  # the pid was reused; 0: the kernel does not say
        callback()
    return cancel
