"""Tokens: objects by whose last ref an interpreter is notified that a target has lost its holders.

The interpreter's process owns the tokens. A process that receives one keeps it, passes it on inside of messages and objects, or dies;
the engine counts its refs in all of that.

On mray a finalizer of the object's entry runs then. Ray notifies no one, so there the interpreter polls, while tokens are out, whether
its own table of objects still has a size for them. (`wait` of a ref created from a bare id would crash Ray's raylet, if the object no
longer exists.)
"""

from __future__ import annotations

import importlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

#: seconds between polls, on engines without a notification
INTERVAL = 0.5


class Tokens:
    """Calls `ended(key)` when a token has ended: in a finalizer or a separate thread, so it may take no locks."""

    def __init__(self, engine: Any, ended: Callable[[Any], None]) -> None:
        self._engine = engine
        self._ended = ended
        self._looked_after: dict[bytes, Any] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def make(self, key: Any) -> Any:
        """The caller passes the token on and forgets it."""
        ref = self._engine.put(None)
        entry = getattr(ref, "_entry", None)
        if entry is not None and type(entry).__module__.partition(".")[0] == "mray":  # it counts this process's refs only
            weakref.finalize(entry, self._ended, key).atexit = False
            return ref
        with self._lock:
            self._looked_after[ref.binary()] = key
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="proxy tokens", daemon=True)
                self._thread.start()
        return ref

    def _look(self) -> None:
        ref_of = self._engine.ObjectRef
        look = importlib.import_module(f"{self._engine.__name__}.experimental").get_local_object_locations
        pause = threading.Event()
        # A new token is in transit: it is polled from the second round on.
        young: set[bytes] = set()
        while True:
            pause.wait(INTERVAL)
            with self._lock:
                now = dict(self._looked_after)
                if not now:
                    self._thread = None
                    return
            for token, key in now.items():
                if token not in young:
                    continue
                # No ref may be left over: it would count until the next poll.
                (found,) = look([ref_of(token)]).values() or [None]
                if found is None or found["object_size"] is None:
                    with self._lock:
                        del self._looked_after[token]
                    self._ended(key)
            young = set(now)
