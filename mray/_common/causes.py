"""`Cause`: how a process, an actor or a lease has ended. The node determines it once and sends it to the processes concerned."""

from __future__ import annotations

from typing import Any

from mray._common import messages as m
from mray._common.record import Record
from mray.exceptions import describe_status

EXIT_ACTOR = "exit_actor() was called."
#: Kind of a cause -> the sentence that programs match on.
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
    #: One of the ``CAUSE_`` constants.
    kind: str
    #: A sentence of its own, or an addition to the kind's.
    text: str = ""
    #: The process that has ended; 0 if none was started.
    pid: int = 0
    #: Exit status, negative for a signal; None if unknown, or if the process lives.
    status: int | None = None
    #: For CAUSE_INIT a pickled exception, for CAUSE_CRASH the last lines of output.
    payload: bytes | None = None

    def packed(self) -> tuple[Any, ...]:
        """``Cause(*packed)`` restores it."""
        return tuple(self)

    def how(self) -> str:
        return f"(pid {self.pid}) {describe_status(self.status)}"

    def reason(self) -> str:
        return self.text if self.text.startswith("The actor") else f"{REASONS.get(self.kind, 'The actor is dead.')} {self.text}".rstrip()

    def last_output(self) -> str:
        """The last lines of a crashed process's output, to append to a text, or ""."""
        if self.kind != m.CAUSE_CRASH or not self.payload:
            return ""
        return "\n    ".join((" Its last output:", *self.payload.decode("utf-8", "replace").splitlines()))
