"""The tasks of one scheduling class, in one process: a queue, and the leased workers that they flow through.

::

    submitted ──▶ queue ──Push──▶ pipeline of a lease ──▶ replied
       ▲            ▲                   │
       │            └── given back by the worker, or lost behind another
       └── rest ◀── failed, or lost with its worker, and to be tried again

    Request ──granted──▶ lease ──recalled──▶ wanted ──its turn is over──▶ recalled ──Return──▶ over
                           │  └── idle for a while, or wanted and idle ─────────────Return──▶ over
                           └── its worker has ended ──lost──▶ over

A lease is kept a little while after its last task, so that a caller that asks and waits in turn never meets the node; the node calls a
lease back when another process waits for its resources.

The number of tasks that are pushed ahead to one worker follows from their length: about two milliseconds of work. A worker whose task
blocks gives back the tasks that it has not started, and so does a busy worker when another one is idle, or when its task turns out to be
long: no task starves behind a long one. A task without retries is pushed to idle workers only.

When a worker dies, the task at the head of its pipeline is charged for it; tasks pushed behind it go back to the queue uncharged, and from
then on the pool pushes one task at a time, so that the next death has one suspect. A task that was charged, or that has failed and is tried
again, rests before it is submitted again: what it lacked may come back. A death for want of memory charges no retry: the task
rests longer each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic

from mray._common import messages as m
from mray._common.story import Story
from mray._decide.caller import caller_instructions as do
from mray._decide.caller.call_records import CANCELLED, AnyTask

if TYPE_CHECKING:
    from mray._common.causes import Cause

#: Work pushed ahead to one worker, in seconds, and in tasks.
AHEAD_SECONDS = 0.002
AHEAD_TASKS = 200
#: How long a task may run before tasks behind it are taken back, in seconds.
STUCK_SECONDS = 0.01
#: How long an idle lease is kept, in seconds.
KEEP_SECONDS = 0.15
#: How long a lease is kept from its grant on, in seconds, while other processes wait for its resources and short tasks flow through it: two
#: drivers that are both busy take turns, and a turn that was one task long would be spent on the hand-over.
TURN_SECONDS = 0.01
#: ... and how long it may be without tasks in that time: a driver that submits in waves would give it away between two of them.
PAUSE_SECONDS = 0.001
#: Replies after a death before tasks are pushed ahead again.
CAUTION = 64
#: After so many granted workers in a row that cannot be connected to, the pool's tasks fail.
MOST_UNREACHABLE = 16
#: Lease requests of one pool that may wait at the node.
MOST_REQUESTS = 12
#: The longest rest of a task whose worker was ended because memory ran low, in seconds.
LONGEST_REST = 60.0


class Lease:
    """A worker on loan."""

    def __init__(self, lease_id: int, process: str, link: Any, now: float, terms: Any = None) -> None:
        self.lease_id = lease_id
        self.process = process
        #: The connection to the worker, a `Link`.
        self.link = link
        #: The tasks that were pushed and are not answered: the calls of the link.
        self.pipeline: dict[bytes, Any] = link.calls
        #: The terms of the grant, for `Begin`.
        self.terms = terms
        #: When it was granted; whether another process waits for its resources; whether it takes no more tasks because of that.
        self.since = now
        self.wanted = False
        self.recalled = False
        self.idle_since = 0.0
        #: When the task at the head of the pipeline may have begun.
        self.busy_since = 0.0
        #: Its worker was asked to give tasks back, and has not answered.
        self.reclaiming = False
        #: Its worker has given tasks back: no task is pushed until it replies again.
        self.stalled = False
        #: Its worker ends after its current task.
        self.spent = False
        #: Its worker has ended; its last messages may be unread.
        self.lost = False
        #: The node has it back, or it was lost and its tasks were taken off.
        self.over = False

    def takes(self) -> bool:
        """Whether tasks may be pushed."""
        return not (self.lost or self.over or self.recalled or self.stalled or self.spent)


class LeasePool(Generic[AnyTask]):
    """The queue of a scheduling class, its requests for leases, and its leases.

    Invariant: a task is in `queue`, or in the pipeline of a lease, or rests, or has ended. While tasks are queued, no lease that
    takes tasks is idle, and a request waits at the node for each of them, up to `MOST_REQUESTS`.
    """

    def __init__(
        self, name: object, numbers: Iterator[int], *, single: bool = False, retriable: bool = False, timed: bool = True, rest: float = 0.0
    ) -> None:
        """`numbers` are those of requests.

        `single`: a worker ends after one task (GPU tasks, max_calls=1). `retriable`: a task whose worker was ended because memory ran low
        rests and is tried again. `rest`: seconds before a task that has failed is tried again. Without `timed` nothing depends on how
        long tasks take: one is pushed at a time, and a lease has no turn.
        """
        self.single = single
        self.queue: deque[AnyTask] = deque()
        self.leases: dict[int, Lease] = {}
        #: The numbers of requests that the node has not answered.
        self.requests: set[int] = set()
        #: Smoothed seconds from one reply to the next; None until measured.
        self.pace: float | None = None
        #: Replies to come before tasks are pushed ahead again.
        self.cautious = 0
        #: Whether a task that is submitted now only joins the queue: no lease takes one, and no more leases are asked for.
        self.full = False
        #: Granted workers in a row that could not be connected to.
        self.unreached = 0
        self._numbers = numbers
        self._retriable = retriable
        self._rest = rest
        self._timed = timed
        #: Whether the client is going to say that `STUCK_SECONDS`, or `KEEP_SECONDS`, have passed.
        self._pipelines_watched = False
        self._idle_watched = False
        self.story = Story("the tasks of", name)

    # ------------------------------------------------------------------------------------ questions
    def flows(self, task: AnyTask) -> Lease | None:
        """The lease that a task is pushed to as it is submitted, where nothing else is to be decided; then it is `pushed`."""
        if self.queue:
            return None
        leases = self.leases.values()
        # Breadth first: a task runs sooner on an idle worker than behind another one.
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
        """The number of tasks that one worker may hold."""
        if self.single or self.cautious or self.pace is None:
            return 1
        return max(1, min(AHEAD_TASKS, int(AHEAD_SECONDS / (self.pace + 1e-7))))

    def is_idle(self) -> bool:
        """Whether no task is queued or pushed."""
        return not self.queue and all(not lease.pipeline for lease in self.leases.values())

    # ------------------------------------------------------------------------------------ events of this process
    def submitted(self, task: AnyTask, now: float) -> do.Instructions:
        """A task whose arguments are there is to be run."""
        self.queue.append(task)
        return [] if self.full else self._feed(now)

    def pushed(self, lease: Lease, task: AnyTask, now: float) -> None:
        """A task was submitted that flows."""
        if not lease.pipeline:
            lease.busy_since = now
        lease.spent = self.single
        lease.pipeline[task.task_id] = task
        task.lease = lease

    def cancelled(self, task: AnyTask) -> bool:
        """A task was cancelled; False if it is not queued."""
        try:
            self.queue.remove(task)
        except ValueError:
            return False
        self.full = False
        return True

    def unsent(self, lease: Lease, now: float) -> do.Instructions:
        """A task that was to be pushed has failed: it has a value that messages cannot carry."""
        self.story.note("unsent", lease.lease_id)
        lease.spent = False
        if lease.pipeline or lease.over or lease.lost:
            return []
        out = self._feed(now)
        if not lease.pipeline:
            out += self._idle(lease, now)
        return out

    def called_in(self) -> do.Instructions:
        """Every idle lease is wanted back at once, before free resources are listed; so are requests that no task waits for."""
        self.story.note("called in")
        out = [] if self.queue else self._cancel_requests()
        for lease in list(self.leases.values()):
            if not lease.pipeline:
                out += self._return(lease)
        return out

    # ------------------------------------------------------------------------------------ events of the node
    def granted(self, number: int, lease: Lease, now: float) -> do.Instructions:
        """The node has answered a request with a lease, whose worker was connected to."""
        self.story.note("granted", number, lease.lease_id, lease.process)
        self.requests.discard(number)
        if not self.queue:
            return [do.Decline(lease.lease_id)]
        self.unreached = 0
        self.leases[lease.lease_id] = lease
        return [do.Begin(lease), *self._feed(now)]

    def unreachable(self, number: int, lease_id: int, process: str, error: BaseException | None, now: float) -> do.Instructions:
        """A granted worker could not be connected to: it may have died since. With an error of this process its tasks fail.

        Another one is asked for, but not for ever.
        """
        self.story.note("unreachable", number, lease_id, process, error)
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
        """The node has answered a request: no worker can run these tasks."""
        self.story.note("refused", number, text)
        self.requests.discard(number)
        return self._refuse(text, ())

    def recalled(self, lease: Lease, now: float) -> do.Instructions:
        """Another process waits for the resources of a lease."""
        if lease.over or lease.wanted:
            return []
        self.story.note("recalled", lease.lease_id)
        lease.wanted = True
        calls = lease.pipeline
        if calls and self._timed:
            left = lease.since + TURN_SECONDS - now
            if left > 0 and self.queue and self.pace is not None and self.pace < left:
                return [do.AwaitTurn(lease, left)]
        return self._recall(lease)

    def all_lost(self, error: BaseException) -> do.Instructions:
        """The node is lost, and every task with it."""
        self.story.note("all lost", error)
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
        """A worker has done a task, which its link has dropped."""
        if lease.over:
            raise self.story.invalid(f"A reply over lease {lease.lease_id}", "without it")
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
        """The function of a task, which its link has dropped, has raised an error that is retried."""
        self.story.note("attempt failed", lease.lease_id)
        task.use_retry()
        out = [do.Rest(task, self._rest)] if self._rest and task.retries != CANCELLED else self._queue_again([task])
        out += self._next(lease, now)
        out += self._feed(now)
        return out

    def given_back(self, lease: Lease, tasks: Sequence[AnyTask], now: float) -> do.Instructions:
        """A worker has given back tasks, which its link has dropped: its task blocks, or it was asked to. Perhaps it has none any more.

        The answer of a worker that was asked may come when its lease is over: its last task has ended meanwhile.
        """
        self.story.note("given back", lease.lease_id, len(tasks))
        lease.reclaiming = False
        lease.stalled = bool(lease.pipeline)
        out = self._queue_again(tasks)
        out += self._feed(now)
        if not lease.pipeline and not lease.over:
            out += self._next(lease, now)
        return out

    def worker_leaves(self, lease: Lease) -> None:
        """The worker of a lease ends after the task that it runs (max_calls); those behind it come back. The lease stays until it is lost:
        the node would give a worker to others that is about to end.
        """
        self.story.note("worker leaves", lease.lease_id)
        lease.spent = True

    def worker_ended(self, lease: Lease) -> None:
        """The worker of a lease has ended. Its last messages are read now; then the lease is lost."""
        self.story.note("worker ended", lease.lease_id)
        lease.lost = True

    def lost(self, lease: Lease, cause: Cause, now: float, memory: tuple[int, float]) -> do.Instructions:
        """The worker of a lease has ended, and its link was read to the end; or the link broke. Perhaps the lease is over already.

        `memory`: how often a task is tried again whose worker was ended because memory ran low, -1 for ever, and its first rest in seconds.
        """
        self.story.note("lost", lease.lease_id, cause.kind)
        lease.lost = lease.over = True
        self.leases.pop(lease.lease_id, None)
        tasks = _taken_off(lease)
        if cause.kind == m.CAUSE_REFUSED:  # another worker of this environment would do no better
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
        """The worker of a lease lives, and has read no message of its link. The tasks that were pushed have failed.

        Those that were pushed since, because they waited for one of these, go elsewhere.
        """
        self.story.note("unread", lease.lease_id)
        lease.spent = False
        tasks = _taken_off(lease)
        out = self._return(lease)
        out += self._queue_again(tasks)
        return out + self._feed(now)

    # ------------------------------------------------------------------------------------ times that have passed
    def stuck_time_passed(self, now: float) -> do.Instructions:
        """Take back tasks behind one that has turned out to be long, and look again while any waits behind another."""
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
        """Return leases that have been idle for long enough, and look again while any has not."""
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
        """A lease that another process waits for was held for a turn."""
        return [] if lease.over or lease.lost else self._recall(lease)

    def pause_passed(self, lease: Lease, since: float) -> do.Instructions:
        """A lease that another process waits for was idle at this time, `PAUSE_SECONDS` ago."""
        if lease.pipeline or lease.idle_since != since or lease.lost:
            return []
        return self._return(lease)

    # ------------------------------------------------------------------------------------ transitions
    def _feed(self, now: float) -> do.Instructions:
        """Push tasks to free leases, and ask for more leases if tasks are left."""
        self.full = False
        queue = self.queue
        if not queue:
            return []
        out: do.Instructions = []
        # Breadth first: a task runs sooner on an idle worker than behind another one.
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
        """Fill a pipeline that is empty or goes on with a task that has retries."""
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
        """Push more tasks to a worker that has done one."""
        if lease.spent or lease.lost:
            return []  # the worker ends by itself, and the node says that the lease is lost; or has ended, and its last messages are read
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
        """Take over tasks of a busy worker, or give the lease back now or later: this worker's pipeline is empty."""
        if lease.recalled:
            return self._return(lease)
        lease.idle_since = now
        if lease.wanted:
            return [do.AwaitPause(lease, now)]
        out = self._watch_idle()
        for other in self.leases.values():
            waiting = len(other.pipeline) - 1
            if waiting > 0 and not other.reclaiming and not other.lost:
                out.append(self._reclaim(other, (waiting + 1) // 2))
                return out
        if self.requests and not self.queue:
            out += self._cancel_requests()
        return out

    def _recall(self, lease: Lease) -> do.Instructions:
        """Push no more to this worker; tasks that have not begun there go to others."""
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
        self.story.note("returned", lease.lease_id)
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
        """Charge a task for the death of its worker; nothing to do means that it is tried again."""
        if cause.kind == m.CAUSE_MEMORY and task.retries != CANCELLED:
            most, first = memory
            if not self._retriable or task.memory_kills == most:
                return [do.FailLost(task, cause, lease.process)]
            task.memory_kills += 1
            return [do.Rest(task, min(first * 2 ** (task.memory_kills - 1), LONGEST_REST))]
        if task.retries == 0:
            return [do.FailLost(task, cause, lease.process)]
        task.use_retry()
        # A cancelled one gets its error when it is queued again.
        return [do.Rest(task, self._rest)] if self._rest and task.retries != CANCELLED else []

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
        """Assert every invariant; walks the queue and every pipeline."""
        story = self.story
        assert len(self.requests) <= MOST_REQUESTS, story
        if self.full:
            assert self.queue and len(self.requests) == MOST_REQUESTS, story
        if self.queue:
            assert len(self.requests) >= min(len(self.queue), MOST_REQUESTS), story
        queued = {task.task_id for task in self.queue}
        assert len(queued) == len(self.queue), story
        for lease_id, lease in self.leases.items():
            pipeline = list(lease.pipeline.values())
            assert lease.lease_id == lease_id and not lease.over, story
            assert all(task.lease is lease for task in pipeline), story
            assert queued.isdisjoint(task.task_id for task in pipeline), story
            assert len(pipeline) <= (1 if self.single or not self._timed else AHEAD_TASKS), story
            assert all(task.retries for task in pipeline[1:]), story
            if self.full and lease.takes():
                assert len(pipeline) >= self.depth() or not self.queue[0].retries, story
            if not pipeline:
                assert not lease.recalled or lease.spent, story
                assert lease.wanted or lease.spent or self._idle_watched, story
                assert not (self.queue and lease.takes()), story
            if len(pipeline) > 1 and not lease.lost:
                assert self._pipelines_watched, story


def _taken_off(lease: Lease) -> list[Any]:
    """The tasks in the pipeline of a lease, which is empty then."""
    calls = lease.pipeline
    tasks = [task for task in calls.values() if task.lease is lease]
    for task in tasks:
        del calls[task.task_id]
    return tasks
