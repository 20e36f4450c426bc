"""The tasks of one scheduling class, in one process: a queue, and the leased workers that they flow through.

::

    submitted ──▶ queue ──Push──▶ pipeline of a lease ──▶ replied
       ▲            ▲                   │
       │            └── given back by the worker, or lost behind another
       └── rest ◀── failed, or lost with its worker, and to be retried

    Request ──granted──▶ lease ──recalled──▶ wanted ──its turn is over──▶ recalled ──Return──▶ over
                           │  └── idle for a while, or wanted and idle ─────────────Return──▶ over
                           └── its worker has ended ──lost──▶ over

The pool retains an idle lease for a short time, for callers that alternate between calls and waits. The node recalls a lease when
another process waits for its resources.

The pool pushes about `AHEAD_SECONDS` of work ahead to one worker. A worker whose task blocks gives back the tasks that it has not
started; so does a busy worker when another is idle or when its task turns out to be long. A task without retries is pushed to idle
workers only.

When a worker dies, the task at the head of its pipeline is charged; tasks behind it return to the queue uncharged, and afterwards the
pool pushes one task at a time, so that the next death has one suspect. A death by lack of memory charges no retry: the task rests
longer each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic

from mray._common import messages as m
from mray._common.event_log import EventLog
from mray._decide.caller import caller_instructions as do
from mray._decide.caller.call_records import CANCELLED, AnyTask

if TYPE_CHECKING:
    from mray._common.causes import Cause

#: Work pushed ahead to one worker, in seconds and in tasks.
AHEAD_SECONDS = 0.002
AHEAD_TASKS = 200
#: Seconds that a task may run before the pool takes back the tasks behind it.
STUCK_SECONDS = 0.01
#: Seconds that an idle lease is retained.
KEEP_SECONDS = 0.15
#: Seconds from its grant that a lease is retained while other processes wait for its resources and short tasks flow through it: a turn of
#: one task would be spent on the hand-over.
TURN_SECONDS = 0.01
#: Seconds that such a lease may be without tasks, since drivers submit in waves.
PAUSE_SECONDS = 0.001
#: Replies after a death before tasks are pushed ahead again.
CAUTION = 64
#: Granted workers in a row that may refuse connections before the pool's tasks fail.
MOST_UNREACHABLE = 16
#: Requests waiting at the node.
MOST_REQUESTS = 12
#: Longest rest, in seconds, of a task whose worker was killed because memory ran low.
LONGEST_REST = 60.0


class Lease:
    def __init__(self, lease_id: int, process: str, link: Any, now: float, terms: Any = None) -> None:
        self.lease_id = lease_id
        self.process = process
        self.link = link
        #: Unanswered tasks: the calls of the link.
        self.pipeline: dict[bytes, Any] = link.calls
        self.terms = terms
        #: When it was granted; whether another process waits for it; whether it therefore takes no more tasks.
        self.since = now
        self.wanted = False
        self.recalled = False
        self.idle_since = 0.0
        self.busy_since = 0.0
        #: Whether its worker was asked to give tasks back, and has not answered.
        self.reclaiming = False
        #: Its worker has given tasks back: no task is pushed until it replies again.
        self.stalled = False
        #: Its worker exits after its current task.
        self.spent = False
        #: Its worker has exited; its last messages may be unread.
        self.lost = False
        #: The node has it back, or it was lost and its tasks were removed.
        self.over = False

    def takes(self) -> bool:
        return not (self.lost or self.over or self.recalled or self.stalled or self.spent)


class LeasePool(Generic[AnyTask]):
    """Invariant: a task that has not ended is in `queue`, in the pipeline of a lease, or rests. While tasks are queued, no lease that takes
    tasks is idle, and one request per queued task waits at the node, up to `MOST_REQUESTS`.
    """

    def __init__(
        self,
        name: object,
        numbers: Iterator[int],
        *,
        single: bool = False,
        retriable: bool = False,
        timed: bool = True,
        rest: tuple[float, ...] = (0.0,),
    ) -> None:
        """`numbers` yields the numbers of requests.

        `single`: a worker exits after one task (GPU tasks, max_calls=1). `retriable`: a task whose worker was killed because memory ran
        low is retried. `rest`: seconds before each retry of a failed task, the last before all further ones. Without `timed` no decision
        depends on the duration of tasks: one is pushed at a time, and a lease has no turn.
        """
        self.single = single
        self.queue: deque[AnyTask] = deque()
        self.leases: dict[int, Lease] = {}
        self.requests: set[int] = set()
        #: Smoothed seconds between replies; None until measured.
        self.pace: float | None = None
        #: Replies left before tasks are pushed ahead again.
        self.cautious = 0
        #: A submitted task only joins the queue: no lease takes one, and no more leases are requested.
        self.full = False
        #: Granted workers in a row that refused connections.
        self.unreached = 0
        self._numbers = numbers
        self._retriable = retriable
        self._rest = rest
        self._timed = timed
        #: The client will report `STUCK_SECONDS`, or `KEEP_SECONDS`.
        self._pipelines_watched = False
        self._idle_watched = False
        self.event_log = EventLog("the tasks of", name)

    # ------------------------------------------------------------------------------------ questions
    def immediate_lease(self, task: AnyTask) -> Lease | None:
        """The lease that a submitted task is pushed to when no other decision is needed; then it is `pushed`."""
        if self.queue:
            return None
        leases = self.leases.values()
        # Breadth first: a task runs sooner on an idle worker than behind another task.
        for lease in leases:
            if not lease.pipeline and lease.takes():
                return lease
        if self._pipelines_watched and task.retries:
            depth = self.depth()
            for lease in leases:
                if len(lease.pipeline) < depth and lease.takes():
                    return lease
        return None

    def depth(self) -> int:
        if self.single or self.cautious or self.pace is None:
            return 1
        return max(1, min(AHEAD_TASKS, int(AHEAD_SECONDS / (self.pace + 1e-7))))

    def is_idle(self) -> bool:
        return not self.queue and all(not lease.pipeline for lease in self.leases.values())

    # ------------------------------------------------------------------------------------ events of this process
    def submitted(self, task: AnyTask, now: float) -> do.Instructions:
        self.queue.append(task)
        return [] if self.full else self._feed(now)

    def pushed(self, lease: Lease, task: AnyTask, now: float) -> None:
        if not lease.pipeline:
            lease.busy_since = now
        lease.spent = self.single
        lease.pipeline[task.task_id] = task
        task.lease = lease

    def cancelled(self, task: AnyTask) -> bool:
        """Return False if the task is not queued."""
        try:
            self.queue.remove(task)
        except ValueError:
            return False
        self.full = False
        return True

    def unsent(self, lease: Lease, now: float) -> do.Instructions:
        """Messages cannot carry a value of a pushed task."""
        self.event_log.note("unsent", lease.lease_id)
        lease.spent = False
        if lease.pipeline or lease.over or lease.lost:
            return []
        out = self._feed(now)
        if not lease.pipeline:
            out += self._idle(lease, now)
        return out

    def called_in(self) -> do.Instructions:
        """Free resources are about to be listed: return idle leases and cancel requests without a task."""
        self.event_log.note("called in")
        out = [] if self.queue else self._cancel_requests()
        for lease in list(self.leases.values()):
            if not lease.pipeline:
                out += self._return(lease)
        return out

    # ------------------------------------------------------------------------------------ events of the node
    def granted(self, number: int, lease: Lease, now: float) -> do.Instructions:
        self.event_log.note("granted", number, lease.lease_id, lease.process)
        self.requests.discard(number)
        if not self.queue:
            return [do.Decline(lease.lease_id)]
        self.unreached = 0
        self.leases[lease.lease_id] = lease
        return [do.Begin(lease), *self._feed(now)]

    def unreachable(self, number: int, lease_id: int, process: str, error: BaseException | None, now: float) -> do.Instructions:
        """The granted worker may have died. With an error of this process the tasks fail; else another worker is requested, up to
        `MOST_UNREACHABLE` times.
        """
        self.event_log.note("unreachable", number, lease_id, process, error)
        self.requests.discard(number)
        out: do.Instructions = [do.Decline(lease_id)]
        if error is not None:
            out += self._fail_queue(error)
        self.unreached += 1
        if self.unreached == MOST_UNREACHABLE:
            self.unreached = 0
            queue, self.queue = self.queue, deque()
            out += (do.FailUnreachable(task, process) for task in queue)
        return out + self._feed(now)

    def refused(self, number: int, text: str) -> do.Instructions:
        self.event_log.note("refused", number, text)
        self.requests.discard(number)
        return self._refuse(text, ())

    def recalled(self, lease: Lease, now: float) -> do.Instructions:
        if lease.over or lease.wanted:
            return []
        self.event_log.note("recalled", lease.lease_id)
        lease.wanted = True
        calls = lease.pipeline
        if calls and self._timed:
            left = lease.since + TURN_SECONDS - now
            if left > 0 and self.queue and self.pace is not None and self.pace < left:
                return [do.AwaitTurn(lease, left)]
        return self._recall(lease)

    def all_lost(self, error: BaseException) -> do.Instructions:
        self.event_log.note("all lost", error)
        tasks = list(self.queue)
        self.queue.clear()
        self.requests.clear()
        self.full = False
        for lease in self.leases.values():
            lease.over = True
            tasks += lease.pipeline.values()
            lease.pipeline.clear()
        self.leases.clear()
        return [do.Fail(task, error) for task in tasks]

    # ------------------------------------------------------------------------------------ events of workers
    def replied(self, lease: Lease, now: float) -> do.Instructions:
        if lease.over:
            raise self.event_log.invalid(f"A reply over lease {lease.lease_id}", "without it")
        self.full = lease.stalled = False
        if self.cautious:
            self.cautious -= 1
        if self._timed:
            took = now - lease.busy_since
            lease.busy_since = now
            pace = self.pace
            self.pace = took if pace is None else pace + (took - pace) * 0.2
            if took > AHEAD_SECONDS:
                self.pace = max(self.pace, took)
        return self._next(lease, now)

    def attempt_failed(self, lease: Lease, task: AnyTask, now: float) -> do.Instructions:
        self.event_log.note("attempt failed", lease.lease_id)
        task.use_retry()
        out = self._rests(task) or self._queue_again([task])
        out += self._next(lease, now)
        out += self._feed(now)
        return out

    def given_back(self, lease: Lease, tasks: Sequence[AnyTask], now: float) -> do.Instructions:
        """The link has dropped the tasks, possibly none: the worker's task blocks, or the pool asked for them. The lease may be over."""
        self.event_log.note("given back", lease.lease_id, len(tasks))
        lease.reclaiming = False
        lease.stalled = bool(lease.pipeline)
        out = self._queue_again(tasks)
        out += self._feed(now)
        if not lease.pipeline and not lease.over:
            out += self._next(lease, now)
        return out

    def worker_leaves(self, lease: Lease) -> None:
        """The worker exits after its current task (max_calls), and gives back the tasks behind it. The lease stays until it is lost, since
        the node would grant a returned worker to others.
        """
        self.event_log.note("worker leaves", lease.lease_id)
        lease.spent = True

    def worker_ended(self, lease: Lease) -> None:
        """The worker's last messages are read next; then the lease is lost."""
        self.event_log.note("worker ended", lease.lease_id)
        lease.lost = True

    def lost(self, lease: Lease, cause: Cause, now: float, memory: tuple[int, float]) -> do.Instructions:
        """The worker has exited and its link was read to the end, or the link broke. The lease may be over.

        `memory`: how often a task is retried whose worker was killed because memory ran low (-1: without limit), and its first rest in
        seconds.
        """
        self.event_log.note("lost", lease.lease_id, cause.kind)
        lease.lost = lease.over = True
        self.leases.pop(lease.lease_id, None)
        tasks = _taken_off(lease)
        if cause.kind == m.CAUSE_REFUSED:  # another worker of this environment would fail too
            return self._refuse(cause.text, tasks)
        if tasks and not self.single:
            self.cautious = CAUTION
        out: do.Instructions = []
        if tasks and (self.single or cause.kind != m.CAUSE_EXIT):
            out += self._charge(tasks[0], lease, cause, memory)
            if out:
                del tasks[0]
        out += self._queue_again(tasks)
        return out + self._feed(now)

    def unread(self, lease: Lease, now: float) -> do.Instructions:
        """The worker lives and has read no message of its link, whose pushed tasks have failed. Tasks pushed since, because they waited for
        one of these, go elsewhere.
        """
        self.event_log.note("unread", lease.lease_id)
        lease.spent = False
        tasks = _taken_off(lease)
        out = self._return(lease)
        out += self._queue_again(tasks)
        return out + self._feed(now)

    # ------------------------------------------------------------------------------------ times that have passed
    def stuck_time_passed(self, now: float) -> do.Instructions:
        self._pipelines_watched = False
        out: do.Instructions = []
        waiting = False
        for lease in self.leases.values():
            behind = len(lease.pipeline) - 1
            if behind > 0 and not lease.lost:
                waiting = True
                if now - lease.busy_since > STUCK_SECONDS and not lease.reclaiming:
                    out.append(self._reclaim(lease, behind))
        if waiting:
            out += self._watch_pipelines()
        return out

    def keep_time_passed(self, now: float) -> do.Instructions:
        self._idle_watched = False
        out: do.Instructions = []
        again = False
        for lease in list(self.leases.values()):
            if lease.pipeline:
                continue
            if now - lease.idle_since >= KEEP_SECONDS:
                out += self._return(lease)
            else:
                again = True
        if again:
            out += self._watch_idle()
        return out

    def turn_passed(self, lease: Lease) -> do.Instructions:
        return [] if lease.over or lease.lost else self._recall(lease)

    def pause_passed(self, lease: Lease, since: float) -> do.Instructions:
        if lease.pipeline or lease.idle_since != since or lease.lost:
            return []
        return self._return(lease)

    # ------------------------------------------------------------------------------------ transitions
    def _feed(self, now: float) -> do.Instructions:
        self.full = False
        queue = self.queue
        if not queue:
            return []
        out: do.Instructions = []
        # Breadth first, as in `immediate_lease`.
        for lease in self.leases.values():
            if not lease.pipeline and lease.takes():
                out.append(self._push(lease, 1, now))
                if not queue:
                    return out
        depth = self.depth()
        if depth > 1:
            for lease in self.leases.values():
                if len(lease.pipeline) < depth and queue[0].retries and lease.takes():
                    out.append(self._push(lease, depth, now))
                    out += self._watch_pipelines()
                    if not queue:
                        return out
        requests = self.requests
        for _ in range(min(len(queue), MOST_REQUESTS) - len(requests)):
            number = next(self._numbers)
            requests.add(number)
            out.append(do.Request(number, queue[0]))
        self.full = len(requests) == MOST_REQUESTS
        return out

    def _push(self, lease: Lease, depth: int, now: float) -> do.Push:
        queue, pipeline = self.queue, lease.pipeline
        if not pipeline:
            lease.busy_since = now
        lease.spent = self.single
        tasks = []
        while queue and len(pipeline) < depth and (not pipeline or queue[0].retries):
            task = queue.popleft()
            pipeline[task.task_id] = task
            task.lease = lease
            tasks.append(task)
        return do.Push(lease, tasks)

    def _next(self, lease: Lease, now: float) -> do.Instructions:
        if lease.spent or lease.lost:
            return []  # the node reports the lease as lost when the worker exits, or its last messages are still read
        out: do.Instructions = []
        queue, pipeline = self.queue, lease.pipeline
        if queue and lease.takes():
            depth = self.depth()
            if len(pipeline) <= depth // 2 and (not pipeline or queue[0].retries):
                out.append(self._push(lease, depth, now))
                if len(pipeline) > 1:
                    out += self._watch_pipelines()
        if not pipeline:
            out += self._idle(lease, now)
        return out

    def _idle(self, lease: Lease, now: float) -> do.Instructions:
        if lease.recalled:
            return self._return(lease)
        lease.idle_since = now
        if lease.wanted:
            return [do.AwaitPause(lease, now)]
        out: do.Instructions = [] if self._idle_watched else self._watch_idle()
        for other in self.leases.values():
            waiting = len(other.pipeline) - 1
            if waiting > 0 and not other.reclaiming and not other.lost:
                out.append(self._reclaim(other, (waiting + 1) // 2))
                return out
        if self.requests and not self.queue:
            out += self._cancel_requests()
        return out

    def _recall(self, lease: Lease) -> do.Instructions:
        lease.recalled = True
        calls = lease.pipeline
        if not calls:
            return self._return(lease)
        if len(calls) > 1 and not lease.reclaiming:
            return [self._reclaim(lease, len(calls) - 1)]
        return []

    def _reclaim(self, lease: Lease, count: int) -> do.Reclaim:
        lease.reclaiming = True
        return do.Reclaim(lease, count)

    def _return(self, lease: Lease) -> do.Instructions:
        if lease.over or lease.spent:
            return []
        self.event_log.note("returned", lease.lease_id)
        lease.over = True
        del self.leases[lease.lease_id]
        return [do.Return(lease)]

    def _cancel_requests(self) -> do.Instructions:
        if not self.requests:
            return []
        numbers = sorted(self.requests)
        self.requests.clear()
        self.full = False
        return [do.CancelRequests(numbers)]

    def _charge(self, task: AnyTask, lease: Lease, cause: Cause, memory: tuple[int, float]) -> do.Instructions:
        """Charge a task for its worker's death. No instruction means that it is retried."""
        if cause.kind == m.CAUSE_MEMORY and task.retries != CANCELLED:
            most, first = memory
            if not self._retriable or task.memory_kills == most:
                return [do.FailLost(task, cause, lease.process)]
            task.memory_kills += 1
            return [do.Rest(task, min(first * 2 ** (task.memory_kills - 1), LONGEST_REST))]
        if task.retries == 0:
            return [do.FailLost(task, cause, lease.process)]
        task.use_retry()
        return self._rests(task)

    def _rests(self, task: AnyTask) -> do.Instructions:
        """The task has used a retry. A cancelled task gets its error when it is queued again."""
        seconds = self._rest[min(task.tries, len(self._rest)) - 1]
        return [do.Rest(task, seconds)] if seconds and task.retries != CANCELLED else []

    def _refuse(self, text: str, pushed: Sequence[AnyTask]) -> do.Instructions:
        self.full = False
        queue, self.queue = self.queue, deque()
        return [do.FailRefused(task, text) for task in (*pushed, *queue)]

    def _fail_queue(self, error: BaseException) -> do.Instructions:
        queue, self.queue = self.queue, deque()
        return [do.Fail(task, error) for task in queue]

    def _queue_again(self, tasks: Sequence[AnyTask]) -> do.Instructions:
        out: do.Instructions = []
        for task in reversed(tasks):
            if task.retries == CANCELLED:
                out.append(do.Cancel(task))
            else:
                self.queue.appendleft(task)
        return out

    def _watch_pipelines(self) -> do.Instructions:
        if self._pipelines_watched or not self._timed:
            return []
        self._pipelines_watched = True
        return [do.WatchPipelines()]

    def _watch_idle(self) -> do.Instructions:
        if self._idle_watched:
            return []
        self._idle_watched = True
        return [do.WatchIdle()]

    # ------------------------------------------------------------------------------------ for tests and errors
    def validate(self) -> None:
        event_log = self.event_log
        assert len(self.requests) <= MOST_REQUESTS, event_log
        if self.full:
            assert self.queue and len(self.requests) == MOST_REQUESTS, event_log
        if self.queue:
            assert len(self.requests) >= min(len(self.queue), MOST_REQUESTS), event_log
        queued = {task.task_id for task in self.queue}
        assert len(queued) == len(self.queue), event_log
        for lease_id, lease in self.leases.items():
            pipeline = list(lease.pipeline.values())
            assert lease.lease_id == lease_id and not lease.over, event_log
            assert all(task.lease is lease for task in pipeline), event_log
            assert queued.isdisjoint(task.task_id for task in pipeline), event_log
            assert len(pipeline) <= (1 if self.single or not self._timed else AHEAD_TASKS), event_log
            assert all(task.retries for task in pipeline[1:]), event_log
            if self.full and lease.takes():
                assert len(pipeline) >= self.depth() or not self.queue[0].retries, event_log
            if not pipeline:
                assert not lease.recalled or lease.spent, event_log
                assert lease.wanted or lease.spent or self._idle_watched, event_log
                assert not (self.queue and lease.takes()), event_log
            if len(pipeline) > 1 and not lease.lost:
                assert self._pipelines_watched, event_log


def _taken_off(lease: Lease) -> list[Any]:
    calls = lease.pipeline
    tasks = [task for task in calls.values() if task.lease is lease]
    for task in tasks:
        del calls[task.task_id]
    return tasks
