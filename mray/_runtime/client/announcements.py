"""Log lines of a client, written in a separate thread.

The thread that reads for all others must not log: a program's logging handler may be slow, need a lock whose holder waits for a reply,
or call mray.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from mray._common.log import logger

PATIENCE = 1.0


class Announcements:
    """Callable in any thread, with any lock held but the logger's."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def say(self, line: Callable[[], None]) -> None:
        self._queue.put(line)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mray-announcements", daemon=True)
                self._thread.start()

    def close(self) -> None:
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
