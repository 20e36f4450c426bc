"""Telling, in a thread of its own, that a process is dead whose work streams of this one may wait for.

The thread that reads the news of a death may be within the driver just then (``tensor.item()``), and wait there for a stream that waits for
an event of the dead: no message and no signal reaches it. So the kernel tells another thread, which has the streams go on
(`Event.forsake`).

One thread for each process that is watched, as long as it is. Any thread.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable

from mray._common.kept import os
from mray._common.process_local import kernel_pid
from mray._ipc.process import start_of


class _Watch:
    """Waits for the end of one process, for all who want to know."""

    def __init__(self, pid: int) -> None:
        self._pidfd = os.pidfd_open(pid)
        self._stop = os.eventfd(0)
        self.callbacks: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._wait, name="mray-device-deaths", daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        if self._stop not in [fd for fd, _events in poll.poll()]:
            with _lock:
                callbacks = list(self.callbacks)
            for callback in callbacks:
                callback()
            poll.unregister(self._pidfd)
            poll.poll()  # until nobody needs the watch any more
        os.close(self._pidfd)
        os.close(self._stop)

    def end(self) -> None:
        """End it, once."""
        os.eventfd_write(self._stop, 1)
        if threading.current_thread() is not self._thread:
            self._thread.join()


#: By pid and start.
_watches: dict[tuple[int, int], _Watch] = {}
_lock = threading.Lock()


def when_dead(process: tuple[int, int], callback: Callable[[], None]) -> Callable[[], None]:
    """Call back in another thread when a process is dead, or in this one if it is; returns the function that ends that, to be called once.

    `process`: its pid and when it was started. It may call back twice. This process itself is not watched, nor any where the kernel has no
    pidfds.
    """
    pid, started = process
    if pid == kernel_pid():
        return _do_nothing
    cancel = _do_nothing
    try:
        with _lock:
            watch = _watches.get(process)
            if watch is None:
                watch = _watches[process] = _Watch(pid)
            watch.callbacks.append(callback)
    except OSError:
        pass  # dead, or a kernel without pidfds
    else:

        def cancel() -> None:
            with _lock:
                watch.callbacks.remove(callback)
                is_last = not watch.callbacks
                if is_last:
                    del _watches[process]
            if is_last:
                watch.end()

    if start_of(pid) != started:
        callback()
    return cancel


def _do_nothing() -> None:
    """There is no watch to end."""
