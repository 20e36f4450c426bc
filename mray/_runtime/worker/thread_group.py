"""Threads for the calls of one concurrency group of an actor.

    reading thread ── submit ──▶ queue ──▶ one of at most n threads: arguments, method, reply
                                      └──▶ the main thread in the place of an idle one, if it is the reading thread and the method is brief

A thread is started when a call comes and none is idle, and is kept: values that a method leaves in `threading.local` are there for the next
call that runs on it. The thread that became idle last is woken first. No lock is held while a method runs.

Waking a thread takes longer than most methods do (two cores of a virtual machine: 60 µs a call, and 20 where none is woken). So a method
whose calls are brief runs on the main thread, which has read the call and would otherwise wait for the next. A call that turns out long
there holds up nobody: other calls are read in the background by then, and run on threads.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from functools import partial

from mray._common.clock import perf_counter
from mray._runtime.worker.group_executor import Arrival, GroupExecutor, GroupsOfActor
from mray._runtime.worker.running import GroupCall, current_call

#: Seconds that a brief call takes at most; and from which on a call has certainly waited for something.
BRIEF, LONG = 100e-6, 10e-3
#: The credit of a method that runs on the main thread, and its most; each brief call is worth 1.
ENOUGH, MOST_CREDIT = 64, 128
#: The price of a longer call (on a busy machine a few take long that do not by themselves), and the debt after a long one.
COST, DEBT = 8, 4096


class _Record:
    """The credit of a method, by its calls so far. (Not locked: one call more or less does not matter.)"""

    __slots__ = ("_credit",)

    def __init__(self) -> None:
        self._credit = 0

    @property
    def is_brief(self) -> bool:
        return self._credit >= ENOUGH

    def note(self, seconds: float) -> None:
        """Take note of a call."""
        if seconds <= BRIEF:
            self._credit = min(self._credit + 1, MOST_CREDIT)
        elif seconds >= LONG:
            self._credit = -DEBT
        elif self._credit > 0:
            self._credit = max(self._credit - COST, 0)


class ThreadGroupExecutor(GroupExecutor):
    """A `GroupExecutor` of threads."""

    def __init__(self, actor: GroupsOfActor, size: int, name: str) -> None:
        super().__init__(actor, size, name)
        #: A lock for each idle thread; releasing it wakes the thread. Guarded by `_lock`, as the next is.
        self._idle: list[threading.Lock] = []
        self._threads = 0
        self._records: defaultdict[str, _Record] = defaultdict(_Record)

    def submit(self, arrival: Arrival) -> None:
        with self._lock:
            self._queue.append(arrival)
            if self._idle:
                wakeup = self._idle.pop()
                is_brief = self._records[arrival[1].method].is_brief
                if not (is_brief and self._actor.main_thread.take_up(partial(self._work_in_place, wakeup, arrival))):
                    wakeup.release()
                return
            if self._threads >= self._size:
                return
            self._threads += 1
            number = self._threads
        self._actor.start_thread(self._work, f"mray-{self._name}-{number}")

    def cancel(self, running: GroupCall) -> None:
        """Do nothing: a thread cannot be interrupted. The method may ask, with `is_canceled`."""

    def let_go(self) -> None:
        """Do nothing: its threads have no call any more."""

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

    def _work_in_place(self, wakeup: threading.Lock, arrival: Arrival) -> None:
        """Run this call on the main thread, if nobody else has it by now; the thread that `wakeup` wakes sleeps meanwhile."""
        with self._lock:
            running = None
            if arrival in self._queue:
                self._queue.remove(arrival)
                running = self._actor.begin(self, arrival, GroupCall)
        if running is not None:
            self._run(running)
        with self._lock:
            if self._queue:
                wakeup.release()
            else:
                self._idle.append(wakeup)

    def _run(self, running: GroupCall) -> None:
        actor = self._actor
        token = current_call.set(running)
        try:
            actor.executor.run(running)
        except BaseException:
            actor.crash()
        finally:
            current_call.reset(token)
            self._records[running.call.method].note(perf_counter() - running.began)
            actor.end(running)
            if not self._queue:
                running.connection.flush()
            else:
                # Either the reader sees the post before it sleeps, or it is seen to sleep here.
                reactor = actor.client.reactor
                reactor.post_later(running.connection)
                if reactor.asleep:
                    reactor.flush()
