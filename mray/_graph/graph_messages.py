"""The requests between processes about compiled graphs.

A request is a verb of this table and a payload of bytes; its answer is bytes, or the exception that the other process raised
(`mray._graph.host.GraphHost.request`). A verb is declared with the thread that answers it; its comment gives sender, receiver, payload
and answer. Payloads and answers are pickled; a graph id alone is encoded text.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The receiver's main thread, which a method may keep busy; its reading thread, immediately; a new thread.
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
#: The answer of an actor that retains values which it passed on; it checks again at TRIM.
LENT = b"lent"
#: From the caller to an actor: free the memory of closed edges, on devices and of passed-on values: b"" -> b"".
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

#: From a process that creates a copy of a graph to its owner: graph id -> b"".
COPY = _verb("copy", READING)
#: From a process that creates a copy of a graph to an actor, for its own channels: Assignment -> b"".
ATTACH = _verb("attach", OWN)
#: From the owner of a graph to a process with a copy of it: graph id, pickled error or b"" -> b"".
ENDED = _verb("ended", READING)


@dataclass(frozen=True)
class ProgramState:
    """An actor's position in its program of one graph."""

    pid: int
    executions: int
    #: Index of the actor's operation that runs or would block.
    place: int
    #: The channels whose messages it waits for there.
    missing: tuple[int, ...]
    running: bool
    #: The stack of its main thread above the graph's own frames, or all of it if it is busy with other work.
    stack: str


@dataclass(frozen=True)
class ProfileRequest:
    """A profile's request to an actor."""

    graph_id: str
    #: Identifies the profile, so that a late request to end one does not end the next.
    token: str
    #: The most spans that each process stores.
    limit: int
    #: Also record spans of ordinary calls.
    calls: bool
    #: Run the torch profiler meanwhile.
    torch: bool
