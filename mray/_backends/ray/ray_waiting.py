"""Callbacks, timers and waits: the part of the backend that calls back.

Ray calls back in a thread that must not block, so callbacks are queued for a thread here, where they may get, submit and wait. Ray
does not report the death of an actor without a pending call, so watched actors are polled.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import ray
from ray._private.state import actors as actor_table

from mray._api.object_ref import ObjectRef
from mray._backends.ray.values import rays_ref
from mray._common.bridge import Cancel, nothing
from mray._common.clock import monotonic
from mray.exceptions import ActorDiedError, RaySystemError

if TYPE_CHECKING:
    from mray._api.actor_handle import ActorHandle
    from mray.exceptions import RayActorError

_log = logging.getLogger(__name__)

#: Seconds between polls of the watched actors.
INTERVAL = 0.5


class WaitCalls:
    """Waits for `RayBackend`. Any thread."""

    def __init__(self) -> None:
        self._waiting = threading.Condition()
        #: Calls of `wake`; a thread that has tested its predicate at a lower number tests it again.
        self._wakes = 0
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._caller: threading.Thread | None = None
        #: Actor's id in hex -> callbacks.
        self._watched: dict[str, list[Callable[[RayActorError], None]]] = {}
        #: Number -> callback of a value that is not ready.
        self._pending: dict[int, Callable[[], None]] = {}
        self._numbers = count()
        #: The error of every later call, once the session has ended.
        self.ended: RaySystemError | None = None

    def then(self, ref: ObjectRef | ActorHandle, callback: Callable[..., None], *, soon: bool = True) -> Cancel:
        if not isinstance(ref, ObjectRef):
            return self._watch(ref, callback)
        entry = rays_ref(ref)
        self._start_caller()
        number = next(self._numbers)
        self._pending[number] = callback
        entry._on_completed(lambda _value: self._completed(number))  # noqa: SLF001  (Ray's)
        if self.ended is not None:
            self._end_calls()
        return partial(self._pending.pop, number, None)

    def _completed(self, number: int) -> None:
        callback = self._pending.pop(number, None)
        if callback is not None:
            self._calls.put(callback)

    def _watch(self, handle: ActorHandle, callback: Callable[[RayActorError], None]) -> Cancel:
        with self._waiting:
            callbacks = self._watched.setdefault(handle.__actor_outline__().key, [])
            callbacks.append(callback)
        self._start_caller()
        self._calls.put(nothing)
        if self.ended is not None:
            self._end_calls()

        def cancel() -> None:
            with contextlib.suppress(ValueError):
                callbacks.remove(callback)

        return cancel

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            seen = self._wakes
            # Without the lock: the predicate may take one whose owner is about to call `wake`.
            if predicate():
                return True
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                return False
            with self._waiting:
                self._waiting.wait_for(lambda seen=seen: self._wakes != seen, left)  # type: ignore[misc]

    def read_along(self) -> None:
        """Do nothing: callbacks run without it."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, lambda: self._calls.put(callback))
        timer.daemon = True
        self._start_caller()
        timer.start()

    def wake(self) -> None:
        with self._waiting:
            self._wakes += 1
            self._waiting.notify_all()

    def _end_calls(self) -> None:
        """Call all callbacks, since Ray does not report the end of the session."""
        self.ended = self.ended or RaySystemError("Ray has not been started yet. The session was shut down.")
        for number in list(self._pending):
            self._completed(number)
        with self._waiting:
            watched, self._watched = self._watched, {}
        for actor, callbacks in watched.items():
            error = ActorDiedError(actor_id=actor, error_msg="The actor is dead: the session was shut down.")
            for callback in callbacks:
                self._calls.put(partial(callback, error))
        self._calls.put(None)

    # ------------------------------------------------------------------------------------ the thread
    def _start_caller(self) -> None:
        with self._waiting:
            if self._caller is None or not self._caller.is_alive():
                self._caller = threading.Thread(target=self._call, name="mray callbacks", daemon=True)
                self._caller.start()

    def _call(self) -> None:
        look_at = monotonic()
        while True:
            try:
                call = self._calls.get(timeout=max(look_at - monotonic(), 0) if self._watched else None)
            except Empty:
                call = nothing
            if call is None:
                return
            try:
                call()
                if self._watched and monotonic() >= look_at:
                    look_at = monotonic() + INTERVAL
                    self._look()
            except Exception:
                _log.exception("a callback failed")
            del call  # it may hold the last handle of an actor
            self.wake()

    def _look(self) -> None:
        if not ray.is_initialized():
            return
        for actor in list(self._watched):
            row: dict[str, Any] = actor_table(actor)
            if row and row.get("State") == "DEAD":
                with self._waiting:
                    callbacks = self._watched.pop(actor, [])
                for callback in callbacks:
                    callback(ActorDiedError(actor_id=actor, error_msg="The actor is dead.", class_name=row.get("ActorClassName")))
