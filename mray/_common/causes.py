"""`Cause`: how a process, an actor or a lease has ended.

The node finds it out, once, and sends it to whoever was concerned; errors and listings are made of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Cause(NamedTuple):
    """One end."""

    #: One of the ``CAUSE_`` words of `mray._common.messages`.
    kind: str
    #: A sentence; empty where kind and status say it all.
    text: str = ""
    #: The process that has ended; 0 if none was begun.
    pid: int = 0
    #: Its exit status, negative for a signal; None if nobody knows, or it lives.
    status: int | None = None
    #: Of CAUSE_INIT a pickled exception, of CAUSE_CRASH the last lines that the process has printed.
    payload: bytes | None = None

    def packed(self) -> tuple[Any, ...]:
        """As it travels; ``Cause(*packed)`` is the cause again."""
        return tuple(self)
