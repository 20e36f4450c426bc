"""The calls of one process to one actor, in order, from process to process.

::

    unknown ──a call──▶ asked ──▶ pending ──▶ alive ◀──▶ restarting
                                     │          │            │
                                     └──────────┴────────────┴──▶ dead

The node reports every state but the first two. It may report a state again, or leave out those between two others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic

from mray._common.messages import ALIVE, DEAD, PENDING, RESTARTING
from mray._common.story import Story
from mray._decide.caller import caller_instructions as do
from mray._decide.caller.call_records import CANCELLED, AnyCall, goes_once

if TYPE_CHECKING:
    from mray._common.causes import Cause
    from mray._decide.caller.call_records import Link

#: The node has not been asked; it has not answered yet. The other states are those that it reports.
UNKNOWN, ASKED = "unknown", "asked"
#: The states that may follow on each.
_NEXT = {
    UNKNOWN: {PENDING, ALIVE, RESTARTING, DEAD},
    ASKED: {PENDING, ALIVE, RESTARTING, DEAD},
    PENDING: {PENDING, ALIVE, RESTARTING, DEAD},
    ALIVE: {ALIVE, RESTARTING, DEAD},
    RESTARTING: {ALIVE, RESTARTING, DEAD},
}


class ActorQueue(Generic[AnyCall]):
    """The state of an actor as one process knows it, and the calls of that process that the actor has not answered.

    Invariant: a call is in `queue`, in `aside`, or in ``link.calls``, or answered. While the link is open, the queue has only calls that
    wait for their arguments, or rest, or that were made behind such a call. While the actor is being restarted, which may take for ever, it
    has no call that is ready and may not be sent to the next process, unless it was made before the actor's first process was there.

    A call that is tried again rests before that. One that was lost with its process keeps its place, and those behind it wait with it:
    their order holds. One whose method has raised an error rests aside, and others overtake it.
    """

    def __init__(self, actor_id: bytes) -> None:
        self.state = UNKNOWN
        #: Where the node has said that it runs; "" before that.
        self.process = ""
        self.incarnation = -1
        self.cause: Cause | None = None
        #: The connection to that process, a `Link`; None while there is none.
        self.link: Any = None
        self.queue: deque[AnyCall] = deque()
        #: Those in `queue` that rest.
        self.resting: set[AnyCall] = set()
        #: Calls that rest before they are sent again (they were sent), or before they fail because the actor is being restarted (they were
        #: not): a caller that asks again and again is told at once of the actor's end or return, and else no more often than that.
        self.aside: dict[AnyCall, None] = {}
        #: Seconds that a call rests. 0: none does.
        self.rest = 0.0
        #: Calls that may be unanswered at once; 0: as many as there are.
        self.most_pending = 0
        #: Whether a call may overtake one that waits for its arguments.
        self.unordered = False
        self.story = Story("the calls to actor", actor_id)

    # ------------------------------------------------------------------------------------ questions
    def flows(self) -> bool:
        """Whether a call whose arguments are there is sent at once."""
        return self.link is not None and not self.link.closed and (not self.queue or self.unordered)

    def is_full(self) -> bool:
        """Whether so many calls are unanswered that the actor takes no more."""
        sent = 0 if self.link is None else len(self.link.calls)
        return 0 < self.most_pending <= sent + len(self.queue) + len(self.aside)

    def rests(self, call: AnyCall) -> bool:
        """Whether a call is only tried again later."""
        return call in self.resting or (call in self.aside and call.was_sent)

    # ------------------------------------------------------------------------------------ events of this process
    def submitted(self, call: AnyCall) -> do.Instructions:
        """A call was made."""
        if call.waiting == 0 and self.flows():
            return [do.Send(call)]
        if self.state == DEAD:
            return [do.FailDead(call, None)]
        if self.state == RESTARTING and goes_once(call):
            return self._refuse(call)
        self.queue.append(call)
        if self.state == ALIVE and self.link is None:
            return [do.Connect(self.process)]
        return self.watched()

    def watched(self) -> do.Instructions:
        """Somebody wants to know the actor's state, and each change."""
        if self.state != UNKNOWN:
            return []
        self._enter(ASKED)
        return [do.Subscribe()]

    def arguments_came(self, call: AnyCall) -> do.Instructions:
        """A queued call has all of its arguments."""
        if self.state == RESTARTING and goes_once(call):
            self.queue.remove(call)
            return self._refuse(call)
        return self._flush()

    def rested(self, calls: Sequence[AnyCall]) -> do.Instructions:
        """These calls have rested; some may have ended meanwhile."""
        out: do.Instructions = []
        for call in calls:
            self.resting.discard(call)
            if call not in self.aside:
                continue
            del self.aside[call]
            if not call.was_sent:
                out.append(do.FailUnavailable(call, ""))
            elif self.link is not None and not self.link.closed:
                out.append(do.Send(call))
            else:
                self.queue.appendleft(call)
        if self.queue and self.state == ALIVE and self.link is None:
            return [*out, do.Connect(self.process)]
        return out + self._flush()

    def cancelled(self, call: AnyCall) -> do.Instructions | None:
        """A call was cancelled; None if it is not queued. Others may have waited behind it."""
        self.resting.discard(call)
        if call in self.aside:
            del self.aside[call]
            return []
        try:
            self.queue.remove(call)
        except ValueError:
            return None
        return self._flush()

    def attempt_failed(self, call: AnyCall) -> do.Instructions:
        """The method raised an error that the caller asked to be retried."""
        if call.retries == CANCELLED:
            return [do.Cancel(call)]
        call.use_retry()
        call.was_sent = True
        if self.rest:
            self.aside[call] = None
            return [do.AwaitRest([call], self.rest)]
        if self.link is not None and not self.link.closed:
            return [do.Send(call)]
        self.queue.appendleft(call)
        return []

    # ------------------------------------------------------------------------------------ events of the actor's process
    def reported(self, state: str, process: str, incarnation: int, cause: Cause | None) -> do.Instructions:
        """The node has said where the actor is. The link of a process that has ended was read to its end before."""
        if self.state == DEAD:
            return []  # the node was lost, and what it had said before is still read
        if state not in _NEXT[self.state]:
            raise self.story.invalid(f"The report {state!r}", self.state)
        before = self.state
        self._enter(state, process, incarnation)
        if state == ALIVE:
            out = self._moved(process, incarnation)
        elif state == PENDING:
            out = []
        else:
            self.cause = cause
            out = self._ended(before)
        return [*out, do.Announce()]

    def connected(self, link: Link | None) -> do.Instructions:
        """There is a connection to the actor's process; None: it has ended since, and the node will say so."""
        self.link = link
        return self._flush()

    def unreachable(self, error: BaseException) -> do.Instructions:
        """No connection could be made; the next call tries again."""
        self.story.note("unreachable", repr(error))
        self.link = None
        return self._fail_queue(error)

    def broke(self, error: BaseException) -> do.Instructions:
        """The link has ended although the actor lives, and the calls over it have failed.

        Calls that wait for their arguments were to follow those, and fail as well. The next call connects again.
        """
        return self.unreachable(error)

    # ------------------------------------------------------------------------------------ transitions
    def _enter(self, state: str, *more: object) -> None:
        self.story.note(self.state, "->", state, *more)
        self.state = state

    def _flush(self) -> do.Instructions:
        """Send calls in order, up to the first whose arguments are not there (or past it, if that is allowed)."""
        if self.link is None or self.link.closed:
            return []
        queue = self.queue
        out: do.Instructions = []
        if self.unordered:
            out += (do.Send(call) for call in queue if not self._is_held(call))
            self.queue = deque(call for call in queue if self._is_held(call))
        else:
            while queue and not self._is_held(queue[0]):
                out.append(do.Send(queue.popleft()))
        return out

    def _is_held(self, call: AnyCall) -> bool:
        return bool(call.waiting) or call in self.resting

    def _refuse(self, call: AnyCall) -> do.Instructions:
        """The actor is being restarted, and the call is not for its next process."""
        if not self.rest:
            return [do.FailUnavailable(call, "")]
        self.aside[call] = None
        return [do.AwaitRest([call], self.rest)]

    def _fail_refused(self) -> do.Instructions:
        """The actor is there again: callers that ask once more will be answered."""
        refused = [call for call in self.aside if not call.was_sent]
        for call in refused:
            del self.aside[call]
        return [do.FailUnavailable(call, "") for call in refused]

    def _fail_queue(self, error: BaseException) -> do.Instructions:
        queue, self.queue = self.queue, deque()
        self.resting.clear()
        return [do.Fail(call, error) for call in queue]

    def _moved(self, process: str, incarnation: int) -> do.Instructions:
        """The actor runs in this process."""
        if incarnation == self.incarnation and self.link is not None and not self.link.closed:
            return []
        # With a link to another process of it, it was restarted in between.
        out = [] if self.link is None or incarnation == self.incarnation else self._sort_out(self._cut_off(), ALIVE)
        self.incarnation = incarnation
        self.process = process
        return [*out, *self._fail_refused(), do.Connect(process)]

    def _ended(self, before: str) -> do.Instructions:
        """The actor's process has ended; the link with it, though the process may stay while others hold objects that it owns."""
        lost = self._cut_off()
        if self.state == RESTARTING:
            return self._sort_out(lost, before)
        queue, self.queue = self.queue, deque()
        aside, self.aside = self.aside, {}
        self.resting.clear()
        out: do.Instructions = [do.FailDead(call, self.process) for call in lost] + [do.FailDead(call, "") for call in queue]
        return out + [do.FailDead(call, self.process if call.was_sent else "") for call in aside]

    def _cut_off(self) -> list[AnyCall]:
        """Let go of the link; the calls over it that have no answer."""
        if self.link is None:
            return []
        lost = list(self.link.calls.values())
        self.link.calls.clear()
        self.link = None
        return lost

    def _sort_out(self, lost: list[AnyCall], before: str) -> do.Instructions:
        """Queue in order the calls that may be retried, and fail the others: the actor is being started again.

        Calls that were made before its first process was there wait for any process. Those that were queued between the death of its
        process and now, when this process learns of it, were for that one.
        """
        out: do.Instructions = []
        if before in (ASKED, ALIVE):
            out += (do.FailUnavailable(call, "") for call in self.queue if goes_once(call) and not call.was_sent)
            self.queue = deque(call for call in self.queue if not goes_once(call) or call.was_sent)
        elif before == RESTARTING and self.process:
            # The process that was to follow has died before it was there. That was an attempt of the calls that are retried in it: an
            # actor may be restarted without end.
            out += (do.FailUnavailable(call, "") for call in self.queue if call.was_sent and not call.retries)
            self.queue = deque(call for call in self.queue if not call.was_sent or call.retries)
            self.resting.intersection_update(self.queue)
            for call in self.queue:
                if call.was_sent:
                    call.use_retry()
        retried = []
        for call in lost:
            if call.retries == CANCELLED:
                out.append(do.Cancel(call))
            elif call.retries:
                call.use_retry()
                call.was_sent = True
                retried.append(call)
            else:
                out.append(do.FailUnavailable(call, self.process))
        self.queue.extendleft(reversed(retried))
        if retried and self.rest:
            self.resting.update(retried)
            out.append(do.AwaitRest(retried, self.rest))
        return out

    # ------------------------------------------------------------------------------------ for tests and errors
    def validate(self) -> None:
        """Assert every invariant; walks the queue."""
        assert self.resting.issubset(self.queue), self.story
        assert not self.aside.keys() & set(self.queue), self.story
        if self.state == DEAD:
            assert not self.queue and not self.aside, self.story
            assert self.link is None, self.story
        if self.state != RESTARTING:
            assert all(call.was_sent for call in self.aside), self.story
        if self.state == RESTARTING:
            assert self.link is None, self.story
        if self.flows() and self.queue:
            assert all(map(self._is_held, self.queue)), self.story
        elif self.link is not None and not self.link.closed and self.queue:
            assert self._is_held(self.queue[0]), self.story
