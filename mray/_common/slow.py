"""A line on stderr about what takes long, so that nobody takes it for stuck. Any thread."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from mray._common.log import logger

#: As they are before any thread is simulated: in one process the threads of the program may be, and this is none of them.
_start, _join = threading.Thread.start, threading.Thread.join

#: Seconds after which something takes long; and between further lines.
LONG, AGAIN = 5.0, 30.0


@contextmanager
def told_when_slow(what: str, long: float = LONG, again: float = AGAIN) -> Iterator[None]:
    """Log that this goes on when it takes longer than `long` seconds, again from time to time, and when it is over at last."""
    #: Held while it goes on.
    over = _thread.allocate_lock()
    over.acquire()
    began = monotonic()
    told = False

    def tell() -> None:
        nonlocal told
        wait = long
        while not over.acquire(timeout=wait):
            told, wait = True, again
            logger.info("%s: %.0f s so far.", what, monotonic() - began)

    thread = threading.Thread(target=tell, name="mray-slow", daemon=True)
    try:
        _start(thread)
    except RuntimeError:  # the interpreter is ending, or there are too many threads
        yield
        return
    try:
        yield
    finally:
        over.release()
        _join(thread)
        if told:
            logger.info("%s: over after %.0f s.", what, monotonic() - began)
