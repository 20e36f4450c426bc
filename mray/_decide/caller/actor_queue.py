"""The calls of one process to one actor, in order, across restarts.

::

    unknown ──a call──▶ asked ──▶ pending ──▶ alive ◀──▶ restarting
                                     │          │            │
                                     └──────────┴────────────┴──▶ dead

The node reports every state but the first two; it may repeat or skip states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic

from mray._common.event_log import EventLog
from mray._common.messages import ALIVE, DEAD, PENDING, RESTARTING
from mray._decide.caller import caller_instructions as do
from mray._decide.caller.call_records import CANCELLED, AnyCall, goes_once

if TYPE_CHECKING:
    from mray._common.causes import Cause
    from mray._decide.caller.call_records import Link

#: The node was not asked; it has not answered.
UNKNOWN, ASKED = "unknown", "asked"
_NEXT = {
    UNKNOWN: {PENDING, ALIVE, RESTARTING, DEAD},
    ASKED: {PENDING, ALIVE, RESTARTING, DEAD},
    PENDING: {PENDING, ALIVE, RESTARTING, DEAD},
    ALIVE: {ALIVE, RESTARTING, DEAD},
    RESTARTING: {ALIVE, RESTARTING, DEAD},
}


class ActorQueue(Generic[AnyCall]):
    """The state of an actor as one process knows it, with its unanswered calls.

    Invariant: an unanswered call is in `queue`, in `aside`, or in ``link.calls``. While the link is open, `queue` has only calls that
    wait for arguments, calls that rest, and calls made after one of these. While the actor restarts, which may take forever, no ready
    call is queued unless it may go to the next process or was made before the actor's first process existed.

    A call lost with its process rests in its position, and later calls wait behind it. A call whose method raised rests in `aside`, and
    others overtake it.
    """

    def __init__(self, actor_id: bytes) -> None:
        self.state = UNKNOWN
        #: The actor's process as the node reported it; "" before that.
        self.process = ""
        self.incarnation = -1
        self.cause: Cause | None = None
        self.link: Any = None
        self.queue: deque[AnyCall] = deque()
        #: Calls of `queue` that rest.
        self.resting: set[AnyCall] = set()
        #: Calls outside of the order that rest: before they are sent again, or, unsent, before they fail because the actor restarts, which
        #: limits the rate at which a caller that retries in a loop learns of the restart.
        self.aside: dict[AnyCall, None] = {}
        #: Seconds; 0: no call rests.
        self.rest = 0.0
        #: Limit of unanswered calls; 0: none.
        self.most_pending = 0
        self.unordered = False
        self.event_log = EventLog("the calls to actor", actor_id)

    # ------------------------------------------------------------------------------------ questions
    def sends_directly(self) -> bool:
        """Whether a call whose arguments are ready is sent immediately."""
        return self.link is not None and not self.link.closed and (not self.queue or self.unordered)

    def is_full(self) -> bool:
        sent = 0 if self.link is None else len(self.link.calls)
        return 0 < self.most_pending <= sent + len(self.queue) + len(self.aside)

    def rests(self, call: AnyCall) -> bool:
        return call in self.resting or (call in self.aside and call.was_sent)

    # ------------------------------------------------------------------------------------ events of this process
    def submitted(self, call: AnyCall) -> do.Instructions:
        if call.waiting == 0 and self.sends_directly():
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
        if self.state != UNKNOWN:
            return []
        self._enter(ASKED)
        return [do.Subscribe()]

    def arguments_came(self, call: AnyCall) -> do.Instructions:
        if self.state == RESTARTING and goes_once(call):
            self.queue.remove(call)
            return self._refuse(call)
        return self._flush()

    def rested(self, calls: Sequence[AnyCall]) -> do.Instructions:
        """Send or fail calls that have rested; some may have ended meanwhile."""
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
        """Return None for a call that is not queued; else instructions for the calls that waited behind it."""
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
        """The link of a process that ended was read to its end before."""
        if self.state == DEAD:
            return []  # the node is lost; earlier messages are still read
        if state not in _NEXT[self.state]:
            raise self.event_log.invalid(f"The report {state!r}", self.state)
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
        """None: the process has ended, and the node will report it."""
        self.link = link
        return self._flush()

    def unreachable(self, error: BaseException) -> do.Instructions:
        self.event_log.note("unreachable", repr(error))
        self.link = None
        return self._fail_queue(error)

    def broke(self, error: BaseException) -> do.Instructions:
        """The link broke although the actor lives, and the calls sent over it have failed.

        Queued calls were to follow those, so they fail too.
        """
        return self.unreachable(error)

    # ------------------------------------------------------------------------------------ transitions
    def _enter(self, state: str, *more: object) -> None:
        self.event_log.note(self.state, "->", state, *more)
        self.state = state

    def _flush(self) -> do.Instructions:
        """Send calls in order, up to the first that waits for arguments; past it if `unordered`."""
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
        """Fail a call that may not go to the actor's next process."""
        if not self.rest:
            return [do.FailUnavailable(call, "")]
        self.aside[call] = None
        return [do.AwaitRest([call], self.rest)]

    def _fail_refused(self) -> do.Instructions:
        """Fail refused calls without further rest: the actor is alive again."""
        refused = [call for call in self.aside if not call.was_sent]
        for call in refused:
            del self.aside[call]
        return [do.FailUnavailable(call, "") for call in refused]

    def _fail_queue(self, error: BaseException) -> do.Instructions:
        queue, self.queue = self.queue, deque()
        self.resting.clear()
        return [do.Fail(call, error) for call in queue]

    def _moved(self, process: str, incarnation: int) -> do.Instructions:
        if incarnation == self.incarnation and self.link is not None and not self.link.closed:
            return []
        # A link to an earlier process means that the actor was restarted in between.
        out = [] if self.link is None or incarnation == self.incarnation else self._sort_out(self._cut_off(), ALIVE)
        self.incarnation = incarnation
        self.process = process
        return [*out, *self._fail_refused(), do.Connect(process)]

    def _ended(self, before: str) -> do.Instructions:
        """The link ends with the process, which may stay while others hold objects that it owns."""
        lost = self._cut_off()
        if self.state == RESTARTING:
            return self._sort_out(lost, before)
        queue, self.queue = self.queue, deque()
        aside, self.aside = self.aside, {}
        self.resting.clear()
        out: do.Instructions = [do.FailDead(call, self.process) for call in lost] + [do.FailDead(call, "") for call in queue]
        return out + [do.FailDead(call, self.process if call.was_sent else "") for call in aside]

    def _cut_off(self) -> list[AnyCall]:
        if self.link is None:
            return []
        lost = list(self.link.calls.values())
        self.link.calls.clear()
        self.link = None
        return lost

    def _sort_out(self, lost: list[AnyCall], before: str) -> do.Instructions:
        """Requeue in order the calls that may be retried, and fail the others: the actor restarts.

        Calls made before the actor's first process existed wait for any process; others were meant for the process that died.
        """
        out: do.Instructions = []
        if before in (ASKED, ALIVE):
            out += (do.FailUnavailable(call, "") for call in self.queue if goes_once(call) and not call.was_sent)
            self.queue = deque(call for call in self.queue if not goes_once(call) or call.was_sent)
        elif before == RESTARTING and self.process:
            # The next process died before it was ready: an attempt of its retried calls, since an actor may restart endlessly.
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
        assert self.resting.issubset(self.queue), self.event_log
        assert not self.aside.keys() & set(self.queue), self.event_log
        if self.state == DEAD:
            assert not self.queue and not self.aside, self.event_log
            assert self.link is None, self.event_log
        if self.state != RESTARTING:
            assert all(call.was_sent for call in self.aside), self.event_log
        if self.state == RESTARTING:
            assert self.link is None, self.event_log
        if self.sends_directly() and self.queue:
            assert all(map(self._is_held, self.queue)), self.event_log
        elif self.link is not None and not self.link.closed and self.queue:
            assert self._is_held(self.queue[0]), self.event_log
