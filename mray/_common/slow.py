"""A line on stderr about a slow operation, which distinguishes it from a hang. Any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mray._common.clock import monotonic
from mray._common.log import logger

#: Of each thread in a slow operation: functions that say whom the operation waits for, the innermost last.
_waits = threading.local()
#: The original: the local engine replaces it, and nothing is slow there.
_start = threading.Thread.start

#: Seconds before the first line, and between further lines.
LONG, AGAIN = 5.0, 30.0


@contextmanager
def told_when_slow(what: str, long: float = LONG, again: float = AGAIN) -> Iterator[None]:
    """Log when the operation takes longer than `long` seconds, repeatedly, and when it is over."""
    if threading.Thread.start is not _start:
        yield
        return
    over = threading.Event()
    began = monotonic()
    told = False
    waits: list[Callable[[], str]] = []
    before, _waits.of_operation = getattr(_waits, "of_operation", None), waits

    def tell() -> None:
        nonlocal told
        wait = long
        while not over.wait(wait):
            told, wait = True, again
            whom = "".join(f" It waits {each()}." for each in waits[-1:])
            logger.info("%s: %.0f s so far.%s", what, monotonic() - began, whom)

    thread = threading.Thread(target=tell, name="mray-slow", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending, or there are too many threads
        yield
        return
    try:
        yield
    finally:
        _waits.of_operation = before
        over.set()
        thread.join()
        if told:
            logger.info("%s: over after %.0f s.", what, monotonic() - began)


@contextmanager
def waiting(whom: Callable[[], str]) -> Iterator[None]:
    """In an operation of this thread that may be slow: its lines say what `whom` returns, such as "for the actor A". Any thread."""
    waits: list[Callable[[], str]] | None = getattr(_waits, "of_operation", None)
    if waits is None:
        yield
        return
    waits.append(whom)
    try:
        yield
    finally:
        waits.pop()
