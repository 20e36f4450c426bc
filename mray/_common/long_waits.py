"""Waits that have lasted for long, as their process describes them to the node (`mray._decide.scheduler.wait_graph`)."""

from __future__ import annotations

from collections.abc import Iterable

from mray._common.record import Record

#: A call, by its id, and the process that has made it.
Target = tuple[bytes, str]
#: A line of user code: file, number, function, source.
Place = tuple[str, int, str, str]


class WaitRow(Record):
    """A thread that waits for calls, or a coroutine that awaits one."""

    #: Unique in its process: from 1 on, or, for a coroutine, from -1 down.
    number: int
    #: The call whose code waits; b"" for a driver, and for threads that belong to no call.
    task_id: bytes
    name: str
    place: Place
    #: Unanswered calls; the wait cannot end while more than `spare` of them, and at least one, cannot.
    targets: list[Target]
    spare: int


class CallRow(Record):
    """A call, as its caller knows it; or, without a name, as the process that runs it does."""

    task_id: bytes
    name: str
    #: The process that runs it; "" while the caller knows none, or knows only the actor.
    process: str
    actor_id: bytes
    #: Unanswered calls that return its arguments, or those of calls that must be sent before it.
    needs: list[Target]
    #: Waits of the process: the call cannot go on before one of them ends.
    held_by: list[int]
    #: The caller's request for a worker, if it has none for such calls; else 0.
    request: int = 0


class WaitLink(Record):
    """A thread that waits for a call which cannot end."""

    #: The call whose code waits, such as "Actor.method", and its process.
    waiter: str
    pid: int
    #: The call that it waits for.
    awaits: str
    #: The call that returns an argument of `awaits`, if that is what is missing.
    needs: str
    #: The call that runs in the place of the awaited one; "" if that runs, and waits itself.
    behind: str
    #: The resource that the awaited call waits for, and `behind` holds; "" if it waits for none.
    lacks: str
    #: The process of the awaited call, or of `behind`.
    awaits_pid: int
    #: The waiting line of user code; "" and 0 where there is none.
    file: str
    line: int
    function: str
    source: str

    def __str__(self) -> str:
        awaits = f"{self.awaits}, which needs {self.needs}" if self.needs else self.awaits
        place = f"waits for the {self.lacks} of {self.behind}" if self.lacks else f"is queued behind {self.behind}"
        queued = f", which {place}" if self.behind else ""
        text = f"{self.waiter} (pid {self.pid}) waits for {awaits}{queued} (pid {self.awaits_pid})"
        if self.file:
            text += f'\n  File "{self.file}", line {self.line}, in {self.function}'
            if self.source:
                text += f"\n    {self.source}"
        return text


def describe_chain(chain: Iterable[WaitLink]) -> str:
    """The links of a chain of waits, one below the other."""
    return "\n".join(map(str, chain))
