"""The requests that processes make to each other about compiled graphs.

A request is a verb of this table and a payload of bytes; its answer is bytes, or the exception that the other side raised
(`mray._graph.host.GraphHost.request`). A verb is declared with the thread that answers it; its comment says from whom to whom it goes, with
which payload, and for which answer. Payloads and answers are pickled; a graph id alone is encoded text.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The main thread of the process that is asked, which a method may keep busy; the thread that reads, immediately; a thread of its own.
MAIN, READING, OWN = "main thread", "reading thread", "thread of its own"

#: Every verb, with the thread that answers it.
VERBS: dict[str, str] = {}


def _verb(verb: str, answered_by: str, /) -> str:
    assert verb not in VERBS, f"the verb {verb!r} is declared already"
    VERBS[verb] = answered_by
    return verb


#: From the compiler to an actor: Assignment -> b"".
ALLOCATE = _verb("allocate", MAIN)
#: From the caller to an actor: graph id -> b"" or LENT.
STOP = _verb("stop", MAIN)
#: The answer of an actor that keeps values which it has passed on: it checks again at TRIM, once the others have left, too.
LENT = b"lent"
#: From the caller to an actor: free the memory of closed edges, of devices and of values that were passed on: b"" -> b"".
TRIM = _verb("trim", MAIN)
#: From the compiler to an actor: uuids of devices -> Site.
SITE = _verb("site", MAIN)
#: From the compiler to a writer: asker, indices of devices -> Offers.
OFFER = _verb("offer", MAIN)
#: From the compiler to a reader: asker, (index, Offer, also memory) -> Obstacles or None.
TRY = _verb("try", MAIN)
#: From the compiler to a writer: asker, as text -> b"".
WITHDRAW = _verb("withdraw", MAIN)

#: From the caller to an actor: graph id -> ProgramState or None.
REPORT = _verb("report", READING)
#: From the caller to an actor: graph id -> counters by channel.
STATISTICS = _verb("statistics", MAIN)
#: From the caller to an actor: ProfileRequest -> the reason for which there is no torch profiler, or "".
PROFILE = _verb("profile", MAIN)
#: The same, while the main thread is busy.
PROFILE_NOW = _verb("profile now", READING)
#: From the caller to an actor: graph id "/" token, as text -> spans.
UNPROFILE = _verb("unprofile", MAIN)
#: The same, while the main thread is busy.
UNPROFILE_NOW = _verb("unprofile now", READING)

#: From a process that makes a copy of a graph to the one that compiled it: graph id -> b"".
COPY = _verb("copy", READING)
#: From a process that makes a copy of a graph to an actor, for channels of its own: Assignment -> b"".
ATTACH = _verb("attach", OWN)
#: From the process that compiled a graph to one that has a copy of it: graph id, pickled error or b"" -> b"".
ENDED = _verb("ended", READING)


@dataclass(frozen=True)
class ProgramState:
    """An actor's place in its program of one graph."""

    pid: int
    executions: int
    #: Index into the actor's operations: the one that runs, or the one that would block.
    place: int
    #: The channels whose messages it waits for there.
    missing: tuple[int, ...]
    running: bool
    #: The stack of its main thread: the frames above the graph's own, or all of them if it is busy with other work.
    stack: str


@dataclass(frozen=True)
class ProfileRequest:
    """A profile's request to an actor."""

    graph_id: str
    #: Identifies the profile: a late request to end one must not end the next one.
    token: str
    #: Spans that each process keeps at most.
    limit: int
    #: Spans of ordinary calls, too.
    calls: bool
    #: Run the torch profiler meanwhile.
    torch: bool
