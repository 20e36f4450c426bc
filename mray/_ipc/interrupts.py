"""Ctrl-C at a safe moment.

In the driver's main thread. A KeyboardInterrupt may be raised between any two byte codes; raised while a message is half dispatched or
half sent it would lose a reply, and whoever waits for that reply would wait for ever. So while a session lives, Python's own handler of
SIGINT is replaced by one that puts the interrupt off to the end of such a stretch (microseconds; nobody sleeps inside one). A handler
that the user has installed stays.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class InterruptGuard:
    """Marks stretches of the main thread that an interrupt must not cut.

    ``was = guard.enter() ... guard.leave(was)`` around the stretch; other threads are never interrupted and pay a comparison.
    """

    __slots__ = ("_held", "_installed", "_main", "_put_off")

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._held = False
        self._put_off = False
        self._installed = False

    def enter(self) -> bool:
        """Begin a stretch; returns what `leave` wants."""
        if threading.get_ident() != self._main or self._held:
            return True
        self._held = True
        return False

    def leave(self, was_held: bool) -> None:
        """End it; raises the KeyboardInterrupt that came meanwhile."""
        if was_held:
            return
        self._held = False
        if self._put_off:
            self._put_off = False
            raise KeyboardInterrupt

    def install(self) -> None:
        """Take over from Python's own handler, if that is what there is. Main thread only; elsewhere nothing happens."""
        if threading.get_ident() == self._main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupted)
            self._installed = True

    def uninstall(self) -> None:
        """Give Python its handler back, unless somebody has replaced ours. In another thread than the main one it stays, and is
        harmless.
        """
        if self._installed and threading.get_ident() == self._main:
            if signal.getsignal(signal.SIGINT) == self._interrupted:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False

    def _interrupted(self, number: int, frame: FrameType | None) -> Any:
        if self._held:
            self._put_off = True
            return None
        return signal.default_int_handler(number, frame)
