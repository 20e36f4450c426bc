"""An asyncio event loop on the reading thread: its selector waits in the reactor.

    main thread of an async actor:  run ─▶ loop ─▶ LoopSelector.select ─▶ Reactor.wait_until ─▶ sockets, doorbells, timers
                                                                 ▲                             and the loop's own descriptors

So a message wakes only the thread that will answer it. The loop's epoll lies inside the reactor's own. Imports asyncio: for processes
that have a loop.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Sized
from typing import Any

from mray._common.bridge import follow
from mray._common.clock import monotonic
from mray._ipc.waiting_place import WaitingPlace

#: Seconds after which a loop that did not run is due.
FAIRNESS = 1e-3


def _never() -> bool:
    return False


def _nothing() -> None:
    pass


class LoopSelector(selectors.EpollSelector):
    """A loop's selector. In the loop's thread, except `notify`."""

    def __init__(self, reactor: WaitingPlace, before_sleep: Callable[[], None]) -> None:
        super().__init__()
        self._reactor = reactor
        self._before_sleep = before_sleep
        #: Whether there is an event since the loop's last poll; whether it may concern the user's descriptors.
        self.woken = False
        self._readable = False
        #: Called in each iteration, after reading.
        self.after_read: Callable[[], object] = _nothing
        #: Whether other work wants the thread.
        self.wanted: Callable[[], object] = _never
        self.spins = True
        self.stop: Callable[[], None] = _nothing
        #: The loop's due callbacks: reading may add one without a notification.
        self.ready: Sized = ()
        reactor.watch_edge(self.fileno(), self._on_readable)

    def notify(self) -> None:
        """Record an event for the loop. Called by a thread that reads, or wakes the reader afterwards."""
        self.woken = True

    def _on_readable(self, _events: int) -> None:
        self._readable = self.woken = True

    def _is_due(self) -> bool:
        return self.woken or bool(self.ready) or bool(self.wanted())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        reactor = self._reactor
        while True:
            if self._readable or (timeout is not None and timeout <= 0):
                reactor.look()
                timeout = 0
            else:
                reactor.wait_until(self._is_due, timeout, spin=self.spins, before_sleep=self._before_sleep)
            # Before polling: a later event sets it again.
            self.woken = False
            events: list[tuple[selectors.SelectorKey, int]] = []
            if self._readable:
                self._readable = False
                events = super().select(0)
                if events:
                    self._readable = True  # reported until they are read
            self.after_read()
            if self.wanted():
                self.stop()
                return events
            if events or self.ready or timeout is not None:
                return events
            # Reading handled all events.

    def close(self) -> None:
        self._reactor.forget(self.fileno())
        super().close()


class _ActorLoop(asyncio.SelectorEventLoop):
    """Reports itself as running until it is closed, though the thread leaves it for other work: other threads take a loop that does not run
    for a dead one.
    """

    _lasts = False

    def __init__(self, selector: selectors.BaseSelector) -> None:
        super().__init__(selector)
        self._lasts = True

    def is_running(self) -> bool:
        return self._lasts or super().is_running()

    def _check_running(self) -> None:
        """Raise RuntimeError in a coroutine or callback; between its turns the thread may run the loop."""
        if super().is_running():
            raise RuntimeError("This event loop is already running")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise RuntimeError("Cannot run the event loop while another loop is running")

    def close(self) -> None:
        self._lasts = False
        super().close()


class MainLoop:
    """The loop of this process's main thread. Main thread only, except `notify`."""

    def __init__(self, reactor: WaitingPlace, before_sleep: Callable[[], None] = _nothing) -> None:
        self._selector = LoopSelector(reactor, before_sleep)
        self.loop = follow(_ActorLoop(self._selector))
        self._selector.stop = self.loop.stop
        self._selector.ready = vars(self.loop)["_ready"]
        self.notify = self._selector.notify
        self._left = 0.0
        asyncio.set_event_loop(self.loop)
        _of_thread.main = self

    def on_each_iteration(self, callback: Callable[[], object]) -> None:
        """Call `callback` in each iteration, after reading; it may start tasks."""
        self._selector.after_read = callback

    def run_while_idle(self, wanted: Callable[[], object], *, spin: bool = True) -> None:
        """Run the loop until `wanted()`, for one turn at least. `spin=False` is for callers that have spun."""
        selector = self._selector
        selector.wanted = wanted
        selector.spins = spin
        try:
            self.loop.run_forever()
        finally:
            selector.wanted = _never
            selector.spins = True
            self._left = monotonic()

    def is_due(self) -> bool:
        """Whether the loop has work, or has not run for so long that it may have."""
        return self._selector.woken or monotonic() - self._left > FAIRNESS


class _OfThread(threading.local):
    main: MainLoop | None = None


_of_thread = _OfThread()


def main_loop() -> Any:
    """The loop of an async actor, in its main thread; else None."""
    return None if _of_thread.main is None else _of_thread.main.loop
