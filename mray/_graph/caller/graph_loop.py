"""Waiting for graphs in an event loop: the thread that waits is also the thread that reads.

    actor: publish, ring ───▶ doorbells of this process ───▶ epoll of the watcher ───▶ selector of the loop ───▶ look, wake the coroutine

The doorbells are in the loop's own selector, so that a result wakes no other thread. Deaths and results that another thread has read
come from the reading thread.
"""

from __future__ import annotations

import select
import weakref
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from mray._common.bridge import Cancel, call_in, call_in_loop, call_later, call_of, nothing, running_loop, tell
from mray._common.clock import monotonic
from mray._graph.caller.executions import Claim, Completions
from mray._graph.host import GraphHost
from mray._ipc.limits import explaining
from mray._ipc.spin import YIELD_AFTER, AdaptiveSpinner, LoopSpin

if TYPE_CHECKING:
    import asyncio


#: Seconds after which a coroutine that never waits yields.
FAIRNESS = 1e-3


class LoopWatcher:
    """Watches an event loop. In the loop's thread, except `_ready` and `_wake`."""

    def __init__(self, host: GraphHost, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        #: The callback closes the epoll, since this watcher is in reference cycles.
        self._loop = weakref.ref(loop, lambda _gone: self._unwatch(None))
        #: Graphs that coroutines of this loop wait for.
        self._awaited: set[Completions] = set()
        self._poll: select.epoll | None = None
        self._doorbells: tuple[int, ...] = ()
        #: Whether the selector watches; whether peers ring.
        self._watches = False
        self._attends = False
        self._spin = LoopSpin(lambda: len(self._awaited), self._look, self._attend)
        self._waiting: set[Any] = set()
        #: Cancels the call of `_wake`.
        self._cancel: Cancel = nothing
        self._yielded = 0.0
        #: Bounds the polls before a coroutine yields.
        self.patience = AdaptiveSpinner(YIELD_AFTER)

    def is_due(self) -> bool:
        """Whether a coroutine must yield even with a result."""
        if not self._host.reactor.wakeup_fds:
            return True  # no process computes meanwhile
        now = monotonic()
        if now - self._yielded < FAIRNESS:
            return False
        self._yielded = now
        return True

    def sleep(
        self, completions: Completions, claim: Claim | None, spinner: AdaptiveSpinner, timeout: float | None = None
    ) -> Generator[Any, None, None]:
        loop = self._loop()
        assert loop is not None
        future, cancel = call_of(loop, partial(completions.then, claim))
        if future.done():
            return
        timer = None if timeout is None else call_later(loop, timeout, partial(tell, future, False))
        self._awaited.add(completions)
        self._waiting.add(future)
        try:
            if not self._attends:
                self._spin.start(loop, spinner)
            yield from future
            self._yielded = monotonic()
        finally:
            self._waiting.discard(future)
            cancel()
            if timer is not None:
                timer.cancel()
            self._settle()

    # ------------------------------------------------------------------------------------ looking
    def _look(self) -> None:
        self._host.reactor.activity += 1
        service = self._host.service
        for completions in tuple(self._awaited):
            if service is not None:
                completions.run_here(service)
            completions.look()
        self._settle()

    def _settle(self) -> None:
        for completions in tuple(self._awaited):
            if not completions.awaited:
                self._awaited.discard(completions)
        if self._attends and not self._awaited:
            self._attends = False
            self._cancel()

    # ------------------------------------------------------------------------------------ being woken
    def _attend(self) -> None:
        """Errors go to the waiting coroutines, since the loop may call this."""
        try:
            self._watch()
        except Exception as error:
            for future in tuple(self._waiting):
                tell(future, None, error)

    def _watch(self) -> None:
        loop = self._loop()
        if loop is None:
            return
        if self._host.reactor.wakeup_fds and (self._poll is None or self._doorbells is not self._host.reactor.wakeup_fds):
            self._unwatch(loop)
            self._doorbells = self._host.reactor.wakeup_fds
            with explaining("The event loop could not wait for the graph."):
                self._poll = select.epoll(len(self._doorbells))
            for fd in self._doorbells:
                self._poll.register(fd, select.EPOLLIN | select.EPOLLET)
        if self._poll is not None and not self._watches:
            loop.add_reader(self._poll.fileno(), self._on_ring)
            self._watches = True
        self._attends = True
        self._look_and_wait()

    def _unwatch(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if self._poll is not None:
            if self._watches and loop is not None and not loop.is_closed():
                loop.remove_reader(self._poll.fileno())
            self._watches = False
            self._poll.close()
            self._poll = None

    def _on_ring(self) -> None:
        if self._poll is None:
            return
        self._poll.poll(0)
        if not self._awaited:
            # A doorbell for other threads.
            loop = self._loop()
            if loop is not None:
                self._unwatch(loop)
            return
        self._look()

    def close(self) -> None:
        """Any thread."""
        loop = self._loop()
        call_in_loop(loop, lambda: self._unwatch(loop))

    def _ready(self) -> bool:
        """Whether a callback may be due. Actors in this process ring no doorbell."""
        service = self._host.service
        if not self._host.reactor.wakeup_fds and service is not None and service.ready():
            return True
        return any(completions.ready() for completions in tuple(self._awaited))

    def _wake(self) -> None:
        """Make the loop poll. Usually in the reading thread."""
        loop = self._loop()
        if loop is not None:
            call_in(loop, self._look_and_wait)

    def _look_and_wait(self) -> None:
        if self._attends:
            self._cancel = self._host.reactor.then(self._ready, self._wake)
        self._look()


def watcher_of(host: GraphHost) -> LoopWatcher:
    """This thread's watcher. RuntimeError if it runs no event loop."""
    loop = running_loop()
    watcher = host.loop_watchers.get(loop)
    if watcher is None:
        for other in list(host.loop_watchers):
            if other.is_closed():
                host.loop_watchers.pop(other).close()
        watcher = host.loop_watchers[loop] = LoopWatcher(host, loop)
    return watcher
