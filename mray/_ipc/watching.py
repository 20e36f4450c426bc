"""The part of the reactor that connections and acceptors use; the reactor creates them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mray._ipc.closed_descriptors import ClosedDescriptors


class Watching(Protocol):
    closed_descriptors: ClosedDescriptors

    def add_fd(self, fd: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` in the reading thread whenever `fd` is readable or hangs up."""

    def forget(self, fd: int) -> None:
        """Stop watching a descriptor, before it is closed; ignored when not watched."""

    def watch_writable(self, fd: int, wanted: bool) -> None:
        """Report when the socket accepts bytes again."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call `callback` in the reading thread after `seconds`."""

    def defer(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the reading thread soon. Takes no lock."""

    def forget_ring(self, connection: Any) -> None:
        """Stop polling its ring."""
