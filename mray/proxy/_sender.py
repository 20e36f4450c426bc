"""The sender: a thread that sends steps that nobody waits for.

In each process that uses variables. A step is not sent by itself: those that follow within `LINGER` go with it in one call, as do those
that a `fetch` sends along. And a variable that ends says so here, from a finalizer, which may take no lock: it only puts a record on the
queue.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import weakref
from collections.abc import Iterable
from queue import Empty
from typing import Any, Protocol

from mray._common import clock
from mray._common.process_local import ProcessLocal

_log = logging.getLogger(__name__)

#: Seconds for which a step may wait for others to go with it.
LINGER = 0.001


class SendingStream(Protocol):
    """The part of a step stream that the sender needs."""

    def send_rest(self) -> None: ...
    def finish(self) -> None: ...


class SendingConnection(Protocol):
    """The part of a connection that the sender needs."""

    @property
    def streams(self) -> Iterable[SendingStream]: ...
    def is_open(self) -> bool: ...
    def release(self, ends: list[Any]) -> None: ...


class Leaving:
    """Marks the end of a connection."""

    __slots__ = ()


class Sender:
    """The sender of a process."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        #: Puts a stream with unsent steps, an end: (connection, target, holder, {stream: last step that uses it}), or a `Leaving`.
        #: From finalizers, too.
        self.put = self._queue.put
        self._lock = threading.Lock()
        #: Connections of this process; while there are any, the thread runs.
        self._connections = 0
        self._hooked = False
        self._open: weakref.WeakSet[SendingConnection] = weakref.WeakSet()

    def enter(self, connection: SendingConnection) -> Leaving:
        """Register a connection; it puts the returned object when it ends."""
        with self._lock:
            self._open.add(connection)
            self._connections += 1
            if self._connections == 1:
                threading.Thread(target=self._deliver, name="proxy sender", daemon=True).start()
            if not self._hooked:
                # After the engine's own, since it is registered later; so the engine still runs when this is called.
                atexit.register(self.finish)
                self._hooked = True
        return Leaving()

    def finish(self) -> None:
        """At the end of the program: wait until all steps are done, as Python waits for threads. Reports failures."""
        for connection in list(self._open):
            if connection.is_open():
                for stream in list(connection.streams):
                    try:
                        stream.finish()
                    except Exception as error:
                        _log.error("a step failed, and the program ended without looking at it", exc_info=error)

    def _deliver(self) -> None:
        get, get_nowait = self._queue.get, self._queue.get_nowait
        while True:
            items = [get()]
            clock.sleep(LINGER)
            try:
                while True:
                    items.append(get_nowait())
            except Empty:
                pass
            ends: dict[SendingConnection, list[Any]] = {}
            streams: list[SendingStream] = []
            left = 0
            for item in items:
                if type(item) is tuple:
                    ends.setdefault(item[0], []).append((item[1], item[2], tuple(item[3].items())))
                elif type(item) is Leaving:
                    left += 1
                else:
                    streams.append(item)
            for stream in streams:
                _quietly(stream.send_rest)
            for connection, ended in ends.items():
                _quietly(connection.release, ended)
            # The ended objects hold connections, and the last one's end is an actor's.
            del items, ends, streams, item
            stream = connection = ended = None  # type: ignore[assignment]
            if left:
                with self._lock:
                    self._connections -= left
                    if not self._connections:
                        return


def _quietly(action: Any, *arguments: Any) -> None:
    """Call without errors: nobody waits, and the next user of the interpreter is told that it is gone."""
    try:
        action(*arguments)
    except Exception:
        pass


#: The sender of this process.
sender: ProcessLocal[Sender] = ProcessLocal(Sender)
