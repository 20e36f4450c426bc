"""`Cause`: how a process, an actor or a lease has ended, and the words for it.

The node finds it out, once, and sends it to whoever was concerned; errors and listings are made of it.
"""

from __future__ import annotations

from typing import Any

from mray._common import messages as m
from mray._common.record import Record
from mray.exceptions import describe_status

#: Kind of a cause to the sentence that programs look for.
REASONS = {
    m.CAUSE_CRASH: "The actor is dead because its worker process has died.",
    m.CAUSE_KILL: "The actor is dead because it was killed by `ray.kill`.",
    m.CAUSE_EXIT: "The actor is dead because its worker process has died.",
    m.CAUSE_SCOPE: "The actor is dead because all references to the actor were removed.",
    m.CAUSE_OWNER: "The actor is dead because its owner has died.",
    m.CAUSE_INIT: "The actor died because of an error raised in its creation task.",
    m.CAUSE_GROUP: "The actor is dead because its placement group was removed.",
    m.CAUSE_NODE: "The actor is dead because its node process has died, or the session has ended.",
}


class Cause(Record):
    """One end."""

    #: One of the ``CAUSE_`` words of `mray._common.messages`.
    kind: str
    #: A sentence of its own, or more words behind that of the kind; empty where kind and status say it all.
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

    def how(self) -> str:
        """The process by its number, and how it has ended, in words."""
        return f"(pid {self.pid}) {describe_status(self.status)}"

    def reason(self) -> str:
        """Why an actor is dead, in sentences."""
        return self.text if self.text.startswith("The actor") else f"{REASONS.get(self.kind, 'The actor is dead.')} {self.text}".rstrip()

    def last_output(self) -> str:
        """The last lines that a process has printed which crashed, as the end of a text; "" when there are none."""
        if self.kind != m.CAUSE_CRASH or not self.payload:
            return ""
        return "\n    ".join((" Its last output:", *self.payload.decode("utf-8", "replace").splitlines()))
