"""Event loops of users, as far as this process's waits look from inside them: for refs, and for results of graphs.

A loop that waits for mray sleeps in its own selector, which watches mray's descriptors; before that it looks for some microseconds, once
per iteration, so that an immediate answer finds its caller awake and other coroutines run in between (`mray._ipc.spin`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mray._common.clock import monotonic

if TYPE_CHECKING:
    import asyncio

    from mray._ipc.spin import AdaptiveSpinner


class LoopSpin:
    """The looks of one event loop before it sleeps. For the loop's thread."""

    __slots__ = ("_look", "_sleep", "_spinner", "_until", "_waiting", "active")

    def __init__(self, waiting: Callable[[], int], look: Callable[[], object], sleep: Callable[[], object] = lambda: None) -> None:
        """`waiting` counts the waits, `look` ends those that are over; `sleep` is called when the window is over and some are left."""
        self._waiting = waiting
        self._look = look
        self._sleep = sleep
        #: Whether the loop looks now.
        self.active = False

    def begin(self, loop: asyncio.AbstractEventLoop, spinner: AdaptiveSpinner) -> None:
        """Look once per iteration from now on, as long as `spinner` allows."""
        self.active = True
        self._spinner = spinner
        self._until = monotonic() + spinner.window
        loop.call_soon(self._turn, loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        spinner = self._spinner
        before = self._waiting()
        if before:
            self._look()
        left = self._waiting()
        if not left:
            self.active = False
            spinner.succeeded()
            return
        now = monotonic()
        if left < before:
            self._until = now + spinner.window
        if now < self._until:
            loop.call_soon(self._turn, loop)
        else:
            self.active = False
            spinner.failed()
            self._sleep()
