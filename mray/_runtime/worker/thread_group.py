"""Threads for the calls of one concurrency group of an actor.

  reading thread ── submit ──▶ queue ──▶ one of at most n threads: arguments, method, reply

A call starts a thread if none is idle. Threads persist, with their `threading.local`. The thread that became idle last is woken first.
No lock is held while a method runs.

Rejected: running brief methods on the main thread, which has read the call: thread-bound state (`threading.local`, a connection of
sqlite3, a CUDA context) is missing on another thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import FrameType

from mray._common.places import frame_of
from mray._runtime.worker.group_executor import Arrival, GroupExecutor, GroupsOfActor
from mray._runtime.worker.running import GroupCall, current_call


class ThreadGroupExecutor(GroupExecutor):
    """A `GroupExecutor` of threads."""

    def __init__(self, actor: GroupsOfActor, size: int, name: str) -> None:
        super().__init__(actor, size, name)
        #: A lock for each idle thread; releasing it wakes the thread. Guarded, like `_threads`, by `_lock`.
        self._idle: list[threading.Lock] = []
        self._threads = 0

    def submit(self, arrival: Arrival) -> None:
        with self._lock:
            self._queue.append(arrival)
            if self._idle:
                self._idle.pop().release()
                return
            if self._threads >= self._size:
                return
            self._threads += 1
            number = self._threads
        self._actor.process.start_thread(self._work, f"mray-{self._name}-{number}")

    def cancel(self, running: GroupCall) -> None:
        """Do nothing: a thread cannot be interrupted."""

    @classmethod
    def call_of(cls, frame: FrameType) -> GroupCall | None:
        """The call that a group's thread with this innermost frame runs; None for other threads."""
        found = frame_of(cls._run.__code__, frame)
        return None if found is None else found.f_locals["running"]

    def held_by(self, calls: list[int], by_thread: Mapping[int, int], *, is_running: bool) -> list[int]:
        return [] if is_running or len(calls) < self._size else calls

    def let_go(self) -> None:
        """Do nothing: the threads have no calls left."""

    def _work(self) -> None:
        wakeup = threading.Lock()
        wakeup.acquire()
        while True:
            with self._lock:
                arrival = self._queue.popleft() if self._queue else None
                if arrival is None:
                    self._idle.append(wakeup)
                else:
                    # Before the lock is released: a call is in the queue or among the running ones.
                    running = self._actor.begin(self, arrival, GroupCall)
            if arrival is None:
                wakeup.acquire()
            else:
                self._run(running)

    def _run(self, running: GroupCall) -> None:
        actor = self._actor
        token = current_call.set(running)
        try:
            actor.executor.run(running)
        except BaseException:
            actor.crash()
        finally:
            current_call.reset(token)
            actor.end(running)
            if not self._queue:
                running.connection.flush()
            else:
                # Either the reader sees the post before it sleeps, or this thread sees it asleep.
                reactor = actor.client.reactor
                reactor.post_later(running.connection)
                if reactor.asleep:
                    reactor.flush()
