"""Log lines of a client's own, written in a thread of their own.

In every client that has such lines. The thread that reads for all others must not log: a logging handler of the program's may be slow, need
a lock whose holder waits for a reply, or call mray itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from mray._common.log import logger

#: Seconds that the end of a client waits for the last lines to be logged.
PATIENCE = 1.0


class Announcements:
    """Logs lines one after the other. Any thread, with any lock but the logger's."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def say(self, line: Callable[[], None]) -> None:
        """Call `line`, which logs, soon."""
        self._queue.put(line)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mray-announcements", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Log the last lines, for at most `PATIENCE` seconds. Idempotent."""
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._queue.put(None)
            thread.join(PATIENCE)

    def _run(self) -> None:
        while (line := self._queue.get()) is not None:
            try:
                line()
            except Exception:
                logger.debug("an announcement failed", exc_info=True)
