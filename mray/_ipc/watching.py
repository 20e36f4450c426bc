"""What those need of a reactor that it watches: connections, and the doors that others come to.

The reactor makes connections and doors, so they know it by this contract only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mray._ipc.interrupts import InterruptGuard
from mray._ipc.torn import Tear


class Watching(Protocol):
    """The side of `mray._ipc.reactor.Reactor` that is turned to what it watches."""

    guard: InterruptGuard
    tear: Tear

    def add_fd(self, fd: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` in the reading thread whenever `fd` is readable or hangs up."""

    def remove_fd(self, fd: int) -> None:
        """Stop watching; safe when it is not watched."""

    def forget(self, fd: int) -> None:
        """Stop watching a descriptor that is about to be closed."""

    def watch_writable(self, fd: int, wanted: bool) -> None:
        """Report when the socket takes bytes again."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call `callback` in the reading thread after `seconds`."""

    def defer(self, callback: Callable[[], None]) -> None:
        """Have the reading thread call `callback` soon. Takes no lock."""
