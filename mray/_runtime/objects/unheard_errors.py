"""The error of a call is told in a line on stderr when its last ref goes and nobody has asked for it.

In every client, for what it owns. A program that calls and goes on would otherwise not learn that its functions raise.

    reply FAILED ─▶ entry.guard = _Unheard ──┬─ get, wait, await, an argument, a borrower asks: heard, nothing is told
                                             └─ the last ref goes: it is announced (`mray._runtime.client.announcements`)

Errors of user code only: who cancels or kills knows, and deaths have lines of their own.
"""

from __future__ import annotations

from collections.abc import Callable

from mray._common import settings
from mray._common.log import logger
from mray._objects.ownership import Entry
from mray._objects.remote_error import TASK_ERROR, text_of


class _Unheard:
    """Tells of an error when it dies, unless it was heard."""

    __slots__ = ("_defer", "_tell", "heard", "payload")

    def __init__(self, defer: Callable[[Callable[[], None]], None], tell: Callable[[bytes], None], payload: bytes) -> None:
        self._defer = defer
        self._tell = tell
        self.payload = payload
        self.heard = False

    def __del__(self) -> None:
        if not self.heard:
            tell, payload = self._tell, self.payload
            self._defer(lambda: tell(payload))


class UnheardErrors:
    """Notes which errors nobody has asked for."""

    def __init__(self, defer: Callable[[Callable[[], None]], None], announce: Callable[[Callable[[], None]], None]) -> None:
        self._defer = defer
        self._announce = announce
        self._is_told = not settings.IGNORE_UNHANDLED_ERRORS.get()
        #: Whether there has been one: before, nobody need look for them.
        self.any = False

    def come(self, entry: Entry, payload: bytes) -> None:
        """A call's error is about to complete this entry. Client's lock held."""
        if self._is_told and entry.guard is None:
            self.any = True
            entry.guard = _Unheard(self._defer, self._tell, payload)

    def _tell(self, payload: bytes) -> None:
        text = _text_of(payload)
        if text:
            variable = settings.IGNORE_UNHANDLED_ERRORS.name
            self._announce(lambda: logger.error("Unhandled error (suppress with '%s=1'): %s", variable, text))


def hear(entry: Entry) -> None:
    """Somebody has asked for what is in this entry. Any thread."""
    guard = entry.guard
    if type(guard) is _Unheard:
        guard.heard = True


def _text_of(payload: bytes) -> str:
    """What an error of user code says; "" for any other. The user's own error is not unpickled for it."""
    text = text_of(payload)
    return text.removeprefix(TASK_ERROR) if text.startswith(TASK_ERROR) else ""
