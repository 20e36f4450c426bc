"""The courier: a thread that sends what nobody waits for.

In each process that uses variables. A step is not sent by itself: those that follow within `LINGER` go with it in one call, as do those
that a `fetch` sends along. And a variable that ends says so here, from a finalizer, which may take no lock: it only puts a record on the
queue.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mray.proxy.connection import Connection
    from mray.proxy.lane import Lane

#: Seconds for which a step may wait for others to go with it.
LINGER = 0.001


class Courier:
    """One for the process."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()
        #: Puts a `Lane` with unsent steps, or an end: (connection, target, holder, uses). From finalizers, too.
        self.put = self._queue.put
        self._pid = -1
        self._lock = threading.Lock()
        self._idle = threading.Event()

    def start(self) -> None:
        """Have the thread run in this process. Called by whoever makes a connection."""
        with self._lock:
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
        threading.Thread(target=self._deliver, name="proxy courier", daemon=True).start()
        # After the engine's own, since it is registered later; so the engine still runs when this is called.
        atexit.register(self.drain)

    def drain(self) -> None:
        """Wait until everything that was put before has been sent, and what was sent has been done."""
        if self._pid != os.getpid():
            return
        sent = threading.Event()
        self.put(sent)
        sent.wait(60)

    def _deliver(self) -> None:
        get, get_nowait = self._queue.get, self._queue.get_nowait
        while True:
            items = [get()]
            time.sleep(LINGER)
            try:
                while True:
                    items.append(get_nowait())
            except Empty:
                pass
            ends: dict[Connection, list[Any]] = {}
            lanes: list[Lane] = []
            events = []
            for item in items:
                if type(item) is tuple:
                    ends.setdefault(item[0], []).append(item[1:])
                elif isinstance(item, threading.Event):
                    events.append(item)
                else:
                    lanes.append(item)
            for lane in lanes:
                _quietly(lane.send_rest)
            for connection, ended in ends.items():
                _quietly(connection.release, ended)
            for event in events:
                event.set()
            # What ended holds connections, and the last one's end is an actor's.
            del items, ends, lanes, events, item
            lane = connection = ended = event = None  # type: ignore[assignment]


def _quietly(action: Any, *arguments: Any) -> None:
    """Nobody waits for this: who uses the interpreter next is told that it is gone."""
    try:
        action(*arguments)
    except Exception:
        pass


COURIER = Courier()
