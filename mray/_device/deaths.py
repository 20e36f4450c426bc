"""Telling, in a thread of its own, that a process is dead whose work streams of this one may wait for.

The thread that reads the news of a death may be within the driver just then (``tensor.item()``), and wait there for a stream that waits for
an event of the dead: no message and no signal reaches it. So the kernel tells another thread, which has the streams go on
(`Event.forsake`).

One thread for each process that is watched, as long as it is. Any thread, finalizers too.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from mray._common.process_local import kernel_pid
from mray._ipc.process import start_of


class _Watch:
    """Waits for the end of one process."""

    def __init__(self, pid: int, callback: Callable[[], None]) -> None:
        self._pidfd = os.pidfd_open(pid)
        self._stop = os.eventfd(0)
        self._callback = callback
        self._thread = threading.Thread(target=self._wait, name="mray-device-deaths", daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        ready = [fd for fd, _events in poll.poll()]
        if self._stop not in ready:
            self._callback()
            poll.unregister(self._pidfd)
            poll.poll()  # until nobody needs the watch any more
        os.close(self._pidfd)
        os.close(self._stop)

    def cancel(self) -> None:
        """End it; a callback that runs is waited for."""
        if self._thread.is_alive():
            os.eventfd_write(self._stop, 1)
            if threading.current_thread() is not self._thread:
                self._thread.join()


def when_dead(process: tuple[int, int], callback: Callable[[], None]) -> Callable[[], None]:
    """Call back once, in another thread, when a process is dead; returns the function that ends the watch, to be called once.

    `process`: its pid and when it was started. This process itself is not watched, nor any where the kernel has no pidfds.
    """
    pid, started = process
    if pid == kernel_pid():
        return _do_nothing
    try:
        watch = _Watch(pid, callback)
    except OSError:
        watch = None
    if start_of(pid) == started:
        return _do_nothing if watch is None else watch.cancel
    # Dead, and perhaps another one has its number.
    if watch is not None:
        watch.cancel()
    callback()
    return _do_nothing


def _do_nothing() -> None:
    """There is no watch to end."""
