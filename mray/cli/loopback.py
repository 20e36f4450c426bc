"""`LoopbackServer`: what the live page and the metrics of a session are served by, on the loopback interface alone.

In any process that has asked for one: a thread waits for connections, and each request has a thread of its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import weakref
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mray._common.clock import sleep

LOOPBACK = "127.0.0.1"
#: Seconds until the thread looks again that had no descriptor for a connection.
_PAUSE = 0.2


class LoopbackServer(ThreadingHTTPServer):
    """Serves until it is closed; `server_port` is where. OSError for a port that is taken."""

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler], name: str) -> None:
        self._closed = False
        #: The thread of each request under way, and its connection.
        self._requests: dict[threading.Thread, socket.socket] = {}
        super().__init__((LOOPBACK, port), handler)
        _open.add(self)
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while not self._closed:
            self.handle_request()  # waits without end: nothing runs while nobody asks
        self.server_close()

    def close(self) -> None:
        """End it, when the requests under way are over: their connections are cut. Twice is fine."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):  # a request has woken the thread already, and it has closed the socket
                self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
            self.thread.join()
            for thread, connection in list(self._requests.items()):
                with contextlib.suppress(OSError):  # its thread has just closed it
                    connection.shutdown(socket.SHUT_RDWR)
                thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, which keeps no program from its end."""
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self._requests[thread] = request
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One request, to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._requests[threading.current_thread()]

    def get_request(self) -> Any:
        """The next connection. Without a descriptor for it the thread does not turn round and round."""
        try:
            return super().get_request()
        except OSError:
            sleep(_PAUSE)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The asking side has gone: there is nobody to tell."""


#: Those of this process. The child of a fork lets go of the ports: it would keep them after the parent's end.
_open: weakref.WeakSet[LoopbackServer] = weakref.WeakSet()


def _after_fork() -> None:
    for server in _open:
        server.socket.close()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)
