"""Errors of calls that the program never reads: logged in a line on stderr when the last ref is released.

  reply FAILED ─▶ entry.guard = _Unhandled ──┬─ get, wait, await, an argument, a borrower asks: handled, nothing is logged
                                             └─ the last ref is released: it is logged (`mray._runtime.client.announcements`)

Only errors of user code, of objects that this process owns: a program knows of its own cancels and kills, and deaths are logged
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from mray._common import settings
from mray._common.log import logger
from mray._objects.ownership import Entry
from mray._objects.remote_error import TASK_ERROR, is_cancelled, text_of


class _Unhandled:
    """Logs an error when it is collected, unless it was handled."""

    __slots__ = ("_defer", "_tell", "handled", "payload")

    def __init__(self, defer: Callable[[Callable[[], None]], None], tell: Callable[[bytes], None], payload: bytes) -> None:
        self._defer = defer
        self._tell = tell
        self.payload = payload
        self.handled = False

    def __del__(self) -> None:
        if not self.handled:
            tell, payload = self._tell, self.payload
            self._defer(lambda: tell(payload))


class UnhandledErrors:
    """Errors that the program has not read."""

    def __init__(self, defer: Callable[[Callable[[], None]], None], announce: Callable[[Callable[[], None]], None]) -> None:
        self._defer = defer
        self._announce = announce
        self._is_told = not settings.IGNORE_UNHANDLED_ERRORS.get()
        #: Whether there has been one: before, `mark_handled` need not be called.
        self.any = False

    def come(self, entry: Entry, payload: bytes) -> None:
        """Guard the entry of a call's error, which is about to complete it. Client's lock held."""
        if self._is_told and entry.guard is None:
            self.any = True
            entry.guard = _Unhandled(self._defer, self._tell, payload)

    def _tell(self, payload: bytes) -> None:
        text = _text_of(payload)
        if text:
            variable = settings.IGNORE_UNHANDLED_ERRORS.name
            self._announce(lambda: logger.error("Unhandled error (suppress with '%s=1'): %s", variable, text))


def mark_handled(entry: Entry) -> None:
    """The program has read the error in this entry. Any thread."""
    guard = entry.guard
    if type(guard) is _Unhandled:
        guard.handled = True


def _text_of(payload: bytes) -> str:
    """The text of an error of user code, without unpickling it; "" for any other."""
    text = text_of(payload)
    return text.removeprefix(TASK_ERROR) if text.startswith(TASK_ERROR) and not is_cancelled(text) else ""
