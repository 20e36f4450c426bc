"""The requests that processes make to each other about compiled graphs: sender, answering thread, payload and answer.

A request is one of these verbs and a payload of bytes; its answer is bytes, or the exception that the other side raised
(`mray._graph.host.GraphHost.request`). "Reading thread" answers come at once, also while a method runs; others wait for the main thread.

    request        from             answered by                 payload -> answer
    ALLOCATE       compiler         actor, main thread          pickled Assignment -> b""
    STOP           caller           actor, main thread          graph id -> b"" or LENT
    TRIM           caller           actor, main thread          b"" -> b""
    SITE           compiler         actor, main thread          pickled uuids of devices -> pickled Site
    OFFER          compiler         actor, main thread          pickled asker, indices of devices -> pickled Offers
    TRY            compiler         actor, main thread          pickled asker, (index, Offer, also memory) -> pickled Obstacles or None
    WITHDRAW       compiler         actor, main thread          asker -> b""
    REPORT         caller           actor, reading thread       graph id -> pickled ProgramState or None
    STATISTICS     caller           actor, main thread          graph id -> pickled counters by channel
    PROFILE        caller           actor, main thread          pickled ProfileRequest -> pickled reason of no torch profiler, or ""
    PROFILE_NOW    caller           actor, reading thread       the same
    UNPROFILE      caller           actor, main thread          graph id "/" token -> pickled spans
    UNPROFILE_NOW  caller           actor, reading thread       the same
    COPY           another process  compiler's reading thread   graph id -> b""
    ATTACH         another process  actor, thread of its own    pickled Assignment of a copy -> b""
    ENDED          compiler         other process, reading      pickled (graph id, pickled error or b"") -> b""
"""

from __future__ import annotations

from dataclasses import dataclass

ALLOCATE = "allocate"
STOP = "stop"
#: The answer to STOP of an actor that keeps values which it has passed on: TRIM has it look again once the others have left, too.
LENT = b"lent"
#: Give back the memory of closed edges: of devices, and of values that were passed on.
TRIM = "trim"
SITE = "site"
OFFER = "offer"
TRY = "try"
WITHDRAW = "withdraw"

REPORT = "report"
STATISTICS = "statistics"
PROFILE = "profile"
PROFILE_NOW = "profile now"
UNPROFILE = "unprofile"
UNPROFILE_NOW = "unprofile now"
#: Requests that the reading thread passes to `GraphService.handle`; all other requests to an actor but REPORT go to its main thread.
AT_ONCE = frozenset({PROFILE_NOW, UNPROFILE_NOW})

#: A process makes a copy of a graph; it makes channels of its own to an actor; the graph has ended.
COPY = "copy"
ATTACH = "attach"
ENDED = "ended"


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
