"""The requests between processes about compiled graphs.

The comment of a verb gives sender, receiver, payload and answer, which may also be an exception. Payloads and answers are pickled; a
graph id alone is encoded text.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A method may keep the main thread busy; the reading thread answers immediately.
MAIN, READING, OWN = "main thread", "reading thread", "thread of its own"

#: verb -> thread that answers.
VERBS: dict[str, str] = {}


def _verb(verb: str, answered_by: str, /) -> str:
    assert verb not in VERBS, f"the verb {verb!r} is declared already"
    VERBS[verb] = answered_by
    return verb


#: From the compiler to an actor: Assignment -> b"".
ALLOCATE = _verb("allocate", MAIN)
#: From the caller to an actor: graph id -> b"" or LENT.
STOP = _verb("stop", MAIN)
#: The actor retains values that it passed on, and checks again at TRIM.
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
#: From the caller to an actor: ProfileRequest -> why there is no torch profiler, or "".
PROFILE = _verb("profile", MAIN)
#: PROFILE while the main thread is busy.
PROFILE_NOW = _verb("profile now", READING)
#: From the caller to an actor: graph id "/" token, as text -> spans.
UNPROFILE = _verb("unprofile", MAIN)
#: UNPROFILE while the main thread is busy.
UNPROFILE_NOW = _verb("unprofile now", READING)

#: From a copier to the owner: graph id -> b"".
COPY = _verb("copy", READING)
#: From a copier to an actor: Assignment -> b"".
ATTACH = _verb("attach", OWN)
#: From the owner to a copier: graph id, pickled error or b"" -> b"".
ENDED = _verb("ended", READING)


@dataclass(frozen=True)
class ProgramState:
    pid: int
    executions: int
    #: Index of the operation that runs or would block.
    place: int
    #: Channels it waits for there.
    missing: tuple[int, ...]
    running: bool
    #: The main thread's stack above the graph's frames; all of it if busy with other work.
    stack: str


@dataclass(frozen=True)
class ProfileRequest:
    graph_id: str
    #: Protects the next profile from a late end of this one.
    token: str
    limit: int
    #: Record ordinary calls too.
    calls: bool
    torch: bool
