"""A line on stderr about what takes long, so that nobody takes it for stuck. Any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mray._common.clock import monotonic
from mray._common.log import logger

#: As it is where threads are threads: in one process those of the program may be simulated, and nothing takes long there.
_start = threading.Thread.start

#: Seconds after which something takes long; and between further lines.
LONG, AGAIN = 5.0, 30.0


@contextmanager
def told_when_slow(what: str, long: float = LONG, again: float = AGAIN) -> Iterator[None]:
    """Log that this goes on when it takes longer than `long` seconds, again from time to time, and when it is over at last."""
    if threading.Thread.start is not _start:
        yield
        return
    over = threading.Event()
    began = monotonic()
    told = False

    def tell() -> None:
        nonlocal told
        wait = long
        while not over.wait(wait):
            told, wait = True, again
            logger.info("%s: %.0f s so far.", what, monotonic() - began)

    thread = threading.Thread(target=tell, name="mray-slow", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending, or there are too many threads
        yield
        return
    try:
        yield
    finally:
        over.set()
        thread.join()
        if told:
            logger.info("%s: over after %.0f s.", what, monotonic() - began)
