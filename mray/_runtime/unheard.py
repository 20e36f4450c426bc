"""The error of a call is told in a line on stderr when its last ref goes and nobody has asked for it.

In every client, for what it owns. A program that calls and goes on would otherwise not learn that its functions raise.

    reply FAILED, nobody waits ─▶ entry.guard = _Unheard ──┬─ get, wait, await, an argument, a borrower asks: heard, nothing is told
                                                           └─ the last ref goes: the reading thread tells

Errors of user code only: who cancels or kills knows, and deaths have lines of their own.
"""

from __future__ import annotations

from collections.abc import Callable

from mray._common import settings
from mray._common.log import logger
from mray._objects.ownership import Entry
from mray._objects.remote_error import unpickle_error
from mray.exceptions import RayTaskError


class _Unheard:
    """Tells of an error when it dies, unless it was heard."""

    __slots__ = ("_defer", "heard", "payload")

    def __init__(self, defer: Callable[[Callable[[], None]], None], payload: bytes) -> None:
        self._defer = defer
        self.payload = payload
        self.heard = False

    def __del__(self) -> None:
        if not self.heard:
            payload = self.payload
            self._defer(lambda: _tell(payload))


class UnheardErrors:
    """Notes which errors nobody has asked for."""

    def __init__(self, defer: Callable[[Callable[[], None]], None]) -> None:
        self._defer = defer
        self._is_told = not settings.IGNORE_UNHANDLED_ERRORS.get()
        #: Whether there has been one: before, nobody need look for them.
        self.any = False

    def come(self, entry: Entry, payload: bytes) -> None:
        """A call's error is about to complete this entry. Client's lock held."""
        if self._is_told and entry.guard is None and not entry.waiters:
            self.any = True
            entry.guard = _Unheard(self._defer, payload)


def hear(entry: Entry) -> None:
    """Somebody has asked for what is in this entry. Any thread."""
    guard = entry.guard
    if type(guard) is _Unheard:
        guard.heard = True


def _tell(payload: bytes) -> None:
    error = unpickle_error(payload)
    if isinstance(error, RayTaskError):
        logger.error("Unhandled error (suppress with '%s=1'): %s", settings.IGNORE_UNHANDLED_ERRORS.name, error)
